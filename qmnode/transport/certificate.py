"""Which queue manager a TLS certificate names: the URI ``urn:uuid:`` and its GUID among the alternative names."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from qmnode.structures.guid import ZERO_GUID, Guid, guid_from_text

URI_SCHEME: Final = "urn:uuid:"


def queue_manager_of(certificate: Mapping[str, Any] | None, *, required: bool) -> Guid | None:
    """The queue manager that a peer's certificate names, from what ``ssl.SSLObject.getpeercert`` returns.

    Without such a name None, or ZERO_GUID if one is ``required``. ZERO_GUID as well if it cannot be read, or if there
    are two that differ: that proves nothing.
    """
    names: Iterable[tuple[str, str]] = (certificate or {}).get("subjectAltName", ())
    found = {
        value.lower().removeprefix(URI_SCHEME)
        for kind, value in names
        if kind == "URI" and value.lower().startswith(URI_SCHEME)
    }
    if not found:
        return ZERO_GUID if required else None
    try:
        (text,) = found
        return guid_from_text(text)
    except ValueError:
        return ZERO_GUID
