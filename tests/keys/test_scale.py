"""The keys of many nodes in a directory, 2,000 in the soak: bounded in time and concurrency, resumed after a cut."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.keys.fleet import Clock, Fleet
from mqenterprise.keys.life_cycle import Waiting
from mqenterprise.keys.publication import Node, Publication
from mqenterprise.keys.settings import KeySettings
from qmnode.directory.port import QueueManager
from qmnode.security.key_stores import KeyPair, KeyPurpose, KeyState, KeyStoreContents
from qmnode.security.published_keys import public_key_list
from qmnode.security.rsa_keys import AES_PROVIDER, Policy, PrivateKey
from tests.keys.lab import MemoryStore
from tests.lab.servers import start_slapd

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timed, pytest.mark.soak]
BITS = 1024
"""Half of what nodes use: making keys still takes most of the time, and what comes on top of it shows the more."""
SETTINGS = KeySettings(modulus_length=BITS, reload_interval=0, concurrency=8)
WAITING = Waiting(SETTINGS, 60.0)


async def bare(publication: Publication, nodes: list[Node], first: KeyPair) -> float:
    """Seconds for as many keys and as many writes, with the same concurrency, and nothing else."""
    places = asyncio.Semaphore(SETTINGS.concurrency)
    started = time.perf_counter()

    def make() -> bytes:
        key = PrivateKey.generate(BITS, Policy(frozenset(), ""))
        pair = KeyPair.of(key, AES_PROVIDER.name, KeyPurpose.ENCRYPTION, KeyState.CURRENT, 0.0)
        return public_key_list([pair], KeyPurpose.ENCRYPTION)

    async def one(node: Node) -> None:
        async with places:
            encoded = await asyncio.to_thread(make)
            manager = QueueManager(
                computer_name=node.computer_name,
                identifier=node.identifier,
                full_path=node.full_path,
                public_encryption_key_list=encoded,
            )
            queue_managers = publication._directory.queue_managers
            await asyncio.to_thread(queue_managers.modify, manager, ("public_encryption_key_list",))

    await asyncio.gather(*map(one, nodes))
    return time.perf_counter() - started


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("count", [300, 2000])
async def test_many_nodes_take_at_most_twice_the_bare_work(
    open_folder: Path, record_property: Callable[..., None], count: int
) -> None:
    server = start_slapd(open_folder / "state")
    try:
        with EnterpriseDirectory(server.client_settings()) as directory:
            directory.prepare()
            for number in range(count):
                directory.queue_managers.add(QueueManager(computer_name=f"N{number}"))
            publication = Publication(directory)
            nodes = publication.nodes()
            assert len(nodes) == count
            key = PrivateKey.generate(BITS, Policy(frozenset(), ""))
            signing, first = (
                KeyPair.of(key, AES_PROVIDER.name, purpose, KeyState.CURRENT, 0.0)
                for purpose in (KeyPurpose.SIGNING, KeyPurpose.ENCRYPTION)
            )
            stores = {node.identifier: MemoryStore() for node in nodes}
            for store in stores.values():
                store.contents = KeyStoreContents(1, (signing, first))

            half = nodes[: count // 2]
            rest = nodes[count // 2 :]
            begun = time.time()
            # Both in turns, as the machine is not equally busy all the time.
            baseline = await bare(publication, half, first)
            steps: list[int] = []
            fleet = Fleet(
                nodes,
                publication,
                WAITING,
                clock=Clock(),
                stores=lambda node, _: stores[node.identifier],
                step=lambda: steps.append(1),
            )
            started = time.perf_counter()
            cut = asyncio.create_task(fleet.rotate(begun, wait=True))
            while len(steps) < count // 3:
                await asyncio.sleep(0.05)
            done = len(steps)
            cut.cancel()
            await asyncio.gather(cut, return_exceptions=True)
            resumed = Fleet(
                nodes,
                publication,
                WAITING,
                clock=Clock(),
                stores=lambda node, _: stores[node.identifier],
            )
            outcome = await resumed.rotate(begun, wait=True)
            took = time.perf_counter() - started
            baseline += await bare(publication, rest, first)

            assert outcome.failed == {}
            assert count // 3 <= done < count
            for keys in outcome.done:
                states = sorted(pair.state for pair in keys.pairs if pair.purpose is KeyPurpose.ENCRYPTION)
                assert states == [KeyState.CURRENT, KeyState.PREVIOUS]
            record_property("ratio", took / baseline)
            print(f"rotation {took:.1f} s, bare {baseline:.1f} s, ratio {took / baseline:.2f}")
            assert took <= 2 * baseline
    finally:
        server.stop()
