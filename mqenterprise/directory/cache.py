"""Objects that a node read from its directory: in memory for speed, in a file for when the directory is down."""

import base64
import enum
import json
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeVar

from mqenterprise.directory.ldap_names import normalized
from mqenterprise.directory.mapping import satisfies
from qmnode.directory.port import (
    DirectoryObject,
    Enterprise,
    Filter,
    Queue,
    QueueManager,
    RoutingLink,
    Site,
    User,
)
from qmnode.objects.table import OperatingSystemType
from qmnode.structures.enumerations import QueuePrivacyLevel
from qmnode.structures.guid import Guid

ObjectType = TypeVar("ObjectType", bound=DirectoryObject)

KINDS: Final[dict[str, type[DirectoryObject]]] = {
    kind.__name__: kind for kind in (Enterprise, Site, RoutingLink, QueueManager, Queue, User)
}
NAMES: Final = {"Site": "name", "QueueManager": "computer_name", "Queue": "pathname", "User": "name"}
ENUMERATIONS: Final[dict[str, type[enum.IntEnum]]] = {
    "operating_system_type": OperatingSystemType,
    "privacy_level": QueuePrivacyLevel,
}
VERSION: Final = 1
NEVER: Final = float("-inf")
OBJECTS_KEPT: Final = 100_000
USERS_KEPT: Final = 4_096
"""Users whose groups are remembered."""
LISTS_KEPT: Final = 4_096
"""Distribution lists whose queues are remembered."""
_LIST_WRITTEN: Final = 60.0
"""Seconds after which the same queues are written again: they are asked for with each opening of a list."""


@dataclass(frozen=True, slots=True)
class Cached:
    """An object and when it was read, in seconds since 1970."""

    found: DirectoryObject
    at: float


@dataclass(frozen=True, slots=True)
class CachedGroups:
    """The groups of a user, and how many seconds ago they were read."""

    groups: tuple[bytes, ...]
    """Security identifiers, as bytes."""
    age: float
    changed: bool = False
    """Whether something in the directory has changed since, perhaps these."""


@dataclass(frozen=True, slots=True)
class CachedList:
    """The queues of a distribution list, and how many seconds ago they were read."""

    queues: tuple[str, ...]
    """Format names, as text."""
    age: float


class DirectoryCache:
    """Objects by GUID and name, and answers to searches. Safe for threads. An unreadable file is begun anew."""

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.time, kept: int = OBJECTS_KEPT) -> None:
        self._clock = clock
        self._kept = kept
        self._lock = threading.Lock()
        # Of its own, so that a look into memory never waits for the disk.
        self._file_lock = threading.Lock()
        self._objects: OrderedDict[tuple[str, Guid], Cached] = OrderedDict()
        self._names: dict[tuple[str, str], Guid] = {}
        self._answers: dict[str, tuple[tuple[Guid, ...], float]] = {}
        self._absent: OrderedDict[str, float] = OrderedDict()
        self._groups: OrderedDict[bytes, tuple[tuple[bytes, ...], float]] = OrderedDict()
        self._changed_groups: set[bytes] = set()
        self._lists: OrderedDict[Guid, tuple[tuple[str, ...], float]] = OrderedDict()
        self._lists_written: dict[Guid, float] = {}
        self._file = None if path is None else _open(path)
        self._load()

    def put(self, found: DirectoryObject) -> None:
        """Remember an object as it was read now."""
        self.put_all((found,))

    def put_all(self, objects: Iterable[DirectoryObject]) -> None:
        """Remember several objects; one transaction of the file."""
        now = self._clock()
        known = [found for found in objects if found.identifier is not None]
        with self._lock:
            self._absent.clear()
            evicted = [gone for found in known for gone in self._remember(found, now)]
        rows = [(type(found).__name__, bytes(found.identifier or b""), to_text(found), now) for found in known]
        self._write("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)", rows)
        self._write("DELETE FROM objects WHERE kind = ? AND guid = ?", evicted)

    def put_answer(
        self, kind: type[DirectoryObject], filters: Sequence[Filter], objects: Sequence[DirectoryObject]
    ) -> None:
        """Remember a whole answer to a search, with its objects."""
        self.put_all(objects)
        key, now = _key(kind, filters), self._clock()
        guids = tuple(found.identifier for found in objects if found.identifier is not None)
        with self._lock:
            self._answers[key] = (guids, now)
        self._write("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", [(key, b"".join(guids), now)])

    def put_groups(self, security_identifier: bytes, groups: Sequence[bytes], *, changed: bool = False) -> None:
        """Remember the groups of a user as they were read now; ``changed`` if the directory has changed meanwhile."""
        now, evicted = self._clock(), []
        with self._lock:
            self._groups[security_identifier] = tuple(groups), now
            self._changed_groups.discard(security_identifier)
            if changed:
                self._changed_groups.add(security_identifier)
            self._groups.move_to_end(security_identifier)
            while len(self._groups) > USERS_KEPT:
                evicted.append(self._groups.popitem(last=False)[0])
        row = (security_identifier, json.dumps([group.hex() for group in groups]), now)
        self._write("INSERT OR REPLACE INTO groups VALUES (?, ?, ?)", [row])
        self._write("DELETE FROM groups WHERE user = ?", [(user,) for user in evicted])

    def groups(self, security_identifier: bytes) -> CachedGroups | None:
        """The groups of a user, or nothing if they were never read."""
        with self._lock:
            known = self._groups.get(security_identifier)
            changed = security_identifier in self._changed_groups
        return None if known is None else CachedGroups(known[0], self._clock() - known[1], changed)

    def put_list(self, identifier: Guid, queues: Sequence[str]) -> None:
        """Remember the format names to which a distribution list leads, as they were read now."""
        now, evicted = self._clock(), []
        with self._lock:
            known = self._lists.get(identifier)
            is_due = now - self._lists_written.get(identifier, NEVER) >= _LIST_WRITTEN
            is_written = is_due or known is None or known[0] != tuple(queues)
            self._lists[identifier] = tuple(queues), now
            self._lists.move_to_end(identifier)
            if is_written:
                self._lists_written[identifier] = now
            while len(self._lists) > LISTS_KEPT:
                evicted.append(self._lists.popitem(last=False)[0])
                self._lists_written.pop(evicted[-1], None)
        if is_written:
            row = (bytes(identifier), json.dumps(queues), now)
            self._write("INSERT OR REPLACE INTO lists VALUES (?, ?, ?)", [row])
        self._write("DELETE FROM lists WHERE list = ?", [(bytes(gone),) for gone in evicted])

    def list_of(self, identifier: Guid) -> CachedList | None:
        """The format names to which a distribution list led last, or nothing if it was never resolved."""
        with self._lock:
            known = self._lists.get(identifier)
        return None if known is None else CachedList(known[0], self._clock() - known[1])

    def forget_list(self, identifier: Guid) -> None:
        """Forget a distribution list that is gone."""
        with self._lock:
            self._lists.pop(identifier, None)
            self._lists_written.pop(identifier, None)
        self._write("DELETE FROM lists WHERE list = ?", [(bytes(identifier),)])

    def put_absent(self, kind: type[DirectoryObject], filters: Sequence[Filter]) -> None:
        """Remember for a moment that there is no such object."""
        with self._lock:
            self._absent[_key(kind, filters)] = self._clock()
            if len(self._absent) > self._kept:
                self._absent.popitem(last=False)

    def absent_since(self, kind: type[DirectoryObject], filters: Sequence[Filter]) -> float | None:
        """The seconds since a look-up found no such object; None if none did."""
        at = self._absent.get(_key(kind, filters))
        return None if at is None else self._clock() - at

    def forget(self, kind: type[DirectoryObject], identifier: Guid) -> None:
        """Forget an object that is gone."""
        with self._lock:
            known = self._objects.pop((kind.__name__, identifier), None)
            if known is not None and (name := _name(known.found)) is not None:
                self._names.pop((kind.__name__, name), None)
        self._write("DELETE FROM objects WHERE kind = ? AND guid = ?", [(kind.__name__, bytes(identifier))])

    def expire(self, identifier: Guid | None, full_path: str | None) -> None:
        """Have an object asked for again at its next use; all objects when neither is given.

        So are the groups of a user; of all users for an object without an identifier, which may be a user.
        """
        path = None if full_path is None else normalized(full_path)
        with self._lock:
            self._absent.clear()
            if identifier is not None:
                found = [key for kind in KINDS if (key := (kind, identifier)) in self._objects]
            elif path is not None:
                all_objects = self._objects.items()
                found = [key for key, known in all_objects if normalized(known.found.full_path or "") == path]
            else:
                found = list(self._objects)
            if identifier is None:
                self._changed_groups.update(self._groups)
            for key in found:
                known = self._objects[key].found
                self._objects[key] = Cached(known, NEVER)
                if isinstance(known, User) and (user := known.security_identifier) in self._groups and user is not None:
                    self._changed_groups.add(user)

    def find(self, kind: type[DirectoryObject], filters: Sequence[Filter]) -> Cached | None:
        """The first object known that satisfies the filters. By GUID or name this is one look into a table."""
        with self._lock:
            quick = self._quick(kind, filters)
            if quick is not None:
                return quick if satisfies(quick.found, filters) else None
            unique = ("identifier", NAMES.get(kind.__name__))
            if any(expression.attribute in unique for expression in filters):
                return None
            known = [cached for (name, _), cached in self._objects.items() if name == kind.__name__]
        return next((cached for cached in known if satisfies(cached.found, filters)), None)

    def answer(self, kind: type[DirectoryObject], filters: Sequence[Filter]) -> list[DirectoryObject] | None:
        """The answer that this very search had last, or nothing if it was never made."""
        with self._lock:
            known = self._answers.get(_key(kind, filters))
            if known is None:
                return None
            found = (self._objects.get((kind.__name__, guid)) for guid in known[0])
            return [cached.found for cached in found if cached is not None]

    def age(self, cached: Cached) -> float:
        """Seconds since it was read."""
        return self._clock() - cached.at

    def close(self) -> None:
        """Close the file; entries in memory stay readable."""
        with self._file_lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _quick(self, kind: type[DirectoryObject], filters: Sequence[Filter]) -> Cached | None:
        for expression in filters:
            guid: Any = None
            if expression.attribute == "identifier":
                guid = expression.value
            elif expression.attribute == NAMES.get(kind.__name__) and isinstance(expression.value, str):
                guid = self._names.get((kind.__name__, expression.value.lower()))
            if guid is not None:
                return self._objects.get((kind.__name__, guid))
        return None

    def _remember(self, found: DirectoryObject, at: float) -> list[tuple[str, bytes]]:
        """Keep it; what had to go for it."""
        assert found.identifier is not None
        kind = type(found).__name__
        self._objects[kind, found.identifier] = Cached(found, at)
        self._objects.move_to_end((kind, found.identifier))
        if (name := _name(found)) is not None:
            self._names[kind, name] = found.identifier
        evicted = []
        while len(self._objects) > self._kept:
            (old, guid), cached = self._objects.popitem(last=False)
            if (name := _name(cached.found)) is not None:
                self._names.pop((old, name), None)
            evicted.append((old, bytes(guid)))
        return evicted

    def _write(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        with self._file_lock:
            if self._file is not None and rows:
                with self._file:
                    self._file.executemany(statement, rows)

    def _load(self) -> None:
        if self._file is None:
            return
        for kind, text, at in self._file.execute("SELECT kind, content, at FROM objects ORDER BY at"):
            found = from_text(kind, text)
            if found is not None and found.identifier is not None:
                self._remember(found, at)
        for key, guids, at in self._file.execute("SELECT request, guids, at FROM answers"):
            parts = tuple(guids[start : start + 16] for start in range(0, len(guids), 16))
            self._answers[key] = (parts, at)
        for user, text, at in self._file.execute("SELECT user, groups, at FROM groups ORDER BY at"):
            self._groups[user] = tuple(map(bytes.fromhex, json.loads(text))), at
        for each, text, at in self._file.execute("SELECT list, queues, at FROM lists ORDER BY at"):
            self._lists[Guid(each)] = tuple(json.loads(text)), at


def _open(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        return _prepared(path)
    except sqlite3.DatabaseError:
        path.replace(path.with_name(path.name + ".unreadable"))
        return _prepared(path)


def _prepared(path: Path) -> sqlite3.Connection:
    path.touch(mode=0o600)
    file = sqlite3.connect(path, check_same_thread=False)
    # It is a cache: the last moments before a power cut may be missing, the file stays whole.
    file.execute("PRAGMA journal_mode = WAL")
    file.execute("PRAGMA synchronous = OFF")
    if file.execute("PRAGMA user_version").fetchone()[0] != VERSION:
        file.executescript(
            "DROP TABLE IF EXISTS objects; DROP TABLE IF EXISTS answers;"
            "CREATE TABLE objects (kind TEXT, guid BLOB, content TEXT, at REAL, PRIMARY KEY (kind, guid));"
            "CREATE TABLE answers (request TEXT PRIMARY KEY, guids BLOB, at REAL);"
            f"PRAGMA user_version = {VERSION};"
        )
    file.execute("CREATE TABLE IF NOT EXISTS groups (user BLOB PRIMARY KEY, groups TEXT, at REAL)")
    file.execute("CREATE TABLE IF NOT EXISTS lists (list BLOB PRIMARY KEY, queues TEXT, at REAL)")
    return file


def _name(found: DirectoryObject) -> str | None:
    field = NAMES.get(type(found).__name__)
    return None if field is None else str(getattr(found, field)).lower()


def _key(kind: type[DirectoryObject], filters: Sequence[Filter]) -> str:
    parts = sorted(f"{f.attribute}={_plain(f.value)!r}" for f in filters)
    return f"{kind.__name__}?{'&'.join(parts)}"


def _plain(value: Any) -> Any:
    """A value as JSON can have it."""
    if isinstance(value, bytes):
        return {"b": base64.b64encode(value).decode("ascii")}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, enum.IntEnum) else value.lower() if isinstance(value, str) else value


def _stored(value: Any) -> Any:
    return value if isinstance(value, str) else _plain(value)


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return base64.b64decode(value["b"])
    return tuple(_value(item) for item in value) if isinstance(value, list) else value


def to_text(found: DirectoryObject) -> str:
    """An object as JSON."""
    return json.dumps(
        {item.name: _stored(value) for item in fields(found) if (value := getattr(found, item.name)) is not None}
    )


def from_text(kind: str, text: str) -> DirectoryObject | None:
    """The object of a JSON text; nothing for what an older or newer version wrote differently."""
    cls = KINDS.get(kind)
    if cls is None:
        return None
    try:
        known = {item.name for item in fields(cls)}
        values = {name: _value(value) for name, value in json.loads(text).items() if name in known}
        for name, enumeration in ENUMERATIONS.items():
            if name in values:
                values[name] = enumeration(values[name])
        return cls(**values)
    except (TypeError, ValueError, KeyError, AttributeError):
        return None
