"""Peers that have shown that they speak TLS, kept in the store: with them nothing falls back to a plain connection.

Only a session that opened counts, over a connection on which both sides verified a certificate. So nobody can replay it
or make it up, and nobody but the holder of the certificate can have a peer remembered.
"""

from typing import Final

from qmnode.delivery.state import ProtocolState
from qmnode.protocol.records import Family, Record
from qmnode.structures.guid import Guid

_ACCEPTED: Final = 1
"""It took a TLS connection of this node."""
_OPENED: Final = 2
"""It opened one to this node."""
_NAMES_KEPT: Final = 65_536
"""An application may send to many names of one host."""


class ShownTls:
    """A record for each queue manager, and for each host name or address that the node connected to."""

    def __init__(self, state: ProtocolState) -> None:
        self._state = state
        self._shown = {key: value[0] for key, value in state.records(Family.PEER_TLS) if value}

    def accepted(self, machine: Guid | None, name: str) -> None:
        """A peer took a session over TLS: whom its certificate names, if anybody, and the name that it was reached
        under."""
        if machine is not None:
            self._add(_of_machine(machine), _ACCEPTED)
        if len(self._shown) < _NAMES_KEPT:
            self._add(_of_name(name), _ACCEPTED)

    def opened(self, machine: Guid) -> None:
        """A peer opened a session over TLS, and its certificate names this queue manager."""
        self._add(_of_machine(machine), _OPENED)

    def speaks(self, machine: Guid, name: str) -> bool:
        """Whether the queue manager, or the host of that name, has ever shown it."""
        return _of_machine(machine) in self._shown or _of_name(name) in self._shown

    def opens(self, machine: Guid) -> bool:
        """Whether the queue manager has ever opened a session over TLS."""
        return bool(self._shown.get(_of_machine(machine), 0) & _OPENED)

    def _add(self, key: bytes, what: int) -> None:
        before = self._shown.get(key, 0)
        if before & what:
            return
        self._shown[key] = before | what
        self._state.write([Record(Family.PEER_TLS, key, bytes([before | what]))])
        self._state.write_lazily()


def _of_machine(machine: Guid) -> bytes:
    return b"g" + machine


def _of_name(name: str) -> bytes:
    return b"n" + name.lower().encode()
