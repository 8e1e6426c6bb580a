"""What a peer that does not keep to the protocol can do: lose its connection, and nothing else."""

import asyncio
import contextlib
import random
import socket
import struct
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

import qmnode
from qmnode.allocator import with_other_head
from qmnode.local import values
from qmnode.local.frames import (
    HEAD,
    HEAD_SIZE,
    MAXIMUM_FRAME,
    PROTOCOL_VERSION,
    SEND_HEAD,
    Frame,
    FrameError,
    FrameKind,
    FrameReader,
    frame,
    pack_received,
    pack_sent,
    unpack_received,
    unpack_sent,
)
from qmnode.local.remote import RemoteQueue, to_travel
from qmnode.structures.error_codes import ErrorCode
from tests.lab.cases import cases
from tests.local.conftest import FORMAT, NAME, Service


@given(st.lists(st.tuples(st.sampled_from(FrameKind), st.integers(0, 0xFFFFFFFF), st.binary(max_size=100))), st.data())
def test_frames_survive_any_cut_of_the_stream(frames: list[tuple[FrameKind, int, bytes]], data: st.DataObject) -> None:
    stream = b"".join(frame(kind, number, body) for kind, number, body in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    reader = FrameReader()
    found = [one for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True) for one in reader.feed(stream[a:b])]
    assert [(one.kind, one.number, one.body) for one in found] == frames


def read(reader: FrameReader, stream: bytes, pieces: Iterator[int]) -> list[Frame]:
    """What a loop does: read to the buffers of a reader as much as has come."""
    found, place = [], 0
    while place < len(stream):
        buffer = reader.buffer()
        count = min(len(buffer), len(stream) - place, next(pieces))
        buffer[:count] = stream[place : place + count]
        place += count
        found += reader.filled(count)
    return found


SIZES = [0, 1, 100, 16_000, 16_400, 70_000, 256 * 1024, 300_000, 700_000]


@cases("seed", range(12))
def test_large_frames_are_the_same_read_to_buffers_and_fed(seed: int) -> None:
    dice = random.Random(seed)
    frames = [(FrameKind.SEND, number, dice.randbytes(dice.choice(SIZES) + dice.randrange(9))) for number in range(8)]
    stream = b"".join(frame(*one) for one in frames)
    most = dice.choice([1_000, 20_000, 100_000, 1_000_000])
    pieces = iter(lambda: dice.randrange(1, most), None)
    assert [(one.kind, one.number, one.body) for one in read(FrameReader(), stream, pieces)] == frames
    fed, place, found = FrameReader(), 0, []
    while place < len(stream):
        count = next(pieces)
        found += fed.feed(stream[place : place + count])
        place += count
    assert [(one.kind, one.number, one.body) for one in found] == frames
    assert all(type(one.body) is bytes for one in found)


def test_a_frame_that_was_read_is_not_changed_by_the_next() -> None:
    reader, most = FrameReader(), iter(lambda: 1 << 20, None)
    bodies = [bytes([number]) * size for number, size in enumerate([100, 300_000, 100, 70_000])]
    stream = [
        frame(FrameKind.SEND, number, SEND_HEAD.pack(1, 0, 1, 1), *pack_sent([(len(body), (body,), b"")]))
        for number, body in enumerate(bodies)
    ]
    taken = [unpack_sent(one, 1)[0][0] for part in stream for one in read(reader, part, most)]
    read(reader, frame(FrameKind.SEND, 9, bytes(range(256)) * 4_000), most)
    assert taken == bodies


@pytest.mark.parametrize("kind", [FrameKind.SEND, FrameKind.MESSAGES])
def test_memory_of_a_large_frame_is_used_again_once_nobody_looks_at_it(kind: FrameKind) -> None:
    reader, most = FrameReader(), iter(lambda: 1 << 20, None)
    whole = frame(kind, 1, random.Random(kind).randbytes(700_000))
    kept = [read(reader, whole, most)[0].data for _ in range(9)]
    assert all(one == whole[HEAD_SIZE:] for one in kept)
    lent = [one.obj for one in kept if isinstance(one, memoryview)]
    assert 0 < len(lent) < 9  # those that keep too many get memory of their own
    assert len({id(one) for one in lent}) == len(lent)
    last = kept[len(lent) - 1]
    assert isinstance(last, memoryview)
    part, place = last[1000:2000], id(last.obj)
    kept.clear()
    del last
    later = [read(reader, whole, most)[0].data for _ in range(9)]
    assert place not in [id(one.obj) for one in later if isinstance(one, memoryview)]
    assert part == whole[HEAD_SIZE + 1000 : HEAD_SIZE + 2000]
    del part, later
    others = [read(reader, frame(kind, 2, bytes(700_000)), most)[0].data for _ in range(9)]
    assert place in [id(one.obj) for one in others if isinstance(one, memoryview)]


@pytest.fixture
def grown(own_memory: None) -> None:
    """A large message has been sent before: it is known how much they grow."""
    with_other_head(bytes(30), bytes(10), 10)


@pytest.mark.parametrize("seed", range(8))
def test_the_packet_of_a_large_message_that_is_sent_alone_has_memory_of_its_own(grown: None, seed: int) -> None:
    dice = random.Random(seed)
    expected: list[tuple[list[bytes], dict[int, bytes]]] = []
    calls, alone = [], []
    for number in range(30):
        packets = [dice.randbytes(dice.choice([10, 140_000, 300_000])) for _ in range(dice.choice([1, 1, 1, 2]))]
        besides = {0: b"more"} if dice.random() < 0.2 else {}
        expected.append((packets, besides))
        alone.append(len(packets) == 1 and not besides and len(packets[0]) > 10)
        items = [(len(packet), (packet,), besides.get(place, b"")) for place, packet in enumerate(packets)]
        calls.append(frame(FrameKind.SEND, number, SEND_HEAD.pack(7, 0, 1, len(items)), *pack_sent(items)))
    most = dice.choice([100_000, 1_000_000])
    found = read(FrameReader(), b"".join(calls), iter(lambda: dice.randrange(1, most), None))
    assert [unpack_sent(one, SEND_HEAD.unpack_from(one.data)[3]) for one in found] == expected
    apart = [one.alone is not None for one in found]
    assert any(apart)
    assert all(only for only, is_apart in zip(alone, apart, strict=True) if is_apart)


@pytest.mark.parametrize(
    ("count", "size", "more"), [(1, 199_999, 0), (1, 200_001, 0), (1, 200_000, 1), (0, 200_000, 0), (2, 200_000, 0)]
)
def test_a_call_that_is_not_of_one_message_is_read_as_it_is(grown: None, count: int, size: int, more: int) -> None:
    body = SEND_HEAD.pack(7, 0, 1, count) + struct.pack("<III", size, more, 0) + bytes(200_000)
    (call,) = read(FrameReader(), frame(FrameKind.SEND, 1, body), iter(lambda: 1 << 20, None))
    assert call.alone is None and call.body == body


def test_loops_of_different_threads_read_to_different_buffers() -> None:
    reader = FrameReader()
    own = reader.buffer()
    own[:3] = b"own"
    with ThreadPoolExecutor(1) as other:
        assert other.submit(lambda: bytes(reader.buffer()[:3])).result() == bytes(3)
    assert reader.buffer() is own


def test_a_large_frame_that_was_only_announced_takes_little_memory() -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        readers = [FrameReader() for _ in range(10)]
        for reader in readers:
            read(reader, HEAD.pack(MAXIMUM_FRAME, FrameKind.SEND, 1) + bytes(300), iter(lambda: 50, None))
        assert tracemalloc.get_traced_memory()[0] - before < 10 * 20_000
    finally:
        tracemalloc.stop()


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.binary(max_size=50))))
def test_received_batches_round_trip(items: list[tuple[int, bytes]]) -> None:
    assert unpack_received(b"".join(pack_received(items))) == items


@given(st.lists(st.tuples(st.binary(max_size=50), st.binary(max_size=50))))
def test_sent_batches_round_trip(items: list[tuple[bytes, bytes]]) -> None:
    sent = b"".join(pack_sent((len(packet), (packet[:7], packet[7:]), more) for packet, more in items))
    packets, besides = unpack_sent(Frame(FrameKind.SEND, 1, bytes(SEND_HEAD.size) + sent), len(items))
    assert packets == [packet for packet, _ in items]
    assert besides == {number: more for number, (_, more) in enumerate(items) if more}


@given(st.binary(max_size=200), st.integers(0, 0xFFFFFFFF))
def test_any_bytes_are_a_batch_or_a_frame_error(body: bytes, count: int) -> None:
    for unpack in (
        lambda: unpack_sent(Frame(FrameKind.SEND, 1, body), count),
        lambda: unpack_received(body),
        lambda: values.decode(body),
    ):
        try:
            unpack()
        except FrameError:
            continue


@pytest.mark.parametrize("size", [0, 7, 0xFFFFFFFF])
def test_impossible_sizes_are_refused_at_once(size: int) -> None:
    with pytest.raises(FrameError, match="frames have 8 to"):
        FrameReader().feed(HEAD.pack(size, FrameKind.CALL, 1))


async def exchange(service: Service, *parts: bytes) -> bytes:
    """Send raw bytes; everything the node answers until it closes."""
    reader, writer = await asyncio.open_unix_connection(str(service.socket))
    writer.writelines(parts)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer


HELLO = frame(FrameKind.HELLO, 1, values.encode({"version": PROTOCOL_VERSION}))


@pytest.mark.parametrize(
    ("reason", "parts"),
    [
        ("the first frame is a hello", [frame(FrameKind.CALL, 1, b"[]")]),
        ("install the same qmnode", [frame(FrameKind.HELLO, 1, values.encode({"version": 99}))]),
        ("not known", [HELLO, frame(FrameKind.RESULT, 2)]),
        ("two calls with the number", [HELLO, *[frame(FrameKind.CALL, 5, b"[]")] * 2]),
        ("frames have", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"]),
    ],
)
async def test_a_peer_that_breaks_the_protocol_is_told_and_closed(
    service: Service, reason: str, parts: list[bytes]
) -> None:
    assert reason.encode() in await exchange(service, *parts)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        values.encode(["manager", 0, "close", [], {}]),
        values.encode(["manager", 0, "_load_queues", [], {}]),
        values.encode(["manager", 0, "create_queue", [], {"no_such": 1}]),
        values.encode(["manager", 0, "create_queue", [7], {}]),
        values.encode(["queue", 12345, "purge", [], {}]),
        values.encode(["planet", 0, "purge", [], {}]),
        values.encode(["manager", 0, "begin", [0], {}]),
        values.encode({"not": "a list"}),
        b"[" * 100_000,
    ],
)
async def test_a_call_that_makes_no_sense_fails_and_the_connection_lives(service: Service, body: bytes) -> None:
    reader, writer = await asyncio.open_unix_connection(str(service.socket))
    good = frame(FrameKind.CALL, 3, values.encode(["manager", 0, "queues", [], {}]))
    writer.writelines([HELLO, frame(FrameKind.CALL, 2, body), good])
    frames = FrameReader()
    answers = {}
    while 3 not in answers or 2 not in answers:
        for answer in frames.feed(await asyncio.wait_for(reader.read(65536), 10)):
            answers[answer.number] = answer.kind
    writer.close()
    assert answers == {1: FrameKind.RESULT, 2: FrameKind.FAILED, 3: FrameKind.RESULT}


async def test_sent_bytes_that_are_no_packet_are_refused(service: Service) -> None:
    async with qmnode.connect(service.socket) as remote:
        await remote.create_queue(NAME)
        queue = await remote.open_queue(FORMAT, qmnode.Access.SEND)
        for value in (b"", bytes(15), bytes(300), struct.pack("<I", 7) * 50):
            with pytest.raises(qmnode.MessageQueuingError, match="no UserMessage packet"):
                await queue._send_together([(len(value), (value,), b"")], None)  # type: ignore[attr-defined]
        head = SEND_HEAD.pack(queue.handle, 0, 1, 0xFFFFFFFF)  # type: ignore[attr-defined]
        with pytest.raises(qmnode.MessageQueuingError, match="announced"):
            await remote.connection.call(FrameKind.SEND, head)
        assert (await remote.queue(NAME)).message_count == 0


@pytest.mark.parametrize("broken", [b"", bytes(300)])
async def test_a_broken_message_of_a_batch_that_does_not_stand_together_is_refused_alone(
    service: Service, broken: bytes
) -> None:
    async with qmnode.connect(service.socket) as remote:
        await remote.create_queue(NAME)
        queue = await remote.open_queue(FORMAT, qmnode.Access.SEND)
        assert isinstance(queue, RemoteQueue)
        good = [to_travel(qmnode.Message(body), queue._travelling) for body in (b"1", b"2")]
        items = [
            good[0],
            (len(broken), (broken,), b""),
            (*good[0][:2], values.encode({"signature": 7})),
            good[1],
        ]
        head = SEND_HEAD.pack(queue.handle, 0, 0, len(items))
        answer = await remote.connection.call(FrameKind.SEND, head, *pack_sent(items))
        first, second, third, fourth = values.decode(answer.body)
        assert answer.kind == FrameKind.MIXED
        assert [len(identifier) for identifier in (first, fourth)] == [20, 20]
        assert second[0] == third[0] == ErrorCode.MQ_ERROR_INVALID_PARAMETER
        receiver = await remote.open_queue(FORMAT, qmnode.Access.RECEIVE)
        assert [message.body for message in await receiver.receive_many(4, timeout=60)] == [b"1", b"2"]
        assert (await remote.queue(NAME)).message_count == 0


@pytest.mark.parametrize("passes", range(5))
async def test_an_application_that_connects_while_the_node_stops_is_not_left_waiting(
    service: Service, passes: int
) -> None:
    clients = [socket.socket(socket.AF_UNIX) for _ in range(5)]
    for client in clients:
        client.connect(str(service.socket))
        client.setblocking(False)
    for _ in range(passes):
        await asyncio.sleep(0)
    await service.server.stop()
    loop = asyncio.get_running_loop()
    for client in clients:
        with client, contextlib.suppress(ConnectionResetError):
            async with asyncio.timeout(60):
                assert await loop.sock_recv(client, 1) == b""
