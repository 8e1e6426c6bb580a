"""Administration of a queue manager in this process: what :mod:`qmnode.model.administration` declares."""

from typing import TYPE_CHECKING, cast

from qmnode.errors import MessageQueuingError
from qmnode.model.administration import AdministrationApi, NodeStatus, TransactionInformation
from qmnode.model.api import QueueType
from qmnode.model.transaction import Transaction, TransactionState
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid, guid_to_text

if TYPE_CHECKING:
    from qmnode.model.queue_manager import QueueManager

_MADE_BY_USERS = (QueueType.PRIVATE, QueueType.PUBLIC)


class Administrator(AdministrationApi):
    """The part of a queue manager that administrators talk to."""

    @property
    def _manager(self) -> "QueueManager":
        return cast("QueueManager", self)

    async def status(self) -> NodeStatus:
        """How the queue manager is now."""
        manager = self._manager
        storage = manager.store.condition()
        queues = list(manager.queue_collection.values())
        everywhere = [*queues, *(queue.journal_queue for queue in queues if queue.journal_queue is not None)]
        return NodeStatus(
            computer_name=manager.computer_name,
            identifier=manager.identifier,
            online=manager.connection_active,
            queue_count=sum(queue.queue_type in _MADE_BY_USERS and queue.parent is None for queue in queues),
            outgoing_queue_count=sum(queue.queue_type is QueueType.OUTGOING for queue in queues),
            message_count=sum(queue.message_count for queue in everywhere),
            total_bytes=sum(queue.total_bytes for queue in everywhere),
            dead_letter_count=sum(
                queue.message_count for queue in (manager.dead_letter_queue, manager.transactional_dead_letter_queue)
            ),
            quota=manager.quotas.settings.queue_manager_quota,
            quota_used=manager.quotas.used,
            journal_quota=manager.quotas.settings.journal_quota,
            journal_quota_used=manager.quotas.journal_used,
            throttled=manager.quotas.throttled,
            transaction_count=len(manager.transactions),
            in_doubt_count=len(manager.external.in_doubt),
            journal_copies_dropped=manager.outcomes.journal_copies_dropped,
            warnings=tuple(f"{what}: {sentence}" for what, sentence in manager.troubles.items()),
            storage_failure=storage.failure,
            disk_free_bytes=storage.free_bytes,
            disk_bytes=storage.total_bytes,
            lost_writes=storage.lost_writes,
        )

    async def set_online(self, online: bool) -> None:
        """Bring Online or Take Offline."""
        if online:
            self._manager.bring_online()
        else:
            self._manager.take_offline()

    async def list_transactions(self) -> list[TransactionInformation]:
        """The transactions that have not ended."""
        return [_describe(transaction) for transaction in self._manager.transactions.values()]

    async def resolve_transaction(self, identifier: Guid, commit: bool) -> None:
        """DTC Reenlistment Commit (3.1.4.9) or Abort (3.1.4.10), said by an administrator."""
        manager = self._manager
        transaction = manager.transactions.get(identifier)
        if transaction is not None and not _is_in_doubt(transaction):
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE,
                f"transaction {guid_to_text(identifier)} is not in doubt: the application that began it ends it",
            )
        end = manager.external.reenlistment_commit if commit else manager.external.reenlistment_abort
        await end(identifier)

    async def queue_security(self, name: str) -> bytes:
        """The security descriptor of a queue."""
        return self._manager.names.find(name).security


def _is_in_doubt(transaction: Transaction) -> bool:
    return not transaction.single_phase and transaction.state is TransactionState.PREPARED


def _describe(transaction: Transaction) -> TransactionInformation:
    queues = [operation.queue for operation in transaction.operations]
    queues += [operation.target for operation in transaction.operations if operation.target is not None]
    return TransactionInformation(
        identifier=transaction.identifier,
        state=transaction.state.value,
        in_doubt=_is_in_doubt(transaction),
        operation_count=len(transaction.operations),
        queues=tuple(dict.fromkeys(queue.pathname for queue in queues)),
    )
