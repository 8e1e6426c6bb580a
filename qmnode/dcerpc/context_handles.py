"""Associations and their context handles: C706 5.1.6 and 12.6.3.1. Open handles end with the association."""

import os
import secrets
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from qmnode.dcerpc.errors import FaultStatus, RpcFault
from qmnode.dcerpc.ndr import NULL_CONTEXT_HANDLE

Opened = TypeVar("Opened")

_ATTRIBUTES: Final = bytes(4)


class ContextHandles:
    """The context handles of an association: unguessable, each of one type, and bound to the principal that made it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[bytes, tuple[Any, str, Callable[[], object]]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def create(self, value: object, principal: str, rundown: Callable[[], object]) -> bytes:
        """Create a handle; ``rundown`` is called if the association ends first. Raises RpcFault with NO_MEMORY."""
        if len(self._open) >= self._limit:
            raise RpcFault(FaultStatus.NO_MEMORY, f"the association has {self._limit} context handles: close some")
        handle = _ATTRIBUTES + os.urandom(16)
        self._open[handle] = value, principal, rundown
        return handle

    def get(self, handle: bytes, kind: type[Opened], principal: str) -> Opened | None:
        """The value of a handle; None for the null handle. Raises RpcFault (CONTEXT_MISMATCH) for an unknown one."""
        if handle == NULL_CONTEXT_HANDLE:
            return None
        found = self._open.get(handle)
        if found is None or not isinstance(found[0], kind) or found[1] != principal:
            raise RpcFault(FaultStatus.CONTEXT_MISMATCH, "no such context handle in this association")
        value: Opened = found[0]
        return value

    def of_kind(self, kind: type[Opened], principal: str) -> Iterator[Opened]:
        """The values of this type that a principal has open."""
        return (value for value, who, _ in self._open.values() if isinstance(value, kind) and who == principal)

    def close(self, handle: bytes) -> None:
        """Close a handle, which is null from now on."""
        self._open.pop(handle, None)

    def run_down(self) -> None:
        """The association has ended: run down the open handles, the youngest first."""
        opened, self._open = self._open, {}
        for _, _, rundown in reversed(opened.values()):
            rundown()


class Association:
    """An association group: the connections of one client, which share context handles."""

    def __init__(self, group_id: int, peer: str, handles: int) -> None:
        self.group_id = group_id
        self.peer = peer
        self.handles = ContextHandles(handles)
        self.connections = 0
        self.held = 0
        """Bytes of messages that are locked for this client, and so held in memory."""


class Associations:
    """All association groups of a server."""

    def __init__(self, handles: int) -> None:
        self._handles = handles
        self._groups: dict[int, Association] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def join(self, group_id: int, peer: str) -> Association | None:
        """Join a new group for 0, else the client's existing one; None if the group does not belong to this peer."""
        if group_id:
            group = self._groups.get(group_id)
            if group is None or group.peer != peer:
                return None
        else:
            group = Association(self._free_id(), peer, self._handles)
            self._groups[group.group_id] = group
        group.connections += 1
        return group

    def leave(self, group: Association) -> None:
        """Remove a connection; with the last one the group ends and its handles are run down."""
        group.connections -= 1
        if not group.connections:
            del self._groups[group.group_id]
            group.handles.run_down()

    def _free_id(self) -> int:
        while True:
            group_id = secrets.randbits(32)
            if group_id and group_id not in self._groups:
                return group_id
