"""Reads the private keys of a running node: at the start, periodically, and on request.

A rotation writes the key store and waits until every node has read it; the next reading removes a retired key from this
process. An unavailable store does not prevent a node from starting: encrypted messages wait at their sender until it is
back.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import structlog

from qmnode.directory.port import Directory, DirectoryOperationError
from qmnode.security.errors import KeyStoreError
from qmnode.security.key_stores import KeyStore
from qmnode.security.published_keys import publish_first_keys
from qmnode.security.service import KeyStoreStatus

if TYPE_CHECKING:
    from qmnode.delivery.network import Network

log = structlog.get_logger(__name__)

_AWAY: Final = 5.0
"""Seconds between two attempts to read an unavailable store, or to publish keys that could not be published."""
_AGAIN: Final = 5.0
"""Seconds between two readings that messages cause, so that a sender of garbage cannot keep the store busy."""
_PATIENCE: Final = 20.0
"""Seconds that the start of the node waits for its keys, which may have to be created."""
_TROUBLE: Final = "key store"


class KeyReading:
    """Keeps the key pairs of :class:`~qmnode.security.service.SecurityService` in step with the store."""

    def __init__(self, network: "Network", directory: Directory | None) -> None:
        self._network = network
        self._store: KeyStore
        self._directory = directory
        self._interval = network.manager.settings.security.key_reload_interval
        self._is_published = directory is None
        self._status = KeyStoreStatus()
        self._looked_at = 0.0
        self._asked = asyncio.Event()
        self._was_read = asyncio.Event()
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    @property
    def status(self) -> KeyStoreStatus:
        """The result of the last reading."""
        return self._status

    async def start(self, store: KeyStore) -> None:
        """Begin to read, and wait for the first reading, though not long for a store that does not answer."""
        self._store = store
        self._task = asyncio.create_task(self._run(), name="key reading")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._was_read.wait()

    async def stop(self) -> None:
        """Stop the periodic reading."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def know_more(self) -> bool:
        """Read the store again because a message cannot be decrypted. Return whether the keys changed, or the store did
        not answer.

        A rotation waits until every node has read its new key; this covers nodes whose reading times it knew wrongly.
        """
        now = self._network.manager.clock.time()
        if not 0 <= now - self._looked_at < _AGAIN:
            self._looked_at = now
            before = self._status
            return await self.read() != before
        return False

    def read_soon(self) -> None:
        """Start a reading without waiting for it."""
        self._asked.set()

    async def read(self) -> KeyStoreStatus:
        """Read the store now. Never raises: a failure is in the returned status, the log and the node's status."""
        if self._task is None:
            return self._status  # the node is not on the network yet
        async with self._turn:
            fault = None if self._is_published else await self._publish()
            status = await self._network.security.load_keys()
            self._tell(status, fault)
            self._was_read.set()
            return status

    async def _run(self) -> None:
        while True:
            await self.read()
            is_well = self._status.fault is None and self._is_published
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval if is_well else min(self._interval, _AWAY)):
                    await self._asked.wait()
            self._asked.clear()

    async def _publish(self) -> str | None:
        """Publish the first keys if there are none yet. Return the reason if that failed, else None."""
        assert self._directory is not None
        network = self._network
        settings, now = network.manager.settings.security, network.manager.clock.time()
        try:
            await publish_first_keys(self._store, self._directory, network.manager.identifier, settings, now)
        except (DirectoryOperationError, KeyStoreError) as error:
            return str(error)
        self._is_published = True
        return None

    def _tell(self, status: KeyStoreStatus, unpublished: str | None) -> None:
        before, self._status = self._status, status
        troubles = self._network.manager.troubles
        if self._directory is None and not status.version:
            return  # a workgroup has no published keys
        fault = status.fault or unpublished
        if fault is None:
            if troubles.pop(_TROUBLE, None) is not None:
                log.info("the key store is read again", version=status.version)
            elif status.fingerprints != before.fingerprints:
                log.info("the node's keys", version=status.version, keys=status.fingerprints)
        elif troubles.get(_TROUBLE) != fault:
            troubles[_TROUBLE] = fault
            if status.fault is not None and not status.fingerprints:
                log.error("the key store is away: encrypted messages wait until it is back", reason=fault)
            elif status.fault is not None:
                log.warning("the key store is away: the keys that were read go on serving", reason=fault)
            else:
                log.warning("the node's public keys are not published", reason=fault)
