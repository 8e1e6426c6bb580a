"""The whole room through one object: keys from the store, questions to the directory, both ways."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from qmnode.directory.port import DirectoryOperationError, DirectoryOperationResult, QueueManager
from qmnode.errors import MessageQueuingError
from qmnode.security.arrival_checks import Arrival, QueueRules
from qmnode.security.key_stores import FileKeyStore, KeyPurpose, KeyState
from qmnode.security.message_security import SecurityService
from qmnode.security.protector import Admitted, Deferred, Protected, ProtectionRequest, Refused, Unprotectable
from qmnode.security.published_keys import public_key_list
from qmnode.settings.security import SecuritySettings
from qmnode.structures.enumerations import AuthenticationLevel, PrivacyLevel
from tests.security.directories import FakeDirectory
from tests.security.messages import (
    DAY,
    DESTINATION,
    NOW,
    SOURCE,
    USER,
    certificate,
    encryption_pair,
    message,
    on_the_wire,
    signer,
)

SETTINGS = SecuritySettings()
AWAY = DirectoryOperationError(DirectoryOperationResult.DIRECTORY_NOT_CONNECTED, "the directory is away")


class Enterprise(FakeDirectory):
    """The destination publishes what it has; the user has registered."""

    published = public_key_list([encryption_pair()], KeyPurpose.ENCRYPTION)

    async def read_directory(self, object_type, filters=(), attributes=None, **_):  # type: ignore[no-untyped-def]
        if object_type is QueueManager:
            if self.fault is not None:
                raise self.fault
            return QueueManager(computer_name="THERE", public_encryption_key_list=self.published)
        return await super().read_directory(object_type, filters, attributes)


def directory() -> Enterprise:
    return Enterprise(certificates={USER: (certificate(),)})


@pytest.fixture
def store(tmp_path: Path) -> FileKeyStore:
    made = FileKeyStore(tmp_path / "keys")
    made.replace_now((encryption_pair(),), expected_version=0)
    return made


def private(body: bytes = b"a body") -> ProtectionRequest:
    return ProtectionRequest(
        message(body, privacy_level=PrivacyLevel.ADVANCED).write(), AuthenticationLevel.SIG20, signer()
    )


async def test_two_nodes_exchange_signed_and_encrypted_messages(store: FileKeyStore, tmp_path: Path) -> None:
    away = SecurityService(SOURCE, SETTINGS, directory(), FileKeyStore(tmp_path / "none"), asyncio.to_thread)
    here = SecurityService(DESTINATION, SETTINGS, directory(), store, asyncio.to_thread)
    assert (await here.load_keys()).fingerprints == (encryption_pair().fingerprint,)
    batch = [private(b"1"), ProtectionRequest(message(b"2").write()), private(b"3")]
    sent = [each.packet for each in await away.protect(batch, NOW) if isinstance(each, Protected)]
    verdicts = await here.admission.judge([Arrival(on_the_wire(packet).write(), QueueRules()) for packet in sent], NOW)
    admitted = [verdict for verdict in verdicts if isinstance(verdict, Admitted)]
    assert [bytes(each.packet.message_properties_header.message_body) for each in admitted] == [b"1", b"2", b"3"]
    assert [each.sender.user.write() == USER for each in admitted] == [True, False, True]
    assert here.clean_up(NOW) == NOW + 660.0
    assert away.clean_up(NOW) == NOW + 660.0
    assert here.clean_up(NOW + 10_000.0) is None
    await here.close()
    await away.close()


async def test_a_node_knows_since_when_others_encrypt_to_its_keys(store: FileKeyStore) -> None:
    here = SecurityService(DESTINATION, SETTINGS, directory(), store)
    (pair,) = store.read_now().pairs
    following = replace(encryption_pair(number=1, now=NOW), state=KeyState.NEXT)
    signing = replace(pair, purpose=KeyPurpose.SIGNING)
    store.replace_now((pair, following, signing), expected_version=1)
    assert (await here.load_keys()).published == ((pair.provider, NOW - DAY),)
    store._path.chmod(0o644)
    status = await here.load_keys()
    assert status.fault is not None
    assert status.published, "what was read before goes on serving"


async def test_a_node_starts_without_its_key_store_and_goes_on_when_it_is_back(store: FileKeyStore) -> None:
    away = SecurityService(SOURCE, SETTINGS, directory(), store)
    (sent,) = await away.protect([private()], NOW)
    assert isinstance(sent, Protected)
    here = SecurityService(DESTINATION, SETTINGS, directory(), store)
    path = store._path
    path.chmod(0o644)
    status = await here.load_keys()
    assert status.fault is not None
    assert "chmod 600" in status.fault
    (verdict,) = await here.admission.judge([Arrival(sent.written, QueueRules())], NOW)
    assert isinstance(verdict, Deferred)
    path.chmod(0o600)
    assert (await here.load_keys()).fault is None
    (verdict,) = await here.admission.judge([Arrival(sent.written, QueueRules())], NOW)
    assert isinstance(verdict, Admitted)
    path.chmod(0o644)
    assert (await here.load_keys()).fingerprints == (encryption_pair().fingerprint,)
    away.protector._outgoing.cache.forget(lambda _place, _key: True)
    (sent,) = await away.protect([private()], NOW)
    assert isinstance(sent, Protected)
    (verdict,) = await here.admission.judge([Arrival(sent.written, QueueRules())], NOW)
    assert isinstance(verdict, Admitted)


async def test_while_the_directory_is_away_private_messages_wait_and_others_leave(store: FileKeyStore) -> None:
    enterprise = directory()
    enterprise.fault = AWAY
    away = SecurityService(SOURCE, SETTINGS, enterprise, store)
    waiting, plain = await away.protect([private(), ProtectionRequest(message().write())], NOW)
    assert isinstance(waiting, Deferred)
    assert plain == Protected(message().write())
    enterprise.fault = None
    (sent,) = await away.protect([private()], NOW)
    assert isinstance(sent, Protected)


async def test_a_destination_without_keys_gets_nothing_in_clear(store: FileKeyStore) -> None:
    enterprise = directory()
    enterprise.published = b""
    (outcome,) = await SecurityService(SOURCE, SETTINGS, enterprise, store).protect([private()], NOW)
    assert isinstance(outcome, Unprotectable)
    assert isinstance(outcome.error, MessageQueuingError)


async def test_after_a_rotation_both_sides_go_on(store: FileKeyStore) -> None:
    enterprise = directory()
    away = SecurityService(SOURCE, SETTINGS, enterprise, store)
    here = SecurityService(DESTINATION, SETTINGS, enterprise, store)
    await here.load_keys()
    old, new = encryption_pair(), encryption_pair(number=1, now=NOW)
    store.replace_now((new, old.superseded(NOW)), expected_version=1)
    enterprise.published = public_key_list([new], KeyPurpose.ENCRYPTION)
    for now, expected in ((NOW, Admitted), (NOW + 601.0, Admitted)):
        await here.load_keys()
        (sent,) = await away.protect([private()], now)
        assert isinstance(sent, Protected)
        (verdict,) = await here.admission.judge([Arrival(sent.written, QueueRules())], now)
        assert isinstance(verdict, expected)
    (stale,) = await away.protect(
        [ProtectionRequest(message(privacy_level=PrivacyLevel.ADVANCED).write())], NOW + 601.0
    )
    assert isinstance(stale, Protected)
    store.replace_now((old,), expected_version=2)
    await here.load_keys()
    (verdict,) = await here.admission.judge([Arrival(stale.written, QueueRules())], NOW + 601.0)
    assert isinstance(verdict, Refused)
    assert old.fingerprint in verdict.sentence
