"""Distinguished names and GUIDs of sites and queue managers, each way, remembered for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from mqenterprise.directory.errors import ObjectNotFound
from mqenterprise.directory.mapping import Refers
from mqenterprise.directory.names import escape_filter, normalized
from qmnode.structures.guid import GUID_SIZE, Guid, guid_from_bytes, guid_to_text

if TYPE_CHECKING:
    from mqenterprise.directory.connection import LdapConnection

Key = TypeVar("Key")

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
        self._by_guid: dict[Guid, tuple[str, float]] = {}
        self._single: dict[Refers, int] = {}
        self._read_all_at: dict[Refers, float] = {}

    def note(self, dn: str, guid: Guid) -> None:
        """Remember a pair that was seen."""
        now = self._clock()
        with self._lock:
            self._by_dn[normalized(dn)] = (guid, now)
            self._by_guid[guid] = (dn, now)

    def forget(self, dn: str) -> None:
        """Forget an object that was deleted or replaced, and those beneath it."""
        key = normalized(dn)
        with self._lock:
            for known in [k for k in self._by_dn if k == key or k.endswith("," + key)]:
                guid, _ = self._by_dn.pop(known)
                self._by_guid.pop(guid, None)

    def guid_of(self, dn: str, kind: Refers) -> Guid:
        """The GUID of the object of that name. Raises ``ObjectNotFound``."""
        key = normalized(dn)
        known = self._fresh(self._by_dn.get(key))
        if known is None and self._should_read_all(kind):
            self._read_all(kind)
            known = self._fresh(self._by_dn.get(key))
        if known is None:
            value = self._connection.read(dn, ("objectGUID",)).first("objectGUID")
            if value is None or len(value) != GUID_SIZE:
                raise ObjectNotFound(f"{dn} has no objectGUID")
            known = guid_from_bytes(value)
            self.note(dn, known)
        return known

    def dn_of(self, guid: Guid, kind: Refers) -> str:
        """The distinguished name of the object of that GUID. Raises ``ObjectNotFound``."""
        known = self._fresh(self._by_guid.get(guid))
        if known is None and self._should_read_all(kind):
            self._read_all(kind)
            known = self._fresh(self._by_guid.get(guid))
        if known is None:
            filter = f"(&(objectClass={kind.value})(objectGUID={escape_filter(bytes(guid))}))"
            for entry in self._connection.search(self._base(kind), filter, ("1.1",)):
                self.note(entry.dn, guid)
                return entry.dn
            what = "site" if kind is Refers.SITE else "queue manager"
            raise ObjectNotFound(f"there is no {what} with the GUID {guid_to_text(guid)}")
        return known

    def _fresh(self, known: tuple[Key, float] | None) -> Key | None:
        if known is None or self._clock() - known[1] > REMEMBERED:
            return None
        return known[0]

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
