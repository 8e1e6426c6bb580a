"""Strangers that use up what a node has cost the others no more than if they attacked another node of this machine."""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from qmnode import shares
from qmnode.shares import Resource
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
SECONDS: Final = 6.0
"""How long an attack is measured; what comes before makes a turn of it."""
BEFORE: Final = 2.0
TURNS: Final = 3
"""Attacks of each node, in turns: a machine that is slow for a while is slow for both of a pair."""
AFTERWARDS: Final = 10.0
"""Seconds after an attack, in which all is as it was before: without those in which the loop waits for a processor."""
PROMISED: Final = frozenset({
    "incoming_sequences", "history_sources", "history_sparse_pages", "outgoing_queues", "notices",
})  # fmt: skip
"""Resources in which the node keeps what it has accepted: messages, and that they are not accepted again."""


STOLEN: Final = "stolen"
"""A crowd that holds the certificate of a declared host, at a node that requires TLS."""
OVER_SESSIONS: Final = ("sequences", "held bytes", "quota", "history", "names", "answers")
"""What a host's certificate opens."""
SLOWED: Final = 0.2
"""The part of the time that a loop waits for a processor, from which the clock says more about the machine."""


@dataclass
class Measured:
    """What an attack cost the honest parties."""

    rates: dict[str, float]
    """Messages a second of each."""
    ran: float
    """Seconds that VICTIM's loop ran."""
    waited: float
    """Seconds that it waited for a processor."""
    took: float
    session: float
    """Seconds of the longest new session."""
    peak: int
    """Bytes of memory at most."""

    @property
    def honest(self) -> float:
        """How many honest messages there were."""
        return sum(self.rates.values()) * self.took

    def left(self, beside: Measured) -> float:
        """The part of its time that the loop had for honest parties, if their messages cost what they cost beside an
        attack of another node. Time in which it was kept from the processor is no time that it had.
        """
        return 1 - (self.ran - self.honest * beside.ran / beside.honest) / (self.took - self.waited)

    def __str__(self) -> str:
        rates = " ".join(f"{name} {rate:6.0f}/s" for name, rate in self.rates.items())
        return (
            f"{rates}, {self.ran / self.honest * 1e6:5.0f} us each, session {self.session:5.2f} s, "
            f"peak {self.peak / MIB:4.0f} MiB, waits for a processor {self.waited / self.took:.2f} of the time"
        )


async def measured(lab: Besieged) -> Measured:
    """What honest traffic at VICTIM costs now."""
    lab.longest, lab.peak = 0.0, lab.memory
    await asyncio.sleep(BEFORE)
    counts, (ran, waited), began = (
        {one.name: one.number for one in lab.parties.values()},
        lab.loop,
        time.monotonic(),
    )
    await asyncio.sleep(SECONDS)
    took = time.monotonic() - began
    rates = {one.name: (one.number - counts[one.name]) / took for one in lab.parties.values()}
    return Measured(rates, lab.loop[0] - ran, lab.loop[1] - waited, took, lab.longest, lab.peak)


async def attacked(lab: Besieged, name: str, strangers: list[str], at: str) -> Measured:
    """Strangers attack one of two nodes, while honest traffic goes to VICTIM."""
    async with lab.besieged_by(name, strangers, at):
        return await measured(lab)


async def kept_afterwards(
    lab: Besieged, attacker: str, before: dict[str, tuple[float, float]]
) -> tuple[dict[str, float], float]:
    """What attackers hold more than before, at the end of the time in which it has to be free, and that time."""
    (_, waited), began = lab.loop, time.monotonic()
    while True:
        found = await lab.shares(attacker)
        kept = {what: used for what, (used, _) in found.items() if what not in PROMISED and used > before[what][0]}
        had = time.monotonic() - began - (lab.loop[1] - waited)
        if not kept or had > AFTERWARDS:
            return kept, had
        await asyncio.sleep(0.2)


@pytest.mark.soak
@pytest.mark.timed
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "crowd"),
    [*((name, crowd) for name in SIEGES for crowd in CROWDS), *((name, STOLEN) for name in OVER_SESSIONS)],
)
async def test_a_siege_costs_no_more_than_one_of_another_node(
    tmp_path: Path, name: str, crowd: str, capsys: pytest.CaptureFixture[str]
) -> None:
    is_stolen = crowd == STOLEN
    attacker = "declared" if is_stolen else "stranger"
    async with AsyncExitStack() as stack:
        address = stack.enter_context(addresses_of(crowd))
        lab = Besieged(tmp_path, address, is_stolen=is_stolen)
        stack.callback(lab.close)
        for node in ("VICTIM", "OTHER"):
            await lab.start(node)
        strangers = strangers_of(crowd, address)
        pairs = []
        async with lab.honest_traffic(16):
            await lab.each_sends(100)
            before = await lab.shares(attacker)
            alone = await measured(lab)
            for _ in range(TURNS):
                beside = await attacked(lab, name, strangers, "OTHER")
                pairs.append((beside, await attacked(lab, name, strangers, "VICTIM")))
            kept, back = await kept_afterwards(lab, attacker, before)
            memory = lab.memory
        left = statistics.median(at_it.left(beside) for beside, at_it in pairs)
        between = statistics.median(beside.left(alone) for beside, _ in pairs)
        rates = {
            party: statistics.median(at_it.rates[party] / beside.rates[party] for beside, at_it in pairs)
            for party in lab.parties
        }
        with capsys.disabled():
            print(f"\n{name}, {crowd}: {left:.2f} of the loop is left to honest parties; rate", end="")
            print("".join(f", {party} {rate:.2f}" for party, rate in rates.items()), f"after {memory / MIB:.0f} MiB")
            print(f"  before:          {alone}; {between:.2f} of the loop is left between the attacks")
            for beside, at_it in pairs:
                print(f"  at another node: {beside}\n  at this node:    {at_it}")
            print(f"  {lab.report()}; {kept or 'nothing kept'} after {back:.1f} s that the loop had")
        await lab.all_is_well()
        for party in ("own",) if is_stolen else ("declared", "own"):
            assert not any(refused for _, refused in (await lab.shares(party)).values())
    assert not kept
    assert max(at_it.peak for _, at_it in pairs) - pairs[0][0].peak < MOST
    assert left > 0.5
    assert between > 0.5, "what an attack left behind takes the time of the loop: the comparison says nothing"
    if all(one.waited < SLOWED * one.took for pair in pairs for one in pair):
        assert max(one.session for pair in pairs for one in pair) < 1.0
        assert min(rates.values()) > 0.5


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
STOLEN_SMALL: Final = [pytest.param(name, STOLEN, marks=pytest.mark.soak) for name in ("held bytes", "quota")]
RESOURCES: Final = {one.name: one for one in vars(shares).values() if isinstance(one, Resource)}
FAMILIES: Final = {"one": "ten", "ten": "ten", "network": "network", STOLEN: STOLEN}
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
                lab = Besieged(tmp_path_factory.mktemp(family), address, is_stolen=family == STOLEN, **SMALL)
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


async def used_of(lab: Besieged, resource: str, party: str) -> float:
    """What a kind of party uses of a resource."""
    return (await lab.shares(party))[resource][0]


@attack(
    Area.RESOURCES,
    can="use up memory, quota, processor and doors of a node, from one address, from ten of different blocks, from "
    "one /64, or with the stolen certificate of a host",
    promised="strangers keep to their part; messages of a declared machine, of a known TLS peer and of an application "
    "arrive once; what was held only for connections is free after their end",
)
@pytest.mark.parametrize(
    ("name", "crowd"),
    [*((name, crowd) for name in LIMITS for crowd in CROWDS), *STOLEN_SMALL],
)
async def test_a_siege_takes_nothing_from_others(labs: Labs, name: str, crowd: str) -> None:
    lab, strangers = await labs(crowd)
    resource, total = LIMITS[name]
    attacker, reserve = (
        ("declared", RESOURCES[resource].own) if crowd == STOLEN else ("stranger", RESOURCES[resource].reserve)
    )
    async with lab.honest_traffic():
        await lab.each_sends(1)
        before, memory = await lab.shares(attacker), lab.memory
        async with lab.attacked(attackers(name, lab.target, strangers[crowd], 10)):
            await lab.each_sends(30 if crowd == STOLEN else 3)
            used = await (stored(lab) if name == "quota" else used_of(lab, resource, attacker))
        assert used <= total * (1 - reserve) + MIB
        assert lab.peak - memory < MOST

        async def is_over() -> bool:
            after = await lab.shares(attacker)
            return all(
                held <= before[what][0] and after[what] == (held, refused)
                for what, (held, refused) in (await lab.shares(attacker)).items()
                if what not in PROMISED
            )

        await until(is_over, "all is as it was before")
    await lab.all_is_well()
    for party in ("own",) if crowd == STOLEN else ("declared", "own"):
        assert not any(refused for _, refused in (await lab.shares(party)).values())
    await purge(lab)
    assert await stored(lab) == 0
