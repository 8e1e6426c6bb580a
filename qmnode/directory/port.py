"""The port: the directory interface of a node, and the workgroup answer of a node without a directory.

It has the directory attributes of the ADM elements (MS-MQDMPR 3.1.1.1, 3.1.1.2, 3.1.1.6 to 3.1.1.8, 3.1.1.15), the
directory events (3.1.7.1.18 to 3.1.7.1.25) as a protocol, and :class:`WorkgroupDirectory`. The way an event reaches a
server is not defined here: an implementation is found through the entry point group ``qmnode.directory``.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from qmnode.objects.rows import NO_QUOTA
from qmnode.objects.table import OperatingSystemType
from qmnode.structures.enumerations import QueuePrivacyLevel

if TYPE_CHECKING:
    from qmnode.structures.guid import Guid

ENTRY_POINT_GROUP = "qmnode.directory"


class DirectoryOperationResult(enum.Enum):
    """The result of a directory operation (MS-MQDMPR 3.1.1.17)."""

    SUCCESS = "Success"
    GENERIC_ERROR = "GenericError"
    DIRECTORY_NOT_CONNECTED = "DirectoryNotConnected"
    OBJECT_NOT_FOUND = "ObjectNotFound"
    ATTRIBUTE_NOT_FOUND = "AttributeNotFound"
    END_OF_DATA = "EndOfData"
    OBJECT_ALREADY_EXISTS = "ObjectAlreadyExists"


class DirectoryOperationError(Exception):
    """A directory operation that did not succeed: its result, and a sentence that says what to do."""

    refused = False
    """Whether the directory answered that the account may not do it."""

    def __init__(self, result: DirectoryOperationResult, sentence: str) -> None:
        super().__init__(sentence)
        self.result = result
        self.sentence = sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryObject:
    """The attributes of every object in the directory (MS-MQDMPR 3.1.1). ``None`` is not written, or was not read."""

    identifier: Guid | None = None
    full_path: str | None = None
    """The distinguished name, set by the directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enterprise(DirectoryObject):
    """The enterprise's settings (MS-MQDMPR 3.1.1.6, MS-MQDSSM 3.1.6.11.3)."""

    name: str | None = None
    # properties: enterprise, in the directory
    weakened_security: bool = False
    non_ldap_capable_queue_manager_notification: bool = True
    default_time_to_live: int = 345600
    old_directory: bool = False
    security: bytes | None = None
    # end of properties


@dataclass(frozen=True, slots=True, kw_only=True)
class Site(DirectoryObject):
    """A site, possibly a foreign one (MS-MQDMPR 3.1.1.7, MS-MQDSSM 3.1.6.11.4)."""

    name: str
    # properties: site, in the directory
    intra_site_replication_interval: int = 2
    inter_site_replication_interval: int = 10
    foreign_site: bool = False
    migrated_from_msmq10: bool = False
    security: bytes | None = None
    # end of properties


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingLink(DirectoryObject):
    """A routing link between two sites (MS-MQDMPR 3.1.1.8). The cost is 1 to 999,999."""

    site1_identifier: Guid
    site2_identifier: Guid
    actual_cost: int
    site_gate_identifier_list: tuple[Guid, ...] = ()
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueManager(DirectoryObject):
    """A queue manager: computer, configuration and settings per site (MS-MQDMPR 3.1.1.1, MS-MQDSSM 3.1.6.11.1)."""

    computer_name: str
    """The NetBIOS name of the computer."""
    operating_system_version: str | None = None
    create_time: int | None = None
    """Seconds since 1970, set by the directory; so is :attr:`modify_time`."""
    modify_time: int | None = None
    # properties: machine, in the directory
    queue_manager_quota: int = 1048576
    journal_quota: int = NO_QUOTA
    foreign_system: bool = False
    site_identifier_list: tuple[Guid, ...] = ()
    out_routing_server_identifier_list: tuple[Guid, ...] = ()
    in_routing_server_identifier_list: tuple[Guid, ...] = ()
    routing_server: bool = False
    directory_server: bool = False
    supporting_server: bool = False
    operating_system_type: OperatingSystemType = OperatingSystemType.OTHER
    queue_manager_version: str = ""
    qualified_computer_name: str | None = None
    # end of properties
    public_encryption_key_list: bytes | None = None
    """The keys that encrypt messages to this queue manager: MQDSPUBLICKEYS (MS-MQMQ 2.2.2)."""
    public_signing_key_list: bytes | None = None
    """MQUSERSIGNCERTS (MS-MQMQ 2.2.21), on the computer object (MS-MQDSSM 3.1.6.7.1.8)."""
    public_signing_keys: bytes | None = None
    """MQDSPUBLICKEYS (MS-MQMQ 2.2.2), PublicSigningKeyList of MS-MQDMPR 3.1.1.1; the schema has one for each."""
    security: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue(DirectoryObject):
    """A public queue (MS-MQDMPR 3.1.1.2, MS-MQDSSM 3.1.6.11.2)."""

    pathname: str
    r"""``computer\queue``, in lower case when it was read (MS-MQDSSM 3.1.6.11.2.1)."""
    create_time: int | None = None
    modify_time: int | None = None
    # properties: queue, in the directory
    label: str = ""
    type: Guid | None = None
    journaling: bool = False
    quota: int = NO_QUOTA
    journal_quota: int = NO_QUOTA
    authentication: bool = False
    privacy_level: QueuePrivacyLevel = QueuePrivacyLevel.OPTIONAL
    transactional: bool = False
    multicast_address: str = ""
    base_priority: int = 0
    security: bytes | None = None
    # end of properties

    @property
    def computer(self) -> str:
        """The computer that holds the queue. A search may filter by it."""
        return self.pathname.partition("\\")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class User(DirectoryObject):
    """A user and the certificates that messages are signed with (MS-MQDMPR 3.1.1.15, MS-MQDSSM 3.1.6.11.6)."""

    name: str
    """The account name; not part of the ADM, but the name that people and declarations use."""
    security_identifier: bytes | None = None
    certificate_digest_list: tuple[bytes, ...] = ()
    """MD5 digests, in the order of the certificates."""
    certificates: bytes | None = None
    """The user's certificates as MQUSERSIGNCERTS (MS-MQMQ 2.2.21)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAlias(DirectoryObject):
    """An object that stands for a queue (MS-MQDSSM 3.1.6.8)."""

    name: str
    format_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributionList(DirectoryObject):
    """A group of public queues, queue aliases and other lists (MS-MQMQ 2.1.5, MS-MQDSSM 3.1.6.9)."""

    name: str
    members: tuple[str, ...] = ()
    """Their distinguished names in the directory."""


AnyDirectoryObject = TypeVar("AnyDirectoryObject", bound=DirectoryObject)


@dataclass(frozen=True, slots=True)
class Filter:
    """An attribute-filter expression with the operator EQUALS (MS-MQDMPR 3.1.7.1.20): a field of the object's class."""

    attribute: str
    value: object


def equals(attribute: str, value: object) -> Filter:
    """The filter ``attribute EQUALS value``."""
    return Filter(attribute, value)


class Directory(Protocol):
    """The directory events of MS-MQDMPR 3.1.7.1.18 to 3.1.7.1.25.

    Every call is bounded in time and raises :class:`DirectoryOperationError`; none of them blocks the event loop. When
    the directory is down, calls are answered from the cache where possible, or fail with ``DirectoryNotConnected``.
    """

    @property
    def offline(self) -> bool:
        """QueueManager.DirectoryOffline: whether the node is without its directory at the moment."""

    async def create_directory_object(self, directory_object: DirectoryObject) -> Guid:
        """Create Directory Object (3.1.7.1.18): return the GUID that the directory assigned."""

    async def delete_directory_object(self, directory_object: DirectoryObject) -> None:
        """Delete Directory Object (3.1.7.1.19), by its identifier."""

    async def read_directory(
        self,
        object_type: type[AnyDirectoryObject],
        filters: Sequence[Filter] = (),
        attributes: Collection[str] | None = None,
        *,
        force_directory_read: bool = False,
    ) -> AnyDirectoryObject:
        """Read Directory (3.1.7.1.20): the first object that satisfies all filters."""

    async def read_directory_begin(self, object_type: type[DirectoryObject], filters: Sequence[Filter] = ()) -> int:
        """Read Directory Begin (3.1.7.1.21): a handle for the two events that follow."""

    async def read_directory_next(self, handle: int) -> DirectoryObject:
        """Read Directory Next (3.1.7.1.22). Raises ``EndOfData`` after the last object."""

    async def read_directory_end(self, handle: int) -> None:
        """Read Directory End (3.1.7.1.23): close the handle."""

    async def write_directory(
        self, directory_object: DirectoryObject, attributes: Collection[str] | None = None
    ) -> None:
        """Write Directory (3.1.7.1.24): write the named attributes."""

    async def resolve_distribution_list(self, identifier: Guid) -> tuple[str, ...]:
        """Resolve Distribution List (MS-MQDSSM 3.1.6.9): the format names of its queues, as text."""

    async def resolve_queue_alias(self, full_path: str) -> str:
        """Resolve Queue Alias (MS-MQDSSM 3.1.6.8): the format name of the queue, as text."""

    async def check_directory_online(self) -> bool:
        """Whether the directory answers now: the reading half of Check Directory Online (3.1.7.1.25)."""

    def watch(self, on_changed: Callable[[Guid | None], None]) -> None:
        """Call ``on_changed``, in the current event loop, with the identifier of each object that changes from now on.

        None instead of an identifier means that any object may have changed, or that one was deleted.
        """

    async def close(self) -> None:
        """Close connections and threads. Calls that are still running end with ``DirectoryNotConnected``."""


@runtime_checkable
class GroupExpansion(Protocol):
    """An additional ability of a directory that knows groups of users: the token of a sender.

    MS-MQQB 3.1.5.8.3 takes it from the local security authority and a Kerberos PAC, which only Windows has.
    """

    async def expand_groups(self, security_identifier: bytes) -> tuple[bytes, ...]:
        """The SIDs of all groups that the user is a member of, directly or through other groups.

        Bounded in time. Raises :class:`DirectoryOperationError`, with ``ObjectNotFound`` for a SID that is no user's.
        """


class DirectoryWriting(Protocol):
    """The events of :class:`Directory` that change objects. Write Directory writes the attributes that differ."""

    async def create_directory_object(self, directory_object: DirectoryObject) -> Guid: ...

    async def delete_directory_object(self, directory_object: DirectoryObject) -> None: ...

    async def write_directory(self, directory_object: DirectoryObject) -> None: ...


class UserWriting(DirectoryWriting, Protocol):
    """The events that change objects, as a user who has logged in."""

    async def register_certificate(self, certificate: bytes) -> None:
        """Add a certificate (DER) to those that the user signs messages with, unless it is one of them already."""


@runtime_checkable
class UserAccess(Protocol):
    """An additional ability of a directory that users log in to: it writes with an application's credentials."""

    def as_user(self, account: str, password: str) -> UserWriting:
        """The directory as this user may change it. Each event logs in anew; ``refused`` is true of its errors if the
        directory does not let the user do it.
        """


@runtime_checkable
class PasswordCheck(Protocol):
    """An additional ability of a directory that knows the passwords of users."""

    async def check_password(self, account: str, password: str) -> bytes | None:
        """The SID of the user with this account name and this password; None if there is none.

        Bounded in time. Raises :class:`DirectoryOperationError` if that is not known now.
        """


async def search(
    directory: Directory,
    object_type: type[AnyDirectoryObject],
    filters: Sequence[Filter] = (),
) -> AsyncIterator[AnyDirectoryObject]:
    """All objects that satisfy the filters: Begin, Next until the end of data, and End in every case."""
    handle = await directory.read_directory_begin(object_type, filters)
    try:
        while True:
            try:
                found = await directory.read_directory_next(handle)
            except DirectoryOperationError as error:
                if error.result is DirectoryOperationResult.END_OF_DATA:
                    return
                raise
            if isinstance(found, object_type):
                yield found
    finally:
        await directory.read_directory_end(handle)


class WorkgroupDirectory:
    """The answer of a node in workgroup mode: there is no directory (QueueManager.DirectoryIntegrated is false)."""

    offline = False  # 3.1.1.1: DirectoryOffline must be false when DirectoryIntegrated is

    async def _refuse(self, *_: Any, **__: Any) -> Any:
        """``DirectoryNotConnected``: there is no directory."""
        raise DirectoryOperationError(
            DirectoryOperationResult.DIRECTORY_NOT_CONNECTED,
            "this node runs in workgroup mode and has no directory: use a private queue or a DIRECT format name",
        )

    create_directory_object = delete_directory_object = write_directory = _refuse
    read_directory = read_directory_begin = read_directory_next = _refuse
    resolve_distribution_list = resolve_queue_alias = _refuse

    async def read_directory_end(self, handle: int) -> None:
        """Does nothing, as no reading was begun."""

    async def check_directory_online(self) -> bool:
        return False

    def watch(self, on_changed: Callable[[Guid | None], None]) -> None:
        """Does nothing: without a directory there are no changes."""

    async def close(self) -> None:
        """Does nothing: there are no connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryOptions:
    """The arguments for opening a directory's implementation."""

    settings: Mapping[str, Any]
    """The implementation's own settings, as the node's configuration states them."""
    cache_path: Path
    """The path of its cache, for times when the directory is down."""
    identifier: Guid | None = None
    """QueueManager.Identifier of the node, if it is settled already."""


def open_directory(name: str | None, options: DirectoryOptions, *, factories: Iterable[Any] | None = None) -> Directory:
    """The directory of that name from the entry point group ``qmnode.directory``; workgroup mode without a name.

    Raises :class:`DirectoryOperationError` if no implementation of that name is installed.
    """
    if name is None:
        return WorkgroupDirectory()
    installed = list(entry_points(group=ENTRY_POINT_GROUP) if factories is None else factories)
    for entry_point in installed:
        if entry_point.name == name:
            factory: Callable[[DirectoryOptions], Directory] = entry_point.load()
            return factory(options)
    known = ", ".join(sorted(entry_point.name for entry_point in installed)) or "none"
    raise DirectoryOperationError(
        DirectoryOperationResult.GENERIC_ERROR,
        f"no directory named {name!r} is installed (known: {known}): install the extra 'enterprise'",
    )
