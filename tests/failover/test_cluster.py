"""A node on a real cluster of two hosts is killed in every way, under traffic and with a million messages waiting."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import statistics
import threading
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import qmnode
from qmnode import Access, Message
from qmnode.model.api import QueueType
from qmnode.structures.security_descriptor import ANONYMOUS, EVERYONE, Acl, QueueAccess, SecurityDescriptor, allow
from tests.failover import letters
from tests.failover.cluster import NAMES, Cluster, why_no_cluster
from tests.lab.hosts import why_no_hosts
from tests.lab.nodes import NodeProcess
from tests.lab.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

pytestmark = [pytest.mark.servers, pytest.mark.soak, pytest.mark.timed, pytest.mark.timeout(7200)]
KILLS = int(os.environ.get("QMNODE_FAILOVER_KILLS", "10"))
WAITING = int(os.environ.get("QMNODE_FAILOVER_WAITING", "1000000"))
SEED = int(os.environ.get("QMNODE_FAILOVER_SEED", "51"))
KINDS = tuple(os.environ.get("QMNODE_FAILOVER_KINDS", "process,host,cut,paused process,paused host").split(","))
ORDERS, DONE = r".\private$\orders", r".\private$\done"
BATCH = 20
PATIENCE = 3.0
"""Seconds after which a program takes a connection for dead."""
LETTERS = 20
"""AMQP messages between two kills, at least."""
RATE = 50.0
"""Messages a second."""


async def fill(path: Path) -> None:
    """A store with messages that wait: three fifths for programs, the others for a machine that is down."""
    async with qmnode.QueueManager.open(path) as qm:
        for name in (r".\private$\big", ORDERS, DONE):
            await qm.create_queue(name, transactional=True)
        everybody = [allow(who, QueueAccess.MQSEC_QUEUE_GENERIC_ALL) for who in (EVERYONE, ANONYMOUS)]
        security = SecurityDescriptor(owner=EVERYONE, group=EVERYONE, dacl=Acl.of(*everybody)).write()
        await qm.create_queue(rf".\private$\{letters.QUEUE}", security=security)
        own = await qm.open_queue(r"DIRECT=OS:.\private$\big", Access.SEND)
        far = await qm.open_queue(r"DIRECT=TCP:198.19.255.254\private$\far", Access.SEND)
        for number in range(0, WAITING, 500):
            transaction = qm.transaction()
            messages = [Message(b"%08d" % one + b"x" * 200) for one in range(number, number + 500)]
            await own.send_many(messages[:300], transaction=transaction)
            await far.send_many(messages[300:], transaction=transaction)
            await transaction.commit()


class Sender:
    """Another node, whose program sends numbered messages in transactions all the time."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        transfer = {"retry_interval": 0.5, "retry_maximum": 1.0}
        self.node = NodeProcess(
            folder, computer_name="SENDER",
            transport={"enabled": True, "address": cluster.network.controller}, transfer=transfer,
        )  # fmt: skip
        self.target = rf"DIRECT=TCP:{cluster.address}\private$\orders"
        self.sent = 0
        self._ended = asyncio.Event()

    async def run(self) -> None:
        async with qmnode.connect(self.node.socket) as qm:
            queue = await qm.open_queue(self.target, Access.SEND)
            while not self._ended.is_set():
                transaction = qm.transaction()
                for _ in range(5):
                    body = json.dumps({"number": self.sent, "time": time.time()}).encode()
                    await queue.send(Message(body), transaction=transaction)
                    self.sent += 1
                await transaction.commit()
                await asyncio.sleep(5 / RATE)

    def end(self) -> None:
        self._ended.set()


class Program:
    """A program beside the active node: it takes orders and writes them to another queue, in one transaction."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.newest = 0.0
        """When the last order that is done was sent."""
        self.unknown = 0
        """Commits whose outcome it never saw."""
        self._ended = False

    def end(self) -> None:
        """End after the transaction that has begun."""
        self._ended = True

    async def run(self) -> None:
        while not self._ended:
            for name in await asyncio.to_thread(self._cluster.running):
                with contextlib.suppress(OSError, qmnode.MessageQueuingError, TimeoutError):
                    async with asyncio.timeout(PATIENCE):
                        qm = await qmnode.connect(self._cluster.socket(name))
                    try:
                        await self._work(qm)
                    finally:
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(PATIENCE):
                                await qm.close()
            await asyncio.sleep(0.05)

    async def _work(self, qm: Any) -> None:
        orders = await qm.open_queue(f"DIRECT=OS:{ORDERS}", Access.RECEIVE)
        done = await qm.open_queue(f"DIRECT=OS:{DONE}", Access.SEND)
        while not self._ended:
            async with asyncio.timeout(PATIENCE):
                transaction = qm.transaction()
                try:
                    messages = await orders.receive_many(BATCH, timeout=1, transaction=transaction)
                except qmnode.MessageQueuingError as error:
                    if error.name != "MQ_ERROR_IO_TIMEOUT":
                        raise
                    await transaction.abort()
                    continue
                bodies = [bytes(message.body) for message in messages]
                await done.send_many([Message(body) for body in bodies], transaction=transaction)
                self.unknown += 1
                await transaction.commit()
                self.unknown -= 1
                self.newest = json.loads(bodies[-1])["time"]


class Watch:
    """Looks on which hosts a process of the node is, twenty times a second."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ended = threading.Event()
        self.both = 0
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.2):
            if all(self._cluster.main_process(name) for name in NAMES):
                self.both += 1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    if reason := why_no_cluster() or why_no_hosts():
        pytest.skip(reason)
    asyncio.run(fill(tmp_path / "filled"))
    made = Cluster()
    try:
        settings = {
            "transport": {"address": made.address},
            "quotas": {"queue_manager_quota": "none"},
            "transfer": {"retry_interval": 0.5, "retry_maximum": 1.0},
            "amqp": {"enabled": True, "address": made.address, "anonymous": True},
        }
        made.start(settings, tmp_path / "filled")
        yield made
    finally:
        made.close()


@pytest.fixture
def sender(cluster: Cluster, tmp_path: Path) -> Iterator[Sender]:
    """Its node is stopped behind the test: the figures do not depend on that."""
    made = Sender(cluster, tmp_path / "sender")
    made.node.start()
    try:
        yield made
    finally:
        made.node.stop()


async def strike(cluster: Cluster, kind: str, name: str, seed: random.Random) -> tuple[str, float, Awaitable[None]]:
    """Kill the active host's node this way; what is done, when it could serve nobody any more, and what is still to
    be done then: a pause ends while the cluster does its work.
    """
    length = seed.choice((0.5, 2.0, 4.0, 8.0, 20.0))
    number, begun = cluster.main_process(name), time.time()

    async def go_on() -> None:
        await asyncio.sleep(length)
        if kind == "paused process":
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGCONT)
        elif cluster.boots[name] == before:
            await asyncio.to_thread(cluster.resume, name)

    before = cluster.boots[name]
    match kind:
        case "process":
            os.kill(number, signal.SIGKILL)
        case "host":
            await asyncio.to_thread(cluster.lose, name)
        case "cut":
            await asyncio.to_thread(cluster.cut, name)
            begun = time.time()
        case "paused process":
            os.kill(number, signal.SIGSTOP)
            return f"{kind} {length:g} s", begun, asyncio.create_task(go_on())
        case "paused host":
            await asyncio.to_thread(cluster.pause, name)
            begun = time.time()
            return f"{kind} {length:g} s", begun, asyncio.create_task(go_on())
    return kind, begun, asyncio.sleep(0)


async def _until(condition: Any, what: str) -> None:
    await asyncio.to_thread(wait_until, condition, 240, what, 0.05)


async def test_kills_of_the_active(cluster: Cluster, sender: Sender) -> None:
    seed = random.Random(SEED)
    program, mail = Program(cluster), letters.Letters(cluster.address)
    times: list[tuple[str, float]] = []
    with Watch(cluster) as watch:
        sending, working = asyncio.create_task(sender.run()), asyncio.create_task(program.run())
        mail.start()
        try:
            await _until(lambda: program.newest > 0, "the first order is done")
            await _until(lambda: mail.received, "the first letter is there")
            for place in range(KILLS):
                kind = KINDS[place % len(KINDS)]
                name = await asyncio.to_thread(cluster.wait_until_active)
                fenced = len(cluster.fenced)
                done, begun, going_on = await strike(cluster, kind, name, seed)
                await _until(lambda begun=begun: program.newest > begun, "orders of after the kill are done")
                times.append((done, ready := time.time() - begun))
                await going_on
                print(f"{place + 1}: {done} of {name}: {ready:.1f} s, fenced: {cluster.fenced[fenced:]}, "
                      f"tokens {len(cluster.tokens())}", flush=True)  # fmt: skip
                await _until(cluster.is_whole, "both hosts are there again")
                # The AMQP door is among what opens behind the queues.
                enough = mail.sent + LETTERS
                await _until(lambda enough=enough: mail.sent >= enough, "letters go on")
                assert not sending.done() or sending.result()
        finally:
            sender.end()
            await sending
        # A host whose pause has ended may be fenced a moment later, under the last look at it.
        await asyncio.to_thread(cluster.wait_until_settled)
        await asyncio.to_thread(mail.end)
        numbers = await _drain(cluster, sender, program, working)
    tokens = [number for number, *_ in cluster.tokens()]
    waits = sorted(wait for _, wait in times)
    status = cluster.node_status(await asyncio.to_thread(cluster.wait_until_active))
    figures = (
        f"{len(times)} kills: {sender.sent} sent, {len(numbers)} arrived, {program.unknown} commits without outcome, "
        f"{len(cluster.fenced)} fenced, {watch.both} times two processes; tokens {tokens}; {mail}"
    )
    if waits:
        figures += f"; ready at the median {statistics.median(waits):.1f} s, "
        figures += f"p95 {waits[int(len(waits) * 0.95)]:.1f} s, at worst {waits[-1]:.1f} s" if len(waits) > 1 else ""
    print(figures, flush=True)
    found = _faults(numbers, sender.sent) + mail.faults()
    if watch.both:
        found.append(f"two processes of the node {watch.both} times")
    if tokens != list(range(1, len(tokens) + 1)):
        found.append(f"tokens with a gap or twice: {tokens}")
    failover: Any = status.get("failover", {"violations": [f"the active node's status has no failover: {status}"]})
    found += failover["violations"]
    assert not found, "\n".join([figures, *found, *(f"{one}: {wait:.1f} s" for one, wait in times)])


def _faults(numbers: list[int], sent: int) -> list[str]:
    """Sentences about what is lost, doubled and out of order among the numbers."""
    lost = sorted(set(range(sent)) - set(numbers))
    doubled = sorted(number for number, times in Counter(numbers).items() if times > 1)
    late = [
        f"{second} after {first} at {place}"
        for place, (first, second) in enumerate(pairwise(numbers))
        if second <= first
    ]
    found = {"lost": lost, "doubled": doubled, "out of order": late}
    return [f"{len(those)} {what}: {those[:40]}" for what, those in found.items() if those]


async def _drain(cluster: Cluster, sender: Sender, program: Program, working: asyncio.Task[None]) -> list[int]:
    """All numbers that arrived, in the order in which they were done."""

    async def waiting() -> int:
        async with qmnode.connect(sender.node.socket) as qm:
            return sum(queue.message_count for queue in await qm.queues([QueueType.OUTGOING]))

    while await waiting():
        await asyncio.sleep(0.2)
    name = await asyncio.to_thread(cluster.wait_until_active)
    numbers: list[int] = []
    async with qmnode.connect(cluster.socket(name)) as qm:
        while (await qm.queue(ORDERS)).message_count:
            await asyncio.sleep(0.2)
        program.end()
        await working
        queue = await qm.open_queue(f"DIRECT=OS:{DONE}", Access.RECEIVE)
        while (await qm.queue(DONE)).message_count:
            found = await queue.receive_many(1000, timeout=0)
            numbers += [json.loads(bytes(message.body))["number"] for message in found]
    return numbers
