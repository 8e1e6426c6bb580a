"""The public keys of the queue managers that messages are encrypted to, as the directory has them."""

from typing import Final

from qmnode.directory.port import Directory, DirectoryOperationError, DirectoryOperationResult, QueueManager, equals
from qmnode.security.errors import MessageDeferredError
from qmnode.security.key_caches import AgedCache
from qmnode.security.public_key_lists import PublishedKeys
from qmnode.security.shared_reads import SharedReads
from qmnode.settings.security import SecuritySettings
from qmnode.structures.guid import Guid

DESTINATIONS_KEPT: Final = 4096
"""Queue managers whose keys are kept; each takes about 2 KiB."""

_NOTHING_THERE: Final = {DirectoryOperationResult.OBJECT_NOT_FOUND, DirectoryOperationResult.ATTRIBUTE_NOT_FOUND}


class DestinationDirectory:
    """RemoteQMPublicKey (MS-MQQB 3.1.1.3.1) for each destination, read again when it is old.

    For the event loop's thread. The text keeps one in every session, for the next hop, as long as the session lasts.
    """

    def __init__(self, directory: Directory, settings: SecuritySettings) -> None:
        self._directory = directory
        self._maximum_modulus_length = settings.maximum_modulus_length
        self.cache: AgedCache[Guid, PublishedKeys] = AgedCache(DESTINATIONS_KEPT, settings.public_key_lifetime)
        self._reads: SharedReads[Guid, PublishedKeys] = SharedReads()

    def known(self, queue_manager: Guid, now: float) -> PublishedKeys | None:
        """The keys, if they are fresh: most messages need no more."""
        return self.cache.get(queue_manager, now)

    async def keys_of(self, queue_manager: Guid, now: float) -> PublishedKeys:
        """The keys of a queue manager; none if the directory has none.

        Raises :class:`MessageDeferredError` when the directory does not answer: the message waits. The text deletes it.
        """
        known = self.known(queue_manager, now)
        if known is not None:
            return known
        return await self._reads.share(queue_manager, lambda: self._read(queue_manager, now))

    def forget(self, queue_manager: Guid) -> int:
        """Read the keys of a queue manager again before the next message; returns whether any were known, 1 or 0."""
        return self.cache.forget(lambda place, _: place == queue_manager)

    async def close(self) -> None:
        """End the questions that still run."""
        await self._reads.close()

    async def _read(self, queue_manager: Guid, now: float) -> PublishedKeys:
        try:
            found = await self._directory.read_directory(
                QueueManager, [equals("identifier", queue_manager)], ["public_encryption_key_list"]
            )
            encoded = found.public_encryption_key_list
        except DirectoryOperationError as error:
            if error.result not in _NOTHING_THERE:
                raise MessageDeferredError(
                    f"the destination's public key cannot be looked up: {error.sentence}"
                ) from None
            encoded = None
        keys = PublishedKeys.parse(queue_manager, encoded, now, self._maximum_modulus_length)
        if keys.keys:  # a computer without keys may publish them any moment
            self.cache.add(queue_manager, keys)
        return keys
