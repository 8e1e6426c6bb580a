"""Public queues and the directory: MS-MQDMPR 3.1.7.1.3 to 3.1.7.1.5, 3.1.7.1.18, 19, 24 and 26.

A node without a directory keeps its public queues to itself: they have identifiers that only this node resolves.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from qmnode.directory.port import (
    Directory,
    DirectoryOperationError,
    DirectoryOperationResult,
    DirectoryWriting,
    Queue,
    QueueManager,
    UserAccess,
    UserWriting,
    equals,
    search,
)
from qmnode.errors import MessageQueuingError
from qmnode.model import queue as model_queue
from qmnode.model.api import DirectoryLogin, QueueInformation, QueueProperties, QueueType
from qmnode.objects.rows import Changes, Door
from qmnode.objects.table import QUEUE as ROWS
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import ZERO_GUID, Guid, new_guid
from qmnode.structures.names import (
    DirectFormatName,
    DirectProtocol,
    FormatName,
    PathName,
    PrivateFormatName,
    PublicFormatName,
)

if TYPE_CHECKING:
    from qmnode.model.shared_state import Context

_PUBLISHED: Final = tuple(row.in_directory for row in ROWS.at(Door.DIRECTORY))
_FOLLOWED: Final = tuple(row.in_directory for row in ROWS.at(Door.DIRECTORY) if row.changes is Changes.ALWAYS)
"""Attributes that may change after a queue was created."""
_CODES: Final = {
    DirectoryOperationResult.DIRECTORY_NOT_CONNECTED: ErrorCode.MQ_ERROR_NO_DS,
    DirectoryOperationResult.OBJECT_ALREADY_EXISTS: ErrorCode.MQ_ERROR_QUEUE_EXISTS,
    DirectoryOperationResult.OBJECT_NOT_FOUND: ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND,
}
_WEB: Final = (DirectProtocol.HTTP, DirectProtocol.HTTPS)


class PublishedQueues:
    """This queue manager's public queues, and those of others, in the directory."""

    def __init__(self, context: "Context", directory: Directory | None) -> None:
        self._context = context
        self._directory = directory
        self.weakened_security = False
        """Enterprise.WeakenedSecurity (3.1.1.6): the node's own credentials are used, and never those of callers."""

    @property
    def has_directory(self) -> bool:
        """Whether there is a directory, which may be down; False in a workgroup."""
        return self._directory is not None

    async def publish(self, pathname: str, properties: dict[str, Any], login: DirectoryLogin | None = None) -> Guid:
        """Create Directory Object (3.1.7.1.18): the identifier of a new public queue."""
        if self._directory is None:
            return new_guid()
        with _as_caller(login):
            return await self._written_by(login).create_directory_object(_published(pathname, properties))

    async def withdraw(self, queue: "model_queue.Queue", login: DirectoryLogin | None = None) -> None:
        """Delete Directory Object (3.1.7.1.19)."""
        if self._directory is not None:
            with _as_caller(login):
                await self._written_by(login).delete_directory_object(_present(queue))

    async def update(
        self, queue: "model_queue.Queue", changed: dict[str, Any], login: DirectoryLogin | None = None
    ) -> None:
        """Write Directory (3.1.7.1.24): publish attributes of a public queue that change."""
        if self._directory is not None:
            with _as_caller(login):
                await self._written_by(login).write_directory(_present(queue, changed))

    def _written_by(self, login: DirectoryLogin | None) -> DirectoryWriting:
        """The directory, with the credentials of the caller that has some, unless security is weakened (3.1.1.6)."""
        if login is None or self.weakened_security:
            return self._connected()
        return self._as_user(login)

    def _as_user(self, login: DirectoryLogin) -> UserWriting:
        directory = self._connected()
        if not isinstance(directory, UserAccess):
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_DS_ERROR, "users do not log in to the directory of this node: name no user"
            )
        return directory.as_user(login.account, login.password)

    async def register_certificate(self, certificate: bytes, login: DirectoryLogin | None) -> None:
        """Register a certificate (DER) for the user who logs in. A node may not do that, with weakened security either.

        Raises MQ_ERROR_ACCESS_DENIED without a login, or when the directory refuses it.
        """
        if login is None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ACCESS_DENIED,
                "a user's certificate is registered with the user's own login to the directory: give one",
            )
        with _as_caller(login):
            await self._as_user(login).register_certificate(certificate)

    def follow(self, queue: "model_queue.Queue", found: Queue) -> bool:
        """Apply the directory's attributes to a public queue of ours (3.1.7.1.25); return whether any differed.

        An administrator's change in the directory counts as much as one made here.
        """
        said = {name: value for name in _FOLLOWED if (value := getattr(found, name)) is not None}
        said.setdefault("type", ZERO_GUID)  # LDAP has no attribute without a value
        policy = self._context.access_policy
        if policy is not None and "security" in said:
            said["security"] = policy.followed_queue_security(queue.security, said["security"])
        differing = queue.differing(cast("QueueProperties", said))
        if differing:
            queue.set_properties(**differing)
            self._context.store.put_queue(queue.queue_id, queue.definition())
        return bool(differing)

    def adopt(self, found: Queue) -> bool:
        """Create a public queue of ours that an administrator has put into the directory; return whether it is new."""
        name = self._context.names.path(found.pathname)
        known = self._context.names.by_path(name)
        if known is not None or found.identifier is None:
            return False
        said = {name: value for name in _PUBLISHED if (value := getattr(found, name)) is not None}
        self._context.queues.adopt(name, said, found.identifier)
        return True

    async def take_over(self, name: PublicFormatName) -> None:
        """Create a public queue that the directory has at another computer, under its identifier: it is to move here.

        Raises MQ_ERROR_QUEUE_EXISTS if another queue of this node has its name.
        """
        self.adopt(await self.to_take_over(name))

    async def to_take_over(self, name: PublicFormatName) -> Queue:
        """The queue that ``take_over`` would create, with the same errors."""
        with _as_caller(None):
            found = await self._read(name)
        here = f"{self._context.computer_name}\\{found.pathname.partition(chr(92))[2]}"
        if self._context.names.by_path(self._context.names.path(here)) is not None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_QUEUE_EXISTS,
                f"{here} exists, and is another queue than {found.pathname}: delete it or rename it first",
            )
        return replace(found, pathname=here)

    async def of_outgoing(self, name: PublicFormatName) -> QueueProperties:
        """The properties of an outgoing queue that its destination decides: BasePriority of a public queue (3.1.7.1.5).

        Raises MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION if the directory does not know it or there is no directory, and
        MQ_ERROR_NO_DS if the directory cannot be reached or does not answer in time.
        """
        patience = self._context.settings.transfer.directory_answer_timeout
        try:
            async with asyncio.timeout(patience):
                return {"base_priority": (await self._read(name)).base_priority}
        except TimeoutError:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_NO_DS,
                f"{name} cannot be opened: the directory did not answer within {patience:g} s "
                "(transfer.directory_answer_timeout); try again when it does",
            ) from None
        except DirectoryOperationError as error:
            away = self._directory is not None and error.result is DirectoryOperationResult.DIRECTORY_NOT_CONNECTED
            code = ErrorCode.MQ_ERROR_NO_DS if away else ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
            raise MessageQueuingError(code, f"{name} cannot be opened: {error.sentence}") from None

    async def get_queue_path(self, name: FormatName) -> tuple[str, str]:
        """Get Queue Path (3.1.7.1.26): its path name or "", its computer. Raises MQ_ERROR_ILLEGAL_FORMATNAME."""
        local = self._context.names.local(name) if self._context.names.is_local(name) else None
        try:
            match name:
                case DirectFormatName():
                    return ("" if name.protocol in _WEB else str(name.path)), name.path.computer
                case _ if local is not None:
                    return local.pathname, self._context.computer_name
                case PublicFormatName():
                    pathname = (await self._read(name)).pathname
                    return pathname, PathName.parse(pathname).computer
                case PrivateFormatName():
                    return "", await self._computer_of(name)
        except DirectoryOperationError as error:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME, f"{name}: {error.sentence}") from None
        raise MessageQueuingError(ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME, f"{name} has no path name")

    async def find(
        self, label: str | None, type: Guid | None, computer: str | None, identifier: Guid | None = None
    ) -> list[Queue]:
        """The public queues in the directory with these attributes, on this computer, in the order of path names."""
        # LDAP has no attribute without a value: queues of no type are found among all.
        kind = None if type == ZERO_GUID else type
        wanted = {"identifier": identifier, "label": label, "type": kind, "computer": computer}
        filters = [equals(name, value) for name, value in wanted.items() if value is not None]
        try:
            found = search(self._connected(), Queue, filters)
            rows = [queue async for queue in found if type != ZERO_GUID or queue.type in (None, ZERO_GUID)]
            return sorted(rows, key=lambda queue: queue.pathname.upper())
        except DirectoryOperationError as error:
            if error.result is DirectoryOperationResult.OBJECT_NOT_FOUND:
                raise MessageQueuingError(ErrorCode.MQ_ERROR_MACHINE_NOT_FOUND, error.sentence) from None
            raise as_message_queuing_error(error) from None

    async def find_machine(self, wanted: str | Guid) -> QueueManager:
        """The queue manager in the directory with a computer name or an identifier; MQ_ERROR_MACHINE_NOT_FOUND."""
        name = "computer_name" if isinstance(wanted, str) else "identifier"
        try:
            return await self._connected().read_directory(QueueManager, [equals(name, wanted)])
        except DirectoryOperationError as error:
            if error.result is DirectoryOperationResult.OBJECT_NOT_FOUND:
                raise MessageQueuingError(ErrorCode.MQ_ERROR_MACHINE_NOT_FOUND, error.sentence) from None
            raise as_message_queuing_error(error) from None

    async def is_machine(self, host: str) -> bool:
        """Whether the directory has a machine of this computer name or DNS name. False for addresses, and while it
        cannot be asked."""
        name = host.rstrip(".")
        computer, _, domain = name.partition(".")
        if self._directory is None or ":" in name or not computer:
            return False
        try:
            found = await self._directory.read_directory(QueueManager, [equals("computer_name", computer)])
        except DirectoryOperationError:
            return False
        return not domain or (found.qualified_computer_name or "").casefold() == name.casefold()

    async def _read(self, name: PublicFormatName) -> Queue:
        return await self._connected().read_directory(Queue, [equals("identifier", name.queue)])

    async def _computer_of(self, name: PrivateFormatName) -> str:
        if name.computer == self._context.identifier:
            return self._context.computer_name
        owner = await self._connected().read_directory(QueueManager, [equals("identifier", name.computer)])
        return owner.computer_name

    def _connected(self) -> Directory:
        if self._directory is None:
            raise DirectoryOperationError(
                DirectoryOperationResult.DIRECTORY_NOT_CONNECTED, "this node has no directory to look it up in"
            )
        return self._directory


def _present(queue: "model_queue.Queue", changed: dict[str, Any] | None = None) -> Queue:
    properties = {name: getattr(queue, name) for name in _PUBLISHED} | (changed or {})
    return _published(queue.pathname, properties, queue.identifier)


@contextmanager
def _as_caller(login: DirectoryLogin | None) -> Iterator[None]:
    """Raise errors of the directory as the field's."""
    try:
        yield
    except DirectoryOperationError as error:
        if login is not None and error.refused:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_ACCESS_DENIED, error.sentence) from None
        raise as_message_queuing_error(error) from None


def _published(pathname: str, properties: dict[str, Any], identifier: Guid | None = None) -> Queue:
    given = {name: properties[name] for name in _PUBLISHED if name in properties}
    if not given.get("security"):
        given.pop("security", None)
    for name, row in ROWS.items():
        if row.form.names and name in given:
            given[name] = row.form.read(row.form.write(given[name]))  # a stored one is a bare number
    return Queue(pathname=pathname, identifier=identifier, **given)


def information_of(found: Queue) -> QueueInformation:
    """A queue as the directory describes it, of this machine or of another."""
    given: dict[str, Any] = {name: value for name in _PUBLISHED if (value := getattr(found, name)) is not None}
    given.pop("security", None)
    identifier = found.identifier or ZERO_GUID
    given |= {"create_time": found.create_time or 0, "modify_time": found.modify_time or 0}
    return QueueInformation(
        found.pathname, str(PublicFormatName(identifier)), QueueType.PUBLIC, identifier=identifier, **given
    )


def as_message_queuing_error(error: DirectoryOperationError, whose: str = "") -> MessageQueuingError:
    """The field's error for one of the directory; ``whose`` begins its sentence."""
    return MessageQueuingError(_CODES.get(error.result, ErrorCode.MQ_ERROR_DS_ERROR), f"{whose}{error.sentence}")
