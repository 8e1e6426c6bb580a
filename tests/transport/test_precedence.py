"""Queues with the same next hop: base priority plus priority says which sends first (MS-MQDMPR 3.1.7.1.28, 3.1.7.3.9).

Messages go over a narrow link, or there would be nothing to compete for.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest
import yaml

from qmnode import Access, Message, QueueManager
from qmnode.delivery.queue_connection import INTERVAL, QUANTUM, Precedence
from qmnode.structures.guid import Guid, guid_to_text
from tests.lab.narrow import NarrowLink
from tests.lab.waiting import eventually
from tests.transport.conftest import loopback_address
from tests.transport.test_directory import Enterprise
from tests.transport.test_transfer import nothing_outgoing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


COUNT = 300
BODY = bytes(1000)
RATE = 400_000
"""Bytes a second: some 330 messages."""


class Link:
    """ALICE and BOB with a narrow link from one to the other."""

    def __init__(self, enterprise: Enterprise, link: NarrowLink) -> None:
        self.enterprise = enterprise
        self.link = link

    @property
    def alice(self) -> QueueManager:
        return self.enterprise.nodes["ALICE"]

    @property
    def bob(self) -> QueueManager:
        return self.enterprise.nodes["BOB"]

    async def public(self, name: str, base_priority: int = 0) -> str:
        created = await self.bob.create_queue(rf".\{name}", base_priority=base_priority)
        return f"PUBLIC={guid_to_text(Guid(created.identifier))}"

    async def send(self, name: str, priority: int, count: int = COUNT) -> None:
        async with await self.alice.open_queue(name, Access.SEND) as queue:
            await queue.send_many([Message(BODY, priority=priority, recoverable=True)] * count)

    def arrived(self, name: str) -> int:
        return self.bob.names.find(name).message_count


@pytest.fixture
async def link(tmp_path: Path) -> AsyncIterator[Link]:
    enterprise = Enterprise(tmp_path)
    narrow = NarrowLink(loopback_address(), enterprise.addresses["BOB"], 1801, RATE)
    await narrow.start()
    await enterprise.start("BOB")
    known = yaml.safe_load(enterprise.file.read_text())
    for entry in known["queue_managers"]:
        if entry["computer_name"] == "BOB":
            entry["qualified_computer_name"] = narrow.address
    enterprise.file.write_text(yaml.safe_dump(known))
    await enterprise.start("ALICE")
    yield Link(enterprise, narrow)
    for node in enterprise.nodes.values():
        await node.close()
    await narrow.stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "priorities"),
    [(10, (3, 3)), (10, (7, 0)), (0, (2, 5))],
    ids=["by base priority", "by base priority, against that of messages", "by the priority of messages"],
)
async def test_over_a_narrow_link_the_higher_priority_goes_first(
    link: Link, base: int, priorities: tuple[int, int]
) -> None:
    low, high = await link.public("low"), await link.public("high", base)
    await link.send(low, priorities[0], 2 * COUNT)
    await eventually(lambda: link.arrived(r".\low") > 0)
    await link.send(high, priorities[1])
    await eventually(lambda: link.arrived(r".\high") > 0)
    before = link.arrived(r".\low")
    await eventually(lambda: link.arrived(r".\high") == COUNT)
    meanwhile = link.arrived(r".\low") - before
    # A window was under way, and a sixteenth is let through. Side by side the two would have had the same.
    assert 0 < meanwhile < COUNT / 2
    await eventually(lambda: link.arrived(r".\low") == 2 * COUNT and nothing_outgoing(link.alice))


@pytest.mark.slow
async def test_equals_share_the_link(link: Link) -> None:
    one, other = await link.public("one", 5), await link.public("other", 5)
    await link.send(one, 3, 2 * COUNT)
    await link.send(other, 3)
    await eventually(lambda: link.arrived(r".\other") == COUNT)
    assert COUNT / 3 < link.arrived(r".\one") < 2 * COUNT
    await eventually(lambda: nothing_outgoing(link.alice))


async def test_a_base_priority_that_changed_is_learnt_with_the_next_connection(link: Link) -> None:
    name = await link.public("orders", 7)
    await link.send(name, 3, 1)
    await eventually(lambda: nothing_outgoing(link.alice))
    outgoing = link.alice.names.find(name)
    assert outgoing.base_priority == 7
    await link.bob.set_queue(r".\orders", base_priority=-3)
    link.alice.take_offline()
    link.alice.bring_online()
    await link.send(name, 3, 1)
    await eventually(lambda: outgoing.base_priority == -3)


class Backlog:
    """A sender that always has more, of one level."""

    def __init__(self, level: int | None) -> None:
        self.value = level
        self.scheduled = 0

    def level(self) -> int | None:
        return self.value

    def schedule(self) -> None:
        self.scheduled += 1


def served(precedence: Precedence, senders: dict[str, Backlog], rounds: int) -> Counter[str]:
    """What each sends in so many passes in which everybody tries."""
    sent: Counter[str] = Counter()
    for _ in range(rounds):
        for name, sender in senders.items():
            count = precedence.room(sender, 16)
            if count:
                sent[name] += count
                precedence.sent(sender, count)
    return sent


async def test_all_others_together_have_a_sixteenth_and_the_first_of_them_most() -> None:
    precedence = Precedence()
    senders = {"first": Backlog(9), "second": Backlog(5), "third": Backlog(1), "also third": Backlog(1)}
    for sender in senders.values():
        precedence.join(sender)
    sent = served(precedence, senders, 4000)
    behind = sent["second"] + sent["third"] + sent["also third"]
    assert behind == pytest.approx(sent["first"] * QUANTUM / INTERVAL, rel=0.1)
    assert sent["second"] > 0.7 * behind
    assert min(sent["third"], sent["also third"]) > 0.05 * behind, "nobody starves"


async def test_who_leaves_or_is_paused_holds_nobody_back() -> None:
    precedence = Precedence()
    high, low, other = Backlog(9), Backlog(1), Backlog(0)
    assert not precedence.is_shared
    for sender in (high, low, other):
        precedence.join(sender)
    assert precedence.is_shared
    assert (precedence.room(high, 8), precedence.room(low, 8), precedence.room(other, 8)) == (8, 0, 0)
    before = low.scheduled
    precedence.step_aside(high)  # paused
    assert low.scheduled > before
    assert (precedence.room(low, 8), precedence.room(other, 8)) == (8, 0)
    high.value = None  # resumed, and empty
    assert (precedence.room(high, 8), precedence.room(low, 8)) == (8, 8)
    assert not precedence.leave(low)
    assert precedence.room(other, 8) == 8
    assert not precedence.leave(high)
    assert precedence.leave(other)


async def test_the_last_message_of_the_first_lets_the_others_go_on() -> None:
    precedence = Precedence()
    high, low = Backlog(9), Backlog(1)
    for sender in (high, low):
        precedence.join(sender)
    assert (precedence.room(high, 8), precedence.room(low, 8)) == (8, 0)
    before = low.scheduled
    high.value = None
    precedence.sent(high, 8)
    assert low.scheduled == before + 1
    assert precedence.room(low, 8) == 8


async def test_a_first_that_stands_still_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qmnode.delivery.queue_connection.PATIENCE", 0.01)
    precedence = Precedence()
    high, low = Backlog(9), Backlog(1)
    for sender in (high, low):
        precedence.join(sender)
    precedence.room(high, 0)
    sent = 0
    async with asyncio.timeout(60):
        while sent < 3 * QUANTUM:
            sent += precedence.room(low, 16)
            await asyncio.sleep(0.001)
    precedence.leave(high)
    precedence.leave(low)


async def test_the_others_are_asked_when_the_first_has_only_lower_messages_left() -> None:
    precedence = Precedence()
    first, second = Backlog(7), Backlog(5)
    for sender in (first, second):
        precedence.join(sender)
    assert (precedence.room(first, 8), precedence.room(second, 8)) == (8, 0)
    before = second.scheduled
    first.value = 3
    precedence.sent(first, 8)
    assert second.scheduled == before + 1
    assert (precedence.room(second, 8), precedence.room(first, 8)) == (8, 0)
    for sender in (first, second):
        precedence.leave(sender)


async def test_a_turn_that_came_as_the_sender_became_first_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender that has it leads, and falls behind again: it is held back like any other."""
    monkeypatch.setattr("qmnode.delivery.queue_connection.PATIENCE", 0.01)
    precedence = Precedence()
    high, low = Backlog(9), Backlog(1)
    for sender in (high, low):
        precedence.join(sender)
    assert (precedence.room(high, 8), precedence.room(low, 8)) == (8, 0)
    before = low.scheduled
    await eventually(lambda: low.scheduled > before)  # its turn
    low.value = 10
    assert precedence.room(low, 8) == 8
    low.value = 1
    assert precedence.room(low, 8) == 0
    for sender in (high, low):
        precedence.leave(sender)
