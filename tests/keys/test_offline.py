"""What a node without its directory may use of what it read: keys and certificates up to an age, the rest as long as it
takes. The waiting times of a rotation are only as right as this bound (``offline_cache_age``)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mqenterprise.directory.cache import DirectoryCache
from mqenterprise.directory.port import LdapPort, PortSettings
from mqenterprise.directory.settings import DirectorySettings
from mqenterprise.keys.settings import KeySettings
from qmnode.directory.port import DirectoryOperationError, DirectoryOperationResult, QueueManager, equals
from qmnode.structures.guid import Guid
from tests.keys.lab import Clock
from tests.transport.conftest import loopback_address

KNOWN = QueueManager(identifier=Guid(b"known known know"), computer_name="KNOWN", public_encryption_key_list=b"keys")
KEYS = ["public_encryption_key_list"]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def port(tmp_path: Path, clock: Clock) -> AsyncIterator[LdapPort]:
    """Nothing listens where its directory should be; it read one queue manager before."""
    nowhere = DirectorySettings(
        servers=[f"ldaps://{loopback_address()}:636"], root="dc=lab,dc=test", user="cn=node", password="unused"
    )
    cache = DirectoryCache(None, clock)
    cache.put(KNOWN)
    port = LdapPort(PortSettings(directory=nowhere, keys_for=1000, fresh_for=10), cache)
    yield port
    await port.close()


async def read(port: LdapPort, attributes: list[str] | None = None) -> QueueManager:
    return await port.read_directory(QueueManager, [equals("identifier", KNOWN.identifier)], attributes)


async def test_keys_serve_until_they_may_have_been_replaced(port: LdapPort, clock: Clock) -> None:
    clock.now += 900
    assert (await read(port, KEYS)).public_encryption_key_list == b"keys"  # found away just now
    clock.now += 90
    assert (await read(port, KEYS)).public_encryption_key_list == b"keys"  # known to be away
    clock.now += 20
    with pytest.raises(DirectoryOperationError) as refused:
        await read(port, KEYS)
    assert refused.value.result is DirectoryOperationResult.DIRECTORY_NOT_CONNECTED


async def test_what_is_no_key_serves_on(port: LdapPort, clock: Clock) -> None:
    clock.now += 1_000_000
    assert (await read(port)).computer_name == "KNOWN"
    assert (await read(port)).computer_name == "KNOWN"


def test_a_rotation_waits_for_as_long_as_nodes_believe() -> None:
    assert KeySettings().offline_cache_age >= PortSettings.model_fields["keys_for"].default
    assert KeySettings().reload_interval >= KeySettings().security.key_reload_interval
