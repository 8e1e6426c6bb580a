"""Notification of changes in the directory: RFC 4533 on OpenLDAP, DirSync (MS-ADTS 3.1.1.3.4.1.3) elsewhere.

A feed starts with "reload": the listener reads what it needs, and is notified of each later change. Where the feed
stopped is a
cookie, so a connection that breaks, and a server that is restarted, lose nothing.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from mqenterprise.directory.entries import Scope
from mqenterprise.directory.errors import AccessRefused, DirectoryError, DirectoryUnavailable
from mqenterprise.directory.ldap_messages import (
    BOOLEAN,
    DONE,
    ENTRY,
    ENUMERATED,
    INTERMEDIATE,
    OCTETS,
    SEQUENCE,
    SUCCESS,
    Message,
    WireError,
    element,
    elements,
    error_of,
    header,
    integer,
    number,
    octets,
    search_request,
)
from mqenterprise.directory.ldap_names import canonical
from qmnode.structures.guid import GUID_SIZE, Guid, guid_from_bytes

if TYPE_CHECKING:
    from mqenterprise.directory.binding import LdapSession
    from mqenterprise.directory.connection import LdapConnection

log = structlog.get_logger(__name__)

WATCHED: Final = (
    "(|(objectClass=mSMQQueue)(objectClass=mSMQConfiguration)(objectClass=mSMQSiteLink)(objectClass=site)"
    "(objectClass=mSMQEnterpriseSettings)(mSMQSignCertificates=*))"
)
"""With the users that have certificates. One that loses the last is reported by OpenLDAP alone."""
SYNC_REQUEST: Final = "1.3.6.1.4.1.4203.1.9.1.1"
SYNC_STATE: Final = "1.3.6.1.4.1.4203.1.9.1.2"
REFRESH_REQUIRED: Final = 4096
REFRESH_AND_PERSIST: Final = 3
DELETED_STATE: Final = 3
DIRSYNC: Final = "1.2.840.113556.1.4.841"
OBJECT_SECURITY: Final = 0x0000_0001
"""Without it only who may replicate the whole directory may ask."""
OBJECTS_KNOWN: Final = 100_000
"""Objects whose GUIDs are known when they are deleted, which OpenLDAP reports without it."""
DIRSYNC_BYTES: Final = 1_000_000
LISTEN: Final = 1.0
"""Seconds that a listening thread waits for the next message before it looks whether it should stop."""


class ChangeKind(enum.Enum):
    """A change of one object."""

    CHANGED = "created or changed"
    DELETED = "deleted"
    RELOAD = "anything may have changed"


@dataclass(frozen=True, slots=True)
class Changed:
    """One object that is not as it was. ``RELOAD`` names none."""

    kind: ChangeKind
    full_path: str | None = None
    identifier: Guid | None = None


RELOAD: Final = Changed(ChangeKind.RELOAD)


class Feed(Protocol):
    """A source of changes. Not safe for threads: one listens."""

    def changes(self, stop: threading.Event) -> Iterator[Changed]:
        """The changes from now on, until ``stop`` is set. Raises :class:`DirectoryError`; asked again, it goes on."""


def feed_of(connection: LdapConnection, interval: float = 2.0) -> Feed:
    """The feed for this kind of server. ``interval`` is the pause between two looks where a server must be asked."""
    if connection.dialect.gives_guid:
        return DirSyncFeed(connection, interval)
    return SyncFeed(connection)


class SyncFeed:
    """OpenLDAP: one search that stays open and brings each change within milliseconds (refreshAndPersist)."""

    def __init__(self, connection: LdapConnection) -> None:
        self._connection = connection
        self._cookie = b""
        self._identifiers: dict[bytes, Guid] = {}
        """The GUIDs of objects by their entryUUID (RFC 4530), which is OpenLDAP's own."""
        self._resumed = False
        self._refreshing = True

    def changes(self, stop: threading.Event) -> Iterator[Changed]:
        """Yield changes, as :class:`Feed` describes."""
        with self._connection.pool.session() as session:
            session.broken = True  # a search is open on it for good
            identifier = self._ask(session)
            self._refreshing = True
            while not stop.is_set():
                try:
                    message = session.wire.receive(identifier, LISTEN)
                    change = self._understood(message)
                except TimeoutError:
                    continue
                except (OSError, WireError, IndexError) as error:
                    self._connection.pool.fail(session.url)
                    raise DirectoryUnavailable(f"listening for changes: {error}") from error
                if change is not None:
                    yield change

    def _ask(self, session: LdapSession) -> int:
        self._resumed = bool(self._cookie)
        cookie = octets(self._cookie) if self._resumed else b""
        control = element(SEQUENCE, integer(REFRESH_AND_PERSIST, ENUMERATED) + cookie)
        request = search_request(self._connection.root, Scope.SUBTREE.value, WATCHED, ("objectGUID",), 0)
        try:
            return session.wire.send(request, [(SYNC_REQUEST, True, control)])
        except OSError as error:
            raise DirectoryUnavailable(f"listening for changes: {error}") from error

    def _understood(self, message: Message) -> Changed | None:
        if message.tag == ENTRY:
            return self._entry(message)
        if message.tag == INTERMEDIATE:
            return self._information(message)
        if message.tag == DONE:
            result = message.result()
            if result.code == REFRESH_REQUIRED:
                self._cookie = b""
            raise DirectoryUnavailable(f"the server ended the feed of changes (code {result.code} {result.message})")
        return None

    def _entry(self, message: Message) -> Changed | None:
        value = message.controls.get(SYNC_STATE)
        if value is None:
            return None
        _, begin, end = header(value, 0)
        parts = elements(value, begin, end)
        state = number(value, parts[0])
        if len(parts) > 2:
            self._cookie = value[parts[2][1] : parts[2][2]]
        dn, attributes = message.entry()
        entry = value[parts[1][1] : parts[1][2]]
        if state == DELETED_STATE:
            return Changed(ChangeKind.DELETED, canonical(dn), self._identifiers.pop(entry, None))
        identifier = _guid(attributes)
        if identifier is not None and len(self._identifiers) < OBJECTS_KNOWN:
            self._identifiers[entry] = identifier
        if self._refreshing and not self._resumed:
            return None  # an object that exists at the start is no change
        return Changed(ChangeKind.CHANGED, canonical(dn), identifier)

    def _information(self, message: Message) -> Changed | None:
        """Sync Info (RFC 4533 2.5): the phases of the refresh, and entries by identifier alone."""
        parts = elements(message.data, message.begin, message.end)
        body = next(((first, last) for tag, first, last in parts if tag == 0x81), None)
        if body is None:
            return None
        data = message.data[body[0] : body[1]]
        tag, begin, end = header(data, 0)
        if tag == 0x80:  # a new cookie and nothing else
            self._cookie = data[begin:end]
            return None
        inner = elements(data, begin, end)
        cookie = next((data[first:last] for kind, first, last in inner if kind == OCTETS), None)
        done = next((data[first] != 0 for kind, first, _ in inner if kind == BOOLEAN), True)
        if cookie:
            self._cookie = cookie
        if tag == 0xA3:  # entries that are gone, by an identifier that is OpenLDAP's own
            return RELOAD
        if tag in (0xA1, 0xA2) and done:
            self._refreshing = False
            # "Present" means that the server forgot what was deleted meanwhile. Objects that existed at the start came
            # as no change. A listener that reads them now is notified of all later ones.
            return RELOAD if tag == 0xA2 or not self._resumed else None
        return None


class DirSyncFeed:
    """Active Directory: what changed since the cookie, asked again and again."""

    def __init__(self, connection: LdapConnection, interval: float) -> None:
        self._connection = connection
        self._interval = interval
        self._cookies: dict[str, bytes] = {}

    def changes(self, stop: threading.Event) -> Iterator[Changed]:
        """Yield changes, as :class:`Feed` describes."""
        contexts = self._connection.dialect.contexts
        first = not self._cookies
        while not stop.is_set():
            for base in (contexts.domain, contexts.configuration):
                for change in self._since(base):
                    if not first:
                        yield change
            if first:
                yield RELOAD
                first = False
                continue
            stop.wait(self._interval)

    def _since(self, base: str) -> Iterator[Changed]:
        more = True
        while more:
            with self._connection.pool.session() as session:
                more, found = self._round(session, base)
            yield from found

    def _round(self, session: LdapSession, base: str) -> tuple[bool, list[Changed]]:
        cookie = self._cookies.get(base, b"")
        value = element(SEQUENCE, integer(OBJECT_SECURITY) + integer(DIRSYNC_BYTES) + octets(cookie))
        # The server reports an object when a requested attribute has changed, so all attributes are requested.
        request = search_request(base, Scope.SUBTREE.value, WATCHED, ("*",), 0)
        found: list[Changed] = []
        try:
            identifier = session.wire.send(request, [(DIRSYNC, True, value)])
            limit = self._connection.settings.operation_timeout
            while (message := session.wire.receive(identifier, limit)).tag != DONE:
                if message.tag == ENTRY:
                    found.append(_tombstone_or_object(message))
                if len(found) > self._connection.settings.search_entries:
                    raise WireError("the server sends more changes than search_entries allows")
        except (OSError, WireError) as error:
            session.broken = True
            self._connection.pool.fail(session.url)
            raise DirectoryUnavailable(f"asking for changes: {error}") from error
        result = message.result()
        if result.code != SUCCESS:
            self._cookies.pop(base, None)
            raise error_of(result, f"asking for changes under {base}", self._connection.settings.account)
        answer = result.controls.get(DIRSYNC)
        if not answer:
            raise AccessRefused("the server does not say where its changes end (DirSync)")
        try:
            _, begin, end = header(answer, 0)
            parts = elements(answer, begin, end)
        except WireError as error:
            raise DirectoryUnavailable(f"asking for changes under {base}: {error}") from error
        if len(parts) < 3:
            raise DirectoryUnavailable(f"asking for changes under {base}: the server's answer is cut")
        self._cookies[base] = answer[parts[2][1] : parts[2][2]]
        return number(answer, parts[0]) != 0, found


def _tombstone_or_object(message: Message) -> Changed:
    dn, attributes = message.entry()
    deleted = attributes.get("isdeleted", (b"",))[0] == b"TRUE"
    kind = ChangeKind.DELETED if deleted else ChangeKind.CHANGED
    # A tombstone's name is not the one that it had; its GUID is.
    return Changed(kind, None if deleted else canonical(dn), _guid(attributes))


def _guid(attributes: Mapping[str, tuple[bytes, ...]]) -> Guid | None:
    """The GUID of an object that changed; None if the server does not say it, or something that is none."""
    values = attributes.get("objectguid", ())
    return guid_from_bytes(values[0]) if values and len(values[0]) == GUID_SIZE else None


class Watcher:
    """A thread that listens to a feed and tells of each change, for as long as it is wanted, whatever breaks."""

    def __init__(
        self,
        connection: LdapConnection,
        tell: Callable[[Changed], None],
        interval: float = 2.0,
        retry: float = 5.0,
    ) -> None:
        self._connection = connection
        self._tell = tell
        self._interval = interval
        self._retry = retry
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="directory-changes", daemon=True)

    def start(self) -> None:
        """Start the listener in a thread of its own."""
        self._thread.start()

    def stop(self, limit: float = 0.0) -> None:
        """Listen no more; wait at most ``limit`` seconds for the thread to end."""
        self._stop.set()
        if limit and self._thread.is_alive():
            self._thread.join(limit)

    def _run(self) -> None:
        feed: Feed | None = None
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                feed = feed or feed_of(self._connection, self._interval)
                for change in feed.changes(self._stop):
                    self._tell(change)
            except DirectoryError as error:
                log.info("changes not heard", reason=error.sentence)
            if time.monotonic() - began < self._retry:
                self._stop.wait(self._retry)
