"""The key store in AWS Secrets Manager, against moto's server."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from mqenterprise.keys.aws import AwsKeyStore, open_aws_key_store
from mqenterprise.keys.rotation import Rotation
from qmnode import Access, Message
from qmnode.security.arrival_checks import Arrival, QueueRules
from qmnode.security.errors import KeyStoreConflictError, KeyStoreError, KeyStoreUnavailableError
from qmnode.security.key_stores import (
    ENTRY_POINT_GROUP,
    FileKeyStore,
    KeyPurpose,
    KeyState,
    KeyStore,
    KeyStoreOptions,
    open_key_store,
)
from qmnode.security.message_security import SecurityService
from qmnode.security.protector import Admitted, Deferred
from qmnode.settings.security import SecuritySettings
from qmnode.structures.enumerations import PrivacyLevel
from qmnode.structures.guid import Guid, guid_to_text
from tests.certificates.enterprise import QUEUE, two_nodes
from tests.keys.lab import NEEDED_FOR, NODE, WAITING, Bench
from tests.lab.aws import ENVIRONMENT, Moto
from tests.lab.silence import Relay
from tests.security.directories import FakeDirectory
from tests.security.messages import DESTINATION, NOW, encryption_pair, message, sent

pytestmark = pytest.mark.servers
_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def relay(moto: Moto) -> Iterator[Relay]:
    relay = Relay(moto.address)
    yield relay
    relay.close()


@pytest.fixture
def identifier() -> Guid:
    return Guid(next(_numbers).to_bytes(16, "little"))


@pytest.fixture
def kms_key(moto: Moto) -> str:
    made = boto3.client("kms", endpoint_url=moto.url, region_name="eu-central-1").create_key()
    return str(made["KeyMetadata"]["KeyId"])


def kms_file(folder: Path, url: str, key: str) -> KeyStore:
    settings = {"kms_key_id": key, "endpoint_url": url, "region": "eu-central-1"}
    with Path("pyproject.toml").open("rb") as file:  # as it will be installed
        named = tomllib.load(file)["project"]["entry-points"][ENTRY_POINT_GROUP]
    entry_points = [EntryPoint(name, value, ENTRY_POINT_GROUP) for name, value in named.items()]
    return open_key_store("file-kms", KeyStoreOptions(settings=settings, directory=folder), factories=entry_points)


async def test_a_file_that_kms_encrypts_shows_no_key_and_opens_with_that_key_only(
    moto: Moto, kms_key: str, tmp_path: Path
) -> None:
    store = kms_file(tmp_path, moto.url, kms_key)
    pair = encryption_pair()
    assert await store.replace((pair,), expected_version=0) == 1
    assert await store.replace((pair, encryption_pair(number=1)), expected_version=1) == 2
    again = await kms_file(tmp_path, moto.url, kms_key).read()
    assert [each.fingerprint for each in again.pairs] == [pair.fingerprint, encryption_pair(number=1).fingerprint]

    stored = (tmp_path / "keys").read_bytes()
    assert pair.private_key is not None and pair.fingerprint.encode() not in stored
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o600
    with pytest.raises(KeyStoreError, match="is encrypted"):
        await FileKeyStore(tmp_path / "keys").read()

    other = boto3.client("kms", endpoint_url=moto.url, region_name="eu-central-1").create_key()["KeyMetadata"]["KeyId"]
    with pytest.raises(KeyStoreError):
        await kms_file(tmp_path, moto.url, other).read()
    (tmp_path / "keys").write_bytes(stored.replace(b'"sealed": "', b'"sealed": "AAAA'))
    with pytest.raises(KeyStoreError, match="altered"):
        await store.read()


async def test_kms_that_is_away_is_a_store_that_is_away(moto: Moto, relay: Relay, kms_key: str, tmp_path: Path) -> None:
    store = kms_file(tmp_path, f"http://127.0.0.1:{relay.port}", kms_key)
    await store.replace((encryption_pair(),), expected_version=0)
    relay.close()
    with pytest.raises(KeyStoreUnavailableError):
        await store.read()


async def test_a_node_keeps_its_keys_in_aws(moto: Moto, tmp_path: Path) -> None:
    """From its first keys to a message that is encrypted to them."""
    aws = {"endpoint_url": moto.url, "region": "eu-central-1", "prefix": f"node-{next(_numbers)}"}
    async with two_nodes(tmp_path, key_store="aws", key_store_settings=aws) as enterprise:
        name = await enterprise.queue_on_b()
        async with await enterprise.a.open_queue(name, Access.SEND) as out:
            await out.send(Message(b"a secret", recoverable=True, privacy_level=PrivacyLevel.ADVANCED))
        async with await enterprise.b.open_queue(f"DIRECT=OS:{QUEUE}") as queue:
            assert (await queue.receive(timeout=60)).body == b"a secret"


@pytest.fixture
def opened(moto: Moto, relay: Relay, identifier: Guid) -> Callable[..., AwsKeyStore]:
    def opened(**more: str) -> AwsKeyStore:
        settings = {"endpoint_url": f"http://127.0.0.1:{relay.port}", "region": "eu-central-1", **more}
        return open_aws_key_store(KeyStoreOptions(settings=settings, directory=Path(), identifier=identifier))

    return opened


@pytest.fixture
def secrets(moto: Moto) -> Any:
    return boto3.client("secretsmanager", endpoint_url=moto.url, region_name="eu-central-1")


def names_of(secrets: Any, identifier: Guid) -> list[str]:
    found = secrets.list_secrets(MaxResults=100)["SecretList"]
    return sorted(each["Name"] for each in found if guid_to_text(identifier).lower() in each["Name"])


async def test_what_was_stored_is_read_by_another(opened: Callable[..., AwsKeyStore]) -> None:
    store = opened()
    assert (await store.read()).version == 0
    pairs = (encryption_pair(), encryption_pair(number=1).superseded(NOW))
    assert await store.replace(pairs, expected_version=0) == 1
    found = await opened().read()
    assert found.version == 1
    assert [(pair.fingerprint, pair.state) for pair in found.pairs] == [
        (pair.fingerprint, pair.state) for pair in pairs
    ]
    assert all(pair.private_key is not None for pair in found.pairs)


async def test_of_two_writers_one_is_told_and_leaves_nothing(
    opened: Callable[..., AwsKeyStore], secrets: Any, identifier: Guid
) -> None:
    one, other = opened(), opened()
    await one.replace((encryption_pair(),), expected_version=0)
    await one.replace((encryption_pair(),), expected_version=1)
    with pytest.raises(KeyStoreConflictError):
        await other.replace((encryption_pair(number=1),), expected_version=1)
    # Both have read the same version and neither has written.
    original = other._value
    other._value = lambda name: original(name) if name != other._name else first  # type: ignore[method-assign]
    first = original(other._name)
    await one.replace((encryption_pair(),), expected_version=2)
    with pytest.raises(KeyStoreConflictError):
        await other.replace((encryption_pair(), encryption_pair(number=2)), expected_version=2)
    assert len(names_of(secrets, identifier)) == 2


async def test_the_two_newest_versions_are_current_and_previous(
    opened: Callable[..., AwsKeyStore], secrets: Any
) -> None:
    store = opened()
    for version in range(4):
        await store.replace((encryption_pair(),), expected_version=version)
    stages = {
        stage: secrets.get_secret_value(SecretId=store._name, VersionStage=stage)["SecretString"]
        for stage in ("AWSCURRENT", "AWSPREVIOUS")
    }
    assert '"version": 4' in stages["AWSCURRENT"]
    assert '"version": 3' in stages["AWSPREVIOUS"]
    assert 'private_key": null' in stages["AWSCURRENT"]


async def test_a_destroyed_private_key_is_in_no_version(
    opened: Callable[..., AwsKeyStore], secrets: Any, identifier: Guid, tmp_path: Path
) -> None:
    store = opened()
    bench = Bench(tmp_path, store)
    await bench.rotate()
    bench.clock.now += 1000
    await bench.rotate()
    old = (await bench.pairs())[1]
    assert len(names_of(secrets, identifier)) == 1 + 3
    for _ in range(2):
        bench.clock.now += 2 * NEEDED_FOR
        await bench.rotation.retire()
    assert await bench.states() == [KeyState.CURRENT, KeyState.DESTROYED]
    assert len(names_of(secrets, identifier)) == 1 + 2
    with pytest.raises(ClientError, match="ResourceNotFound"):
        secrets.get_secret_value(SecretId=store._name_of(old))


async def test_a_destruction_that_was_cut_is_gone_on_with(
    opened: Callable[..., AwsKeyStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, opened())
    await bench.rotate()
    bench.clock.now += 1000
    await bench.rotate()
    bench.clock.now += NEEDED_FOR
    await bench.rotation.retire()
    bench.clock.now += 10
    cut = opened()
    deleted = cut._delete

    def delete_and_die(fingerprint: str) -> None:
        deleted(fingerprint)
        raise KeyboardInterrupt

    monkeypatch.setattr(cut, "_delete", delete_and_die)
    with pytest.raises(KeyboardInterrupt):
        cut._replace(
            tuple(pair.destroyed(NOW) if pair.state is KeyState.RETIRED else pair for pair in cut._read().pairs),
            cut._read().version,
        )
    fresh = opened()
    (old,) = [pair for pair in (await fresh.read()).pairs if pair.state is KeyState.RETIRED]
    assert old.private_key is None
    await Rotation(NODE, fresh, bench.lists, WAITING, bench.clock).retire()
    states = [pair.state for pair in (await opened().read()).pairs if pair.purpose is KeyPurpose.ENCRYPTION]
    assert sorted(states) == [KeyState.CURRENT, KeyState.DESTROYED]


async def test_secrets_are_encrypted_by_the_given_key(
    moto: Moto, opened: Callable[..., AwsKeyStore], secrets: Any
) -> None:
    kms = boto3.client("kms", endpoint_url=moto.url, region_name="eu-central-1")
    key = kms.create_key()["KeyMetadata"]["KeyId"]
    store = opened(kms_key_id=key)
    await store.replace((encryption_pair(),), expected_version=0)
    for name in (store._name, store._name_of(encryption_pair())):
        assert secrets.describe_secret(SecretId=name)["KmsKeyId"].endswith(key)


async def test_a_node_starts_while_its_store_is_away_and_drops_nothing(
    opened: Callable[..., AwsKeyStore], relay: Relay
) -> None:
    await opened().replace((encryption_pair(),), expected_version=0)
    node = SecurityService(DESTINATION, SecuritySettings(), FakeDirectory(), opened())
    private = sent(message(privacy_level=PrivacyLevel.ADVANCED))
    relay.cut()
    status = await node.load_keys()
    assert status.fault is not None
    assert "cannot be reached" in status.fault
    (verdict,) = await node.admission.judge([Arrival(private.write(), QueueRules())], NOW)
    assert isinstance(verdict, Deferred)
    relay.mend()
    assert (await node.load_keys()).fault is None
    (verdict,) = await node.admission.judge([Arrival(private.write(), QueueRules())], NOW)
    assert isinstance(verdict, Admitted)
    relay.cut()
    with pytest.raises(KeyStoreUnavailableError):
        await node._key_store.replace((), expected_version=1)
    await node.close()


def test_wrong_settings_are_told(identifier: Guid) -> None:
    for settings, given, told in (
        ({"secret": "x"}, identifier, "no settings secret"),
        ({}, None, "identifier"),
        ({"region": "not a region"}, identifier, "cannot be used"),
    ):
        with pytest.raises(KeyStoreError, match=told):
            open_aws_key_store(KeyStoreOptions(settings=settings, directory=Path(), identifier=given))


def test_a_node_finds_it_by_name(identifier: Guid) -> None:
    declared = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]["entry-points"]["qmnode.key_store"]
    factories = [EntryPoint(name, value, "qmnode.key_store") for name, value in declared.items()]
    options = KeyStoreOptions(settings={"region": "eu-central-1"}, directory=Path(), identifier=identifier)
    assert isinstance(open_key_store("aws", options, factories=factories), AwsKeyStore)
