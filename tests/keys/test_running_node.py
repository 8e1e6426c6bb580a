"""The keys of a node that runs: read again, gone from memory once retired, and waited for when they are away."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from qmnode import Access, Message, MessageQueuingError, QueueManager
from qmnode.security.key_stores import FileKeyStore, KeyPair, KeyPurpose, KeyState
from qmnode.security.published_keys import public_key_list
from qmnode.security.rsa_keys import PrivateKey
from qmnode.structures.enumerations import PrivacyLevel
from tests.certificates.enterprise import HOUR, QUEUE, Enterprise, two_nodes
from tests.lab.waiting import eventually
from tests.security.keys import private_key
from tests.security.messages import encryption_pair


@pytest.fixture
async def enterprise(tmp_path: Path) -> AsyncIterator[Enterprise]:
    async with two_nodes(tmp_path, key_reload_interval=HOUR) as enterprise:
        yield enterprise


def secret(body: bytes = b"a secret") -> Message:
    return Message(body, recoverable=True, privacy_level=PrivacyLevel.ADVANCED)


async def received(node: QueueManager, timeout: float = 20) -> Message:
    async with await node.open_queue(f"DIRECT=OS:{QUEUE}") as queue:
        return await queue.receive(timeout=timeout)


def publish(enterprise: Enterprise, pair: KeyPair) -> None:
    """The directory shows this key of B."""

    def change(sections: dict[str, list[dict[str, str]]]) -> None:
        (entry,) = (each for each in sections["queue_managers"] if each["computer_name"] == "B")
        entry["public_encryption_key_list"] = public_key_list([pair], KeyPurpose.ENCRYPTION).hex()

    enterprise.write(change)


def private_keys_in_memory() -> set[str]:
    """Fingerprints; without those that this test keeps for itself."""
    gc.collect()
    own = {id(private_key(1024, number)) for number in range(4)}
    return {each.fingerprint for each in gc.get_objects() if isinstance(each, PrivateKey) and id(each) not in own}


async def test_a_retired_key_leaves_memory_with_the_next_reading(enterprise: Enterprise) -> None:
    store = FileKeyStore(enterprise.folder / "B" / "keys")
    contents = store.read_now()
    (old,) = contents.pairs
    new = encryption_pair(number=2, now=old.created_time + 60)
    store.replace_now((replace(old, state=KeyState.RETIRED), new), expected_version=contents.version)
    del contents
    assert enterprise.b.network.keys.status.fingerprints == (old.fingerprint,)
    status = await enterprise.b.network.keys.read()
    assert status.fingerprints == (new.fingerprint,)
    fingerprint = old.fingerprint
    del old
    await eventually(lambda: fingerprint not in private_keys_in_memory())
    assert new.fingerprint in private_keys_in_memory()


async def test_a_node_whose_key_store_is_away_starts_and_holds_what_it_cannot_decrypt(enterprise: Enterprise) -> None:
    name = await enterprise.queue_on_b()
    keys = enterprise.folder / "B" / "keys"
    await enterprise.nodes.pop("B").close()
    keys.rename(keys.with_name("elsewhere"))  # what it was mounted from is away
    bob = await enterprise.start("B", key_reload_interval=HOUR)
    (warning,) = (await bob.status()).warnings
    assert "key store" in warning and "empty" in warning

    async with await enterprise.a.open_queue(name, Access.SEND) as out:
        await out.send(secret())
    outgoing = next(q for q in enterprise.a.queue_collection.values() if q.pathname == name)
    await eventually(lambda: bool(outgoing.locked))  # it was sent
    with pytest.raises(MessageQueuingError):
        await received(bob, timeout=1)
    assert outgoing.message_count == 1  # nobody acknowledged it
    assert not keys.exists()  # and no new keys were made, to which nothing is encrypted

    keys.with_name("elsewhere").rename(keys)
    assert (await bob.network.keys.read()).fault is None
    assert (await received(bob)).body == b"a secret"
    await eventually(lambda: outgoing.message_count == 0)
    assert (await bob.status()).warnings == ()


async def test_a_store_that_goes_away_later_takes_no_key_along(enterprise: Enterprise) -> None:
    name = await enterprise.queue_on_b()
    (enterprise.folder / "B" / "keys").chmod(0o644)
    assert "0644" in ((await enterprise.b.network.keys.read()).fault or "")
    async with await enterprise.a.open_queue(name, Access.SEND) as out:
        await out.send(secret())
    assert (await received(enterprise.b)).body == b"a secret"
    assert "0644" in (await enterprise.b.status()).warnings[0]


async def test_the_store_is_read_again_by_itself(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, key_reload_interval=0.05) as enterprise:
        store = FileKeyStore(enterprise.folder / "B" / "keys")
        contents = store.read_now()
        new = encryption_pair(number=2)
        store.replace_now((*contents.pairs, new), expected_version=contents.version)
        await eventually(lambda: new.fingerprint in enterprise.b.network.keys.status.fingerprints)


async def test_what_waited_for_long_is_encrypted_to_the_key_of_today(tmp_path: Path) -> None:
    """Sent once, never acknowledged, and the key it was encrypted to is destroyed before the receiver is back."""
    short = {"public_key_lifetime": 200, "symmetric_key_short_lifetime": 200, "key_reload_interval": HOUR}
    async with two_nodes(tmp_path, **short) as enterprise:
        name = await enterprise.queue_on_b()
        keys = enterprise.folder / "B" / "keys"
        await enterprise.nodes.pop("B").close()
        keys.rename(keys.with_name("elsewhere"))
        await enterprise.start("B", **short)
        async with await enterprise.a.open_queue(name, Access.SEND) as out:
            await out.send(secret())
        outgoing = next(q for q in enterprise.a.queue_collection.values() if q.pathname == name)
        await eventually(lambda: bool(outgoing.locked))
        await asyncio.sleep(0.5)  # nothing but time must pass

        new = encryption_pair(number=2)
        FileKeyStore(keys).replace_now((new,), expected_version=0)
        publish(enterprise, new)
        await asyncio.sleep(0.5)
        await enterprise.b.network.keys.read()
        assert (await received(enterprise.b)).body == b"a secret"


async def test_an_encrypted_message_is_under_way_no_longer_than_its_key_is_kept(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, longest_time_to_reach_queue=1000) as enterprise:
        name = await enterprise.queue_on_b()
        async with await enterprise.a.open_queue(name, Access.SEND) as out:
            forever = Message(
                b"x", recoverable=True, privacy_level=PrivacyLevel.ADVANCED, time_to_reach_queue=0xFFFFFFFF
            )
            await out.send(forever)
            await out.send(forever.copy(privacy_level=PrivacyLevel.NONE))
        assert 1000 <= (await received(enterprise.b)).time_to_reach_queue <= 1060
        assert (await received(enterprise.b)).time_to_reach_queue == 0xFFFFFFFF


async def test_a_key_that_is_used_before_it_was_read_is_read_at_once(enterprise: Enterprise) -> None:
    """The node reads its store once an hour here; a rotation that does not know so loses nothing."""
    name = await enterprise.queue_on_b()
    store = FileKeyStore(enterprise.folder / "B" / "keys")
    contents = store.read_now()
    new = encryption_pair(number=2)
    store.replace_now((contents.pairs[0].superseded(0.0), new), expected_version=contents.version)
    publish(enterprise, new)
    async with await enterprise.a.open_queue(name, Access.SEND) as out:
        await out.send(secret())
    assert (await received(enterprise.b)).body == b"a secret"


async def test_a_key_that_was_made_while_the_store_is_away_is_waited_for(enterprise: Enterprise) -> None:
    name = await enterprise.queue_on_b()
    keys = enterprise.folder / "B" / "keys"
    contents = FileKeyStore(keys).read_now()
    new = encryption_pair(number=2)
    keys.rename(keys.with_name("elsewhere"))
    assert (await enterprise.b.network.keys.read()).fault == "the key store is empty"
    FileKeyStore(keys.with_name("elsewhere")).replace_now((*contents.pairs, new), expected_version=contents.version)
    publish(enterprise, new)
    async with await enterprise.a.open_queue(name, Access.SEND) as out:
        await out.send(secret())
    outgoing = next(q for q in enterprise.a.queue_collection.values() if q.pathname == name)
    await eventually(lambda: bool(outgoing.locked))
    with pytest.raises(MessageQueuingError):
        await received(enterprise.b, timeout=0.5)
    assert outgoing.message_count == 1
    keys.with_name("elsewhere").rename(keys)
    await enterprise.b.network.keys.read()
    assert (await received(enterprise.b)).body == b"a secret"
