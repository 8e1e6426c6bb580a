"""The first keys of a node: made, stored, and then published, so that nobody encrypts to a key that is not safe."""

import asyncio

from qmnode.directory.port import Directory, QueueManager, equals
from qmnode.security.key_making import first_pairs
from qmnode.security.key_ring import KeyPurpose
from qmnode.security.key_store import KeyStore, KeyStoreUnavailableError
from qmnode.security.public_key_lists import public_key_list
from qmnode.settings.security import SecuritySettings
from qmnode.structures.guid import Guid


async def publish_first_keys(
    key_store: KeyStore, directory: Directory, identifier: Guid, settings: SecuritySettings, now: float
) -> bool:
    """Make keys if the store has none, and publish them if the directory has none of this node (MS-MQDMPR 3.1.3).

    Returns whether anything was published. Raises KeyStoreError and DirectoryOperationError.
    """
    contents = await key_store.read()
    pairs = contents.pairs
    mine = await directory.read_directory(QueueManager, [equals("identifier", identifier)])
    if mine.public_encryption_key_list:
        if not pairs:
            # New keys would make every message refused that is encrypted to those that others know.
            raise KeyStoreUnavailableError(
                "the key store is empty, and the directory has keys of this node: bring the store back, or make new "
                "keys with 'mqenterprise keys rotate'"
            )
        return False
    if not pairs:
        pairs = await asyncio.to_thread(first_pairs, settings, now)
        await key_store.replace(pairs, expected_version=contents.version)
    await directory.write_directory(
        QueueManager(
            computer_name=mine.computer_name,
            identifier=identifier,
            public_encryption_key_list=public_key_list(pairs, KeyPurpose.ENCRYPTION),
            public_signing_keys=public_key_list(pairs, KeyPurpose.SIGNING),
        ),
        ["public_encryption_key_list", "public_signing_keys"],
    )
    return True
