"""The directory port of a node over LDAP: bounded in time, answered from the cache where that is good enough.

ldap3 blocks, so its calls run in a few threads of their own. A directory that accepts a connection and never answers
costs one of these threads for the length of a time-out, and the caller the length of its own. While the directory is
down, look-ups do not ask it. Only writes and the Directory Online Timer (MS-MQDMPR 3.1.2.5) do.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mqenterprise.certificates.registry import CertificateError
from mqenterprise.directory.cache import Cached, DirectoryCache
from mqenterprise.directory.chosen_directory import load_settings
from mqenterprise.directory.errors import (
    AccessRefused,
    BindRefused,
    ConstraintViolated,
    DirectoryError,
    DirectoryUnavailable,
    ObjectNotFound,
)
from mqenterprise.directory.logins import WRONG, check_password, groups_of, logged_in
from mqenterprise.directory.notification import Changed, Watcher
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.repositories import resolve_distribution_list, resolve_queue_alias
from mqenterprise.directory.security_descriptors import (
    QUEUE_MANAGER_RIGHTS,
    QUEUE_RIGHTS,
    RightsTable,
    to_active_directory,
    to_message_queuing,
)
from mqenterprise.directory.settings import DirectorySettings
from qmnode.directory.port import (
    AnyDirectoryObject,
    DirectoryObject,
    DirectoryOperationError,
    DirectoryOperationResult,
    DirectoryOptions,
    Enterprise,
    Filter,
    Queue,
    QueueManager,
    RoutingLink,
    Site,
    User,
    UserWriting,
    equals,
)
from qmnode.password_attempts import Attempts
from qmnode.security.key_stores import KeyRotation, KeyRotationOptions
from qmnode.settings.mistakes import faults_of
from qmnode.structures.guid import Guid

Answer = TypeVar("Answer")


@dataclass(slots=True)
class _Call:
    function: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class Workers:
    """A fixed number of daemon threads.

    Unlike a ThreadPoolExecutor's they do not keep the process alive: a server that never answers holds a thread until
    its socket times out, and stopping a node must not wait for that.
    """

    def __init__(self, threads: int, waiting: int) -> None:
        self._calls: queue.Queue[_Call | None] = queue.Queue(maxsize=waiting)
        self._threads = [
            threading.Thread(target=self._work, name=f"directory-{number}", daemon=True) for number in range(threads)
        ]
        self._closed = False
        for thread in self._threads:
            thread.start()

    async def call(self, function: Callable[[], Answer], limit: float) -> Answer:
        """The function's answer. ``DirectoryUnavailable`` after ``limit`` seconds, or at once when too many wait.

        A function that was not begun when its time was up is not called any more.
        """
        if self._closed:
            raise DirectoryUnavailable("this directory was closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        try:
            self._calls.put_nowait(_Call(function, loop, future))
        except queue.Full:
            raise DirectoryUnavailable("too many calls wait for the directory already") from None
        try:
            async with asyncio.timeout(limit):
                return await future
        except TimeoutError:
            raise DirectoryUnavailable(f"the directory did not answer within {limit:g} s") from None

    def close(self) -> None:
        """Let the threads end when they come back. Waiting work is refused."""
        self._closed = True
        while True:
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                break
            if call is not None:
                _finish(call, None, DirectoryUnavailable("this directory was closed"))
        for _ in self._threads:
            try:
                self._calls.put_nowait(None)
            except queue.Full:
                break

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            if call.future.done():
                continue
            try:
                answer = call.function()
            except BaseException as error:
                _finish(call, None, error)
            else:
                _finish(call, answer, None)


def _finish(call: _Call, answer: Any, error: BaseException | None) -> None:
    def settle() -> None:
        if call.future.done():
            return
        if error is not None:
            call.future.set_exception(error)
        else:
            call.future.set_result(answer)

    try:
        call.loop.call_soon_threadsafe(settle)
    except RuntimeError:
        return  # the loop is closed: nobody waits any more


ObjectType = TypeVar("ObjectType", bound=DirectoryObject)

log = structlog.get_logger(__name__)

RIGHTS: Final[dict[type[DirectoryObject], RightsTable]] = {Queue: QUEUE_RIGHTS, QueueManager: QUEUE_MANAGER_RIGHTS}
"""Kinds whose security descriptors a node checks access against."""
_TRIES: Final = 10
"""Wrong passwords of one user in a minute. The directory may lock accounts at a limit of its own."""
_LONGEST_ACCOUNT: Final = 256
_REPLACED: Final = frozenset(
    {"public_encryption_key_list", "public_signing_key_list", "public_signing_keys", "certificates"}
)
"""Attributes that stop being true when an administrator rotates a key or revokes a certificate."""
_SHARE_OF_LIST: Final = 0.8
"""The part of ``answer_limit`` for which members of a list are read."""
# A field whose equality is one direct look-up, and the repository's way to do it.
DIRECT: Final = {
    "identifier": "get",
    "full_path": "at",
    "pathname": "find",
    "computer_name": "find",
    "name": "find",
}

OF_COMPUTER: Final = "computer"
"""The queues of one computer are below its entry: listed, not searched for."""


class PortSettings(BaseModel):
    """How a node uses its directory, beside how the directory is reached."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    directory: DirectorySettings
    answer_limit: float = Field(default=10.0, gt=0, le=120)
    """Seconds that a caller waits at most."""
    threads: int = Field(default=4, ge=1, le=32)
    waiting: int = Field(default=256, ge=1)
    """Calls that may wait for a thread; more are refused at once."""
    fresh_for: float = Field(default=300.0, ge=0)
    """Seconds that what was read is good without asking again."""
    keys_for: float = Field(default=86_400.0, ge=0)
    """Seconds that keys, certificates, groups and the members of lists are good which were read before the directory
    went away. Messages to an older key wait; ``offline_cache_age`` of ``mqenterprise keys`` must be no shorter.
    """
    absent_for: float = Field(default=10.0, ge=0)
    """Seconds that an object which was not found is believed not to exist."""
    watch_interval: float = Field(default=2.0, gt=0)
    """Seconds between two looks for changes, where the server must be asked for them."""
    iterators: int = Field(default=64, ge=1)
    """Searches that may be begun and not ended; the oldest is forgotten."""


class LdapPort:
    """The implementation of :class:`qmnode.directory.port.Directory` over LDAP."""

    def __init__(
        self,
        settings: PortSettings,
        cache: DirectoryCache,
        service: EnterpriseDirectory | None = None,
        given: Mapping[str, Any] | None = None,
    ) -> None:
        """``given`` are the settings as the node's configuration states them."""
        self._settings = settings
        self._given = given or {}
        self._cache = cache
        self._service = service or EnterpriseDirectory(settings.directory)
        self._workers = Workers(settings.threads, settings.waiting)
        self._handles = itertools.count(1)
        self._iterators: OrderedDict[int, Iterator[DirectoryObject]] = OrderedDict()
        self._asking: dict[object, asyncio.Future[Any]] = {}
        self._attempts = Attempts(_TRIES, time.monotonic)
        self._offline = False
        self._watcher: Watcher | None = None
        self._listeners: list[Callable[[Guid | None], None]] = []
        self._changes = 0
        """Changes heard so far. An answer to a question from before a change may be older than that change."""

    @property
    def offline(self) -> bool:
        """QueueManager.DirectoryOffline: the last call found no directory."""
        return self._offline

    # Reading

    async def read_directory(
        self,
        object_type: type[AnyDirectoryObject],
        filters: Sequence[Filter] = (),
        attributes: Collection[str] | None = None,
        *,
        force_directory_read: bool = False,
    ) -> AnyDirectoryObject:
        """Read Directory (MS-MQDMPR 3.1.7.1.20): from the cache while it is fresh, else one search."""
        if not force_directory_read:
            self._refuse_absent(object_type, filters)
            known = self._cache.find(object_type, filters)
            if known is not None and self._cache.age(known) <= self._settings.fresh_for:
                return _as(object_type, known.found)
            if known is not None and self._offline and self._is_usable(known, attributes):
                return _as(object_type, known.found)
        if self._offline and not force_directory_read:
            raise DirectoryUnavailable("the directory is away and this was never read before")
        try:
            ask = partial(self._read, object_type, tuple(filters))
            found = await self._ask_once((object_type, tuple(filters)), ask)
        except DirectoryUnavailable:
            known = None if force_directory_read else self._cache.find(object_type, filters)
            if known is None or not self._is_usable(known, attributes):
                raise
            return _as(object_type, known.found)
        except ObjectNotFound:
            self._cache.put_absent(object_type, filters)
            raise
        return _as(object_type, found)

    async def read_directory_begin(self, object_type: type[DirectoryObject], filters: Sequence[Filter] = ()) -> int:
        """Read Directory Begin (3.1.7.1.21). Away from the directory: what this very search answered last."""
        if not self._offline:
            try:
                found = await self._ask(partial(self._search, object_type, tuple(filters)))
            except DirectoryUnavailable:
                found = self._remembered(object_type, filters)
        else:
            found = self._remembered(object_type, filters)
        handle = next(self._handles)
        self._iterators[handle] = iter(found)
        while len(self._iterators) > self._settings.iterators:
            self._iterators.popitem(last=False)
        return handle

    async def read_directory_next(self, handle: int) -> DirectoryObject:
        """Read Directory Next (3.1.7.1.22)."""
        iterator = self._iterators.get(handle)
        if iterator is None:
            raise DirectoryError(f"there is no search {handle}: it was ended, or too many were left open")
        try:
            return next(iterator)
        except StopIteration:
            raise DirectoryOperationError(DirectoryOperationResult.END_OF_DATA, "no more objects") from None

    async def read_directory_end(self, handle: int) -> None:
        """Read Directory End (3.1.7.1.23)."""
        self._iterators.pop(handle, None)

    # Writing

    async def create_directory_object(self, directory_object: DirectoryObject) -> Guid:
        """Create Directory Object (3.1.7.1.18): the GUID that the directory gave."""
        created = await self._ask(partial(self._create, self._service, directory_object))
        assert created.identifier is not None
        return created.identifier

    async def delete_directory_object(self, directory_object: DirectoryObject) -> None:
        """Delete Directory Object (3.1.7.1.19)."""
        await self._ask(partial(self._delete, self._service, directory_object))

    async def write_directory(
        self, directory_object: DirectoryObject, attributes: Collection[str] | None = None
    ) -> None:
        """The event Write Directory (MS-MQDMPR 3.1.7.1.24)."""
        await self._ask(partial(self._write, self._service, directory_object, attributes))

    def as_user(self, account: str, password: str) -> UserWriting:
        """The directory as a user may change it (:class:`qmnode.directory.port.UserAccess`)."""
        return _AsUser(self, account, password)

    async def write_as(
        self, account: str, password: str, write: Callable[[LdapPort, EnterpriseDirectory], Answer]
    ) -> Answer:
        """Write as a user, over a connection that is closed then. Not while the directory is away."""
        if self._offline:
            raise DirectoryUnavailable(f"the directory is away, so {account} cannot log in to it")
        key = account.casefold()[:_LONGEST_ACCOUNT]
        if not self._attempts.begin(key):
            raise AccessRefused(
                f"{_TRIES} wrong passwords of {account} in a minute: the directory is not asked now, try again later"
            )

        def work() -> Answer:
            try:
                with logged_in(self._service.connection, account, password) as service:
                    return write(self, service)
            except BindRefused:  # the directory is not away for the sake of a wrong password
                raise _WrongPassword(WRONG.format(account=account)) from None

        try:
            answer = await self._ask(work)
        except _WrongPassword:
            raise
        except BaseException:
            self._attempts.take_back(key)
            raise
        self._attempts.take_back(key)
        return answer

    async def resolve_distribution_list(self, identifier: Guid) -> tuple[str, ...]:
        """Resolve Distribution List (MS-MQDSSM 3.1.6.9): the format names of its queues.

        The directory is asked each time, as members move; while it is away, they are those of the last answer, for as
        long as keys are believed then.
        """
        known = self._cache.list_of(identifier)
        usable = known is not None and known.age <= self._settings.keys_for
        if known is not None and usable and self._offline:
            return known.queues
        # In less time than the limit of an answer, or a large list would make the directory count as down.
        seconds = _SHARE_OF_LIST * self._settings.answer_limit
        try:
            found = await self._ask(partial(resolve_distribution_list, self._service.connection, identifier, seconds))
        except DirectoryUnavailable as problem:
            if known is None:
                raise
            if not usable:
                age = f"{known.age:.0f} s, more than the {self._settings.keys_for:.0f} of keys_for"
                raise DirectoryUnavailable(
                    f"{problem.sentence}; the members of the list are known since {age}"
                ) from None
            return known.queues
        except ObjectNotFound:
            self._cache.forget_list(identifier)
            raise
        self._cache.put_list(identifier, found)
        return found

    async def resolve_queue_alias(self, full_path: str) -> str:
        """Resolve Queue Alias (MS-MQDSSM 3.1.6.8): the format name of the queue."""
        return await self._ask(partial(resolve_queue_alias, self._service.connection, full_path))

    async def expand_groups(self, security_identifier: bytes) -> tuple[bytes, ...]:
        """The SIDs of all groups of a user, nested ones too (:mod:`mqenterprise.directory.logins`).

        From the cache while that is fresh; while the directory is away, for as long as keys are believed then.
        """
        known = self._cache.groups(security_identifier)
        if known is not None and not known.changed and known.age <= self._settings.fresh_for:
            return known.groups
        usable = known is not None and known.age <= self._settings.keys_for
        if not (self._offline and usable):
            ask, changes = partial(groups_of, self._service.connection, security_identifier), self._changes
            try:
                found = await self._ask_once(("groups", security_identifier), ask)
            except DirectoryUnavailable:
                if not usable:
                    raise
            else:
                # One that may be older than a change is kept too, for when the directory is away.
                self._cache.put_groups(security_identifier, found, changed=self._changes != changes)
                return found
        assert known is not None
        return known.groups

    def key_rotation(self, options: KeyRotationOptions) -> KeyRotation:
        """The rotation of the node's own keys (:class:`qmnode.security.key_stores.RotatesKeys`)."""
        from mqenterprise.keys.own_node import OwnKeys  # only nodes that permit rotations load it

        return OwnKeys(options, self._given)

    async def check_password(self, account: str, password: str) -> bytes | None:
        """The SID of the user with this account name and password, or None (:mod:`mqenterprise.directory.logins`).

        Not from the cache; refused while the directory is away.
        """
        if self._offline:
            raise DirectoryUnavailable("the directory is away, so no password can be checked")
        return await self._ask(partial(check_password, self._service.connection, account, password))

    async def check_directory_online(self) -> bool:
        """The reading half of Check Directory Online (3.1.7.1.25): whether the Enterprise object can be read now."""
        try:
            await self._ask(self._service.enterprise)
        except DirectoryUnavailable:
            return False
        except DirectoryError:
            return True  # it answered, if only with a refusal
        return True

    def watch(self, on_changed: Callable[[Guid | None], None]) -> None:
        """Listen for changes: what changed is read anew at its next use, and ``on_changed`` is called in this loop.

        Without this a change is seen when the copy is older than :attr:`PortSettings.fresh_for`. A listener that joins
        late may have missed changes, and gets "reload".
        """
        loop = asyncio.get_running_loop()
        self._listeners.append(on_changed)
        if self._watcher is not None:
            loop.call_soon(on_changed, None)
            return

        self._watcher = Watcher(self._service.connection, partial(self._hear, loop), self._settings.watch_interval)
        self._watcher.start()

    def _hear(self, loop: asyncio.AbstractEventLoop, change: Changed) -> None:
        self._changes += 1
        # One identifier is enough, and by name all objects would be compared.
        self._cache.expire(change.identifier, change.full_path if change.identifier is None else None)
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            loop.call_soon_threadsafe(self._tell_listeners, change.identifier)

    def _tell_listeners(self, identifier: Guid | None) -> None:
        for listener in self._listeners:
            listener(identifier)

    async def close(self) -> None:
        """Give connections and threads back."""
        if self._watcher is not None:
            self._watcher.stop()
        self._workers.close()
        self._service.close()
        self._cache.close()

    async def _ask(self, function: Callable[[], Answer]) -> Answer:
        """Let a thread ask the directory, and note whether it is there."""
        try:
            answer = await self._workers.call(function, self._settings.answer_limit)
        except DirectoryUnavailable as problem:
            if not self._offline:
                log.warning("directory away", reason=problem.sentence)
            self._offline = True
            raise
        except DirectoryOperationError:
            self._offline = False
            raise
        if self._offline:
            log.info("directory back")
        self._offline = False
        return answer

    async def _ask_once(self, key: object, function: Callable[[], Answer]) -> Answer:
        """Ask, or wait for the answer to the same question: a burst to one unknown queue is one search.

        A question that was asked before a change is not the same.
        """
        key = self._changes, key
        task = self._asking.get(key)
        if task is None:
            task = asyncio.ensure_future(self._ask(function))
            self._asking[key] = task
            task.add_done_callback(lambda done: self._settled(key, done))
        return cast("Answer", await asyncio.shield(task))

    def _settled(self, key: object, task: asyncio.Future[Any]) -> None:
        self._asking.pop(key, None)
        if not task.cancelled():
            task.exception()  # noted here, as all who asked may have given up

    def _is_usable(self, known: Cached, attributes: Collection[str] | None) -> bool:
        """Whether something may be used while the directory is away: all but keys that may have been replaced."""
        return not _REPLACED.intersection(attributes or ()) or self._cache.age(known) <= self._settings.keys_for

    def _refuse_absent(self, object_type: type[DirectoryObject], filters: Sequence[Filter]) -> None:
        since = self._cache.absent_since(object_type, filters)
        if since is not None and since <= self._settings.absent_for:
            raise ObjectNotFound(f"there was no such {object_type.__name__} {since:.0f} s ago")

    def _remembered(self, object_type: type[DirectoryObject], filters: Sequence[Filter]) -> list[DirectoryObject]:
        known = self._cache.answer(object_type, filters)
        if known is None:
            raise DirectoryUnavailable("the directory is away and this was never searched before")
        return known

    # In a thread

    def _repository(self, kind: type[DirectoryObject], service: EnterpriseDirectory | None = None) -> Any:
        service = service or self._service
        table: dict[type[DirectoryObject], Any] = {
            Site: service.sites,
            RoutingLink: service.routing_links,
            QueueManager: service.queue_managers,
            Queue: service.queues,
            User: service.users,
        }
        if kind not in table:
            raise ConstraintViolated(f"a directory has no objects of the kind {kind.__name__}")
        return table[kind]

    def _written(self, kind: type[DirectoryObject], service: EnterpriseDirectory) -> Any:
        if kind not in RIGHTS:
            raise ConstraintViolated(f"a node writes queues and its queue manager; declare a {kind.__name__} instead")
        return self._repository(kind, service)

    def _for_node(self, found: ObjectType) -> ObjectType:
        """The object with its security descriptor as Message Queuing means it, which is what a node checks against."""
        try:
            return self._with_descriptor(found, to_message_queuing)
        except ValueError as error:
            log.warning("security descriptor not understood", object=found.full_path, reason=str(error))
            return replace(found, security=None)  # type: ignore[call-arg]

    def _for_directory(self, one: ObjectType) -> ObjectType:
        """The object with its security descriptor as the directory has it."""
        try:
            return self._with_descriptor(one, to_active_directory)
        except ValueError as error:
            raise ConstraintViolated(f"this is no security descriptor: {error}") from error

    def _with_descriptor(self, one: ObjectType, convert: Callable[[bytes, RightsTable], bytes]) -> ObjectType:
        """The object with its descriptor converted, if its directory has a form of its own. Raises ValueError."""
        rights, descriptor = RIGHTS.get(type(one)), getattr(one, "security", None)
        if rights is None or descriptor is None or not self._service.connection.dialect.gives_guid:
            return one
        return replace(one, security=convert(descriptor, rights))  # type: ignore[call-arg]

    def _read(self, kind: type[DirectoryObject], filters: tuple[Filter, ...]) -> DirectoryObject:
        changes = self._changes
        found = self._first(kind, filters)
        if found is None:
            raise ObjectNotFound(f"there is no such {kind.__name__}")
        found = self._for_node(found)
        self._cache.put(found)
        if self._changes != changes:
            self._cache.expire(found.identifier, found.full_path)
        return found

    def _first(self, kind: type[DirectoryObject], filters: tuple[Filter, ...]) -> DirectoryObject | None:
        if kind is Enterprise:
            return self._service.enterprise()
        repository = self._repository(kind)
        if len(filters) == 1 and filters[0].attribute in DIRECT:
            # 3.1.6.3 of MS-MQDSSM: what is named is read, not searched for.
            found: DirectoryObject | None = getattr(repository, DIRECT[filters[0].attribute])(filters[0].value)
            return found
        return next(repository.list(*filters), None)

    def _search(self, kind: type[DirectoryObject], filters: tuple[Filter, ...]) -> list[DirectoryObject]:
        if kind is Enterprise:
            found: list[DirectoryObject] = [self._service.enterprise()]
        elif kind is Queue and [each.attribute for each in filters] == [OF_COMPUTER]:
            found = [self._for_node(item) for item in self._service.queues.of(str(filters[0].value))]
        else:
            found = [self._for_node(item) for item in self._repository(kind).list(*filters)]
        self._cache.put_answer(kind, filters, found)
        return found

    def _create(self, service: EnterpriseDirectory, wanted: DirectoryObject) -> DirectoryObject:
        created: DirectoryObject = self._written(type(wanted), service).add(self._for_directory(wanted))
        self._cache.put(self._for_node(created))
        return created

    def _delete(self, service: EnterpriseDirectory, unwanted: DirectoryObject) -> None:
        if not isinstance(unwanted, Queue):
            raise ConstraintViolated(f"a node deletes queues; take a {type(unwanted).__name__} out of the declaration")
        service.queues.delete(unwanted)
        if unwanted.identifier is not None:
            self._cache.forget(type(unwanted), unwanted.identifier)

    def _write(
        self, service: EnterpriseDirectory, changed: DirectoryObject, attributes: Collection[str] | None = None
    ) -> None:
        self._written(type(changed), service).modify(self._for_directory(changed), attributes)
        if changed.identifier is not None:
            self._read(type(changed), (equals("identifier", changed.identifier),))


class _WrongPassword(AccessRefused):
    """The directory does not take the password of a user."""


class _AsUser:
    """The events that write, as a user of the directory."""

    def __init__(self, port: LdapPort, account: str, password: str) -> None:
        self._account = account
        self._write = partial(port.write_as, account, password)

    async def create_directory_object(self, directory_object: DirectoryObject) -> Guid:
        created = await self._write(lambda port, service: port._create(service, directory_object))
        assert created.identifier is not None
        return created.identifier

    async def delete_directory_object(self, directory_object: DirectoryObject) -> None:
        await self._write(lambda port, service: port._delete(service, directory_object))

    async def write_directory(self, directory_object: DirectoryObject) -> None:
        await self._write(lambda port, service: port._write(service, directory_object))

    async def register_certificate(self, certificate: bytes) -> None:
        await self._write(lambda _, service: _register(service, self._account, certificate))


def _register(service: EnterpriseDirectory, account: str, certificate: bytes) -> None:
    from mqenterprise.certificates.registry import CertificateRegistry  # few nodes need it

    try:
        CertificateRegistry(service).register(account, certificate)
    except CertificateError as error:
        raise ConstraintViolated(error.sentence) from None


def _as(object_type: type[AnyDirectoryObject], found: DirectoryObject) -> AnyDirectoryObject:
    assert isinstance(found, object_type)
    return found


def open_port(options: DirectoryOptions) -> LdapPort:
    """The entry point ``ldap`` of the group ``qmnode.directory``.

    The settings are those of :class:`PortSettings`, or ``file`` instead of ``directory``: what
    ``mqenterprise directory admit`` wrote.

    Raises :class:`DirectoryOperationError` with what is wrong in the settings.
    """
    values = dict(options.settings)
    file = values.pop("file", None)
    try:
        if file is not None:
            values["directory"] = load_settings(Path(file))
        settings = PortSettings.model_validate(values)
    except ValidationError as error:
        raise DirectoryError(f"the node's directory settings are wrong: {faults_of(error)}") from error
    return LdapPort(settings, DirectoryCache(options.cache_path), given=options.settings)
