"""What clients should not do: a fault or a closed connection, no memory, and others unharmed."""

from __future__ import annotations

import asyncio
import random
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from qmnode import MessageQueuingError
from qmnode.dcerpc.errors import FaultStatus
from qmnode.dcerpc.interface import SyntaxId, features_syntax
from qmnode.dcerpc.ndr import NDR
from qmnode.dcerpc.pdu import (
    FIRST_FRAGMENT,
    LAST_FRAGMENT,
    BindAck,
    BindNak,
    PduType,
    Result,
    body_of,
    write_pdu,
)
from qmnode.dcerpc.server import ServerLimits
from qmnode.remote_read import qm2qm, qmcomm
from qmnode.remote_read.qm2qm import QM2QM, Action
from qmnode.remote_read.qmcomm import QMCOMM
from qmnode.remote_read.queue_format import to_queue_format
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid, new_guid
from qmnode.structures.names import parse_single_format_name
from tests.fuzz.rpc_properties import RPC_TARGETS, rpc_seeds
from tests.lab.waiting import eventually
from tests.remote_read.conftest import THERE, serving
from tests.remote_read.raw_client import RawClient, bind_pdu, fragment_pdus, group_of, request_pdu

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from qmnode.dcerpc.ndr import Parameters
    from tests.remote_read.conftest import Remote

VERSION = qm2qm.GetVersionRequest().encode(NDR)
INVALID_PARAMETER, INVALID_HANDLE = 0xC00E0006, 0xC00E0007


@asynccontextmanager
async def bound(remote: Remote, *, receive: int = 5840, group: int = 0) -> AsyncIterator[RawClient]:
    """A client with both interfaces: context 0 is qmcomm, 1 is qm2qm."""
    async with RawClient(remote.address, remote.port) as client:
        answer = await client.bind(QMCOMM, QM2QM, receive=receive, group=group)
        assert answer.pdu_type == PduType.BIND_ACK
        yield client


async def call(client: RawClient, method: qm2qm.Method, request: Parameters, call_id: int = 2) -> Parameters | int:
    context = 0 if method.name.startswith("R_QM") else 1
    answer = await client.call(method.opnum, request.encode(NDR), call_id, context)
    return answer if isinstance(answer, int) else method.response.decode(answer, NDR)


async def open_queue(client: RawClient) -> tuple[int, bytes]:
    """The number of the open queue, and its context handle."""
    name = to_queue_format(parse_single_format_name(THERE))
    opened = await call(
        client, qmcomm.OPEN_REMOTE_QUEUE, qmcomm.OpenRemoteQueueRequest(queue_format=name, desired_access=1)
    )
    request = qm2qm.OpenQueueRequest(h_queue=opened.h_queue, p_queue=opened.h_queue, context=opened.h_queue)
    session = await call(client, qm2qm.OPEN_QUEUE, request)
    assert session.status == 0
    return opened.h_queue, session.context


def start(number: int, request_id: int = 1, timeout: int = 0) -> qm2qm.StartReceiveRequest:
    return qm2qm.StartReceiveRequest(
        desc=qm2qm.RemoteReadDesc(
            remote_queue=number, queue=number, request_id=request_id, timeout=timeout, action=Action.MQ_ACTION_RECEIVE
        )
    )


async def works(remote: Remote) -> None:
    """Somebody else is served."""
    async with bound(remote) as client:
        assert await client.call(8, VERSION, context=1) == bytes.fromhex("0601b11d")


GARBAGE = {
    "noise": bytes(range(256)) * 40,
    "HTTP": b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    "a request before a bind": request_pdu(8, VERSION),
    "another version": b"\x04" + request_pdu(8, VERSION)[1:],
    "big-endian": request_pdu(8, VERSION)[:4] + bytes(4) + request_pdu(8, VERSION)[8:],
    "a PDU that is shorter than its header": struct.pack("<4B4sHHI", 5, 0, 11, 3, b"\x10\0\0\0", 15, 0, 1),
    "a PDU larger than is taken": struct.pack("<4B4sHHI", 5, 0, 11, 3, b"\x10\0\0\0", 65_535, 0, 1),
    "a token longer than the PDU": struct.pack("<4B4sHHI", 5, 0, 11, 3, b"\x10\0\0\0", 24, 900, 1) + bytes(8),
    "a bind that ends early": write_pdu(PduType.BIND, 1, b"\xd0\x16"),
    "a bind with contexts that are not there": write_pdu(PduType.BIND, 1, bytes(8) + b"\xff\0\0\0"),
    "a response": write_pdu(PduType.RESPONSE, 1, bytes(8)),
    "an alter_context before a bind": bind_pdu(QM2QM.syntax, kind=PduType.ALTER_CONTEXT),
    "an auth3 that nobody asked for": write_pdu(PduType.AUTH3, 1, bytes(4)),
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE.keys())
async def test_garbage_closes_the_connection(remote: Remote, data: bytes) -> None:
    async with RawClient(remote.address, remote.port) as client:
        await client.send(data)
        assert await client.closes()
    await works(remote)


@pytest.mark.parametrize(
    "pdus",
    [
        pytest.param([request_pdu(8, b"x", flags=LAST_FRAGMENT, context=1)], id="a last fragment without a first"),
        pytest.param([request_pdu(8, b"x", flags=FIRST_FRAGMENT, context=1)] * 2, id="two first fragments"),
        pytest.param(
            [request_pdu(8, b"x", flags=FIRST_FRAGMENT, context=1), request_pdu(9, b"x", flags=0, context=1)],
            id="fragments for two methods",
        ),
        pytest.param(
            [request_pdu(8, b"x", flags=FIRST_FRAGMENT, context=1)] + [request_pdu(8, b"", flags=0, context=1)] * 3,
            id="fragments without content",
        ),
        pytest.param(
            [request_pdu(8, b"x", number, flags=FIRST_FRAGMENT, context=1) for number in range(2, 200)],
            id="many calls that are begun and never complete",
        ),
        pytest.param(
            [request_pdu(8, bytes(5000), flags=FIRST_FRAGMENT, context=1)]
            + [request_pdu(8, bytes(5000), flags=0, context=1)] * 100,
            id="fragments without end",
        ),
        pytest.param([bind_pdu(QM2QM.syntax)], id="a second bind"),
        pytest.param([write_pdu(PduType.REQUEST, 2, b"\0\0\0")], id="a request that ends in its head"),
    ],
)
async def test_pdus_that_do_not_go_together_close_the_connection(remote: Remote, pdus: list[bytes]) -> None:
    async with bound(remote) as client:
        try:
            for pdu in pdus:
                await client.send(pdu)
        except ConnectionError:
            return
        assert await client.closes()
    await works(remote)


@pytest.mark.parametrize("size", [1, 2, 3, 8, 50, 1000])
async def test_a_request_in_pieces_of_any_size_is_put_together(remote: Remote, size: int) -> None:
    async with bound(remote) as client:
        request = qmcomm.CreateRemoteCursorRequest(buffer=qmcomm.TransferBuffer(body=bytes(3000)), queue=1).encode(NDR)
        for pdu in fragment_pdus(qmcomm.CREATE_REMOTE_CURSOR.opnum, request, size):
            await client.send(pdu)
        answer = await client.answer()
        assert qmcomm.CreateRemoteCursorResponse.decode(answer, NDR).status == INVALID_HANDLE


@pytest.mark.parametrize("receive", [0, 200, 1432, 65_535])
async def test_responses_come_in_fragments_that_the_client_takes(remote: Remote, receive: int) -> None:
    await remote.send(bytes(20_000))
    async with bound(remote, receive=receive) as client:
        number, _ = await open_queue(client)
        await client.send(request_pdu(0, start(number).encode(NDR), context=1))
        largest = 0
        whole = b""
        while True:
            pdu = await client.receive()
            assert pdu is not None
            largest = max(largest, len(pdu.whole))
            whole += pdu.body[8:]
            if pdu.is_last:
                break
        assert largest <= max(receive, 200)
        assert len(qm2qm.StartReceiveResponse.decode(whole, NDR).desc.buffer or b"") > 20_000


async def test_bytes_that_come_one_by_one_are_understood(remote: Remote) -> None:
    async with RawClient(remote.address, remote.port) as client:
        for octet in bind_pdu(QM2QM.syntax) + request_pdu(8, VERSION):
            await client.send(bytes((octet,)))
        assert (await client.receive()).pdu_type == PduType.BIND_ACK
        assert await client.answer() == bytes.fromhex("0601b11d")


async def test_contexts_are_negotiated_one_by_one(remote: Remote) -> None:
    async with RawClient(remote.address, remote.port) as client:
        unknown = SyntaxId(new_guid(), 1)
        await client.send(bind_pdu(QM2QM.syntax, unknown, SyntaxId(QM2QM.syntax.uuid, 2)))
        results = body_of(await client.receive(), BindAck).results
        assert [one.result for one in results] == [
            Result.ACCEPTANCE, Result.PROVIDER_REJECTION, Result.PROVIDER_REJECTION,
        ]  # fmt: skip
        assert await client.call(8, VERSION) == bytes.fromhex("0601b11d")
        assert await client.call(8, VERSION, 3, context=1) == FaultStatus.UNKNOWN_INTERFACE
        assert features_syntax(3).uuid[:8] == bytes.fromhex("2c1cb76c12984045")


@pytest.mark.parametrize(
    ("opnum", "stub", "status"),
    [
        (11, b"", FaultStatus.OPNUM_RANGE),
        (0xFFFF, b"", FaultStatus.OPNUM_RANGE),
        (1, bytes(20), FaultStatus.BAD_STUB_DATA),
        (1, bytes(24), FaultStatus.INVALID_BOUND),
        (1, bytes(20) + b"\3\0\0\0", FaultStatus.INVALID_BOUND),
        (1, bytes(range(1, 21)) + b"\2\0\0\0", FaultStatus.CONTEXT_MISMATCH),
        (3, bytes(range(1, 21)), FaultStatus.CONTEXT_MISMATCH),
        (2, bytes(16) + b"\x11\0\0\0" + bytes(12), FaultStatus.INVALID_BOUND),
        (0, bytes(43), FaultStatus.BAD_STUB_DATA),
        (9, b"\1\0\0\0" + bytes(12), FaultStatus.BAD_STUB_DATA),
    ],
)
async def test_wrong_calls_get_a_fault_and_the_connection_goes_on(
    remote: Remote, opnum: int, stub: bytes, status: FaultStatus
) -> None:
    async with bound(remote) as client:
        assert await client.call(opnum, stub, context=1) == status
        assert await client.call(8, VERSION, 3, context=1) == bytes.fromhex("0601b11d")


async def test_methods_of_a_supporting_server_are_refused(remote: Remote) -> None:
    """MS-MQMP 3.1.4: a server that is no supporting server returns an error."""
    async with bound(remote) as client:
        for opnum in sorted(qmcomm.SUPPORTING_SERVER_ONLY):
            assert await client.call(opnum, bytes(64), opnum + 2) == ErrorCode.MQ_ERROR_ILLEGAL_OPERATION


async def test_methods_that_are_not_used_on_the_wire_are_not_there(remote: Remote) -> None:
    async with bound(remote) as client:
        for opnum in (0, 5, 13, 21, 24, 25, 29, 30, 32, 33, 34, 35):
            assert await client.call(opnum, bytes(64), opnum + 2) == FaultStatus.OPNUM_RANGE


async def test_handles_of_another_association_are_no_handles(remote: Remote) -> None:
    await remote.send(b"one", b"two")
    async with bound(remote) as owner, bound(remote) as thief:
        number, session = await open_queue(owner)
        started = await call(owner, qm2qm.START_RECEIVE, start(number))
        assert started.status == 0
        end = qm2qm.EndReceiveRequest(context=started.context, ack=2)
        assert await call(thief, qm2qm.END_RECEIVE, end) == FaultStatus.CONTEXT_MISMATCH
        assert await call(thief, qm2qm.CLOSE_QUEUE, qm2qm.CloseQueueRequest(context=session)) == (
            FaultStatus.CONTEXT_MISMATCH
        )
        assert (await call(thief, qm2qm.START_RECEIVE, start(number))).status == INVALID_PARAMETER
        assert (await call(thief, qm2qm.PURGE_QUEUE, qm2qm.PurgeQueueRequest(queue=number))).status == INVALID_HANDLE
        cancel = qm2qm.CancelReceiveRequest(h_queue=number, p_queue=number, request_id=1)
        assert (await call(thief, qm2qm.CANCEL_RECEIVE, cancel)).status == INVALID_HANDLE
        again = qm2qm.OpenQueueRequest(h_queue=number, p_queue=number, context=number)
        assert (await call(thief, qm2qm.OPEN_QUEUE, again)).status == INVALID_PARAMETER
        assert (await call(owner, qm2qm.END_RECEIVE, end)).status == 0
        assert await call(owner, qm2qm.END_RECEIVE, end) == FaultStatus.CONTEXT_MISMATCH
        wrong_type = qm2qm.EndReceiveRequest(context=session, ack=2)
        assert await call(owner, qm2qm.END_RECEIVE, wrong_type) == FaultStatus.CONTEXT_MISMATCH
    assert await remote.bodies() == [b"two"]


async def test_connections_of_one_association_share_its_handles_until_the_last_is_gone(remote: Remote) -> None:
    await remote.send(b"one")
    async with RawClient(remote.address, remote.port) as first:
        group = group_of(await first.bind(QMCOMM, QM2QM))
        async with bound(remote, group=group) as second:
            number, _ = await open_queue(second)
            started = await call(second, qm2qm.START_RECEIVE, start(number))
        await eventually(lambda: len(remote.server.server.connections) == 1)
        assert len(remote.server.queues) == 1
        end = qm2qm.EndReceiveRequest(context=started.context, ack=1)
        assert (await call(first, qm2qm.END_RECEIVE, end)).status == 0
    await eventually(lambda: not remote.server.queues)
    async with RawClient(remote.address, remote.port) as late:
        answer = await late.bind(QM2QM, group=group)
        assert answer.pdu_type == PduType.BIND_NAK
        assert body_of(answer, BindNak).reason == 0
        assert await late.closes()
    assert await remote.bodies() == [b"one"]


async def test_a_cancelled_call_ends_with_a_fault_and_an_orphaned_one_with_nothing(remote: Remote) -> None:
    async with bound(remote) as client:
        number, _ = await open_queue(client)
        (queue,) = remote.server.queues._by_number.values()
        await client.send(request_pdu(0, start(number, 1, 30_000).encode(NDR), 10, context=1))
        await client.send(request_pdu(0, start(number, 2, 30_000).encode(NDR), 11, context=1))
        await eventually(lambda: len(queue.reads) == 2)
        await client.send(write_pdu(PduType.CO_CANCEL, 10, b""))
        assert await client.answer() == FaultStatus.CANCEL
        await client.send(write_pdu(PduType.ORPHANED, 11, b""))
        await eventually(lambda: not queue.reads)
        assert await client.call(8, VERSION, 12, context=1) == bytes.fromhex("0601b11d")
        await remote.send(b"one")
    assert await remote.bodies() == [b"one"]


async def test_a_call_that_is_cancelled_before_it_begins_ends_with_a_fault(remote: Remote) -> None:
    async with bound(remote) as client:
        number, _ = await open_queue(client)
        request = request_pdu(0, start(number, 1, 30_000).encode(NDR), 10, context=1)
        await client.send(request + write_pdu(PduType.CO_CANCEL, 10, b""))
        assert await client.answer() == FaultStatus.CANCEL
        assert await client.call(8, VERSION, 10, context=1) == bytes.fromhex("0601b11d")


async def test_request_identifiers_that_wait_are_not_given_twice(remote: Remote) -> None:
    """3.1.4.1, and 3.1.4.6 for what cannot be cancelled."""
    async with bound(remote) as client:
        number, _ = await open_queue(client)
        (queue,) = remote.server.queues._by_number.values()
        await client.send(request_pdu(0, start(number, 7, 30_000).encode(NDR), 10, context=1))
        await eventually(lambda: bool(queue.reads))
        assert (await call(client, qm2qm.START_RECEIVE, start(number, 7), 11)).status == INVALID_PARAMETER
        cases = [(number, 0, 7, INVALID_PARAMETER), (number, number, 8, 0xC00E0001), (5, 5, 7, INVALID_HANDLE)]
        for place, (h_queue, p_queue, request_id, status) in enumerate(cases):
            cancel = qm2qm.CancelReceiveRequest(h_queue=h_queue, p_queue=p_queue, request_id=request_id)
            assert (await call(client, qm2qm.CANCEL_RECEIVE, cancel, 20 + place)).status == status
        cancel = qm2qm.CancelReceiveRequest(h_queue=number, p_queue=number, request_id=7)
        await client.send(request_pdu(5, cancel.encode(NDR), 30, context=1))
        answers = {(await client.receive()).call_id: None for _ in range(2)}
        assert answers.keys() == {10, 30}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"queue": 0}, INVALID_PARAMETER),
        ({"queue": 1}, INVALID_PARAMETER),
        ({"action": 5}, INVALID_PARAMETER),
        ({"action": Action.MQ_ACTION_PEEK_NEXT}, 0xC000000D),
        ({"cursor": 99}, 0xC000000D),
        ({"action": Action.MQ_LOOKUP_PEEK_NEXT}, INVALID_PARAMETER),
    ],
)
async def test_descriptions_that_name_nothing_are_refused(remote: Remote, change: dict, status: int) -> None:
    await remote.send(b"one")
    async with bound(remote) as client:
        number, _ = await open_queue(client)
        request = start(number)
        for name, value in change.items():
            setattr(request.desc, name, value)
        assert (await call(client, qm2qm.START_RECEIVE, request)).status == status
        null = qm2qm.StartReceive2Request(desc2=qm2qm.RemoteReadDesc2(remote_read_desc=None))
        assert (await call(client, qm2qm.START_RECEIVE2, null, 3)).status == INVALID_HANDLE


@pytest.mark.parametrize(
    ("lookup", "change"),
    [
        (0, {"action": Action.MQ_LOOKUP_PEEK_CURRENT}),
        (0, {"action": Action.MQ_LOOKUP_PEEK_PREV}),
        (1, {"action": Action.MQ_LOOKUP_PEEK_CURRENT, "timeout": 1}),
        (1, {"action": Action.MQ_LOOKUP_PEEK_CURRENT, "cursor": 1}),
        (1, {"action": Action.MQ_ACTION_RECEIVE}),
        (1, {"action": Action.MQ_LOOKUP_PEEK_CURRENT, "remote_queue": 0}),
    ],
)
async def test_lookups_that_say_too_much_are_refused(remote: Remote, lookup: int, change: dict) -> None:
    async with bound(remote) as client:
        number, _ = await open_queue(client)
        desc = start(number).desc
        for name, value in change.items():
            setattr(desc, name, value)
        request = qm2qm.StartReceiveByLookupIdRequest(
            lookup_id=lookup, desc2=qm2qm.RemoteReadDesc2(remote_read_desc=desc)
        )
        answer = await call(client, qm2qm.START_RECEIVE_BY_LOOKUP_ID, request)
        assert answer.status == INVALID_PARAMETER


async def test_opening_needs_a_number_that_was_given_out(remote: Remote) -> None:
    async with bound(remote) as client:
        for h_queue, p_queue, context in ((0, 0, 0), (1, 1, 1), (1, 1, 2), (1, 0, 1)):
            request = qm2qm.OpenQueueRequest(
                license_guid=Guid(bytes(16)), h_queue=h_queue, p_queue=p_queue, context=context
            )
            assert (await call(client, qm2qm.OPEN_QUEUE, request)).status == INVALID_PARAMETER
        null = qm2qm.CloseQueueRequest(context=bytes(20))
        assert (await call(client, qm2qm.CLOSE_QUEUE, null)).status == INVALID_HANDLE


async def test_limits_hold_and_others_are_served(tmp_path: Path) -> None:
    limits = ServerLimits(calls_per_connection=3, context_handles=4, bind_timeout=5)
    async with serving(tmp_path, connections=4, connections_per_peer=4, limits=limits) as remote:
        async with bound(remote) as client:
            number, _ = await open_queue(client)
            for call_id in range(10, 13):
                await client.send(request_pdu(0, start(number, call_id, 30_000).encode(NDR), call_id, context=1))
            assert await client.call(8, VERSION, 20, context=1) == FaultStatus.TOO_BUSY
        await eventually(lambda: not remote.server.server.connections)
        async with bound(remote) as client:
            await open_queue(client)
            await open_queue(client)
            name = to_queue_format(parse_single_format_name(THERE))
            request = qmcomm.OpenRemoteQueueRequest(queue_format=name, desired_access=1)
            assert await call(client, qmcomm.OPEN_REMOTE_QUEUE, request) == FaultStatus.NO_MEMORY
            assert len(remote.server.queues) == 2
        idle = [RawClient(remote.address, remote.port) for _ in range(6)]
        for one in idle:
            await one.__aenter__()
        await idle[0].send(bind_pdu(QM2QM.syntax)[:20])
        assert all(await asyncio.gather(*(one.closes() for one in idle)))
        await works(remote)


async def test_a_client_that_does_not_read_holds_no_memory(remote: Remote) -> None:
    """A hundred answers of a megabyte each are asked for; a handful is made."""
    await remote.send(bytes(1_000_000))
    async with bound(remote) as client:
        number, _ = await open_queue(client)
        client.writer.transport.pause_reading()
        peek = start(number)
        peek.desc.action = Action.MQ_ACTION_PEEK_CURRENT
        for call_id in range(10, 110):
            peek.desc.request_id = call_id
            await client.send(request_pdu(0, peek.encode(NDR), call_id, context=1))
        (connection,) = remote.server.server.connections
        await eventually(lambda: len(connection._tasks) > 50)
        await works(remote)
        assert connection._unsent + connection._transport.get_write_buffer_size() < 8_000_000
        assert len(connection._tasks) > 80
        client.writer.transport.resume_reading()
        lasts = 0
        while lasts < 100:
            pdu = await client.receive()
            assert pdu is not None and pdu.pdu_type == PduType.RESPONSE
            lasts += pdu.is_last


async def test_what_is_locked_for_a_client_has_a_limit(tmp_path: Path) -> None:
    async with serving(tmp_path, held_bytes=100_000) as remote:
        await remote.send(*[bytes(60_000)] * 3)
        async with remote.open() as queue, remote.open() as other:
            first = await queue.receive_begin(0)
            with pytest.raises(MessageQueuingError) as caught:
                await queue.receive_begin(0)
            assert caught.value.code is ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
            await other.receive_begin(0)
            await queue.receive_end(first.lookup_identifier, delete=True)
            await queue.receive_begin(0)
        await eventually(lambda: not remote.server.queues)
        assert len(await remote.bodies()) == 2


@pytest.mark.soak  # the clock counts
@pytest.mark.timed
async def test_a_stream_of_calls_is_not_a_slow_call(tmp_path: Path) -> None:
    """Reads that end within a PDU, for longer than a PDU may take."""
    async with serving(tmp_path, limits=ServerLimits(bind_timeout=0.3)) as remote, bound(remote) as client:
        calls = b"".join(request_pdu(8, VERSION, number + 10, context=1) for number in range(30))
        sent = 0
        for end in range(40, len(calls) - 1, 33):
            await client.send(calls[sent:end])
            sent = end
            await asyncio.sleep(0.03)
        await client.send(calls[sent:])
        assert [await client.answer() for _ in range(30)] == [bytes.fromhex("0601b11d")] * 30


async def test_a_connection_that_fails_takes_no_turn_from_others(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(event: object) -> None:
        raise RuntimeError("a fault of the node")

    async with bound(remote) as client:
        (connection,) = remote.server.server.connections
        monkeypatch.setattr(connection, "_happened", fail)
        await client.send(request_pdu(8, VERSION, 20, context=1))
        assert await client.closes()
    await works(remote)


async def test_a_flood_of_anything_leaves_no_memory_behind(remote: Remote) -> None:
    chance = random.Random(8)
    seeds = [
        bind_pdu(QMCOMM.syntax, QM2QM.syntax),
        request_pdu(8, VERSION, context=1),
        request_pdu(0, start(1).encode(NDR), 3, context=1),
        *fragment_pdus(4, bytes(600), 50),
    ]
    for _ in range(150):
        data = bytearray(b"".join(chance.choices(seeds, k=chance.randrange(1, 8))))
        for _ in range(chance.randrange(6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        async with RawClient(remote.address, remote.port) as client:
            await client.send(bytes(data[: chance.randrange(1, len(data) + 1)]))
            client.writer.write_eof()
    server = remote.server.server
    await eventually(lambda: not server.connections, "every connection ends")
    assert not server.associations and not server.per_peer and not remote.server.queues
    await works(remote)


@pytest.mark.parametrize("target", sorted(RPC_TARGETS))
def test_properties_of_the_fuzzer_hold_on_damaged_inputs(target: str) -> None:
    """What ``make fuzz`` looks for with more patience."""
    chance = random.Random(9)
    seeds = [data for name, data in rpc_seeds() if name == target]
    for _ in range(500):
        data = bytearray(b"".join(chance.choices(seeds, k=chance.choice((1, 1, 1, 2)))))
        for _ in range(chance.randrange(5)):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 4, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        RPC_TARGETS[target](bytes(data[: chance.choice((len(data), chance.randrange(len(data) + 1)))]))
