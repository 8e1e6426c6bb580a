"""Open Queue, MS-MQDMPR 3.1.7.1.5: from a format name to an open queue, to several at once, or to the right error."""

import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, CursorApi, InTransaction, QueueApi, QueueProperties, QueueType, Share
from qmnode.model.message import Message
from qmnode.model.open_queue import Mark, OpenQueueDescriptor, asks_for_authentication
from qmnode.model.ports import PutSignature, RemoteReader
from qmnode.model.queue import OutgoingQueue, Queue
from qmnode.model.queue_collection import check_transport
from qmnode.model.transaction import Transaction
from qmnode.shares import OUTGOING_QUEUES, OWN, Account, Party
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid, new_guid
from qmnode.structures.names import (
    ConnectorFormatName,
    DistributionListFormatName,
    FormatName,
    MultipleElementFormatName,
    PathName,
    PublicFormatName,
    fold,
)
from qmnode.structures.security_descriptor import QueueAccess

if TYPE_CHECKING:
    from qmnode.model.shared_state import Context

F = TypeVar("F", bound=Callable[..., Any])

_RECEIVE: Final = "receive"
_PEEK: Final = "peek"
_KINDS: Final = {
    Access.RECEIVE: _RECEIVE,
    Access.RECEIVE_ADMIN: _RECEIVE,
    Access.PEEK: _PEEK,
    Access.PEEK_ADMIN: _PEEK,
}

# For the kind and mode of an open handle: the new ones that it excludes, first match as the specification orders them.
_EXCLUDED: Final = (
    ((_RECEIVE, Share.DENY_RECEIVE), lambda kind, share: share is Share.DENY_RECEIVE or kind == _RECEIVE),
    ((_PEEK, Share.DENY_RECEIVE), lambda kind, share: kind == _RECEIVE),
    ((_RECEIVE, Share.DENY_NONE), lambda kind, share: share is Share.DENY_RECEIVE),
)


def conflicts(opened: Iterable[tuple[Access, Share]], access: Access, share: Share) -> bool:
    """Whether a handle opened like this prevents opening the queue with ``access`` and ``share``."""
    present = {(_KINDS.get(open_access), open_share) for open_access, open_share in opened}
    kind = _KINDS.get(access)
    for combination, excludes in _EXCLUDED:
        if combination in present:
            return excludes(kind, share)
    return False


ResolveDistributionList = Callable[[DistributionListFormatName], Awaitable[Iterable[FormatName]]]
"""Resolve Distribution List (MS-MQDSSM 3.1.6.9): the members of a group in the directory."""

_MAXIMUM_LISTS = 1000


async def expand_format_name(
    name: FormatName | MultipleElementFormatName, resolve: ResolveDistributionList | None
) -> tuple[FormatName, ...]:
    """The single names that a name stands for, sorted and without duplicates.

    Raises MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION for a distribution list when there is no directory.
    """
    if not isinstance(name, MultipleElementFormatName | DistributionListFormatName):
        return (name,)
    waiting: list[FormatName] = list(name.elements) if isinstance(name, MultipleElementFormatName) else [name]
    found: dict[str, FormatName] = {}
    lists: set[str] = set()
    while waiting:
        one = waiting.pop(0)
        if not isinstance(one, DistributionListFormatName):
            found.setdefault(fold(str(one)), one)
            continue
        if resolve is None or len(lists) > _MAXIMUM_LISTS:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
                f"{one} is a distribution list, and there is no directory to look it up in",
            )
        # A list that contains itself, directly or not, is looked up once.
        if fold(str(one)) not in lists:
            lists.add(fold(str(one)))
            waiting.extend(await resolve(one))
    return tuple(found[key] for key in sorted(found))


def _refused(method: F) -> F:
    """The method of a name of several queues, which can only be sent to."""

    async def refuse(self: "MultipleQueueDescriptor", /, *_: Any, **__: Any) -> NoReturn:
        self._only_sends()

    return cast("F", functools.wraps(method, updated=())(refuse))


class MultipleQueueDescriptor(QueueApi):
    """An OpenQueueDescriptor whose ``Multiple`` is true (3.1.1.16): it sends a copy of a message to each queue."""

    def __init__(self, format_name: str, descriptors: list[OpenQueueDescriptor]) -> None:
        self.format_name = format_name
        self.access = Access.SEND
        self.share = Share.DENY_NONE
        self.descriptors = descriptors
        self._context = descriptors[0].context
        self._open = True

    async def send(self, message: Message, transaction: InTransaction = None) -> bytes:
        """Enqueue Message To An Open Queue (3.1.7.1.27)."""
        return (await self.send_many([message], transaction))[0]

    async def send_many(
        self, messages: Iterable[Message], transaction: InTransaction = None, mark: Mark | None = None
    ) -> list[bytes]:
        """Send a copy of each message to each queue, or of none if one is refused."""
        if not self._open:
            self._refuse(ErrorCode.MQ_ERROR_INVALID_HANDLE, f"{self.format_name} was closed: open it again")
        copies = [message.copy() for message in messages]
        for copy in copies:
            copy.__dict__["destination_multi_queue_format_name"] = self.format_name
        signatures = [await self._signatures(descriptor, copies, transaction) for descriptor in self.descriptors]
        units = [descriptor.unit_of_work(transaction) for descriptor in self.descriptors]
        unit = next((one for one in units if one is not None), None)
        try:
            identifiers = [self._send_copies(copy, unit, puts) for copy, *puts in zip(copies, *signatures, strict=True)]
        except MessageQueuingError:
            if transaction == "single" and unit is not None:
                unit.transaction_abort()
            raise
        if mark is not None:
            mark(identifiers)
        if transaction == "single" and unit is not None:
            await unit.commit()
        elif unit is None:
            await self._context.store.durable()
        return identifiers

    async def _signatures(
        self, descriptor: OpenQueueDescriptor, copies: list[Message], transaction: InTransaction
    ) -> Sequence[PutSignature | None]:
        if not any(map(asks_for_authentication, copies)):
            return [None] * len(copies)
        descriptor.user_id = self.user_id
        return await descriptor.signatures(copies, transaction)

    def _send_copies(self, copy: Message, unit: Transaction | None, puts: Sequence[PutSignature | None]) -> bytes:
        shared = self._context.ordinal.next()
        left = False
        accepted = []
        for descriptor, put in zip(self.descriptors, puts, strict=True):
            # A receiver recognises repetitions by their identifier (MS-MQQB 3.1.5.8.1): it would drop the second of two
            # copies for queues of its own. So of the departing copies, only one has the identifier that the sender
            # gets.
            is_outgoing = descriptor.queue.queue_type is QueueType.OUTGOING
            ordinal = self._context.ordinal.next() if is_outgoing and left else shared
            left = left or is_outgoing
            accepted.append(descriptor.accept(copy, unit, ordinal=ordinal, put_signature=put))
        for descriptor, (lookup_identifier, value, _) in zip(self.descriptors, accepted, strict=True):
            descriptor.put(lookup_identifier, value, unit)
        return accepted[0][2]

    def _refuse(self, code: ErrorCode, sentence: str) -> NoReturn:
        raise MessageQueuingError(code, sentence)

    def _only_sends(self) -> NoReturn:
        self._refuse(ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{self.format_name} names several queues: it only sends")

    receive = _refused(QueueApi.receive)
    receive_many = _refused(QueueApi.receive_many)
    receive_begin = _refused(QueueApi.receive_begin)
    receive_end = _refused(QueueApi.receive_end)
    receive_by_lookup_id = _refused(QueueApi.receive_by_lookup_id)
    peek = _refused(QueueApi.peek)
    peek_by_lookup_id = _refused(QueueApi.peek_by_lookup_id)
    move = _refused(QueueApi.move)
    purge = _refused(QueueApi.purge)

    def cursor(self) -> CursorApi:
        """Refused: several queues can only be sent to."""
        self._only_sends()

    async def close(self) -> None:
        """Close Queue (3.1.7.1.6) for each of the queues."""
        self._open = False
        for descriptor in self.descriptors:
            descriptor.closed()


_RIGHTS: Final = {
    # The rights of MS-MQMQ 2.2.24 that an access needs; on a journal, those for journals.
    Access.SEND: (QueueAccess.MQSEC_WRITE_MESSAGE, QueueAccess.MQSEC_WRITE_MESSAGE),
    Access.PEEK: (QueueAccess.MQSEC_PEEK_MESSAGE, QueueAccess.MQSEC_PEEK_MESSAGE),
    Access.RECEIVE: (QueueAccess.MQSEC_RECEIVE_MESSAGE, QueueAccess.MQSEC_RECEIVE_JOURNAL_MESSAGE),
    Access.MOVE: (QueueAccess.MQSEC_WRITE_MESSAGE, QueueAccess.MQSEC_WRITE_MESSAGE),
    Access.PEEK_ADMIN: (QueueAccess.MQSEC_PEEK_MESSAGE, QueueAccess.MQSEC_PEEK_MESSAGE),
    Access.RECEIVE_ADMIN: (QueueAccess.MQSEC_RECEIVE_MESSAGE, QueueAccess.MQSEC_RECEIVE_JOURNAL_MESSAGE),
}
_ADMINISTRATION: Final = (Access.PEEK_ADMIN, Access.RECEIVE_ADMIN)
_OUTWARD: Final = (QueueType.OUTGOING, QueueType.CONNECTOR)
_SHARES: Final = frozenset(Share)
_READS: Final = Access.RECEIVE | Access.PEEK
_FULL: Final = 1.0
"""Seconds between two searches for an unused outgoing queue, when messages from other machines need a new one."""


class Opening:
    """Opens the queues of a queue manager."""

    def __init__(
        self,
        context: "Context",
        look_up: Callable[[PublicFormatName], Awaitable[QueueProperties]],
        resolve_distribution_list: ResolveDistributionList | None,
    ) -> None:
        """``look_up`` asks the directory for the properties of a public queue elsewhere."""
        self._context = context
        self._properties_of = look_up
        self.resolve_distribution_list = resolve_distribution_list
        self.remote_reader: RemoteReader | None = None
        """Opens queues of other queue managers for reading; None in a queue manager that reads only its own."""
        self._of_destinations: dict[Guid, QueueProperties] = {}
        """Base priorities of public queues elsewhere, from their look-up to the creation of their outgoing queues."""
        self._full_since = 0.0
        """When no unused outgoing queue was found."""
        self._for_others: list[tuple[OutgoingQueue, Party, float]] = []
        """Outgoing queues that others pay for, since the start."""
        self._released_at = 0.0

    async def open_queue(self, format_name: str, access: Access, share: Share, caller: object) -> QueueApi:
        """Open Queue for any format name."""
        if access not in _RIGHTS:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_UNSUPPORTED_ACCESS_MODE, f"{access!r} is no access to a queue")
        if share not in _SHARES:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_UNSUPPORTED_ACCESS_MODE, f"{share!r} is no share mode")
        access, share = Access(access), Share(share)  # plain numbers are accepted as well
        context = self._context
        names = await expand_format_name(context.names.parse(format_name), self.resolve_distribution_list)
        reader = self.remote_reader
        if (
            len(names) == 1
            and reader is not None
            and reader.reads(names[0], access)
            and not context.names.is_local(names[0])
        ):
            check_transport(names[0])
            self._check_outward(names[0], Access.SEND, caller)
            reader.check(names[0], caller)
            return await reader.open_queue(names[0], access, share)
        if len(names) == 1:
            await self._look_up(names[0], access)
            descriptor = self.open_one(names[0], access, share, caller)
            await self._created()
            return descriptor
        if access is not Access.SEND:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
                f"{format_name} names several queues: it only sends",
            )
        if share is not Share.DENY_NONE:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_UNSUPPORTED_ACCESS_MODE, "several queues at once are opened with Share.DENY_NONE"
            )
        if not names:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND, f"{format_name} has no queues: add members to it"
            )
        several: list[OpenQueueDescriptor] = []
        for name in names:
            await self._look_up(name, access)
        try:
            several.extend(self.open_one(name, access, share, caller) for name in names)
        except MessageQueuingError:
            for descriptor in several:
                descriptor.closed()
            raise
        await self._created()
        return MultipleQueueDescriptor(",".join(map(str, names)), several)

    async def _look_up(self, name: FormatName, access: Access) -> None:
        """Look up a public queue elsewhere before it is first opened: whether it exists, and what depends on it."""
        names = self._context.names
        if (
            access is not Access.SEND
            or not isinstance(name, PublicFormatName)
            or names.is_local(name)
            or names.outgoing(name) is not None
        ):
            return
        self._of_destinations[name.queue] = await self._properties_of(name)

    async def _created(self) -> None:
        """Wait until an outgoing queue or a subqueue that opening created is on disk."""
        pending = self._context.store.pending()
        if pending is not None:
            await pending

    def open_one(self, name: FormatName, access: Access, share: Share, caller: object = None) -> OpenQueueDescriptor:
        context = self._context
        queue = self.find(name, access, caller=caller)
        self._check_access(queue, access, caller)
        if conflicts(queue.open_modes, access, share):
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_SHARING_VIOLATION, f"{name} is open already, in a way that excludes this one"
            )
        descriptor = OpenQueueDescriptor(context, context.next_handle(), queue, name, access, share)
        descriptor.caller = caller
        if access is Access.SEND and caller is not None and context.access_policy is not None:
            descriptor.destination.name_sender(context.access_policy.sender_identifier(caller))
        queue.descriptors[descriptor.handle] = descriptor
        queue.open_modes[access, share] += 1
        if access & _READS:
            queue.readers += 1
        return descriptor

    def _check_access(self, queue: Queue, access: Access, caller: object) -> None:
        if not self.may_open(queue, access, caller):
            rights = _RIGHTS[access][queue.is_journal]
            raise _denied(queue.pathname, caller, rights, is_outward=queue.queue_type in _OUTWARD)

    def may_open(self, queue: Queue, access: Access, caller: object) -> bool:
        """Whether the security descriptor of a queue lets the caller open it."""
        policy = self._context.access_policy
        if policy is None or caller is None:
            return True
        return policy.check(self.security_of(queue), _RIGHTS[access][queue.is_journal], caller)

    def security_of(self, queue: Queue) -> bytes:
        """The descriptor that says who may use a queue: that of its parent for subqueues and journals; for outgoing and
        connector queues without one, what follows from the queue manager's own."""
        context = self._context
        owner = queue.parent if queue.parent is not None else queue
        if not owner.security and context.access_policy is not None and owner.queue_type in _OUTWARD:
            return context.access_policy.outgoing_queue_security(context.machine_security)
        return owner.security

    def _check_outward(self, name: FormatName, access: Access, caller: object) -> None:
        """Before a queue to another machine is made, or read there."""
        policy = self._context.access_policy
        if policy is None or caller is None:
            return
        rights = _RIGHTS[access][False]
        if not policy.check(policy.outgoing_queue_security(self._context.machine_security), rights, caller):
            raise _denied(str(name), caller, rights, is_outward=True)

    def find(self, name: FormatName, access: Access, *, party: Party = OWN, caller: object = None) -> Queue:
        """Find the queue to open: a local one, or an outgoing one, which is created if necessary.

        ``party`` pays for an outgoing queue that is created: the peer whose message names it.
        """
        context = self._context
        check_transport(name)
        if access is Access.SEND and name.is_read_only:
            raise _unsupported(f"{name} cannot be sent to: it is a journal or a dead-letter queue")
        if context.names.is_local(name):
            queue = context.names.local(name) or self._create_local(name, access, caller)
        else:
            queue = context.names.outgoing(name)
            if queue is None and access is Access.SEND:
                self._check_outward(name, access, caller)
                queue = self._create_outgoing(name, party)
            elif queue is not None and access is Access.SEND and isinstance(queue, OutgoingQueue):
                queue.used_by(party)
            elif queue is not None and access not in (Access.SEND, *_ADMINISTRATION):
                queue = None  # outgoing queues are only read with the administrative access
        if queue is None:
            if party is not OWN or not context.names.is_local(name):
                raise MessageQueuingError(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND, f"there is no queue {name}")
            raise context.names.not_found(str(name))
        if queue.queue_type is QueueType.SYSTEM and queue.is_internal:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{name} is for the queue manager only")
        if queue.is_delayed and access in (Access.SEND, Access.MOVE):
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ACCESS_DENIED,
                f"{name} has messages that wait for their delivery time: send to their destination, with deliver_at or "
                "deliver_in",
            )
        return queue

    def _create_local(self, name: FormatName, access: Access, caller: object) -> Queue | None:
        """Create a subqueue as the target of a move, or the connector queue for a connector application."""
        context = self._context
        if isinstance(name, ConnectorFormatName):
            if access is Access.SEND:
                return None
            self._check_outward(name, access, caller)
            self._check_room()
            queue = Queue(
                context,
                context.queues.take_number(),
                str(name),
                QueueType.CONNECTOR,
                identifier=new_guid(),
                transactional=name.transactional,
            )
            context.queues.add(queue)
            context.store.put_queue(queue.queue_id, queue.definition())
            context.store.durable()
            return queue
        path: PathName | None = getattr(name, "path", None)
        if access is not Access.MOVE or path is None or not path.subqueue:
            return None
        owner = context.names.by_path(PathName(path.computer, path.queue, path.kind))
        if owner is None:
            return None
        self._check_access(owner, access, caller)
        context.queues.check_subqueues(owner)
        context.store.durable()
        return context.queues.subqueue(owner, path.subqueue)

    def _account(self) -> Account:
        """The account of outgoing queues that others pay for: half of them must be left for local applications."""
        return self._context.shares.open(OUTGOING_QUEUES, self._context.settings.quotas.outgoing_queues / 2)

    def _check_share(self, party: Party) -> None:
        """Raise if a peer has its share of outgoing queues in use."""
        account = self._account()
        if account.room(party) < 1:
            self._release_unused(account)
        if not account.admits(party):
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
                f"{party.name} has its share of outgoing queues in use, of quotas.outgoing_queues",
            )

    def _release_unused(self, account: Account) -> None:
        """Charge no longer for queues that are empty or deleted, unless just created: those get their messages with
        the batch.
        """
        now = self._context.clock.time()
        if 0 <= now - self._released_at < _FULL:
            return
        self._released_at, made, self._for_others = now, self._for_others, []
        for one in made:
            queue, party, at = one
            if 0 <= now - at < _FULL or not (queue.deleted or queue.is_unused()):
                self._for_others.append(one)
            else:
                account.give_back(party)

    def _check_room(self, party: Party = OWN) -> None:
        """Make room for one more outgoing queue: at the limit, the oldest unused one is deleted."""
        if party is not OWN:
            self._check_share(party)
        limit = self._context.settings.quotas.outgoing_queues
        queues = self._context.names.all_outgoing()
        if len(queues) < limit:
            return
        now = self._context.clock.time()
        if party is not OWN and 0 <= now - self._full_since < _FULL:
            raise _full(limit)
        unused = next((one for one in queues if isinstance(one, OutgoingQueue) and one.is_unused()), None)
        if unused is None:
            self._full_since = now
            raise _full(limit)
        self._context.queues.forget(unused)

    def _create_outgoing(self, name: FormatName, party: Party) -> OutgoingQueue:
        context = self._context
        self._check_room(party)
        now = int(context.clock.time())
        queue = OutgoingQueue(
            context,
            context.queues.take_number(),
            str(name),
            identifier=new_guid(),
            label=str(name),
            create_time=now,
            modify_time=now,
            payer=party,
            **(self._of_destinations.pop(name.queue, {}) if isinstance(name, PublicFormatName) else {}),
        )
        if party is not OWN:
            self._account().charge(party)
            self._for_others.append((queue, party, context.clock.time()))
        context.queues.add(queue)
        context.store.put_queue(queue.queue_id, queue.definition())
        context.store.durable()
        return queue


def _full(limit: int) -> MessageQueuingError:
    return MessageQueuingError(
        ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
        f"there are {limit} outgoing queues in use (quotas.outgoing_queues): let some be emptied and closed",
    )


def _denied(name: str, caller: object, rights: QueueAccess, *, is_outward: bool) -> MessageQueuingError:
    sentence = f"{name}: {caller} has no right of {rights.name}"
    if is_outward and rights == QueueAccess.MQSEC_WRITE_MESSAGE:
        sentence += (
            ". Users with a name may send to other machines; anonymous AMQP clients only with "
            "security.anonymous_sends_elsewhere"
        )
    return MessageQueuingError(ErrorCode.MQ_ERROR_ACCESS_DENIED, sentence)


def _unsupported(sentence: str) -> MessageQueuingError:
    return MessageQueuingError(ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, sentence)
