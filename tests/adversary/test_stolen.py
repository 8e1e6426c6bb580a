"""The stolen certificate or the address of a machine: only that machine's own messages suffer."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from qmnode.security.arrival_checks import Arrival
from qmnode.security.protector import Verdict
from qmnode.shares import HELD_BYTES, Kind, Turns
from qmnode.shares import Peer as Payer
from qmnode.transport.connection import BUFFER_SIZE, READ_AHEAD
from tests.adversary import wire
from tests.adversary.attacks import Area, attack
from tests.adversary.besiegers import FIRST, MIB, Target, send_signed
from tests.adversary.crowds import Crowded, crowded
from tests.adversary.peer import session
from tests.lab.waiting import eventually
from tests.transport.conftest import TRANSACTIONAL

pytestmark = pytest.mark.servers
SEQUENCED = TRANSACTIONAL.rpartition("\\")[2]


async def stolen(lab: Crowded) -> tuple[Target, str]:
    """TARGET for who has the certificate of SEALED and its address."""
    await lab.stop("SEALED")
    machine = lab.machines["SEALED"]
    certificate = lab.folder / f"tls-{machine.listens}" / "certificate"
    shutil.copy(certificate.with_name("key"), certificate.with_suffix(".key"))
    return Target(lab.address, certificate=str(certificate), machine=bytes(machine.identifier).hex()), machine.listens


@attack(
    Area.RESOURCES,
    can="with the stolen certificate of a host, send large signed messages over many connections, faster than "
    "signatures are verified",
    promised="a machine has a share of the bytes that wait, and the node reads no further, TLS included",
)
async def test_a_stolen_certificate_has_its_share_of_messages_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    total, count = 16 * MIB, 20
    async with crowded(tmp_path, "one", transport={"incomplete_bytes": total}) as lab:
        at, own = await stolen(lab)
        network, answered = lab.target.network, asyncio.Event()
        judge = network.security.admission.judge

        async def slowly(arrivals: Sequence[Arrival], now: float) -> list[Verdict]:
            await answered.wait()
            return await judge(arrivals, now)

        monkeypatch.setattr(network.security.admission, "judge", slowly)
        attackers = [asyncio.ensure_future(send_signed(at, own, MIB)) for _ in range(count)]
        (account,) = [one for one in lab.target.context.shares if one.resource is HELD_BYTES]

        def all_wait() -> bool:
            accepted = [one for one in network.accepted if one.encrypted]
            return len(accepted) == count and all(one._read_paused for one in accepted)

        await eventually(all_wait, "all wait")
        assert total / 8 < account.used[Kind.DECLARED] < total / 4 + 2 * MIB
        for one in network.accepted:
            if one.encrypted:
                assert one._transport.get_read_buffer_size() <= BUFFER_SIZE + READ_AHEAD
        answered.set()
        for attacker in attackers:
            attacker.cancel()
        await asyncio.wait(attackers)
        await eventually(lambda: not account.used[Kind.DECLARED], "nothing is held for it")


@attack(
    Area.SESSIONS,
    can="share the address of a declared machine, and send messages that cost acknowledgments",
    promised="the machine does not pay for them",
)
async def test_a_stranger_at_the_address_of_a_machine_pays_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payers: list[str | Payer] = []
    follow = Turns.follow

    def noted(turns: Turns, payer: str | Payer, work: partial[object]) -> None:
        if isinstance(work, partial) and work.func == lab.target.network.notices.order:
            payers.append(payer)
        follow(turns, payer, work)

    async with crowded(tmp_path, "one") as lab:
        await lab.honest()
        monkeypatch.setattr(Turns, "follow", noted)
        address, source = lab.machines["FRIEND"].listens, wire.identifier()
        letter = Target(lab.address).letter(source, 1, SEQUENCED, place=wire.Place(FIRST, 1, 0))
        async with session(address, lab.address, source) as peer:
            await peer.say(letter)
            await eventually(lambda: bool(payers), "its order acknowledgment is made")
        assert payers == [address]
