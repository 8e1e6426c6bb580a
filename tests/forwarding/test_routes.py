"""Routes that change: a routing server that is away and comes back, a directory that says something else, circles."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from qmnode.structures.enumerations import MessageClass
from qmnode.structures.guid import Guid, guid_to_text
from tests.forwarding.conftest import Enterprise
from tests.forwarding.enterprise import Directory, Machine, Node
from tests.lab.waiting import until

pytestmark = pytest.mark.servers

BATCH = 40


@pytest.fixture
async def reports(enterprise: Enterprise) -> AsyncIterator[Guid]:
    """A public queue for trace reports; and the directory is as it was when the test is over."""
    machines, links = dict(enterprise.directory.machines), enterprise.directory.links
    name = f"reports{random.randrange(1 << 30)}"
    identifier = await enterprise.source.create_public_queue(name)
    enterprise.reports = rf".\{name}"
    yield identifier
    enterprise.directory.machines, enterprise.directory.links = machines, links
    enterprise.directory.write()


async def way(enterprise: Enterprise, reports: Guid) -> list[str]:
    """The names of the nodes that a message to a queue of TARGET passes, by its trace reports."""
    kind = f"way{random.randrange(1 << 30)}"
    name = await enterprise.target.create_queue(kind)
    await enterprise.source.send(
        name, [b"traced"], recoverable=True, tracing_requested=True, tracing_queue_identifier=reports
    )
    await enterprise.target.bodies(kind, 1)
    addresses = {node.machine.listens: node.machine.name for node in enterprise.nodes.values()}
    hops: dict[int, str] = {}
    while "TARGET" not in hops.values() or len(hops) <= max(hops):
        (report,) = await enterprise.source.receive(enterprise.reports.removeprefix(".\\"), 1)
        text = report.body.decode("utf-16-le")
        if "<NEXT HOP>" in text:
            count = int(text.partition("<HOP COUNT>")[2].partition("<")[0], 16)
            hops[count] = addresses[text.partition("<NEXT HOP>")[2].partition("<")[0]]
    return [hops[count] for count in sorted(hops)]


async def test_the_fall_back_takes_over_and_gives_back(enterprise: Enterprise, reports: Guid) -> None:
    first, second = enterprise.first.machine.name, enterprise.second.machine.name
    name = await enterprise.target.create_queue("fall-back")
    assert await way(enterprise, reports) == [first, "TARGET"]
    enterprise.first.kill()
    await enterprise.source.send(name, [b"by the second"], recoverable=True)
    assert await enterprise.target.bodies("fall-back", 1) == [b"by the second"]

    async def goes_by_the_second() -> bool:
        """The report of a try by the first may be the last that came."""
        return await way(enterprise, reports) == [second, "TARGET"]

    await until(goes_by_the_second, "messages go by the second")
    await enterprise.first.start_again()

    async def returned() -> bool:
        """The queue that went by the second goes by the first again, without having been idle."""
        await enterprise.source.send(
            name, [b"by whom"], recoverable=True, tracing_requested=True, tracing_queue_identifier=reports
        )
        texts = [
            str(report.body, "utf-16-le")
            for report in await enterprise.source.receive(enterprise.reports.removeprefix(".\\"), 4)
        ]
        return any(f"<NEXT HOP>{enterprise.first.machine.listens}<" in text for text in texts)

    await until(returned, "a message by the better next hop")


async def test_a_directory_that_changes_changes_the_way(enterprise: Enterprise, reports: Guid) -> None:
    machines = enterprise.directory.machines
    for server in (enterprise.second, enterprise.first):
        machines["SOURCE"] = replace(machines["SOURCE"], out_routing_servers=[server.machine.name])
        enterprise.directory.write()

        async def goes(server: Node = server) -> bool:
            return await way(enterprise, reports) == [server.machine.name, "TARGET"]

        await until(goes, "a message by the out-routing server")
    machines["SOURCE"] = replace(machines["SOURCE"], out_routing_servers=[])
    machines["TARGET"] = replace(machines["TARGET"], in_routing_servers=[enterprise.second.machine.name])
    enterprise.directory.write()

    async def through_both() -> bool:
        passed = await way(enterprise, reports)
        return passed == [enterprise.first.machine.name, enterprise.second.machine.name, "TARGET"]

    await until(through_both, "a message by the in-routing server")


async def test_three_hops_between_site_gates(enterprise: Enterprise, reports: Guid) -> None:
    machines = enterprise.directory.machines
    machines["ROUTER1"] = replace(machines["ROUTER1"], sites=["south"])
    machines["ROUTER2"] = replace(machines["ROUTER2"], sites=["north"])
    enterprise.directory.links = [*enterprise.directory.links, ("south", "north", 3, ["ROUTER1", "ROUTER2"])]
    enterprise.directory.write()
    name = await enterprise.target.create_queue("gates", transactional=True)

    async def through_gates() -> bool:
        return await way(enterprise, reports) == ["ROUTER1", "ROUTER2", "TARGET"]

    await until(through_gates, "a message by both site gates")
    numbers = [b"%d" % number for number in range(300)]
    await enterprise.source.send(name, numbers, transactional=True, positive_journaling_requested=True)
    assert await enterprise.target.bodies("gates", len(numbers)) == numbers
    journaled = await enterprise.source.receive("SYSTEM$;JOURNAL", len(numbers))
    assert sorted(message.body for message in journaled) == sorted(numbers)


@pytest.mark.slow
@pytest.mark.parametrize("transactional", [pytest.param(False, marks=pytest.mark.soak), True])
async def test_nothing_is_lost_or_twice_when_routing_servers_are_killed_and_routes_change(
    enterprise: Enterprise, reports: Guid, transactional: bool
) -> None:
    kind = "ordered" if transactional else "once"
    name = await enterprise.target.create_queue(kind, transactional=transactional)
    machines = enterprise.directory.machines
    dice = random.Random(kind)  # a seed, so that it is the same in every run
    count = 0
    for step in range(6):
        numbers = [b"%d" % number for number in range(count, count + BATCH)]
        await enterprise.source.send(name, numbers, transactional=transactional, recoverable=True)
        count += BATCH
        await asyncio.sleep(dice.random() * 0.2)  # anywhere in the transfer: there is nothing to wait for
        if step % 2:
            server = dice.choice([enterprise.first, enterprise.second]).machine.name
            machines["SOURCE"] = replace(machines["SOURCE"], out_routing_servers=[server])
            enterprise.directory.write()
        else:
            victim = dice.choice([enterprise.first, enterprise.second])
            victim.kill()
            victim.start()
    for node in enterprise.nodes.values():
        await node.ready()
    arrived = [int(body) for body in await enterprise.target.bodies(kind, count)]
    assert (arrived if transactional else sorted(arrived)) == list(range(count))

    async def nothing_waits() -> bool:
        return not sum([await node.outgoing() for node in (enterprise.source, enterprise.first, enterprise.second)])

    if transactional:
        await until(nothing_waits, "all acknowledgments")
    assert await enterprise.target.count(rf".\private$\{kind}") == 0


async def test_messages_for_a_foreign_site_are_in_the_connector_queues(enterprise: Enterprise) -> None:
    foreign = enterprise.directory.machines["FOREIGN"].identifier
    site = guid_to_text(enterprise.directory.sites["mainframe"])
    connector = enterprise.nodes["ROUTER1"]
    for sender in (enterprise.source, connector):
        for transactional, suffix in ((False, ""), (True, ";XACTONLY")):
            name = f"PRIVATE={guid_to_text(foreign)}\\00000007"
            body = f"{sender.machine.name}{suffix}".encode()
            await sender.send(name, [body], transactional=transactional, recoverable=True)

            async def arrived(suffix: str = suffix) -> bool:
                return await connector.count(f"CONNECTOR={site}{suffix}") == 1

            await until(arrived, "the message in the connector queue")
            async with await connector.connect() as qm, await qm.open_queue(f"CONNECTOR={site}{suffix}") as queue:
                assert (await queue.receive(timeout=60)).body == body


async def test_messages_in_a_connector_queue_go_on_when_the_declaration_is_mended(
    enterprise: Enterprise,
) -> None:
    """TARGET is declared as a foreign system by mistake, and the declaration is mended."""
    directory, target = enterprise.directory, enterprise.target
    connector = enterprise.nodes["ROUTER1"]
    site = guid_to_text(directory.sites["mainframe"])
    right = directory.machines["TARGET"]
    names = [await target.create_queue(f"astray{place}", transactional=bool(place)) for place in range(2)]
    try:
        directory.machines["TARGET"] = replace(right, foreign=True, sites=["mainframe"])
        directory.write()
        for node in (enterprise.source, connector):
            node.kill()
            await node.start_again()
        for transactional, name in enumerate(names):
            bodies = [b"%d" % place for place in range(5)]
            await enterprise.source.send(name, bodies, transactional=bool(transactional), recoverable=True)

        async def kept() -> bool:
            return [await connector.count(f"CONNECTOR={site}{suffix}") for suffix in ("", ";XACTONLY")] == [5, 5]

        await until(kept, "the messages in the connector queues")
    finally:
        directory.machines["TARGET"] = right
        directory.write()

    async def arrived() -> bool:
        return [await target.count(rf".\private$\astray{place}") for place in range(2)] == [5, 5]

    await until(arrived, "the messages in their queues")
    assert [await connector.count(f"CONNECTOR={site}{suffix}") for suffix in ("", ";XACTONLY")] == [0, 0]
    bodies = [message.body for message in await target.receive(r"private$\astray1", 5)]
    assert bodies == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.slow
async def test_a_message_in_a_circle_ends_at_the_hop_limit(tmp_path: Path) -> None:
    """Two routing servers whose directories contradict each other: each takes the other for the way to TARGET."""
    machines = {
        "SOURCE": Machine("SOURCE", ["south"]),
        "ROUTER1": Machine("ROUTER1", ["south"], routing_server=True),
        "ROUTER2": Machine("ROUTER2", ["south"], routing_server=True),
        "TARGET": Machine("TARGET", ["south"]),
    }
    nodes: list[Node] = []
    for name, in_routing_server in (("SOURCE", "ROUTER1"), ("ROUTER1", "ROUTER2"), ("ROUTER2", "ROUTER1")):
        target = replace(machines["TARGET"], in_routing_servers=[in_routing_server])
        directory = Directory(tmp_path / f"{name}.yaml", {**machines, "TARGET": target})
        directory.write()
        nodes.append(Node(tmp_path / name, machines[name], directory.file))
    source = nodes[0]
    try:
        for node in nodes:
            node.start()
        for node in nodes:
            await node.ready()
        admin = await source.create_queue("admin")
        name = f"PRIVATE={guid_to_text(machines['TARGET'].identifier)}\\00000007"
        asked = {"acknowledgements_requested": 0x0F, "administration_queue_format_name": admin, "recoverable": True}
        await source.send(name, [b"round"], **asked)
        await source.send(name, [b"in order"], transactional=True, negative_journaling_requested=True, **asked)
        told = await source.receive(r"private$\admin", 2)
        assert {message.message_class for message in told} == {MessageClass.MQMSG_CLASS_NACK_HOP_COUNT_EXCEEDED}
        (dead,) = await source.receive("SYSTEM$;DEADXACT", 1)
        assert dead.body == b"in order"
    finally:
        for node in nodes:
            node.kill()
