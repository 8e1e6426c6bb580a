"""Spans over OTLP: one trace from the program that sends to the one that receives, over two routing servers."""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from proton import Message as AmqpMessage
from proton.utils import BlockingConnection

import qmnode
from tests.amqp.foreign import jms, run
from tests.export.collector import Collector, Span, collector
from tests.forwarding.enterprise import Directory, Machine, Node
from tests.lab.addresses import free_port
from tests.lab.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.servers

WAY = ("SOURCE", "ROUTER1", "ROUTER2", "TARGET")
STEPS = ("send", "store", "transfer", "arrive", "receive")
SECRET = "open sesame"


def context(number: int, *, sampled: bool = True) -> str:
    return f"00-{number:032x}-{number:016x}-{int(sampled):02x}"


class Four:
    """SOURCE in the south, TARGET in the north, and between them the routing servers of a link."""

    def __init__(self, folder: Path, taken: Collector, sampling: float) -> None:
        self.collector = taken
        machines = [
            Machine("SOURCE", ["south"]),
            Machine("ROUTER1", ["south"], routing_server=True),
            Machine("ROUTER2", ["north"], routing_server=True),
            Machine("TARGET", ["north"]),
        ]
        link = ("south", "north", 1, ["ROUTER1", "ROUTER2"])
        directory = Directory(folder / "directory.yaml", {one.name: one for one in machines}, [link])
        directory.write()
        telemetry = {"endpoint": taken.url, "sampling": sampling, "metrics_seconds": 0.2}
        self.amqp = free_port()
        tokens = folder / "tokens.yaml"
        tokens.write_text(f"- {{name: ops, role: operate, sha256: {hashlib.sha256(SECRET.encode()).hexdigest()}}}\n")
        tokens.chmod(0o600)
        door = {"enabled": True, "address": "127.0.0.1", "port": self.amqp, "tokens": str(tokens)}
        self.nodes = [
            Node(folder / one.name, one, directory.file, telemetry=telemetry, **({"amqp": door} if number == 0 else {}))
            for number, one in enumerate(machines)
        ]
        self.source, _, _, self.target = self.nodes

    async def has_amqp(self) -> bool:
        """Whether the door of SOURCE takes connections: it opens last."""
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.amqp)
        except OSError:
            return False
        writer.close()
        return True

    async def is_quiet(self) -> bool:
        return not any([await node.outgoing() for node in self.nodes])

    async def stop(self) -> None:
        """SIGTERM, so that the last spans are exported."""
        for node in self.nodes:
            assert node.process is not None
            node.process.terminate()
        for node in self.nodes:
            assert node.process is not None
            assert await asyncio.to_thread(node.process.wait, 120) == 0, node.log()
            node.process = None


@pytest.fixture
def four(tmp_path: Path) -> Iterator[Four]:
    with collector() as taken:
        nodes = Four(tmp_path, taken, 0.0)
        try:
            for node in nodes.nodes:
                node.start()
            yield nodes
        finally:
            for node in nodes.nodes:
                node.kill()


def by_step(spans: list[Span]) -> dict[tuple[str, str], Span]:
    found: dict[tuple[str, str], list[Span]] = defaultdict(list)
    for span in spans:
        found[span.node, span.step].append(span)
    assert {len(some) for some in found.values()} == {1}, "each step of each node is one span"
    return {key: some[0] for key, some in found.items()}


def check_way(spans: list[Span], producer: int) -> None:
    """Every span has the right parent, from the span of the producer to the receiver."""
    found = by_step(spans)
    expected = {("SOURCE", "send"): f"{producer:016x}", ("TARGET", "receive"): found["TARGET", "arrive"].span_id}
    for node, after in zip(WAY, [*WAY[1:], ""], strict=True):
        entry = found[node, "send" if node == "SOURCE" else "arrive"]
        expected[node, "store"] = entry.span_id
        if after:
            expected[node, "transfer"] = entry.span_id
            expected[after, "arrive"] = found[node, "transfer"].span_id
    assert {key: span.parent_id for key, span in found.items()} == expected
    assert len({span.span_id for span in spans}) == len(spans)
    kinds = {step: {span.kind for (_, one), span in found.items() if one == step} for step in STEPS}
    assert kinds == {
        "send": {"PRODUCER"}, "store": {"INTERNAL"}, "transfer": {"CLIENT"}, "arrive": {"SERVER"},
        "receive": {"CONSUMER"},
    }  # fmt: skip
    for span in spans:
        assert span.begin <= span.end
        assert span.attributes["messaging.system"] == "msmq"
        assert span.attributes["messaging.operation.name"] == span.step
    identifiers = {span.attributes["messaging.message.id"] for span in spans}
    assert len(identifiers) == 1
    assert found["TARGET", "receive"].attributes["messaging.destination.name"].lower() == r"target\private$\orders"
    assert {span.attributes["messaging.msmq.hop_count"] for (node, _), span in found.items() if node == "TARGET"} == {2}


async def test_one_trace_joins_the_spans_of_all_nodes(four: Four) -> None:
    for node in four.nodes:
        await node.ready()
    name = await four.target.create_queue("orders")
    plain = qmnode.Message(b"0", recoverable=True)
    own = qmnode.Message(b"1", recoverable=True).with_traceparent(context(1))
    headers = {"NServiceBus.MessageId": "x", "traceparent": context(2)}
    bus = qmnode.Message.from_value(b"2", format="nservicebus", headers=headers, recoverable=True)
    rebus = qmnode.Message.from_value(
        b"3", format="rebus", headers={"rbs-ot-tracestate": context(3), "note": f"traceparent {context(9)}"}
    )
    off = qmnode.Message(b"5", recoverable=True).with_traceparent(context(5, sampled=False))
    async with await four.source.connect() as qm, await qm.open_queue(name, qmnode.Access.SEND) as queue:
        for message in (plain, own, bus, rebus, off):
            await queue.send(message)
    await until(four.has_amqp, "the AMQP door")
    await asyncio.to_thread(send_amqp, four.amqp, name)

    received = {message.body: message for message in await four.target.receive(r"private$\orders", 6)}
    assert {body: one.traceparent for body, one in received.items()} == {
        b"0": "", b"1": context(1), b"2": context(2), b"3": context(3), b"4": context(4),
        b"5": context(5, sampled=False),
    }  # fmt: skip
    for sent in (plain, own, bus, rebus, off):
        assert received[sent.body].extension == sent.extension, "no node has changed it"
    # A context that is none, a queue that is missing.
    async with (
        await four.source.connect() as qm,
        await qm.open_queue(four.target.private_name(0x7777), qmnode.Access.SEND) as queue,
    ):
        await queue.send(qmnode.Message(b"6", recoverable=True).with_traceparent(context(6)))
        await queue.send(qmnode.Message(b"7", extension=b'{"traceparent":"00-' + b"0" * 32 + b'-1234567890123456-01"}'))

    async def refused() -> bool:
        return any(span.failed for span in four.collector.spans)

    async def exported() -> bool:
        return "qmnode_messages" in four.collector.metrics

    await until(refused, "the span of the refusal")
    await until(exported, "metrics")
    await until(four.is_quiet, "everything to be acknowledged")
    await four.stop()

    traces: dict[int, list[Span]] = defaultdict(list)
    operations = [span for span in four.collector.spans if "qmnode.operation.outcome" in span.attributes]
    assert {(span.node, span.attributes["qmnode.operation.outcome"]) for span in operations} == {("TARGET", "done")}
    for span in four.collector.spans:
        if span not in operations:
            traces[int(span.trace_id, 16)].append(span)
    assert set(traces) == {1, 2, 3, 4, 6}, "others are not sampled"
    for number in (1, 2, 4):
        check_way(traces[number], number)
    assert {span.step for span in traces[3]} == {"send", "transfer", "arrive", "receive"}, (
        "an express message is not stored"
    )
    (refusal,) = (span for span in traces[6] if span.failed)
    assert (refusal.node, refusal.step) == ("TARGET", "arrive")
    assert refusal.attributes["error.type"] == "MQMSG_CLASS_NACK_BAD_DST_Q"


@pytest.mark.slow
async def test_one_trace_leads_from_a_jms_producer_to_a_python_receiver(four: Four) -> None:
    place = await asyncio.to_thread(jms)
    await asyncio.gather(*(node.ready() for node in four.nodes))
    name = await four.target.create_queue("orders")
    await until(four.has_amqp, "the AMQP door")
    url = f"amqp://127.0.0.1:{four.amqp}?jms.username=ops&jms.password={quote(SECRET)}&amqp.saslMechanisms=PLAIN"
    await run("java", "-Xmx128m", "-cp", "lib/*", "Producer.java", url, name, context(7), cwd=place, seconds=300)

    (message,) = await four.target.receive(r"private$\orders", 1)
    assert message.traceparent == context(7)
    await until(four.is_quiet, "everything to be acknowledged")
    await four.stop()

    spans = [span for span in four.collector.spans if int(span.trace_id, 16) == 7]
    check_way(spans, 7)
    print("\n".join(tree(spans, f"{7:016x}", "JMS producer")))


def tree(spans: list[Span], parent: str, title: str, depth: int = 0) -> Iterator[str]:
    """The spans under one, as lines."""
    yield f"{'   ' * depth}{title}  {parent}"
    for span in sorted(spans, key=lambda one: one.begin):
        if span.parent_id == parent:
            took = f"{(span.end - span.begin) / 1e6:.1f} ms"
            yield from tree(spans, span.span_id, f"{span.node}: {span.step} ({span.kind}, {took})", depth + 1)


def send_amqp(port: int, name: str) -> None:
    connection = BlockingConnection(
        f"amqp://127.0.0.1:{port}", user="ops", password=SECRET, allowed_mechs="PLAIN", allow_insecure_mechs=True
    )
    try:
        sender = connection.create_sender(name)
        sender.send(AmqpMessage(b"4", inferred=True, durable=True, properties={"traceparent": context(4), "n": 1}))
    finally:
        connection.close()
