"""Entries read and written over LDAP, with fail-over, and without ever repeating a write blindly."""

import math
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from mqenterprise.directory.binding import LdapSession, host_of, open_session
from mqenterprise.directory.entries import Change, ChangeKind, Connection, Entry, Scope
from mqenterprise.directory.errors import (
    BindRefused,
    ConditionFailed,
    ConstraintViolated,
    DirectoryError,
    DirectoryUnavailable,
    ObjectNotFound,
    OutcomeUnknown,
)
from mqenterprise.directory.ldap_messages import (
    BUSY,
    DONE,
    ENTRY,
    NO_SUCH_OBJECT,
    SEQUENCE,
    SUCCESS,
    Control,
    Message,
    Result,
    WireError,
    add_request,
    delete_request,
    element,
    elements,
    error_of,
    header,
    integer,
    modify_request,
    move_request,
    octets,
    search_request,
)
from mqenterprise.directory.ldap_names import canonical, child, name_of, normalized
from mqenterprise.directory.server_kinds import ROOT_DSE_ATTRIBUTES, Dialect, dialect_of
from mqenterprise.directory.settings import DirectorySettings


class Pool:
    """Sessions by server. Safe for threads; each session is used by one at a time.

    A server that failed is tried last for :attr:`DirectorySettings.retry_after` seconds, and never given up: a link
    that is down comes back by itself.
    """

    def __init__(
        self,
        settings: DirectorySettings,
        servers: Callable[[], Sequence[str]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        opener: Callable[[str, DirectorySettings, Callable[[], float]], LdapSession] = open_session,
    ) -> None:
        self.settings = settings
        self._servers = servers or (lambda: settings.servers)
        self._clock = clock
        self._open = opener
        self._lock = threading.Lock()
        self._idle: list[LdapSession] = []
        self._failed_at: dict[str, float] = {}
        self._closed = False

    def order(self) -> list[str]:
        """The servers, those that failed lately last."""
        now = self._clock()
        with self._lock:
            failed = {url for url, at in self._failed_at.items() if now - at < self.settings.retry_after}
        urls = list(dict.fromkeys(self._servers()))
        return [url for url in urls if url not in failed] + [url for url in urls if url in failed]

    @contextmanager
    def session(self, only: str | None = None) -> Iterator[LdapSession]:
        """A session to the first server that lets us in, or the named one. ``DirectoryUnavailable`` has each reason."""
        session = self._take(only) or self._connect(only)
        try:
            yield session
        except DirectoryError:
            self._give_back(session)
            raise
        except BaseException:
            # Nobody knows what the server will still say on this connection.
            session.close()
            raise
        else:
            self._give_back(session)

    def unbound(self, settings: DirectorySettings) -> Iterator[LdapSession]:
        """New sessions that are secured and not bound, to one server after the other, for the caller to close.

        Raises ``DirectoryUnavailable`` if a server that is left cannot be reached either.
        """
        problem: DirectoryUnavailable | None = None
        for url in self.order():
            try:
                session = self._open(url, settings, self._clock)
            except DirectoryUnavailable as error:
                self.fail(url)
                problem = error
            else:
                yield session
        if problem is not None:
            raise problem

    def fail(self, url: str) -> None:
        """Note that a server does not answer, and drop what is kept of it."""
        with self._lock:
            self._failed_at[url] = self._clock()
            dropped = [session for session in self._idle if session.url == url]
            self._idle = [session for session in self._idle if session.url != url]
        for session in dropped:
            session.close()

    def close(self) -> None:
        """Close what is kept. Sessions in use are closed when they are given back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()

    def _take(self, only: str | None) -> LdapSession | None:
        preferred = only or next(iter(self.order()), None)
        while True:
            with self._lock:
                if self._closed:
                    raise DirectoryUnavailable("this directory was closed")
                index = next((i for i, kept in enumerate(self._idle) if kept.url == preferred), None)
                session = None if index is None else self._idle.pop(index)
            if session is None or session.usable(self.settings.idle_limit):
                return session
            session.close()

    def _connect(self, only: str | None) -> LdapSession:
        problems: list[DirectoryUnavailable] = []
        for url in [only] if only else self.order():
            try:
                session = self._open(url, self.settings, self._clock)
            except BindRefused:
                # It answered: another server of this directory would say the same, and count one more wrong password.
                raise
            except DirectoryUnavailable as problem:
                self.fail(url)
                problems.append(problem)
            else:
                with self._lock:
                    self._failed_at.pop(url, None)
                return session
        if not problems:
            raise DirectoryUnavailable("no directory server is known: neither configured nor found in DNS")
        if len(problems) == 1:
            raise problems[0]
        raise DirectoryUnavailable("; ".join(problem.sentence for problem in problems))

    def _give_back(self, session: LdapSession) -> None:
        session.touch()
        with self._lock:
            if not self._closed and not session.broken and len(self._idle) < self.settings.pool_size:
                self._idle.append(session)
                return
        session.close()


def swap(
    connection: Connection,
    dn: str,
    values: Mapping[str, tuple[bytes | None, bytes | None]],
    also: Sequence[Change] = (),
) -> bool:
    """Put new values in the place of old ones, by attribute: (old, new), None for no value. All or nothing.

    ``also`` are changes that take effect together with them. False when an attribute has another value than the old
    one. Raises ``ObjectNotFound`` and ``ConstraintViolated``.
    """
    changes = list(also)
    for attribute, (old, new) in values.items():
        if old is not None and old != new:
            changes.append(Change(ChangeKind.DELETE, attribute, (old,)))
        if new is not None and old != new:
            changes.append(Change(ChangeKind.ADD, attribute, (new,)))
    try:
        connection.modify(dn, changes)
    except ConditionFailed:
        return False
    except ConstraintViolated:
        # A server may complain of a second value first where there should have been none.
        present = connection.read(dn, tuple(values))
        if any(present.first(attribute) != old for attribute, (old, _) in values.items()):
            return False
        raise
    return True


Answer = TypeVar("Answer")

PAGED_RESULTS: Final = "1.2.840.113556.1.4.319"
ANYTHING: Final = "(objectClass=*)"
_PARENTS_KEPT: Final = 65_536
# Beside the one entry of a base search a server may send references to others.
_REFERENCES: Final = 16
_EMPTY_PAGES: Final = 1_000
"""Pages without an entry that may follow each other in one search."""
# Written and never shown by the server again.
_UNREADABLE: Final = frozenset({"userpassword", "unicodepwd"})


class _Broken(Exception):
    """The connection broke during an operation; what the server did is not known."""


class _Budget:
    """The limits of one search, and its use of them over all pages and servers."""

    def __init__(self, settings: DirectorySettings, doing: str) -> None:
        self._settings = settings
        self._doing = doing
        self._entries = self._bytes = self._empty = 0
        self._waited = 0.0

    def spend(self, found: Message, seconds: float) -> None:
        """Count one answer, and the time for which it was waited. Raises ``DirectoryError`` at a limit."""
        settings = self._settings
        self._bytes += len(found.data)
        self._waited += seconds
        if found.tag == ENTRY:
            self._entries += 1
            self._empty = 0
        elif found.tag == DONE:
            self._empty += 1
        for spent, most, unit, setting in (
            (self._entries, settings.search_entries, "entries", "search_entries"),
            (self._bytes, settings.search_bytes, "bytes", "search_bytes"),
            (self._waited, settings.search_timeout, "seconds", "search_timeout"),
        ):
            if spent > most:
                raise DirectoryError(
                    f"{self._doing}: the answer has more than {most:,} {unit}. Find out what the server sends, or "
                    f"raise {setting} in the directory's settings"
                )
        if self._empty > _EMPTY_PAGES:
            raise DirectoryError(
                f"{self._doing}: the server sends empty pages without an end: look at it, or ask another (servers)"
            )


class LdapConnection:
    """The entries of one directory, over as many connections as are needed. Safe for threads; calls block."""

    def __init__(
        self,
        settings: DirectorySettings,
        servers: Callable[[], Sequence[str]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        pool: Pool | None = None,
    ) -> None:
        self.settings = settings
        self.pool = pool or _pool(settings, servers, clock)
        self._dialect: Dialect | None = None
        self._lock = threading.Lock()
        self._parents: dict[str, tuple[str, ...]] = {}

    @property
    def root(self) -> str:
        """The distinguished name of the directory's root."""
        return self.dialect.contexts.root

    @property
    def dialect(self) -> Dialect:
        """The kind of server; asked of the server once."""
        if self._dialect is None:
            entry = self._reading(
                lambda session: self._read_one(session, "", ROOT_DSE_ATTRIBUTES, "reading the root DSE")
            )
            with self._lock:
                self._dialect = self._dialect or dialect_of(entry.attributes, self.settings.kind, self.settings.root)
        return self._dialect

    def server_name(self) -> str:
        """The host of the server that is asked first. Raises ``DirectoryUnavailable`` if none is known."""
        url = next(iter(self.pool.order()), None)
        if url is None:
            raise DirectoryUnavailable("no directory server is known: neither configured nor found in DNS")
        return host_of(url) or "localhost"

    def close(self) -> None:
        """Close the connections of all threads."""
        self.pool.close()

    # Reading

    def read(self, dn: str, attributes: Collection[str] = ("*",)) -> Entry:
        """One entry. Raises ``ObjectNotFound``."""
        return self._reading(lambda session: self._read_one(session, dn, attributes, f"reading {dn}"))

    def search(
        self, base: str, filter: str, attributes: Collection[str] = ("*",), scope: Scope = Scope.SUBTREE
    ) -> Iterator[Entry]:
        """The entries under a base, page by page. Nothing when the base does not exist.

        When a server fails in the middle, another one is asked from the beginning, and what was given is left out.
        Raises ``DirectoryError`` at a limit of the settings, ``search_entries`` for example.
        """
        given: set[str] = set()
        budget = _Budget(self.settings, f"searching under {base}")
        for attempt in range(len(self.pool.order()) + 1):
            with self.pool.session() as session:
                try:
                    for entry in self._pages(session, base, filter, attributes, scope, budget):
                        if attempt and entry.dn in given:
                            continue
                        given.add(entry.dn)
                        yield entry
                except _Broken as problem:
                    last = problem
                    session.broken = True
                else:
                    return
            self.pool.fail(session.url)
        raise DirectoryUnavailable(f"searching under {base}: {last}")

    def _pages(
        self,
        session: LdapSession,
        base: str,
        filter: str,
        attributes: Collection[str],
        scope: Scope,
        budget: _Budget,
    ) -> Iterator[Entry]:
        names = self._stored(attributes)
        given = self.dialect.reading_controls(attributes)
        request = search_request(base, scope.value, filter, names, math.ceil(self.settings.operation_timeout))
        cookie = b""
        while True:
            page = element(SEQUENCE, integer(self.settings.page_size) + octets(cookie))
            identifier = self._send(session, request, [*given, (PAGED_RESULTS, False, page)])
            result = yield from self._entries(session, identifier, self.settings.page_size, budget)
            if result.code == NO_SUCH_OBJECT:
                return
            if result.code in BUSY:
                raise _Broken(result.message or "the server is busy")
            if result.code != SUCCESS:
                raise error_of(result, f"searching under {base}", self.settings.account)
            cookie = _cookie(result)
            if not cookie:
                return

    def _entries(
        self, session: LdapSession, identifier: int, limit: int, budget: _Budget
    ) -> Generator[Entry, None, Result]:
        """The entries that answer a search, and its result. Active Directory's references are left out.

        A server that sends more than ``limit`` of either is broken, or means harm.
        """
        for _ in range(2 * limit + 1):
            asked = time.monotonic()
            found = self._receive(session, identifier)
            try:
                budget.spend(found, time.monotonic() - asked)
            except DirectoryError:
                session.broken = True  # more of the answer is on its way
                raise
            if found.tag == DONE:
                return found.result()
            if found.tag == ENTRY:
                yield self._entry(found)
        raise _Broken("the server sends more entries than it was asked for")

    def _read_one(self, session: LdapSession, dn: str, attributes: Collection[str], doing: str) -> Entry:
        controls = self._dialect.reading_controls(attributes) if self._dialect else []
        names = self._stored(attributes) if self._dialect else list(attributes)
        limit = math.ceil(self.settings.operation_timeout)
        identifier = self._send(session, search_request(dn, Scope.BASE.value, ANYTHING, names, limit), controls)
        found: list[Entry] = []
        entries = self._entries(session, identifier, _REFERENCES, _Budget(self.settings, doing))
        while True:
            try:
                found.append(next(entries))
            except StopIteration as end:
                result: Result = end.value
                break
        if result.code in BUSY:
            raise _Broken(result.message or "the server is busy")
        if result.code != SUCCESS:
            raise error_of(result, doing, self.settings.account)
        if not found:
            raise ObjectNotFound(f"{doing}: there is no such object, or we may not see it")
        return found[0]

    def _reading(self, operation: Callable[[LdapSession], Answer]) -> Answer:
        """Do something that changes nothing; when a server fails, with the next one."""
        last: Exception | None = None
        for _ in range(len(self.pool.order()) + 1):
            with self.pool.session() as session:
                try:
                    return operation(session)
                except _Broken as problem:
                    last = problem
                    session.broken = True
            self.pool.fail(session.url)
        raise DirectoryUnavailable(f"no directory server answers: {last}")

    # Writing

    def add(self, dn: str, object_classes: Sequence[str], attributes: Mapping[str, Sequence[bytes]]) -> Entry:
        """Create an entry; its ``objectGUID`` is in the answer. Raises ``ObjectAlreadyExists``."""
        dialect = self.dialect
        filled = {name: values for name, values in attributes.items() if values}
        dialect.check(dn, object_classes, filled, self._classes_of)
        wanted = dialect.with_identity(object_classes, filled)
        classes = [name.encode() for name in object_classes]
        self._writing(
            add_request(dn, {"objectClass": classes, **wanted}),
            dialect.writing_controls(wanted),
            lambda session: self._is_added(session, dn, wanted),
            f"adding {dn}",
        )
        self._remember_classes(dn, tuple(object_classes))
        if dialect.gives_guid:
            return self.read(dn, ("objectGUID",))
        return Entry(
            canonical(dn), {name.lower(): tuple(bytes(value) for value in values) for name, values in wanted.items()}
        )

    def modify(self, dn: str, changes: Sequence[Change]) -> None:
        """Change an entry, atomically. Raises ``ObjectNotFound`` and ``ConditionFailed``."""
        if not changes:
            return
        new = {change.attribute: change.values for change in changes if change.kind is not ChangeKind.DELETE}
        self._writing(
            modify_request(dn, changes),
            self.dialect.writing_controls(new),
            lambda session: self._is_changed(session, dn, changes),
            f"changing {dn}",
        )

    def delete(self, dn: str, *, tree: bool = False, only_if: tuple[str, bytes] | None = None) -> None:
        """Delete an entry, and with ``tree`` what lies beneath it. Raises ``ObjectNotFound``.

        With ``only_if`` only while an attribute has that value, else ``ConditionFailed``; Active Directory cannot, and
        deletes whatever is there.
        """
        control = self.dialect.tree_delete
        if tree and control is None:
            self._delete_leaves(dn)
        controls = [control] if tree and control is not None else []
        if only_if is not None and (condition := self.dialect.only_if(*only_if)) is not None:
            controls.append(condition)
        self._delete_one(dn, controls)
        with self._lock:
            self._parents.clear()

    def move(self, dn: str, parent: str) -> str:
        """Give an entry another parent, and return its new name; its GUID stays. Raises ``ObjectAlreadyExists``."""
        name = child(name_of(dn), parent)
        self._writing(
            move_request(dn, name.removesuffix(f",{parent}"), parent),
            [],
            lambda session: self._is_gone(session, dn) and not self._is_gone(session, name),
            f"moving {dn}",
        )
        with self._lock:
            self._parents.clear()
        return name

    def set_password(self, dn: str, secret: str) -> None:
        """Set the password that an account binds with. The connection must be secured."""
        values = self.dialect.password(secret)
        self.modify(dn, [Change(ChangeKind.REPLACE, name, tuple(value)) for name, value in values.items()])

    def _delete_one(self, dn: str, controls: list[Control]) -> None:
        self._writing(
            delete_request(dn),
            controls,
            lambda session: self._is_gone(session, dn),
            f"deleting {dn}",
        )

    def _delete_leaves(self, dn: str) -> None:
        beneath = [entry.dn for entry in self.search(dn, "(objectClass=*)", ("1.1",))]
        own = normalized(dn)
        for leaf in sorted((name for name in beneath if normalized(name) != own), key=lambda n: -n.count(",")):
            self._delete_one(leaf, [])

    def _writing(
        self, request: bytes, controls: Sequence[Control], is_done: Callable[[LdapSession], bool], doing: str
    ) -> None:
        """Do something that changes the directory, once.

        A server that could not be reached, or that says it did nothing, did not do it: the next one is asked. When the
        connection broke after the request was sent, the same server is asked what is there now. Only what that server
        says is missing is requested again; what another server does not have may still be on its way there. The server
        may have done the first request only after it was asked, so a refusal of a repeated one is looked into as well.
        """
        repeated = False
        for _ in range(len(self.pool.order()) + 1):
            with self.pool.session() as session:
                try:
                    result = self._receive(session, self._send(session, request, controls)).result()
                except _Broken as problem:
                    session.broken = True
                    self.pool.fail(session.url)
                    if self._settled(session.url, is_done, doing, problem):
                        return
                    repeated = True
                    continue
            if result.code == SUCCESS:
                return
            if result.code not in BUSY:
                refusal = error_of(result, doing, self.settings.account)
                if repeated and self._settled(session.url, is_done, doing, refusal):
                    return
                raise refusal
            self.pool.fail(session.url)
        raise DirectoryUnavailable(f"{doing}: no directory server does it")

    def _settled(self, url: str, is_done: Callable[[LdapSession], bool], doing: str, problem: Exception) -> bool:
        """Whether a write whose connection broke took effect. Raises ``OutcomeUnknown`` when nobody can say."""
        try:
            with self.pool.session(only=url) as session:
                return is_done(session)
        except (_Broken, DirectoryUnavailable):
            pass
        try:
            with self.pool.session() as session:
                if session.url != url and is_done(session):
                    return True
        except (_Broken, DirectoryUnavailable):
            pass
        raise OutcomeUnknown(
            f"{doing}: the connection to {url} broke ({problem}) before it said whether this was done, and it does not "
            "answer now: look at the object before doing it again"
        )

    def _is_added(self, session: LdapSession, dn: str, wanted: Mapping[str, Sequence[bytes]]) -> bool:
        try:
            entry = self._read_one(session, dn, ("*", "objectGUID", "nTSecurityDescriptor"), f"reading {dn}")
        except ObjectNotFound:
            return False
        ours = wanted.get("objectGUID")
        if ours is not None:
            return entry.first("objectGUID") == bytes(ours[0])
        return all(
            set(map(bytes, values)) <= set(entry.attributes.get(name.lower(), ()))
            for name, values in wanted.items()
            if name.lower() not in (*_UNREADABLE, "ntsecuritydescriptor")
        )

    def _is_changed(self, session: LdapSession, dn: str, changes: Sequence[Change]) -> bool:
        if any(change.attribute.lower() in _UNREADABLE for change in changes):
            return False  # setting the same password again does no harm
        entry = self._read_one(session, dn, [change.attribute for change in changes], f"reading {dn}")
        return all(_holds(change, set(entry.attributes.get(change.attribute.lower(), ()))) for change in changes)

    def _is_gone(self, session: LdapSession, dn: str) -> bool:
        try:
            self._read_one(session, dn, ("1.1",), f"reading {dn}")
        except ObjectNotFound:
            return True
        return False

    def _remember_classes(self, dn: str, classes: tuple[str, ...]) -> None:
        # The entry that was just created is the parent of the next one.
        with self._lock:
            if len(self._parents) >= _PARENTS_KEPT:
                self._parents.clear()
            self._parents[normalized(dn)] = classes

    def _classes_of(self, dn: str) -> tuple[str, ...]:
        """The object classes of a parent, remembered: they do not change."""
        key = normalized(dn)
        known = self._parents.get(key)
        if known is None:
            entry = self.read(dn, ("objectClass",))
            known = tuple(value.decode("utf-8", "replace") for value in entry.attributes.get("objectclass", ()))
            self._remember_classes(dn, known)
        return known

    # Messages

    def _send(self, session: LdapSession, request: bytes, controls: Sequence[Control]) -> int:
        """Send one request. Raises ``_Broken`` when the connection does not survive it."""
        try:
            return session.wire.send(request, controls)
        except OSError as error:
            raise _Broken(str(error)) from error

    def _receive(self, session: LdapSession, identifier: int) -> Message:
        """Take one answer. Raises ``_Broken``."""
        try:
            return session.wire.receive(identifier, self.settings.operation_timeout)
        except TimeoutError as error:
            raise _Broken(f"no answer within {self.settings.operation_timeout:g} s") from error
        except (OSError, WireError) as error:
            raise _Broken(str(error)) from error

    def _stored(self, attributes: Collection[str]) -> list[str]:
        names = self.dialect.stored_names
        return [names.get(name.lower(), name) for name in attributes]

    def _entry(self, found: Message) -> Entry:
        try:
            dn, values = found.entry()
        except WireError as error:
            raise _Broken(str(error)) from error
        if self._dialect is not None:
            for ours, stored in self._dialect.stored_names.items():
                if stored.lower() in values:
                    values[ours] = values.pop(stored.lower())
        return Entry(canonical(dn), values)


def _pool(settings: DirectorySettings, servers: Callable[[], Sequence[str]] | None, clock: Callable[[], float]) -> Pool:
    if servers is None and not settings.servers and settings.domain:
        from mqenterprise.discovery.service_records import ServerFinder  # with dnspython, which few need

        finder = ServerFinder.of(settings, clock)
        return Pool(settings, finder.urls, clock, finder.open)
    return Pool(settings, servers, clock)


def _cookie(result: Result) -> bytes:
    """The cookie of the page that follows; empty after the last (RFC 2696)."""
    value = result.controls.get(PAGED_RESULTS)
    if not value:
        return b""
    _, begin, end = header(value, 0)
    places = elements(value, begin, end)
    return value[places[1][1] : places[1][2]] if len(places) > 1 else b""


def _holds(change: Change, present: set[bytes]) -> bool:
    match change.kind:
        case ChangeKind.REPLACE:
            return present == set(change.values)
        case ChangeKind.ADD:
            return set(change.values) <= present
        case ChangeKind.DELETE:
            return not (present & set(change.values)) if change.values else not present
