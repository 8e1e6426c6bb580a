"""Nobody uses up what a node has: quota, queues, memory, places, the log."""

from __future__ import annotations

import asyncio
import struct
import time
import tracemalloc
from contextlib import AsyncExitStack
from pathlib import Path

import structlog

from qmnode import Access, Message
from qmnode.log_limit import INTERVAL, LINES, LogLimit
from qmnode.model.api import QueueType
from qmnode.model.stored_message import NEVER, expiry
from qmnode.settings.node import QuotaSettings
from qmnode.structures.guid import Guid
from qmnode.structures.user_message import (
    ADMIN,
    DirectQueueFormatName,
    MQFAddressHeader,
    MQFDirectQueueFormatName,
    MQFFormatNameElement,
    MQFSignatureHeader,
    MultiQueueFormatHeader,
    PropertyFlags,
)
from tests.adversary import wire
from tests.adversary.attacks import Area, attack
from tests.adversary.nodes import address_of, letter, node_with
from tests.adversary.peer import acceptor, session
from tests.certificates.enterprise import HOUR, two_nodes
from tests.lab.waiting import eventually
from tests.protocol.machines import message, transactional
from tests.transport.conftest import PLAIN, loopback_address

MIB = 1 << 20
QUOTA = 64 * MIB
TRACED = 1 << 8 | 1 << 5
"""BaseHeader.Flags.TR and DH."""
NOWHERE = r"TCP:192.0.2.{}\private$\answers"
"""TEST-NET-1: nobody is there, so what is for it waits."""


def expired(number: int, target: str, admins: int, body: bytes, source: bytes) -> bytes:
    """A message that asks, too late, for a refusal to each of so many administration queues."""
    names = [NOWHERE.format(last) for last in range(1, admins + 1)]
    several = None
    if admins > 1:
        elements = tuple(
            MQFFormatNameElement(format_name=MQFDirectQueueFormatName(direct_format_name=one)) for one in names
        )
        own = MQFDirectQueueFormatName(direct_format_name=rf"TCP:{target}\private$\plain")
        several = MultiQueueFormatHeader(
            destination=MQFAddressHeader(format_name_list=(MQFFormatNameElement(format_name=own),)),
            administration=MQFAddressHeader(header_id=ADMIN, format_name_list=elements),
            signature=MQFSignatureHeader(),
        )
    return message(
        number,
        source=Guid(source),
        queue=DirectQueueFormatName(direct_format_name=rf"TCP:{target}\private$\plain"),
        admin_queue=DirectQueueFormatName(direct_format_name=names[0]),
        recoverable=True,
        properties=PropertyFlags.of(NA=1, NR=1),
        body=body,
        sent_time=int(time.time()) - 1000,
        time_to_reach_queue=1,
        **({} if several is None else {"multi_queue_format_header": several}),
    )


@attack(
    Area.RESOURCES,
    can="send expired messages with large bodies, and ask for the refusal of each one to sixteen administration queues",
    promised="the node sends a stranger's body to no more than one queue; the quota stays free for messages",
)
async def test_refusals_to_many_queues_do_not_fill_the_quota(tmp_path: Path, own: str) -> None:
    async with node_with(tmp_path, quotas=QuotaSettings(queue_manager_quota=QUOTA // 1024)) as bob:
        async with session(own, address_of(bob), source := wire.identifier()) as peer:
            await peer.say(*(expired(number, address_of(bob), 16, bytes(MIB), source) for number in range(1, 9)))
        waiting = [one for one in await bob.queues([QueueType.OUTGOING]) if one.message_count]
        assert len(waiting) == 16
        assert bob.quotas.used < MIB
        await (await bob.open_queue(f"DIRECT=OS:{PLAIN}", Access.SEND)).send(Message(bytes(2 * MIB)))


async def test_long_names_of_queues_do_not_stay_in_memory(tmp_path: Path, own: str) -> None:
    async with node_with(tmp_path) as bob, session(own, address_of(bob), source := wire.identifier()) as peer:
        tracemalloc.start()
        try:
            for number in range(1, 101):
                name = rf"TCP:{address_of(bob)}\private$\{number}{'x' * 30_000}"
                queue = DirectQueueFormatName(direct_format_name=name)
                await peer.say(message(2 * number, source=Guid(source), queue=queue))
                sequence = (int(time.time()) << 32) + number
                await peer.say(transactional(2 * number + 1, sequence, 1, 0, source=Guid(source), queue=queue))
            assert tracemalloc.get_traced_memory()[0] < 3 * MIB
        finally:
            tracemalloc.stop()


@attack(
    Area.RESOURCES,
    can="ask for refusals with bodies to an administration queue that nobody will ever reach",
    promised="waiting refusals have a limit of their own for each address that causes them, and they expire",
)
async def test_notices_have_a_budget_and_a_finite_life(tmp_path: Path, own: str) -> None:
    async with node_with(tmp_path, quotas=QuotaSettings(queue_manager_quota=QUOTA // 1024)) as bob:
        for address in (own, loopback_address()):
            async with session(address, address_of(bob), source := wire.identifier()) as peer:
                bodies = bytes(MIB - 4096)
                await peer.say(*(expired(number, address_of(bob), 1, bodies, source) for number in range(1, 9)))
        budget = bob.context.notices
        assert MIB < bob.quotas.used <= QUOTA // 4
        assert bob.quotas.used <= 2 * QUOTA // 32 + 8192
        assert (sum(budget.account.used.values()), sum(budget.account.refused.values())) == (bob.quotas.used, 14)
        (queue,) = [one for one in bob.queue_collection.values() if one.queue_type is QueueType.OUTGOING]
        lives = {expiry(queue.value_of(one)) for lane in queue.lanes if lane is not None for one, _ in lane.scan(0, {})}
        assert lives and max(lives) < NEVER and max(lives) - time.time() <= 4 * 86400 + 5
        async with await bob.open_queue(queue.pathname, Access.RECEIVE_ADMIN) as waiting:
            await waiting.purge()
        assert (sum(budget.account.used.values()), bob.quotas.used) == (0, 0)


@attack(
    Area.RESOURCES,
    can="have every message traced, with reports to a public queue that nobody will ever reach",
    promised="waiting reports count for the same limit as refusals, and they expire",
)
async def test_trace_reports_have_a_budget_and_a_finite_life(tmp_path: Path, own: str) -> None:
    async with node_with(tmp_path, quotas=QuotaSettings(notices_per_neighbour=8, notices=64)) as bob:
        source, target = wire.identifier(), address_of(bob)
        debug = struct.pack("<HH", 1, 0) + wire.identifier()
        async with session(own, target, source) as peer:
            traced = [
                wire.UserMessage(
                    source=source, message_id=number, queue=wire.direct(rf"TCP:{target}\private$\plain"), rest=debug,
                    base_flags=TRACED,
                ).packet()
                for number in range(1, 101)
            ]  # fmt: skip
            await peer.say(*traced)
        budget = bob.context.notices
        assert (await bob.queue(PLAIN)).message_count == 100
        assert 0 < sum(budget.account.used.values()) <= 8 * 1024
        assert sum(budget.account.refused.values()) > 50
        (queue,) = [one for one in bob.queue_collection.values() if one.queue_type is QueueType.OUTGOING]
        lives = {expiry(queue.value_of(one)) for lane in queue.lanes if lane is not None for one, _ in lane.scan(0, {})}
        assert lives and max(lives) < NEVER and max(lives) - time.time() <= 4 * 86400 + 5
        async with await bob.open_queue(f"DIRECT=OS:{PLAIN}", Access.SEND) as out:
            await out.send(Message(b"honest", recoverable=True))


@attack(
    Area.RESOURCES,
    can="ask an enterprise's node for refusals with bodies, as a queue manager that is in no directory",
    promised="a refusal to a stranger has no body; one to a declared peer has it, as MS-MQQB 3.1.7.15 says",
)
async def test_a_strangers_body_does_not_travel_back(tmp_path: Path, own: str) -> None:
    async with two_nodes(tmp_path, key_reload_interval=HOUR) as enterprise:
        target, declared = enterprise.addresses["B"], bytes(enterprise.identifiers["A"])
        bodies = []
        for source, address in ((wire.identifier(), own), (declared, enterprise.addresses["A"])):
            if source == declared:
                await enterprise.nodes.pop("A").close()
            async with acceptor(address, source) as back, session(address, target, source) as peer:
                late = wire.UserMessage(
                    source=source, message_id=7, queue=wire.direct(rf"TCP:{target}\private$\none"), asks=0x0F,
                    admin=wire.direct(rf"TCP:{address}\private$\answers"), body=b"x" * 100, reach=1, sent=1000,
                )  # fmt: skip
                await peer.say(late.packet())
                bodies.append((await (await back.get()).next(0)).body)
        assert bodies == [b"", b"x" * 100]


@attack(
    Area.RESOURCES,
    can="name another administration queue in each message, so that the node makes an outgoing queue for each",
    promised="half of the outgoing queues are reserved for the applications of the machine",
)
async def test_names_of_strangers_leave_outgoing_queues_to_others(tmp_path: Path, own: str) -> None:
    async with node_with(tmp_path, quotas=QuotaSettings(outgoing_queues=20)) as bob:
        target = address_of(bob)
        async with session(own, target, wire.identifier()) as peer:
            await peer.say(*(
                letter(target, number, asks=0x0F, admin=wire.direct(NOWHERE.format(number))) for number in range(1, 41)
            ))  # fmt: skip
        assert len(await bob.queues([QueueType.OUTGOING])) == 1
        for last in range(100, 110):
            out = await bob.open_queue(f"DIRECT={NOWHERE.format(last)}", Access.SEND)
            await out.send(Message(b"own"))


@attack(
    Area.RESOURCES,
    can="send to subqueues and to queues that do not exist, with another name in each message",
    promised="the node makes no queue and no new series of metrics, and remembers a limited number of names",
)
async def test_names_that_lead_nowhere_leave_nothing(tmp_path: Path, own: str) -> None:
    async with node_with(tmp_path) as bob:
        target = address_of(bob)
        before = len(bob.queue_collection)
        names = [rf"TCP:{target}\private$\plain;sub{number}" for number in range(200)]
        names += [rf"TCP:{target}\private$\none{number}" for number in range(4200)]
        async with session(own, target, wire.identifier(), window=64) as peer:
            packets = [
                wire.UserMessage(
                    source=wire.identifier(), message_id=number + 1, queue=wire.direct(name), delivery=wire.EXPRESS
                ).packet()
                for number, name in enumerate(names)
            ]
            for start in range(0, len(packets), 16):
                await peer.say(*packets[start : start + 16])
        assert len(bob.queue_collection) == before
        assert len(bob.network.arrivals._names) <= 4096
        assert len(bob.traffic.nowhere.rejected) == 1


@attack(
    Area.RESOURCES,
    can="have every message acknowledged at once, and read none of the acknowledgments",
    promised="acknowledgments do not gather in memory: the node stops reading a connection while its socket accepts "
    "no more data",
)
async def test_a_peer_that_does_not_read_is_not_read(tmp_path: Path, own: str) -> None:
    async with node_with(tmp_path) as bob:
        target = address_of(bob)
        async with session(own, target, wire.identifier()) as peer:
            await peer.say(letter(target))
            (connection,) = bob.network.accepted
            before = connection.session.received_count
            connection.pause_writing()  # as the event loop does when the socket takes no more
            peer.send(letter(target) * 20_000)
            await eventually(lambda: connection._read_paused)
            taken = connection.session.received_count
            async with session(loopback_address(), target, wire.identifier()) as other:
                await other.say(letter(target))
            assert connection.session.received_count == taken < before + 20_000
            connection.resume_writing()
            await eventually(lambda: connection.session.received_count == before + 20_000)


@attack(
    Area.RESOURCES,
    can="send tens of thousands of the smallest packets, with nothing in them",
    promised="the node serves others meanwhile, and keeps nothing of these packets",
)
async def test_tiny_packets_hold_nobody_up(tmp_path: Path, own: str) -> None:
    async with node_with(tmp_path) as bob, AsyncExitStack() as stack:
        target = address_of(bob)
        attackers = [await stack.enter_async_context(session(own, target, wire.identifier())) for _ in range(3)]
        for peer in attackers:
            peer.send(wire.session_ack(0) * 20_000)
        async with session(loopback_address(), target, wire.identifier()) as honest:
            for number in range(1, 11):
                async with asyncio.timeout(60):
                    await honest.say(letter(target, number))
        for peer in attackers:
            await peer.say(letter(target))
        assert all(one.session.incomplete() == 0 for one in bob.network.accepted)


@attack(
    Area.RESOURCES,
    can="flood the ping port, also with packets that are no pings",
    promised="an answer is no longer than its question, a packet that is no ping gets no answer, and sessions go on",
)
async def test_pings_amplify_nothing(tmp_path: Path, own: str) -> None:
    async with node_with(tmp_path) as bob:
        target, loop = address_of(bob), asyncio.get_running_loop()
        answers: list[bytes] = []

        class Flood(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, address: object) -> None:
                answers.append(data)

        transport, _ = await loop.create_datagram_endpoint(
            Flood, remote_addr=(target, bob.network.settings.ping_port), local_addr=(own, 0)
        )
        question = struct.pack("<HHI", 0, 0x5548, 7) + wire.identifier()
        for number in range(2000):
            transport.sendto(bytes(number % 24))
            transport.sendto(bytes(3000))
        transport.sendto(question)
        async with session(loopback_address(), target, wire.identifier()) as honest:
            await honest.say(letter(target))
        transport.close()
        assert all(len(answer) <= len(question) for answer in answers)
        assert len(answers) <= 1


@attack(
    Area.RESOURCES,
    can="cause a line in the log with every packet",
    promised="the number of lines of one kind about one address is limited; errors and lines of other kinds still "
    "come through",
)
def test_a_flood_of_refusals_does_not_flood_the_log() -> None:
    now = [0.0]
    limit = LogLimit(lambda: now[0])

    def lines(event: str, count: int, level: str = "info", **more: str) -> int:
        written = 0
        for _ in range(count):
            try:
                limit(None, level, {"event": event, **more})
            except structlog.DropEvent:
                continue
            written += 1
        return written

    assert lines("messages were refused", 10_000, address="192.0.2.1") == LINES
    assert sum(lines("messages were refused", 100, address=f"192.0.2.{last}") for last in range(2, 200)) == 3 * LINES
    assert lines("topology", 3) == 3
    assert lines("the disk is full", 100, "error") == 100
    assert lines("changed", 1_000, who="uid:0") == 1_000  # a script that makes a thousand queues is audited whole
    now[0] += INTERVAL
    assert limit(None, "info", {"event": "messages were refused", "address": "192.0.2.1"})["left_out_before"] > 10_000
