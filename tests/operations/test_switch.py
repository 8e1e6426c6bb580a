"""``mqenterprise switch`` and back: a queue moves between two nodes of a directory while a third goes on to send."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

import qmnode
from mqenterprise.operations.nodes import chosen_nodes, connected
from mqenterprise.operations.settings import load_settings
from mqenterprise.operations.switching import Plan
from qmnode import Access, Message, QueueType
from tests.lab.waiting import holds
from tests.operations.switched import Enterprise, Sender, bodies, last, outcome

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from mqenterprise.directory.private_slapd import EmbeddedDirectory

pytestmark = [
    pytest.mark.servers,
    pytest.mark.one_server(reason="how a queue moves does not depend on the directory's product"),
]


@pytest.fixture
async def enterprise(slapd: EmbeddedDirectory, tmp_path: Path) -> AsyncIterator[Enterprise]:
    one = Enterprise(tmp_path, slapd)
    try:
        await one.start()
        yield one
    finally:
        one.stop()


async def there_and_back(enterprise: Enterprise, names: Sequence[str], *, enough: int) -> None:
    """Switch queues under traffic and take them back: nothing is lost, doubled, or out of order."""
    publics = {
        name: await enterprise.publish(name, transactional=bool(number % 2 == 0)) for number, name in enumerate(names)
    }
    senders = {
        name: Sender(enterprise.sender, public, transactional=number % 2 == 0)
        for number, (name, public) in enumerate(publics.items())
    }
    sending = [asyncio.ensure_future(sender.run()) for sender in senders.values()]
    for name, public in publics.items():
        await holds(lambda public=public: has(enterprise, "old", public, enough), 120, f"{name} has messages")
    queues = [f"SWOLD\\{name}" for name in names]
    await asyncio.to_thread(enterprise.switch, *queues, "--sole-reader", "--until", "redirect")
    await all_follow(enterprise, "new", publics, senders)
    await asyncio.to_thread(enterprise.switch, *queues, "--sole-reader", "--follow", "1")
    for name in names:
        assert enterprise.directory.queues.find(f"SWNEW\\{name}") is not None
    switched = {name: sender.sent for name, sender in senders.items()}
    await holds(lambda: progressed(senders, switched, enough), 120, "senders go on")
    for name, public in publics.items():
        await holds(lambda name=name, public=public: has(enterprise, "new", public, switched[name]), 120, name)
        numbers = await bodies(enterprise.new, public)
        assert outcome(numbers, len(numbers)) == (0, 0, 0), "nothing is lost or doubled, and all is in order"
        assert await bodies(enterprise.old, public) == []
        direct = await sent_directly(enterprise, name, len(numbers))
        print(f"{name}: {len(numbers)} at the new node, {direct} of them sent there directly")
        assert direct > 0
    await asyncio.to_thread(enterprise.switch, *queues, "--back", "--until", "redirect back")
    await all_follow(enterprise, "old", publics, senders)
    await asyncio.to_thread(enterprise.switch, *queues, "--back", "--follow", "1")
    returned = {name: sender.sent for name, sender in senders.items()}
    await holds(lambda: progressed(senders, returned, enough), 120, "senders go on")
    for sender in senders.values():
        sender.ends.set()
    await asyncio.gather(*sending)
    for name, public in publics.items():
        assert enterprise.directory.queues.find(f"SWOLD\\{name}") is not None
        sender = senders[name]
        await holds(
            lambda public=public, sent=sender.sent: has(enterprise, "old", public, sent), 120, f"{name} is back"
        )
        lost, doubled, disordered = outcome(await bodies(enterprise.old, public), sender.sent)
        print(f"{name}: {sender.sent} sent without a stop, {lost} lost, {doubled} doubled, longest pause "
              f"{sender.longest:.2f} s, {disordered} places out of order after the way back")  # fmt: skip
        assert (lost, doubled) == (0, 0)
        assert sender.longest < 5
    shown, _ = await asyncio.to_thread(enterprise.switch, queues[0], "--show")
    assert "taken back" in shown and "done  return the rest" in shown


async def all_follow(enterprise: Enterprise, which: str, publics: dict[str, str], senders: dict[str, Sender]) -> None:
    """Wait until each sender's messages go to a node, with no more on their way to the other.

    A busy machine can stop a sender for longer than ``--follow``; what comes later has to be carried by hand.
    """
    for name, public in publics.items():
        first = senders[name].sent
        await holds(lambda name=public, first=first: follows(enterprise, which, name, first), 120, f"{name} follows")


async def follows(enterprise: Enterprise, which: str, public: str, first: int) -> bool:
    return await last(getattr(enterprise, which), public) >= first


async def sent_directly(enterprise: Enterprise, name: str, count: int) -> int:
    """Messages at the new node that were not carried."""
    settings = load_settings(enterprise.folder / "nodes.yaml")
    nodes = chosen_nodes(settings, lambda: pytest.fail("no directory"), machines=["SWNEW"], site=None)
    async with connected(settings, nodes) as (client,):
        carries = await client.carries()
    return count - sum(one.carried for one in carries if one.source.endswith(f"\\{name}"))


async def has(enterprise: Enterprise, which: str, public: str, count: int) -> bool:
    async with qmnode.connect(getattr(enterprise, which).socket) as manager:
        return (await manager.queue(public)).message_count >= count


async def progressed(senders: dict[str, Sender], since: dict[str, int], count: int) -> bool:
    return all(sender.sent >= since[name] + count for name, sender in senders.items())


async def test_queues_are_switched_and_taken_back_while_a_sender_goes_on(enterprise: Enterprise) -> None:
    await there_and_back(enterprise, ["orders", "bills"], enough=20)


async def test_messages_go_to_the_new_owner_when_the_old_machine_is_switched_off(enterprise: Enterprise) -> None:
    """The sender has looked the owner up a moment ago, and connects anew when the old machine is gone; also if it is
    killed with messages that it accepted meanwhile, before it has connected.
    """
    name = await enterprise.publish("orders", transactional=True)
    await send(enterprise, name, range(10))
    await holds(lambda: has(enterprise, "old", name, 10), 120, "the old machine has the messages")
    await holds(lambda: is_acknowledged(enterprise), 120, "the sender knows that, or it would send them again")
    await asyncio.to_thread(enterprise.switch, r"SWOLD\orders", "--sole-reader", "--until", "redirect")
    enterprise.old.kill()
    await send(enterprise, name, range(10, 20))
    enterprise.sender.kill()
    await asyncio.to_thread(enterprise.sender.start)
    await send(enterprise, name, range(20, 30))
    await holds(lambda: has(enterprise, "new", name, 30), 60, "the new owner has the messages")
    assert outcome(await bodies(enterprise.new, name), 30) == (0, 0, 0)


async def is_acknowledged(enterprise: Enterprise) -> bool:
    async with qmnode.connect(enterprise.sender.socket) as manager:
        return not any(queue.message_count for queue in await manager.queues([QueueType.OUTGOING]))


async def send(enterprise: Enterprise, name: str, numbers: Sequence[int]) -> None:
    async with (
        qmnode.connect(enterprise.sender.socket) as manager,
        await manager.open_queue(name, Access.SEND) as queue,
    ):
        for number in numbers:
            await queue.send(Message(b"%d" % number, recoverable=True), "single")


async def test_mistakes_are_one_line_each_and_change_nothing(enterprise: Enterprise) -> None:
    public = await enterprise.publish("orders", transactional=True)
    await enterprise.publish("other")
    await enterprise.publish("closed", security=b"")
    await enterprise.publish("clash")
    full = await enterprise.publish("full", transactional=True)
    await send(enterprise, public, range(5))
    await send(enterprise, full, [10**1000] * 3)
    await holds(lambda: has(enterprise, "old", public, 5), 120, "the old machine has the messages")
    await holds(lambda: has(enterprise, "old", full, 3), 120, "the old machine has these")
    async with qmnode.connect(enterprise.old.socket) as manager:
        await manager.set_queue(r"SWOLD\full", quota=3)
    async with qmnode.connect(enterprise.new.socket) as manager:
        await manager.create_queue(r"SWNEW\clash")
    async with qmnode.connect(enterprise.sender.socket) as manager:
        await manager.create_queue(r"SWSEND\other")
    folder = enterprise.folder
    (folder / "garbage").mkdir()
    (folder / "garbage" / "swold+orders.switch.json").write_text("{")
    Plan(folder / "others" / "swold+orders.switch.json", "SWOLD\\orders", "", "old", "OTHER").write()
    taken = Plan(folder / "taken" / "swold+orders.switch.json", "SWOLD\\orders", "", "", "SWNEW", taken_back=True)
    taken.source = f"{enterprise.addresses['SWOLD']}:{enterprise.mapper}"
    taken.write()
    (folder / "file").write_text("")
    orders = r"SWOLD\orders"

    def refusals() -> dict[str, str]:
        refused = enterprise.refused
        return {
            "switch the whole machine with --machine": refused(r"SWOLD\private$\orders"),
            "is no public queue: write": refused("orders"),
            "there is no public queue": refused(r"SWOLD\absent"),
            "declare the machine and apply": refused(orders, "--to", "SWNONE"),
            "is at SWNEW already": refused(r"SWNEW\clash"),
            "name its owner with --from": refused(r"SWSEND\other"),
            "as another queue": refused(r"SWOLD\clash"),
            "allow it ReceiveMessage": refused(r"SWOLD\closed"),
            "is no plan of a switch": refused(orders, "--plans", str(folder / "garbage")),
            "name these, or another folder": refused(orders, "--plans", str(folder / "others")),
            "begin again with a new plan": refused(orders, "--plans", str(folder / "taken")),
            "cannot be written": refused(orders, "--plans", str(folder / "file"), "--until", "check"),
            "there is nothing to take back": refused(orders, "--back"),
            "there is no queue manager SWNONE": refused("--machine", "SWNONE"),
            "Remote read has to be enabled": refused(orders, "--from", f"{enterprise.addresses['SWSEND']}:9"),
            "is for administer": refused(orders, "--nodes", nodes_with(folder, token_file="lesser.token")),
            "SWNEW: it is unavailable": refused(
                orders, "--nodes", nodes_with(folder, machines={"SWNEW": {"address": "127.0.0.1:9"}})
            ),
            "has room for 3,072 bytes": refused(r"SWOLD\full"),
            "by which messages would expire": refused_with_another_clock(enterprise, orders),
            "the steps are": refused(orders, "--until", "nonsense", code=2),
            "name queues or --machine": refused(orders, "--machine", "SWOLD", code=2),
        }

    lines = await asyncio.to_thread(refusals)
    assert {part: line for part, line in lines.items() if part not in line} == {}
    assert not [plan for plan in folder.glob("*.switch.json") if Plan.read(plan).done or Plan.read(plan).taken_back]
    assert enterprise.directory.queues.find(orders) is not None
    assert await bodies(enterprise.old, public) == list(range(5))
    reader = asyncio.create_task(is_refused_beside_a_reader(enterprise, public))
    assert "a program has it open to receive" in await reader


def refused_with_another_clock(enterprise: Enterprise, queue: str) -> str:
    real = time.time
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mqenterprise.operations.carrying.time.time", lambda: real() + 3600)
        return enterprise.refused(queue)


def nodes_with(folder: Path, **settings: Any) -> str:
    file = folder / "changed.yaml"
    file.write_text(json.dumps(json.loads((folder / "nodes.yaml").read_text()) | settings))
    return str(file)


async def is_refused_beside_a_reader(enterprise: Enterprise, name: str) -> str:
    async with (
        qmnode.connect(enterprise.old.socket) as manager,
        await manager.open_queue(name, Access.RECEIVE),
    ):
        return await asyncio.to_thread(enterprise.refused, r"SWOLD\orders")


@pytest.mark.soak
@pytest.mark.timed
@pytest.mark.timeout(0)
async def test_ten_queues_are_switched_and_taken_back(enterprise: Enterprise) -> None:
    await there_and_back(enterprise, [f"queue{number}" for number in range(10)], enough=120)


def test_the_folder_of_plans_is_made(tmp_path: Path) -> None:
    Plan(tmp_path / "plans" / "one.switch.json", "OLD\\orders", "", "old", "NEW").write()
    assert Plan.read(tmp_path / "plans" / "one.switch.json").target == "NEW"
