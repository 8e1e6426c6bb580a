"""Which messages have spans, and what a node without them loads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import qmnode
from qmnode.administration.asker import Asker
from qmnode.bodies import trace_context
from qmnode.errors import ConfigurationError
from qmnode.export import otlp, telemetry
from qmnode.export.spans import MOST_A_SECOND, SpanRecorder
from qmnode.local.server import LocalServer
from qmnode.model.api import Access
from qmnode.model.message import Message
from qmnode.model.positions import insert_many, take_received
from qmnode.model.stored_message import IDENTIFIER, SOURCE, value_of_packet
from qmnode.node import QueueManager
from qmnode.protocol.received import MessageReader
from qmnode.settings.node import LocalSettings, Settings, TelemetrySettings, TransportSettings
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.guid import Guid
from qmnode.structures.user_message import (
    DirectQueueFormatName,
    MessagePropertiesHeader,
    ProviderInfo,
    SecurityHeader,
    UserHeader,
    UserMessage,
)
from tests.export.collector import Collector, Span, collector
from tests.lab.nodes import PROJECT
from tests.lab.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from types import FrameType

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HERE = Settings(computer_name="NODE1", transport=TransportSettings(enabled=False))
NAME = r"DIRECT=OS:NODE1\private$\orders"


class Kept:
    """Keeps spans in the place of a collector."""

    def __init__(self) -> None:
        self._collector = Collector()
        self._makers: list[Callable[[], Iterable[bytes]]] = []

    def export(self, make: Callable[[], Iterable[bytes]]) -> None:
        self._collector.take_spans(otlp.request(make(), {"service.instance.id": "NODE1"}))

    def export_always(self, make: Callable[[], Iterable[bytes]]) -> None:
        self._makers.append(make)

    @property
    def spans(self) -> list[Span]:
        for make in self._makers:
            self.export(make)
        return self._collector.spans


def recorded(manager: QueueManager, sampling: float) -> tuple[Kept, SpanRecorder]:
    """Record the spans of queues that are made from now on."""
    kept = Kept()
    recorder = SpanRecorder(manager.store, manager.clock, None, kept, sampling)  # type: ignore[arg-type]
    manager.recorder = manager.context.recorder = recorder
    return kept, recorder


@pytest.mark.parametrize(
    "text",
    [
        "", "00", f"00-{TRACE}-{SPAN}", f"00-{TRACE}-{SPAN}-01-more", f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n", f" 00-{TRACE}-{SPAN}-01",
    ],
)  # fmt: skip
def test_a_text_that_is_no_context_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no traceparent: write 00-TRACE-SPAN-FLAGS"):
        Message(b"x").with_traceparent(text)


def test_a_context_goes_among_the_headers_that_a_message_has() -> None:
    context = f"00-{TRACE}-{SPAN}-01"
    bus = Message.from_value(b"x", format="nservicebus", headers={"NServiceBus.MessageId": "7", "empty": None})

    assert Message(b"x").with_traceparent(context).headers == {"traceparent": context}
    with_context = bus.with_traceparent(context).with_traceparent(context.replace("-01", "-00"))
    assert with_context.headers == {**bus.headers, "traceparent": context.replace("-01", "-00")}
    assert with_context.traceparent.endswith("-00")
    assert bus.traceparent == ""
    with pytest.raises(ValueError, match="Extension has no headers to add to"):
        Message(b"x", extension=b"\1\2\3").with_traceparent(context)


def test_a_newer_version_of_a_context_is_read_as_far_as_it_is_known() -> None:
    found = trace_context.parse(f"01-{TRACE}-{SPAN}-01-more")

    assert found == (int(TRACE, 16), int(SPAN, 16), True)
    assert trace_context.find(f'{{"traceparent":"01-{TRACE}-{SPAN}-01-more"}}'.encode()) == found
    wide = f"<Key>traceparent</Key>\n<Value>00-{TRACE}-{SPAN}-00</Value>".encode("utf-16")
    assert trace_context.find(wide) == (int(TRACE, 16), int(SPAN, 16), False)


def test_a_context_is_found_behind_some_mentions_of_its_name_and_not_behind_thousands() -> None:
    header = f'{{"traceparent":"00-{TRACE}-{SPAN}-01"}}'.encode()

    assert trace_context.find(b'"traceparent": none, ' * 20 + header) == (int(TRACE, 16), int(SPAN, 16), True)
    assert trace_context.find(b'"traceparent": none, ' * 2_000 + header) is None


@pytest.mark.parametrize(
    "before", [b'{"traceparent":"', b'{"a": "b", "rbs-ot-tracestate" : "', b"<Key>traceparent</Key> <Value>"]
)
def test_what_is_like_the_extension_before_is_read_as_if_it_were_the_first(before: bytes) -> None:
    contexts, behind = trace_context.Contexts(), b"</Value>" if b"<" in before else b'"}'
    values = [
        (value + behind, value) for value in (f"00-{TRACE}-{SPAN}-01".encode(), f"00-{TRACE[::-1]}-{SPAN}-00".encode())
    ]
    others = [
        (f"00-{'0' * 32}-{SPAN}-01".encode() + behind, b""),
        (f"00-{TRACE}-{'0' * 16}-01".encode() + behind, b""),
        (f"ff-{TRACE}-{SPAN}-01".encode() + behind, b""),
        (f"00-{TRACE}-{SPAN}-01".encode() + b"?", b""),
        (b"none" + behind + before + values[0][0], values[0][1]),
        (f"00-{TRACE}-{SPAN}-01".encode() + behind + b"\0", values[0][1]),
    ]
    for rest, found in [*values, *others, *values]:
        assert contexts.find(before + rest) == found
        assert trace_context.Contexts().find(before + rest) == found
    assert [trace_context.is_sampled(found) for _, found in values] == [True, False]


async def test_two_threads_may_export_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "_AT_ONCE", 3)
    span = otlp.span(b"1" * 16, b"2" * 8, b"", 4, 5)
    with collector() as found:
        exporters = telemetry.Telemetry(TelemetrySettings(endpoint=found.url, sampling=0), "NODE1")
        exporters.export(lambda: [span] * 40)
        await asyncio.gather(*(exporters.send_spans() for _ in range(4)))
        assert len(found.spans) == 40
        await exporters.stop()


async def test_a_share_of_messages_is_sampled_and_a_context_decides_for_its_own(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path, HERE) as manager:
        kept, _ = recorded(manager, 0.1)
        await manager.create_queue(r"NODE1\private$\orders")
        queue = await manager.open_queue(NAME, Access.SEND)
        for flags in ("00", "01"):
            await queue.send(Message(b"x").with_traceparent(f"00-{TRACE}-{SPAN}-{flags}"))
        assert [(span.trace_id, span.parent_id) for span in kept.spans] == [(TRACE, SPAN)]
        kept.spans.clear()
        await queue.send_many([Message(b"x") for _ in range(2_000)])
        assert 120 < len(kept.spans) < 280
        assert len({span.trace_id for span in kept.spans}) == len(kept.spans)
        assert {span.parent_id for span in kept.spans} == {""}


async def test_nodes_of_all_versions_sample_the_same_messages_and_give_their_spans_the_same_identifiers(
    tmp_path: Path,
) -> None:
    async with QueueManager.open(tmp_path, HERE) as manager:
        kept, recorder = recorded(manager, 0.01)
        await manager.create_queue(r"NODE1\private$\orders")
        async with await manager.open_queue(NAME, Access.SEND) as out:
            await out.send(Message(b"x"))
        orders = manager.names.find(r"NODE1\private$\orders")
        ((place, value),) = take_received(orders, 1, 1 << 20)
        kept.spans.clear()
        head, between, rest = value[: SOURCE.start], value[SOURCE.stop : IDENTIFIER.start], value[IDENTIFIER.stop :]
        entries = [
            (place + one, head + bytes(range(16)) + between + one.to_bytes(4, "little") + rest) for one in range(1_000)
        ]
        recorder.inserted(orders, entries)
        recorder.deleted(orders, entries, MessageClass.MQMSG_CLASS_ACK_RECEIVE)
    numbers = [span.attributes["messaging.message.id"].partition("\\")[2] for span in kept.spans]
    assert numbers == ["124", "151", "380", "407", "426", "577", "663", "682", "833", "938"] * 2
    arrive, receive = kept.spans[::10]
    assert (arrive.name.partition(" ")[0], receive.name.partition(" ")[0]) == ("arrive", "receive")
    assert f"{arrive.trace_id} {arrive.parent_id} {arrive.span_id} {receive.span_id}" == (
        "85ba2ac8950efced4cdae24d8229104d e0e0740cabf97a87 c54c8454179bee69 37e3fde5b7033f31"
    )
    assert (receive.trace_id, receive.parent_id) == (arrive.trace_id, arrive.span_id)


async def test_messages_leave_with_a_span_whether_or_not_their_arrival_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qmnode.export.spans._WAITING", 5)
    async with QueueManager.open(tmp_path, HERE) as manager:
        await manager.create_queue(r"NODE1\private$\orders")
        out, queue = await manager.open_queue(NAME, Access.SEND), await manager.open_queue(NAME)
        await out.send_many([Message(b"before") for _ in range(3)])
        kept, recorder = recorded(manager, 1.0)
        manager.names.find(r"NODE1\private$\orders").recorder = recorder
        for _ in range(7):
            await out.send_many([Message(b"x") for _ in range(3)])
        assert len(await queue.receive_many(24)) == 24
        await out.send_many([Message(b"x") for _ in range(3)])
        assert len(await queue.receive_many(3)) == 3
    steps = Counter(span.name.partition(" ")[0] for span in kept.spans)
    assert steps == {"send": 24, "receive": 27}
    assert len({span.span_id for span in kept.spans}) == 24 + 27


async def test_what_others_send_cannot_fill_the_memory_with_headers(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path, HERE) as manager:
        kept, _ = recorded(manager, 1.0)
        await manager.create_queue(r"NODE1\private$\orders")
        orders = manager.names.find(r"NODE1\private$\orders")
        user = UserHeader(
            source_queue_manager=Guid(bytes(range(16))),
            message_id=1,
            destination_queue=DirectQueueFormatName(direct_format_name=r"OS:NODE1\private$\orders"),
        )
        for size in (10, 1_900_000):
            provider = ProviderInfo(provider_type=1, provider_name="p" * size).write()
            packet = UserMessage(
                user_header=user,
                security_header=SecurityHeader(provider_info=provider),
                message_properties_header=MessagePropertiesHeader(),
            ).write()
            MessageReader().read(packet)  # a session accepts it
            insert_many(orders, [(size, value_of_packet(packet, 0.0))])
        async with await manager.open_queue(NAME) as queue:
            assert len(await queue.receive_many(2)) == 2
    assert Counter(span.name.partition(" ")[0] for span in kept.spans) == {"arrive": 1, "receive": 1}


async def test_what_others_send_cannot_have_any_number_of_spans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with QueueManager.open(tmp_path, HERE) as manager:
        kept, recorder = recorded(manager, 0.0)
        await manager.create_queue(r"NODE1\private$\orders")
        queue = await manager.open_queue(NAME, Access.SEND)
        sampled = Message(b"x").with_traceparent(f"00-{TRACE}-{SPAN}-01")
        monkeypatch.setattr("qmnode.export.spans.time.monotonic", lambda: 7.5)
        await queue.send_many([sampled.copy() for _ in range(MOST_A_SECOND + 5)])
        assert (len(kept.spans), recorder.dropped) == (MOST_A_SECOND, 5)


async def test_a_death_is_an_error(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path, HERE) as manager:
        kept, _ = recorded(manager, 1.0)
        await manager.create_queue(r"NODE1\private$\orders")
        queue = await manager.open_queue(NAME, Access.SEND)
        await queue.send(Message(b"x", recoverable=True))
        await (await manager.open_queue(NAME)).purge()
        sent, stored, ended = kept.spans
        assert [span.name for span in kept.spans] == [
            r"send NODE1\private$\orders", r"store NODE1\private$\orders", r"discard NODE1\private$\orders",
        ]  # fmt: skip
        assert {stored.parent_id, ended.parent_id} == {sent.span_id}
        assert (sent.parent_id, ended.attributes["error.type"]) == ("", "MQMSG_CLASS_NACK_Q_PURGED")


async def test_a_missing_extra_and_a_wrong_address_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="collector:4318' is no address such as http://"):
        telemetry.check_telemetry(TelemetrySettings(endpoint="collector:4318"))
    monkeypatch.setattr(telemetry.importlib.util, "find_spec", lambda name: None)
    asked = HERE.model_copy(update={"telemetry": TelemetrySettings(endpoint="http://127.0.0.1:1")})
    with pytest.raises(ConfigurationError, match=r"pip install 'qmnode\[otel\]'"):
        await QueueManager.open(tmp_path, asked)


def test_a_node_that_exports_nothing_loads_nothing_of_it() -> None:
    program = "import sys, qmnode.service, qmnode.outside, qmnode.management.server, qmnode.amqp.door\n"
    ours = (
        "'opentelemetry.sdk', 'opentelemetry.exporter', 'qmnode.export'"  # FastAPI loads the API where it is installed
    )
    program += f"print([name for name in sys.modules if name.startswith(({ours}))])"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=PROJECT, check=True)

    assert done.stdout == "[]\n"


@contextmanager
def calls_of_exports() -> Iterator[Counter[str]]:
    """The functions of ``qmnode/export`` that are called, by name."""
    called: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and "/qmnode/export/" in frame.f_code.co_filename:
            called[frame.f_code.co_name] += 1

    sys.setprofile(note)
    try:
        yield called
    finally:
        sys.setprofile(None)


async def test_a_node_that_exports_nothing_only_checks_that_there_is_no_recorder(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path, HERE) as manager:
        await manager.create_queue(r"NODE1\private$\orders")
        out, queue = await manager.open_queue(NAME, Access.SEND), await manager.open_queue(NAME)
        assert manager.recorder is None and manager.context.recorder is None
        assert manager.names.find(NAME.removeprefix("DIRECT=OS:")).recorder is None
        with calls_of_exports() as called:
            await out.send_many([Message(b"x", recoverable=True) for _ in range(10)])
            await queue.receive_many(10)
    assert not called


async def test_messages_that_are_not_sampled_are_looked_at_together(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path, HERE) as manager:
        recorded(manager, 0.0)
        await manager.create_queue(r"NODE1\private$\orders")
        out, queue = await manager.open_queue(NAME, Access.SEND), await manager.open_queue(NAME)
        for _ in range(2):
            with calls_of_exports() as called:
                await out.send_many([Message(b"x", recoverable=True) for _ in range(10)])
                await queue.receive_many(10)
    del called["<listcomp>"]  # Python 3.12 and later run a comprehension in the function itself
    assert called == {"inserted": 1, "_first_look": 1, "deleted": 1, "_leaving": 1}


def _noted(calls: list[str], name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    calls.append(name)
    return function(*arguments)


async def test_messages_that_readers_wait_for_are_not_stored_for_their_spans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with QueueManager.open(tmp_path, HERE) as manager:
        kept, _ = recorded(manager, 1.0)
        await manager.create_queue(r"NODE1\private$\orders")
        server = LocalServer(manager, LocalSettings(socket=tmp_path / "node.sock"))
        await server.start()
        orders = manager.names.find(r"NODE1\private$\orders")
        async with (
            await manager.open_queue(NAME, Access.SEND) as out,
            await qmnode.connect(tmp_path / "node.sock", reconnect=0) as application,
            await application.open_queue(NAME) as queue,
        ):
            await out.send_many([Message(b"x", recoverable=True) for _ in range(2)])
            arrived = take_received(orders, 2, 1 << 20)
            await manager.store.durable()
            kept.spans.clear()
            stored: list[str] = []
            for name in ("put_message", "put_messages"):
                put = getattr(manager.store, name)
                monkeypatch.setattr(manager.store, name, partial(_noted, stored, name, put))
            waiting = asyncio.ensure_future(queue.receive_many(2, 60))
            await eventually(lambda: bool(orders.waiting), "a waiting reader")
            insert_many(orders, arrived)  # as they come from another node
            assert len(await waiting) == 2
            await eventually(lambda: len(kept.spans) == 6, "all spans")
        await server.stop()
    assert Counter(span.name.partition(" ")[0] for span in kept.spans) == {"send": 2, "receive": 2, "store": 2}
    assert stored == []


async def test_a_span_is_exported_with_a_name_that_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=Bearer%20token")
    span = otlp.span(
        bytes(15) + b"\1", bytes(7) + b"\2", bytes(7) + b"\3", 4, 5,
        otlp.named("send \ud800", "PRODUCER", True, {"queue": "\ud800é", "n": 7, "t": 0.5}),
        otlp.attribute("m", 1 << 40), otlp.attribute("k", "x" * 300), otlp.failed("why \udfff"),
    )  # fmt: skip
    with collector() as found:
        settings = HERE.model_copy(update={"telemetry": TelemetrySettings(endpoint=found.url, sampling=0)})
        async with QueueManager.open(tmp_path, settings) as manager:
            assert manager.telemetry is not None
            manager.telemetry.export(lambda: [span])
        (exported,) = found.spans
    assert (exported.name, exported.kind, exported.begin, exported.end) == ("send ?", "PRODUCER", 4, 5)
    assert (exported.trace_id, exported.span_id, exported.parent_id) == (f"{1:032x}", f"{2:016x}", f"{3:016x}")
    assert exported.attributes == {
        "queue": "?é", "n": 7, "t": 0.5, "m": 1 << 40, "k": "x" * 300, "error.type": "why ?",
    }  # fmt: skip
    assert exported.failed and found.headers["authorization"] == "Bearer token"


async def test_the_end_of_a_job_is_a_span_that_lasts_as_long_as_the_job(tmp_path: Path) -> None:
    with collector() as found:
        settings = HERE.model_copy(update={"telemetry": TelemetrySettings(endpoint=found.url, sampling=0)})
        async with QueueManager.open(tmp_path, settings) as manager:
            await manager.create_queue(r"NODE1\private$\orders")
            async with await manager.open_queue(NAME, Access.SEND) as queue:
                await queue.send_many([Message(b"x") for _ in range(3)])
            job = await manager.operations.start_job(Asker("ann", "test", None, True), "delete", [r".\private$\orders"])
            await eventually(lambda: bool(found.spans), "the span of the job")
        (span,) = found.spans
    assert (span.name, span.kind, span.failed, span.parent_id) == ("job delete", "INTERNAL", False, "")
    assert (span.attributes["qmnode.job.number"], span.attributes["qmnode.job.done"]) == (job["job"], 3)
    assert span.attributes["qmnode.operation.outcome"] == "done" and span.end > span.begin
