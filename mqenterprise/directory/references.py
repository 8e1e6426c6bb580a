"""GUIDs of sites and queue managers by distinguished name, remembered for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mqenterprise.directory.errors import ObjectNotFound
from mqenterprise.directory.mapping import Refers
from mqenterprise.directory.names import normalized
from qmnode.structures.guid import GUID_SIZE, Guid, guid_from_bytes

if TYPE_CHECKING:
    from mqenterprise.directory.connection import LdapConnection

REMEMBERED: Final = 300.0
"""The seconds for which a GUID is remembered. An object that is made anew under its old name has another GUID."""
READ_ALL_AFTER: Final = 8
"""Single look-ups of one kind after which all of that kind are read at once."""


class References:
    """Resolves the references of MS-MQDSSM 3.1.6.1.1.6, 3.1.6.1.4.4 and their like."""

    def __init__(self, connection: LdapConnection, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._clock = clock
        self._lock = threading.Lock()
        self._by_dn: dict[str, tuple[Guid, float]] = {}
        self._single: dict[Refers, int] = {}
        self._read_all_at: dict[Refers, float] = {}

    def note(self, dn: str, guid: Guid) -> None:
        """Remember a pair that was seen."""
        with self._lock:
            self._by_dn[normalized(dn)] = (guid, self._clock())

    def guid_of(self, dn: str, kind: Refers) -> Guid:
        """The GUID of the object of that name. Raises ``ObjectNotFound``."""
        key = normalized(dn)
        known = self._fresh(key)
        if known is None and self._should_read_all(kind):
            self._read_all(kind)
            known = self._fresh(key)
        if known is None:
            value = self._connection.read(dn, ("objectGUID",)).first("objectGUID")
            if value is None or len(value) != GUID_SIZE:
                raise ObjectNotFound(f"{dn} has no objectGUID")
            known = guid_from_bytes(value)
            self.note(dn, known)
        return known

    def _fresh(self, key: str) -> Guid | None:
        guid, since = self._by_dn.get(key, (None, 0.0))
        return None if self._clock() - since > REMEMBERED else guid

    def _should_read_all(self, kind: Refers) -> bool:
        with self._lock:
            if self._clock() - self._read_all_at.get(kind, -REMEMBERED) < REMEMBERED / 10:
                return False
            self._single[kind] = self._single.get(kind, 0) + 1
            return self._single[kind] > READ_ALL_AFTER

    def _read_all(self, kind: Refers) -> None:
        with self._lock:
            self._read_all_at[kind] = self._clock()
            self._single[kind] = 0
        for entry in self._connection.search(self._base(kind), f"(objectClass={kind.value})", ("objectGUID",)):
            value = entry.first("objectGUID")
            if value is not None and len(value) == GUID_SIZE:
                self.note(entry.dn, guid_from_bytes(value))

    def _base(self, kind: Refers) -> str:
        contexts = self._connection.dialect.contexts
        return contexts.sites if kind is Refers.SITE else contexts.domain
