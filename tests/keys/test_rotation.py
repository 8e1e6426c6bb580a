"""The rotation of one node's keys, step by step, cut, contended and rolled back."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqenterprise.keys.publication import Shown
from mqenterprise.keys.report import rows_of
from mqenterprise.keys.settings import KeyRotationError
from qmnode.security.key_stores import KeyPair, KeyPurpose, KeyState, KeyStore, KeyStoreContents
from qmnode.security.published_keys import public_key_list
from qmnode.structures.public_keys import PROV_RSA_FULL, MqdsPublicKey, MqdsPublicKeys
from tests.keys.lab import NEEDED_FOR, RELOAD, SHOWN_FOR, WAITING, Bench

CURRENT, PREVIOUS, RETIRED, DESTROYED, NEXT = (
    KeyState.CURRENT,
    KeyState.PREVIOUS,
    KeyState.RETIRED,
    KeyState.DESTROYED,
    KeyState.NEXT,
)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def rotated(bench: Bench) -> Bench:
    """With a first key, and one that took its place."""
    await bench.rotate()
    bench.clock.now += 1000
    await bench.rotate()
    return bench


async def test_the_first_keys_are_made_and_published(bench: Bench) -> None:
    await bench.rotate()
    (encryption,), (signing,) = await bench.pairs(), await bench.pairs(KeyPurpose.SIGNING)
    assert (encryption.state, signing.state) == (CURRENT, CURRENT)
    assert bench.lists.shown() == {encryption.fingerprint, signing.fingerprint}


async def test_a_new_key_is_not_published_before_its_node_can_know_it(bench: Bench) -> None:
    await bench.rotation.prepare(bench.clock.now)
    assert await bench.rotation.publish() == bench.clock.now + RELOAD
    assert bench.lists.shown() == frozenset()
    bench.clock.now += RELOAD
    assert await bench.rotation.publish() is None
    assert await bench.states() == [CURRENT]


async def test_a_new_key_takes_the_place_of_its_providers_key(bench: Bench) -> None:
    foreign = MqdsPublicKey(provider_type=PROV_RSA_FULL, provider_name="Another Provider", key=b"whatever it is")
    bench.lists.lists[KeyPurpose.ENCRYPTION] = MqdsPublicKeys(keys=(foreign,)).write()
    await rotated(bench)
    new, old = await bench.pairs()
    assert (new.state, old.state) == (CURRENT, PREVIOUS)
    listed = MqdsPublicKeys.parse(bench.lists.lists[KeyPurpose.ENCRYPTION] or b"").keys
    assert listed[0] == foreign
    assert [entry.provider_name for entry in listed[1:]] == [new.provider]
    assert old.fingerprint not in bench.lists.shown()
    assert new.fingerprint in bench.lists.shown()


async def test_an_old_key_is_kept_until_nothing_encrypted_to_it_can_arrive(bench: Bench) -> None:
    await rotated(bench)
    superseded = bench.clock.now
    for late, expected in (
        (NEEDED_FOR - 1, PREVIOUS),
        (NEEDED_FOR, RETIRED),
        (NEEDED_FOR + 9, RETIRED),
        (NEEDED_FOR + 10, DESTROYED),
    ):
        bench.clock.now = superseded + late
        await bench.rotation.retire()
        assert await bench.states() == [CURRENT, expected]
    assert (await bench.pairs())[1].private_key is None


async def test_a_key_that_the_directory_still_shows_is_not_put_away(bench: Bench) -> None:
    await bench.rotate()
    before = dict(bench.lists.lists)
    bench.clock.now += 1000
    await bench.rotate()
    bench.lists.lists = before  # restored from a backup
    bench.clock.now += 10 * NEEDED_FOR
    await bench.rotation.retire()
    assert await bench.states() == [CURRENT, PREVIOUS]
    await bench.rotation.publish()
    new, old = await bench.pairs()
    assert new.fingerprint in bench.lists.shown()
    assert old.superseded_time == bench.clock.now
    bench.clock.now += NEEDED_FOR - 1
    await bench.rotation.retire()
    assert await bench.states() == [CURRENT, PREVIOUS]


async def test_run_again_after_a_cut_a_rotation_rotates_once(bench: Bench) -> None:
    await bench.rotate()
    bench.clock.now += 1000
    begun = bench.clock.now
    for _ in range(3):
        await bench.rotation.prepare(begun)
        await bench.finish()
        bench.clock.now += 1
    assert await bench.states() == [CURRENT, PREVIOUS]


async def test_cut_between_directory_and_store_a_rotation_is_gone_on_with(bench: Bench) -> None:
    await bench.rotate()
    bench.clock.now += 1000
    begun = bench.clock.now
    await bench.rotation.prepare(begun)
    bench.clock.now += RELOAD
    contents = await bench.store.read()
    await bench.rotation.publish()
    bench.file._path.unlink()
    await bench.store.replace(contents.pairs, expected_version=0)  # as it was before the last write
    await bench.rotation.prepare(begun)
    await bench.finish()
    assert await bench.states() == [CURRENT, PREVIOUS]
    assert (await bench.pairs())[0].fingerprint in bench.lists.shown()


@pytest.mark.parametrize("age", [0, NEEDED_FOR], ids=["previous", "retired"])
async def test_the_old_key_is_published_again_until_it_is_destroyed(bench: Bench, age: float) -> None:
    await rotated(bench)
    bench.clock.now += age
    await bench.rotation.retire()
    new, old = await bench.pairs()
    await bench.roll_back()
    assert await bench.states() == [PREVIOUS, CURRENT]
    assert old.fingerprint in bench.lists.shown()
    assert new.fingerprint not in bench.lists.shown()
    assert all(pair.private_key is not None for pair in await bench.pairs())
    with pytest.raises(KeyRotationError, match="no earlier key"):
        await bench.roll_back()


async def test_a_retired_key_is_not_published_before_its_node_knows_it_again(bench: Bench) -> None:
    await rotated(bench)
    bench.clock.now += NEEDED_FOR
    await bench.rotation.retire()
    await bench.rotation.roll_back()
    assert await bench.rotation.publish() == bench.clock.now + RELOAD


async def test_a_destroyed_key_does_not_come_back(bench: Bench) -> None:
    await rotated(bench)
    for _ in range(2):
        bench.clock.now += 2 * NEEDED_FOR
        await bench.rotation.retire()
    with pytest.raises(KeyRotationError, match="no earlier key"):
        await bench.rotation.roll_back()


async def test_a_rotation_that_was_not_published_is_rolled_back(bench: Bench) -> None:
    await bench.rotate()
    bench.clock.now += 1000
    await bench.rotation.prepare(bench.clock.now)
    await bench.roll_back()
    assert await bench.states() == [PREVIOUS, CURRENT]


async def test_after_a_rollback_the_next_rotation_makes_a_new_key(bench: Bench) -> None:
    await rotated(bench)
    await bench.roll_back()
    bench.clock.now += 1000
    await bench.rotate()
    assert await bench.states() == [CURRENT, PREVIOUS, PREVIOUS]


class Contended:
    """A store that someone else writes between a reading and the writing after it, once."""

    def __init__(self, store: KeyStore) -> None:
        self.store, self.meanwhile = store, True

    async def read(self) -> KeyStoreContents:
        return await self.store.read()

    async def replace(self, pairs: tuple[KeyPair, ...], *, expected_version: int) -> int:
        if self.meanwhile:
            self.meanwhile = False
            await self.store.replace((await self.store.read()).pairs, expected_version=expected_version)
        return await self.store.replace(pairs, expected_version=expected_version)


async def test_what_someone_else_wrote_meanwhile_is_read_first(tmp_path: Path) -> None:
    plain = Bench(tmp_path)
    bench = Bench(tmp_path, Contended(plain.file))
    await bench.rotate()
    bench.lists.between = lambda: bench.lists.lists.update(
        {KeyPurpose.ENCRYPTION: public_key_list((), KeyPurpose.ENCRYPTION)}
    )
    bench.clock.now += 1000
    await bench.rotate()
    assert await bench.states() == [CURRENT, PREVIOUS]
    assert (await bench.pairs())[0].fingerprint in bench.lists.shown()


async def rows(bench: Bench) -> list[tuple[object, ...]]:
    found = rows_of(await bench.rotation.look(), WAITING, bench.clock.now)
    chosen = [row for row in found if row["purpose"] == KeyPurpose.ENCRYPTION]
    return [(row.get("state"), row["due"], row["is_due"]) for row in chosen]


async def test_the_status_says_what_is_due(bench: Bench) -> None:
    assert await rows(bench) == [(None, "rotate", True)]
    await bench.rotation.prepare(bench.clock.now)
    assert await rows(bench) == [("next", "publish", False)]
    bench.clock.now += RELOAD
    assert await rows(bench) == [("next", "publish", True)]
    await bench.rotate()
    assert await rows(bench) == [("current", "rotate", False)]
    bench.clock.now += 10_000
    assert await rows(bench) == [("current", "rotate", True)]
    await bench.rotate()
    assert await rows(bench) == [("current", "rotate", False), ("previous", "retire", False)]
    bench.clock.now += NEEDED_FOR
    assert await rows(bench) == [("current", "rotate", False), ("previous", "retire", True)]


async def test_the_status_says_who_may_still_send_to_an_old_key(bench: Bench) -> None:
    await rotated(bench)
    told = [row for row in rows_of(await bench.rotation.look(), WAITING, bench.clock.now) if row["state"] == "previous"]
    assert "has not read the directory again, until" in told[0]["senders"]
    bench.clock.now += SHOWN_FOR
    told = [row for row in rows_of(await bench.rotation.look(), WAITING, bench.clock.now) if row["state"] == "previous"]
    assert told[0]["senders"] == "nobody; messages may be under way"


async def test_a_key_in_the_directory_that_is_not_the_stores_is_due_for_publication(bench: Bench) -> None:
    await bench.rotate()
    bench.lists.lists.clear()
    assert await rows(bench) == [("current", "publish", True)]
    assert Shown.of({}).fingerprints == frozenset()
