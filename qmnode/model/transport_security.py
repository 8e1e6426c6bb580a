"""How a node speaks with others, for administrators: whether with TLS, and with whom in clear."""

from pathlib import Path
from typing import NamedTuple


class TransportSecurity(NamedTuple):
    """The settings in force now."""

    mode: str = ""
    """``offer``, ``prefer`` or ``require``; empty without TLS."""
    plain_peers: tuple[str, ...] = ()
    """Machines that are declared to speak in clear."""
    certificate: Path | None = None
    """The file with the node's own certificate."""
