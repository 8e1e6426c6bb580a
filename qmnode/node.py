"""A node: the rooms put together."""

import socket
from collections.abc import Callable, Generator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from qmnode.delivery.network import Network
from qmnode.delivery.signing import MessageSigning
from qmnode.directory.port import Directory
from qmnode.model.ports import Clock, SystemClock
from qmnode.model.queue_manager import QueueManager as ModelQueueManager
from qmnode.remote_read.remote_reader import RemoteReader
from qmnode.security.queue_policy import QueueAccessPolicy
from qmnode.settings.node import Settings
from qmnode.storage.backup import back_up
from qmnode.storage.store import Store
from qmnode.structures.sid import ANONYMOUS

if TYPE_CHECKING:
    from qmnode.dcerpc.protection import SecurityContext
    from qmnode.export.exporter import Exporter
    from qmnode.export.recorder import EventRecorder


class QueueManager(ModelQueueManager):
    """A queue manager in this process.

    ``async with QueueManager.open(path) as qm`` and ``qm = await QueueManager.open(path)`` both open one.
    """

    signing: MessageSigning
    """Signs what applications want authenticated."""
    network: Network
    """Sessions with other queue managers. An embedded queue manager has none until it calls ``network.start``."""

    exporter: "Exporter | None" = None
    """Writes what happens to segments, if the settings say where."""

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
        if isinstance(self.remote_reader, RemoteReader):
            await self.remote_reader.close()
        await self.network.stop()
        if self.exporter is not None:
            exporter, self.exporter = self.exporter, None
            await exporter.stop()
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
        store = Store.open(self._path, self._settings.storage)
        try:
            name = self._settings.computer_name or socket.gethostname().partition(".")[0].upper()
            # Without a directory nobody is a domain user, and queues belong to the anonymous user (3.1.7.1.3.1).
            policy = QueueAccessPolicy(ANONYMOUS)
            recorder = self._recorder(store)
            manager = self._kind(
                store,
                self._settings,
                self._clock,
                name,
                access_policy=policy,
                directory=self._directory,
                recorder=recorder,
            )
            if store.losses:
                manager.troubles["message store"] = store.losses[-1].sentence
            signing = MessageSigning(self._settings.security, self._directory, self._clock)
            manager.signing = manager.context.signing = signing
            network = Network(manager, store, self._settings, self._directory, self._path)
            manager.network = manager.context.network = network
            manager.remote_reader = RemoteReader(manager, self._reader_security())
            if recorder is not None:
                from qmnode.export.exporter import Exporter

                recorder.attach(manager)
                manager.exporter = Exporter(manager, store, recorder, self._settings.export)
                manager.exporter.start()
            await manager.start()
        except BaseException:
            store.close()
            raise
        return manager

    # What few nodes use is imported by those: see qmnode.commands.

    def _recorder(self, store: Store) -> "EventRecorder | None":
        export = self._settings.export
        if not export.target:
            return None
        from qmnode.export.exporter import check_export
        from qmnode.export.recorder import EventRecorder

        check_export(export)
        return EventRecorder(store, self._clock, export.backlog_bytes)

    def _reader_security(self) -> "Callable[[str], SecurityContext] | None":
        settings = self._settings.remote_read
        if not settings.account:
            return None
        from qmnode.dcerpc.authentication import initiator_authentication

        return initiator_authentication(settings)

    async def __aenter__(self) -> QueueManager:
        self._manager = await self._start()
        return self._manager

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._manager is not None:
            await self._manager.close()
