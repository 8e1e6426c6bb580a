"""External transactions: MS-MQDMPR 3.1.4.6 to 3.1.4.11. A coordinator elsewhere (MS-DTCO) decides how they end.

The coordinator is behind a port, ``ResourceManager``. What a transaction will do is in the store when it says that it
is prepared; if the node stops then, it is *in doubt*: at the next start its positions are locked again, and the
coordinator, or an operator, says whether it commits.
"""

import json
from typing import TYPE_CHECKING, Any, Final, Protocol

from qmnode.errors import MessageQueuingError
from qmnode.model.transaction import OperationType, Transaction, TransactionalOperation, TransactionState
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid, guid_to_text

if TYPE_CHECKING:
    from qmnode.model.queue_manager import QueueManager

_LENGTH: Final = 4


class ResourceManager(Protocol):
    """The coordinator's side, as MS-DTCO 3.5 has it: what the queue manager tells about its transactions."""

    def prepare_done(self, identifier: Guid) -> None:
        """TXUSER_ENLISTMENT_MTAG_PREPAREREQDONE: the transaction can be committed whatever happens."""

    def commit_done(self, identifier: Guid) -> None:
        """TXUSER_ENLISTMENT_MTAG_COMMITREQDONE."""

    def abort_done(self, identifier: Guid) -> None:
        """TXUSER_ENLISTMENT_MTAG_ABORTREQDONE."""

    def recover(self, identifiers: list[Guid]) -> None:
        """Recover Transaction (MS-DTCO 3.5.7.1): find out how these end, and raise the reenlistment events."""


class ExternalTransactions:
    """The transactions that a coordinator decides about."""

    def __init__(self, manager: "QueueManager", resource_manager: ResourceManager | None) -> None:
        self._manager = manager
        self.resource_manager = resource_manager

    def enlist(self, identifier: Guid) -> Transaction:
        """Create Transaction (3.1.7.1.8) for a coordinator's transaction."""
        if identifier in self._manager.transactions:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_ENLIST, f"transaction {guid_to_text(identifier)} is enlisted already"
            )
        return Transaction(self._manager, identifier, single_phase=False)

    @property
    def in_doubt(self) -> list[Guid]:
        """Transactions that are prepared and wait for their outcome."""
        return [
            one.identifier
            for one in self._manager.transactions.values()
            if not one.single_phase and one.state is TransactionState.PREPARED
        ]

    # Events

    async def prepare(self, identifier: Guid, single_phase: bool = False) -> None:
        """DTC Transaction Prepare (3.1.4.6); ``single_phase`` is TXUSER_ENLISTMENT_MTAG_PREPAREREQ.fSinglePhase."""
        if single_phase:
            await self.commit(identifier)
            return
        try:
            await self._find(identifier).prepare()
        except MessageQueuingError:
            if identifier in self._manager.transactions:
                await self.abort(identifier)
            raise
        if self.resource_manager is not None:
            self.resource_manager.prepare_done(identifier)

    async def commit(self, identifier: Guid) -> None:
        """DTC Transaction Commit (3.1.4.7)."""
        await self._find(identifier).commit()
        if self.resource_manager is not None:
            self.resource_manager.commit_done(identifier)

    async def abort(self, identifier: Guid) -> None:
        """DTC Transaction Abort (3.1.4.8)."""
        await self._find(identifier).abort()
        if self.resource_manager is not None:
            self.resource_manager.abort_done(identifier)

    async def reenlistment_commit(self, identifier: Guid) -> None:
        """DTC Reenlistment Commit (3.1.4.9): a transaction that was in doubt commits."""
        await self._find(identifier).commit()

    async def reenlistment_abort(self, identifier: Guid) -> None:
        """DTC Reenlistment Abort (3.1.4.10)."""
        await self._find(identifier).abort()

    def reenlistment_timeout(self) -> None:
        """DTC Reenlistment Timeout (3.1.4.11): the coordinator cannot be reached. The transactions stay in doubt."""
        waiting = ", ".join(guid_to_text(identifier) for identifier in self.in_doubt)
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE,
            f"the coordinator did not say how these transactions end: {waiting}. Resolve them by hand or start again",
        )

    def _find(self, identifier: Guid) -> Transaction:
        transaction = self._manager.transactions.get(identifier)
        if transaction is None:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE, f"there is no transaction {guid_to_text(identifier)}"
            )
        return transaction

    # The store

    @staticmethod
    def record(transaction: Transaction) -> bytes:
        """What the transaction will do, as it is stored: a description, then the messages that it sends."""
        operations: list[dict[str, Any]] = []
        values: list[bytes] = []
        for kind, queue, lookup_identifier, value, target, reason in transaction.operations:
            sends = kind is OperationType.ENQUEUE
            operations.append(
                {
                    "kind": kind.value,
                    "queue": queue.queue_id,
                    "lookup": lookup_identifier,
                    "size": len(value) if sends else 0,
                    "target": target.queue_id if target is not None else 0,
                    "reason": int(reason),
                }
            )
            if sends:
                values.append(value)
        description = json.dumps(operations).encode()
        return b"".join((len(description).to_bytes(_LENGTH, "big"), description, *values))

    @staticmethod
    def check_record(record: bytes) -> None:
        """Raise ValueError or KeyError for what ``record`` did not write."""
        offset = _LENGTH + int.from_bytes(record[:_LENGTH], "big")
        size = sum(entry["size"] for entry in json.loads(record[_LENGTH:offset]))
        if offset + size != len(record):
            raise ValueError(f"{len(record)} bytes, and its description says {offset + size}")

    def recover(self) -> None:
        """Lock again what prepared transactions hold, and ask how they end (3.1.3)."""
        for identifier, record in self._manager.store.read_transactions():
            transaction = Transaction(self._manager, Guid(identifier), single_phase=False)
            transaction.restore(self._operations(record))
        if self.in_doubt and self.resource_manager is not None:
            self.resource_manager.recover(self.in_doubt)

    def _operations(self, record: bytes) -> list[TransactionalOperation]:
        offset = _LENGTH + int.from_bytes(record[:_LENGTH], "big")
        operations = []
        queues = self._manager.queue_collection
        for entry in json.loads(record[_LENGTH:offset]):
            queue = queues.get(entry["queue"])
            value = record[offset : offset + entry["size"]]
            offset += entry["size"]
            if queue is None:
                continue
            if entry["kind"] != OperationType.ENQUEUE.value:
                stored = queue.value_of(entry["lookup"])
                if stored is None:
                    continue  # an express message, which the restart has taken
                value = stored
            operations.append(
                TransactionalOperation(
                    OperationType(entry["kind"]),
                    queue,
                    entry["lookup"],
                    value,
                    queues.get(entry["target"]),
                    entry["reason"],
                )
            )
        return operations
