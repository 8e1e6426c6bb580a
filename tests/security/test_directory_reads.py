"""Destinations' keys and accounts' SIDs: what is asked, kept, and told when the directory is away."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from qmnode.directory.port import (
    DirectoryOperationError,
    DirectoryOperationResult,
    QueueManager,
    User,
    WorkgroupDirectory,
)
from qmnode.errors import MessageQueuingError
from qmnode.security.errors import MessageDeferredError
from qmnode.security.key_stores import KeyPurpose
from qmnode.security.principals import security_identifier_of
from qmnode.security.published_keys import DestinationDirectory, public_key_list
from qmnode.security.rsa_keys import AES_PROVIDER
from qmnode.settings.security import SecuritySettings
from qmnode.structures.error_codes import ErrorCode
from tests.security.messages import DESTINATION, NOW, USER, encryption_pair

SETTINGS = SecuritySettings(account_security_identifiers={"bob": "S-1-5-21-1-2-3-1002", "eve": "nobody"})


@dataclass
class FakeDirectory(WorkgroupDirectory):
    """One queue manager, one user."""

    keys: bytes | None = field(default_factory=lambda: public_key_list([encryption_pair()], KeyPurpose.ENCRYPTION))
    result: DirectoryOperationResult | None = None
    reads: int = 0

    async def read_directory(self, object_type: Any, filters: Any = (), attributes: Any = None, **_: Any) -> Any:
        self.reads += 1
        if self.result is not None:
            raise DirectoryOperationError(self.result, "so says the directory")
        (condition,) = filters
        if object_type is QueueManager:
            assert condition.value == DESTINATION
            return QueueManager(computer_name="THERE", public_encryption_key_list=self.keys)
        assert (object_type, condition.attribute) == (User, "name")
        return User(name=condition.value, security_identifier=USER if condition.value == "alice" else b"no SID")


async def test_a_destinations_keys_are_read_once_in_their_lifetime() -> None:
    directory = FakeDirectory()
    destinations = DestinationDirectory(directory, SETTINGS)
    keys = await destinations.keys_of(DESTINATION, NOW)
    assert keys.keys[AES_PROVIDER.name].fingerprint == encryption_pair().fingerprint
    assert await destinations.keys_of(DESTINATION, NOW + 600.0) is keys
    assert directory.reads == 1
    directory.keys = public_key_list([encryption_pair(number=1)], KeyPurpose.ENCRYPTION)  # rotated
    rotated = await destinations.keys_of(DESTINATION, NOW + 601.0)
    assert rotated.keys[AES_PROVIDER.name].fingerprint == encryption_pair(number=1).fingerprint
    assert destinations.forget(DESTINATION) == 1
    assert destinations.cached(DESTINATION, NOW + 601.0) is None


async def test_a_destination_without_keys_is_asked_for_again() -> None:
    directory = FakeDirectory(keys=None)
    destinations = DestinationDirectory(directory, SETTINGS)
    assert not (await destinations.keys_of(DESTINATION, NOW)).keys
    directory.result = DirectoryOperationResult.OBJECT_NOT_FOUND
    assert not (await destinations.keys_of(DESTINATION, NOW)).keys
    assert directory.reads == 2


@pytest.mark.parametrize(
    "result", [DirectoryOperationResult.DIRECTORY_NOT_CONNECTED, DirectoryOperationResult.GENERIC_ERROR]
)
async def test_while_the_directory_is_away_messages_wait(result: DirectoryOperationResult) -> None:
    destinations = DestinationDirectory(FakeDirectory(result=result), SETTINGS)
    with pytest.raises(MessageDeferredError, match="so says the directory"):
        await destinations.keys_of(DESTINATION, NOW)
    await destinations.close()


async def test_an_account_has_the_sid_of_the_table_or_of_the_directory() -> None:
    assert str(await security_identifier_of("bob", SETTINGS, FakeDirectory())) == "S-1-5-21-1-2-3-1002"
    assert (await security_identifier_of("alice", SETTINGS, FakeDirectory())).write() == USER


@pytest.mark.parametrize(
    ("account", "result", "code"),
    [
        ("eve", None, ErrorCode.MQ_ERROR_COULD_NOT_GET_USER_SID),
        ("carol", None, ErrorCode.MQ_ERROR_COULD_NOT_GET_USER_SID),
        ("carol", DirectoryOperationResult.OBJECT_NOT_FOUND, ErrorCode.MQ_ERROR_COULD_NOT_GET_USER_SID),
        ("carol", DirectoryOperationResult.DIRECTORY_NOT_CONNECTED, ErrorCode.MQ_ERROR_NO_DS),
    ],
)
async def test_an_account_that_nobody_knows_is_an_error_that_names_it(
    account: str, result: DirectoryOperationResult | None, code: ErrorCode
) -> None:
    with pytest.raises(MessageQueuingError, match=account) as refused:
        await security_identifier_of(account, SETTINGS, FakeDirectory(result=result))
    assert refused.value.code is code
