"""Strangers that use up what a node has cost the others no more than if they attacked another node of this machine."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from qmnode.shares import resources
from qmnode.shares.resources import Resource
from tests.adversary.attacks import Area, attack
from tests.adversary.beside import KIB, MIB, MOST, Besieged
from tests.adversary.besiegers import PLAIN, SIEGES, attackers
from tests.adversary.crowds import CROWDS, addresses_of, strangers_of
from tests.lab.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    Labs = Callable[[str], Awaitable[tuple[Besieged, dict[str, list[str]]]]]

pytestmark = pytest.mark.servers
SECONDS: Final = 20.0
"""How long an attack lasts."""
AFTERWARDS: Final = 10.0
"""Seconds after an attack, in which all is as it was before."""
PROMISED: Final = frozenset({
    "incoming_sequences", "history_sources", "history_sparse_pages", "outgoing_queues", "notices",
})  # fmt: skip
"""Resources in which the node keeps what it has accepted: messages, and that they are not accepted again."""


@dataclass
class Measured:
    """What a siege cost the honest parties."""

    rates: dict[str, float]
    """Messages a second of each."""
    session: float
    """Seconds of the longest new session."""
    peak: int
    after: int
    """Bytes of memory, at most and ten seconds after the end."""
    kept: dict[str, float]
    """What strangers still hold of resources that only last as long as their connections."""

    def __str__(self) -> str:
        rates = " ".join(f"{name} {rate:6.0f}/s" for name, rate in self.rates.items())
        memory = f"peak {self.peak / MIB:4.0f} MiB, after {self.after / MIB:4.0f} MiB"
        return f"{rates}, session {self.session:5.2f} s, {memory}"


async def attacked(lab: Besieged, name: str, strangers: list[str], at: str) -> Measured:
    """Strangers attack one of two nodes, while honest traffic goes to VICTIM."""
    before = await lab.shares(name=at)
    lab.longest, lab.peak = 0.0, lab.memory
    async with lab.besieged_by(name, strangers, at):
        await asyncio.sleep(2.0)
        counts = {one.name: one.number for one in lab.parties.values()}
        await asyncio.sleep(SECONDS)
        rates = {one.name: (one.number - counts[one.name]) / SECONDS for one in lab.parties.values()}
    session, peak = lab.longest, lab.peak
    await asyncio.sleep(AFTERWARDS)
    after = await lab.shares(name=at)
    kept = {what: used for what, (used, _) in after.items() if what not in PROMISED and used > before[what][0]}
    return Measured(rates, session, peak, lab.memory, kept)


@pytest.mark.soak
@pytest.mark.timed
@pytest.mark.timeout(900)
@pytest.mark.parametrize("crowd", CROWDS)
@pytest.mark.parametrize("name", SIEGES)
async def test_a_siege_costs_no_more_than_one_of_another_node(
    tmp_path: Path, name: str, crowd: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with AsyncExitStack() as stack:
        address = stack.enter_context(addresses_of(crowd))
        lab = Besieged(tmp_path, address)
        stack.callback(lab.close)
        for node in ("VICTIM", "OTHER"):
            await lab.start(node)
        strangers = strangers_of(crowd, address)
        async with lab.honest_traffic(16):
            await lab.each_sends(100)
            beside = await attacked(lab, name, strangers, "OTHER")
            at_it = await attacked(lab, name, strangers, "VICTIM")
        with capsys.disabled():
            print(f"\n{name}, {crowd}\n  at another node: {beside}\n  at this node:    {at_it}")
            print(f"  {lab.report()}; {at_it.kept or 'nothing kept'}")
        await lab.all_is_well()
        for party in ("declared", "own"):
            assert not any(refused for _, refused in (await lab.shares(party)).values())
    assert not at_it.kept
    assert at_it.session < 1.0
    assert at_it.peak - beside.peak < MOST
    for party, rate in at_it.rates.items():
        assert rate > beside.rates[party] / 2, party


# The same with small limits: what counts


SMALL: Final = {
    "transport": {"incomplete_bytes": 32 * MIB},
    "quotas": {"queue_manager_quota": 16 * MIB // KIB},
    "amqp": {"attached_bytes": MIB},
    "remote_read": {"answer_bytes": MIB},
}
LIMITS: Final = {
    "held bytes": ("held_bytes", 32 * MIB),
    "quota": ("quota", 16 * MIB),
    "unread answers": ("rpc_answer_bytes", MIB),
    "links": ("amqp_attached_bytes", MIB),
}
"""What a siege uses up, and how much there is; ``test_crowds.py`` has the tables, ``test_costly_names.py`` names."""
RESOURCES: Final = {one.name: one for one in vars(resources).values() if isinstance(one, Resource)}
FAMILIES: Final = {"one": "ten", "ten": "ten", "network": "network"}
"""Crowds that attack the same node."""


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Labs]:
    """A node with small limits for each family of addresses, and the strangers of each crowd."""
    found: dict[str, tuple[Besieged, dict[str, list[str]]]] = {}
    with ExitStack() as stack:

        async def lab_of(crowd: str) -> tuple[Besieged, dict[str, list[str]]]:
            family = FAMILIES[crowd]
            if family not in found:
                address = stack.enter_context(addresses_of(family))
                lab = Besieged(tmp_path_factory.mktemp(family), address, **SMALL)
                stack.callback(lab.close)
                await lab.start("VICTIM")
                found[family] = (
                    lab,
                    {one: strangers_of(one, address) for one, other in FAMILIES.items() if other == family},
                )
            return found[family]

        yield lab_of


async def purge(lab: Besieged) -> None:
    """Remove what strangers have stored."""
    async with await lab.node.connect() as manager:
        for queue in (rf"DIRECT=OS:.\private$\{PLAIN}", r"DIRECT=OS:.\SYSTEM$;DEADLETTER"):
            async with await manager.open_queue(queue) as one:
                await one.purge()


async def stored(lab: Besieged) -> float:
    """Bytes of the quota in use."""
    async with await lab.node.connect() as manager:
        return (await manager.status()).quota_used


async def used_of(lab: Besieged, resource: str) -> float:
    """What strangers use of a resource."""
    return (await lab.shares())[resource][0]


@attack(
    Area.RESOURCES,
    can="use up memory, quota, processor and doors of a node, from one address, from ten of different blocks, or from "
    "one /64",
    promised="strangers keep to their part; messages of a declared machine, of a known TLS peer and of an application "
    "arrive once; what was held only for connections is free after their end",
)
@pytest.mark.parametrize("crowd", CROWDS)
@pytest.mark.parametrize("name", LIMITS)
async def test_a_siege_takes_nothing_from_others(labs: Labs, name: str, crowd: str) -> None:
    lab, strangers = await labs(crowd)
    resource, total = LIMITS[name]
    async with lab.honest_traffic():
        await lab.each_sends(1)
        before, memory = await lab.shares(), lab.memory
        async with lab.attacked(attackers(name, lab.target, strangers[crowd], 10)):
            await lab.each_sends(3)
            used = await (stored(lab) if name == "quota" else used_of(lab, resource))
        assert used <= total * (1 - RESOURCES[resource].reserve) + MIB
        assert lab.peak - memory < MOST

        async def is_over() -> bool:
            after = await lab.shares()
            return all(
                held <= before[what][0] and after[what] == (held, refused)
                for what, (held, refused) in (await lab.shares()).items()
                if what not in PROMISED
            )

        await until(is_over, "all is as it was before")
    await lab.all_is_well()
    for party in ("declared", "own"):
        assert not any(refused for _, refused in (await lab.shares(party)).values())
    await purge(lab)
    assert await stored(lab) == 0
