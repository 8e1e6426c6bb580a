"""A node: the rooms put together."""

import socket
from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from qmnode.directory.port import Directory
from qmnode.host import host_addresses, host_names
from qmnode.model.ports import Clock
from qmnode.model.positions import SystemClock
from qmnode.model.queue_manager import QueueManager as ModelQueueManager
from qmnode.model.shared_state import Recorder
from qmnode.security.principals import ANYBODY, NOBODY_KNOWN, Principals, QueueAccessPolicy
from qmnode.settings.node import Settings
from qmnode.storage.backup import back_up
from qmnode.storage.store import Store
from qmnode.structures.names import fold

if TYPE_CHECKING:
    from qmnode.administration.operations import Operations
    from qmnode.copies.shipper import Copier
    from qmnode.delivery.network import Network
    from qmnode.delivery.signing_and_encryption import MessageSigning
    from qmnode.export.exporter import Exporter
    from qmnode.export.recorder import EventRecorder
    from qmnode.export.telemetry import Telemetry


class QueueManager(ModelQueueManager):
    """A queue manager in this process: ``async with QueueManager.open(path)`` or ``await QueueManager.open(path)``."""

    principals: Principals
    """Says who callers are."""
    signing: "MessageSigning"
    """Signs what applications want authenticated."""
    network: "Network"
    """Sessions with other queue managers. An embedded queue manager has none until it calls ``network.start``."""

    operations: "Operations"
    """Searches, and jobs over messages."""

    recorder: "Recorder | None"
    events: "EventRecorder | None" = None
    """Keeps events in the store until the exporter has written them."""
    telemetry: "Telemetry | None" = None
    """Exports spans and metrics, if the settings say where."""
    exporter: "Exporter | None" = None
    """Writes what happens to segments, if the settings say where."""

    copier: "Copier | None" = None
    """Keeps the copy of the store elsewhere, if the settings say where."""

    @classmethod
    def open(
        cls,
        path: str | Path,
        settings: Settings | None = None,
        clock: Clock | None = None,
        directory: Directory | None = None,
    ) -> "Opening":
        """Open the queue manager whose store is in this directory, or make one there.

        Raises StoreError (MQ_ERROR_MESSAGE_STORAGE_FAILED) if the store is damaged, newer, or in use.
        """
        return Opening(cls, Path(path), settings or Settings(), clock or SystemClock(), directory)

    async def close(self) -> None:
        """Close the sessions, if it has any, then the queue manager."""
        try:
            if self.opening.remote_reader is not None:
                await self.opening.remote_reader.close()
            if self.context.network is not None:
                await self.operations.stop()
                await self.network.stop()
            if self.exporter is not None:
                exporter, self.exporter = self.exporter, None
                await exporter.stop()
            if self.telemetry is not None:
                telemetry, self.telemetry = self.telemetry, None
                await telemetry.stop()
            if self.copier is not None:
                copier, self.copier = self.copier, None
                await copier.stop()
        finally:
            await super().close()

    async def backup(self, path: str | Path) -> None:
        """Write a consistent copy of the store to a new directory."""
        assert isinstance(self.store, Store)
        await back_up(self.store, Path(path))


class Opening:
    """A queue manager about to be open: await it, or enter it."""

    def __init__(
        self,
        kind: type[QueueManager],
        path: Path,
        settings: Settings,
        clock: Clock,
        directory: Directory | None = None,
    ) -> None:
        self._kind = kind
        self._path = path
        self._settings = settings
        self._clock = clock
        self._directory = directory
        self._manager: QueueManager | None = None

    def __await__(self) -> Generator[Any, None, QueueManager]:
        return self._start().__await__()

    async def _start(self) -> QueueManager:
        manager = self.begin()
        try:
            await self.complete(manager)
        except BaseException:
            manager.store.close()
            raise
        return manager

    def begin(self) -> QueueManager:
        """First half: the store and its queues, which is enough to say how the node is."""
        if self._settings.storage.remote_copy.to:
            from qmnode.copies.shipper import check_copy

            check_copy(self._path, self._settings.storage.remote_copy)
        store = Store.open(self._path, self._settings.storage)
        try:
            name = self._settings.computer_name or socket.gethostname().partition(".")[0].upper()
            principals = Principals(self._settings.security, self._directory)
            policy = QueueAccessPolicy(
                anonymous_readers=self._settings.remote_read.enabled,
                anonymous_senders=self._settings.security.anonymous_sends_elsewhere,
                names_senders=self._settings.security.send_sender_identifiers,
                unproven=ANYBODY if self._settings.security.everyone_includes_anonymous else NOBODY_KNOWN,
            )
            events = self._events(store)
            telemetry = self._telemetry(name)
            manager = self._kind(
                store,
                self._settings,
                self._clock,
                name,
                access_policy=policy,
                directory=self._directory,
                recorder=events if telemetry is None else self._spans(store, events, telemetry),
            )
            manager.events, manager.telemetry = events, telemetry
            self._know_own_names(manager, name)
            manager.principals = principals
            manager.names_of_accounts = principals.names_of
            if store.losses:
                manager.troubles["message store"] = store.losses[-1].sentence
        except BaseException:
            store.close()
            raise
        return manager

    def _know_own_names(self, manager: QueueManager, name: str) -> None:
        """Add the host's names if the node has the host's, and its addresses if the node listens on all of them."""
        host = host_names()
        if fold(name) in (fold(one.partition(".")[0]) for one in host.all):
            manager.names.add_own(host.all, qualified=host.qualified)
        if not self._settings.transport.address:
            manager.names.add_own((), host_addresses())

    async def complete(self, manager: QueueManager) -> None:
        """Second half: all that has to do with other queue managers."""
        from qmnode.outside import join_others

        assert isinstance(manager.store, Store)
        manager.signing, manager.network, manager.operations, manager.exporter, manager.copier = join_others(
            manager, manager.store, self._directory, self._path, manager.events
        )
        await manager.start()
        manager.operations.start(None if manager.telemetry is None else manager.telemetry.job)

    def _telemetry(self, computer_name: str) -> "Telemetry | None":
        if not self._settings.telemetry.endpoint:
            return None
        from qmnode.export.telemetry import Telemetry, check_telemetry

        check_telemetry(self._settings.telemetry)
        return Telemetry(self._settings.telemetry, computer_name)

    def _spans(self, store: Store, events: "EventRecorder | None", telemetry: "Telemetry") -> "Recorder":
        from qmnode.export.spans import SpanRecorder

        return SpanRecorder(store, self._clock, events, telemetry, self._settings.telemetry.sampling)

    def _events(self, store: Store) -> "EventRecorder | None":
        export = self._settings.export
        if not export.target:
            return None
        from qmnode.export.exporter import check_export
        from qmnode.export.recorder import EventRecorder

        check_export(export)
        return EventRecorder(store, self._clock, export.backlog_bytes)

    async def __aenter__(self) -> QueueManager:
        self._manager = await self._start()
        return self._manager

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._manager is not None:
            await self._manager.close()
