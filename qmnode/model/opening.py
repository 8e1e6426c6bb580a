"""Open Queue: MS-MQDMPR 3.1.7.1.5. From a format name to an open queue, or to the right error."""

from typing import TYPE_CHECKING, Final

from qmnode.errors import MessageQueuingError
from qmnode.model.api import Access, QueueApi, QueueType, Share
from qmnode.model.multiple import MultipleQueueDescriptor, expand_format_name
from qmnode.model.naming import is_unsupported
from qmnode.model.open_queue import OpenQueueDescriptor
from qmnode.model.outgoing import OutgoingQueue
from qmnode.model.queue import Queue
from qmnode.model.share_modes import conflicts
from qmnode.structures.access_masks import QueueAccess
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid, new_guid
from qmnode.structures.names import ConnectorFormatName, FormatName, PathName, PublicFormatName

if TYPE_CHECKING:
    from qmnode.model.queue_manager import QueueManager

_RIGHTS: Final = {
    # Rights of MS-MQMQ 2.2.24 that an access needs; on a journal, those for journals.
    Access.SEND: (QueueAccess.MQSEC_WRITE_MESSAGE, QueueAccess.MQSEC_WRITE_MESSAGE),
    Access.PEEK: (QueueAccess.MQSEC_PEEK_MESSAGE, QueueAccess.MQSEC_PEEK_MESSAGE),
    Access.RECEIVE: (QueueAccess.MQSEC_RECEIVE_MESSAGE, QueueAccess.MQSEC_RECEIVE_JOURNAL_MESSAGE),
    Access.MOVE: (QueueAccess.MQSEC_WRITE_MESSAGE, QueueAccess.MQSEC_WRITE_MESSAGE),
    Access.PEEK_ADMIN: (QueueAccess.MQSEC_PEEK_MESSAGE, QueueAccess.MQSEC_PEEK_MESSAGE),
    Access.RECEIVE_ADMIN: (QueueAccess.MQSEC_RECEIVE_MESSAGE, QueueAccess.MQSEC_RECEIVE_JOURNAL_MESSAGE),
}
_ADMINISTRATION: Final = (Access.PEEK_ADMIN, Access.RECEIVE_ADMIN)
_SHARES: Final = frozenset(Share)
_READS: Final = Access.RECEIVE | Access.PEEK
_FULL: Final = 1.0
"""Seconds between two searches for an outgoing queue that can go, when messages from elsewhere want one."""


class Opening:
    """Opens the queues of a queue manager."""

    def __init__(self, manager: "QueueManager") -> None:
        self._manager = manager
        self._base_priorities: dict[Guid, int] = {}
        """Of public queues elsewhere, between looking them up and creating their outgoing queues."""
        self._full_since = 0.0
        """When no outgoing queue was found that nobody uses."""

    async def open_queue(self, format_name: str, access: Access, share: Share, caller: object) -> QueueApi:
        """Open Queue for any format name."""
        if access not in _RIGHTS:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_UNSUPPORTED_ACCESS_MODE, f"{access!r} is no access to a queue")
        if share not in _SHARES:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_UNSUPPORTED_ACCESS_MODE, f"{share!r} is no share mode")
        access, share = Access(access), Share(share)  # their numbers do as well
        manager = self._manager
        names = await expand_format_name(manager.names.parse(format_name), manager.resolve_distribution_list)
        reader = manager.remote_reader
        if (
            len(names) == 1
            and reader is not None
            and reader.reads(names[0], access)
            and not manager.names.is_local(names[0])
        ):
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
        """Before a public queue elsewhere is first opened: the directory must know it, and its base priority."""
        names = self._manager.names
        if (
            access is not Access.SEND
            or not isinstance(name, PublicFormatName)
            or names.is_local(name)
            or names.outgoing(name) is not None
        ):
            return
        self._base_priorities[name.queue] = await self._manager.published.base_priority(name)

    async def _created(self) -> None:
        """An outgoing queue or a subqueue that opening created is on disk before anyone uses it."""
        pending = self._manager.store.pending()
        if pending is not None:
            await pending

    def open_one(self, name: FormatName, access: Access, share: Share, caller: object = None) -> OpenQueueDescriptor:
        """Open one queue."""
        manager = self._manager
        queue = self.find(name, access)
        self._check_access(queue, access, caller)
        if conflicts(queue.open_modes, access, share):
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_SHARING_VIOLATION, f"{name} is open already, in a way that excludes this one"
            )
        descriptor = OpenQueueDescriptor(manager, manager.next_handle(), queue, name, access, share)
        descriptor.caller = caller
        queue.descriptors[descriptor.handle] = descriptor
        queue.open_modes[access, share] += 1
        if access & _READS:
            queue.readers += 1
        return descriptor

    def _check_access(self, queue: Queue, access: Access, caller: object) -> None:
        if not self.may_open(queue, access, caller):
            rights = _RIGHTS[access][queue.is_journal]
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{queue.pathname}: {caller} has no right of {rights.name}"
            )

    def may_open(self, queue: Queue, access: Access, caller: object) -> bool:
        """Whether the security descriptor of a queue lets somebody open it."""
        policy = self._manager.access_policy
        if policy is None or caller is None:
            return True
        owner = queue.parent if queue.parent is not None else queue
        return policy.check(owner.security, _RIGHTS[access][queue.is_journal], caller)

    def find(self, name: FormatName, access: Access, *, for_strangers: bool = False) -> Queue:
        """The queue that is to be opened: one that is here, or an outgoing one, which is created when it is needed.

        ``for_strangers``: a message from elsewhere names it. At most half of the outgoing queues are made so.
        """
        manager = self._manager
        if is_unsupported(name):
            raise _unsupported(f"{name}: HTTP and multicast are not supported")
        if access is Access.SEND and name.is_read_only:
            raise _unsupported(f"{name} cannot be sent to: it is a journal or a dead-letter queue")
        if manager.names.is_local(name):
            queue = manager.names.local(name) or self._create_local(name, access)
        else:
            queue = manager.names.outgoing(name)
            if queue is None and access is Access.SEND:
                queue = self._create_outgoing(name, for_strangers)
            elif queue is not None and access not in (Access.SEND, *_ADMINISTRATION):
                queue = None  # outgoing queues are read with the access for administration only
        if queue is None:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND, f"there is no queue {name}")
        if queue.queue_type is QueueType.SYSTEM and queue.is_internal:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{name} is for the queue manager only")
        return queue

    def _create_local(self, name: FormatName, access: Access) -> Queue | None:
        """A subqueue to move to, or the connector queue that a connector application reads."""
        manager = self._manager
        if isinstance(name, ConnectorFormatName):
            if access is Access.SEND:
                return None
            self._check_room()
            queue = Queue(
                manager,
                manager.take_queue_id(),
                str(name),
                QueueType.CONNECTOR,
                identifier=new_guid(),
                transactional=name.transactional,
            )
            manager.add_queue(queue)
            manager.store.put_queue(queue.queue_id, queue.definition())
            manager.store.durable()
            return queue
        path: PathName | None = getattr(name, "path", None)
        if access is not Access.MOVE or path is None or not path.subqueue:
            return None
        owner = manager.names.by_path(PathName(path.computer, path.queue, path.kind))
        if owner is None:
            return None
        manager.store.durable()
        return manager.subqueue(owner, path.subqueue)

    def _check_room(self, for_strangers: bool = False) -> None:
        """For one more outgoing queue: at the limit the oldest that nobody uses goes."""
        limit = self._manager.settings.quotas.outgoing_queues
        if for_strangers:  # whoever asks for acknowledgments everywhere leaves queues for those who work here
            limit -= limit // 2
        queues = self._manager.names.all_outgoing()
        if len(queues) < limit:
            return
        now = self._manager.clock.time()
        if for_strangers and 0 <= now - self._full_since < _FULL:
            raise _full(limit)
        unused = next((one for one in queues if isinstance(one, OutgoingQueue) and one.is_unused()), None)
        if unused is None:
            self._full_since = now
            raise _full(limit)
        self._manager.forget_queue(unused)

    def _create_outgoing(self, name: FormatName, for_strangers: bool) -> OutgoingQueue:
        manager = self._manager
        self._check_room(for_strangers)
        now = int(manager.clock.time())
        queue = OutgoingQueue(
            manager,
            manager.take_queue_id(),
            str(name),
            identifier=new_guid(),
            label=str(name),
            base_priority=self._base_priorities.pop(name.queue, 0) if isinstance(name, PublicFormatName) else 0,
            create_time=now,
            modify_time=now,
        )
        manager.add_queue(queue)
        manager.store.put_queue(queue.queue_id, queue.definition())
        manager.store.durable()
        return queue


def _full(limit: int) -> MessageQueuingError:
    return MessageQueuingError(
        ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
        f"there are {limit} outgoing queues in use (quotas.outgoing_queues): let some be emptied and closed",
    )


def _unsupported(sentence: str) -> MessageQueuingError:
    return MessageQueuingError(ErrorCode.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, sentence)
