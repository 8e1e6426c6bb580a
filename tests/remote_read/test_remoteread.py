"""The server of RemoteRead (MS-MQRR), method by method."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from qmnode import Access, Message
from qmnode.dcerpc.errors import RpcFault
from qmnode.dcerpc.ndr import NDR, NDR64, NULL_CONTEXT_HANDLE
from qmnode.errors import MessageQueuingError
from qmnode.model.stored_message import message_from_packet, received_message
from qmnode.remote_read import remoteread
from qmnode.remote_read.qm2qm import Action
from qmnode.remote_read.queue_format import QueueFormatValue
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.stored_headers import ExtensionHeader, SubqueueHeader
from tests.lab.waiting import eventually
from tests.remote_read.conftest import NAME, OPEN, THERE, serving
from tests.remote_read.remoteread_client import RawRemoteRead

if TYPE_CHECKING:
    from pathlib import Path

    from qmnode.dcerpc.ndr import Representation
    from tests.remote_read.conftest import Remote

REPRESENTATIONS = pytest.mark.parametrize("representation", [NDR, NDR64], ids=lambda one: one.name)
MOVE = int(Access.MOVE)


def body_of(answer: remoteread.StartReceiveResponse) -> bytes:
    assert answer.status == 0 and answer.sections is not None
    (section,) = answer.sections
    assert section.section is not None and section.size_alloc == len(section.section)
    size = int.from_bytes(section.section[8:12], "little")
    return message_from_packet(section.section[:size]).body


@REPRESENTATIONS
async def test_a_message_is_peeked_received_and_gone(remote: Remote, representation: Representation) -> None:
    await remote.send(b"one", b"two")
    async with RawRemoteRead(remote, representation=representation) as client:
        assert (await client.call(remoteread.GET_SERVER_PORT)).status == remote.port
        assert body_of(await client.start(action=Action.MQ_ACTION_PEEK_CURRENT)) == b"one"
        started = await client.start()
        assert body_of(started) == b"one" and started.sequence_id and started.arrive_time
        assert await client.end() == 0
        assert body_of(await client.start(2)) == b"two"
        assert await client.end(2, delete=False) == 0
        assert (await client.start(3, lookup_id=5)).status == ErrorCode.MQ_ERROR_INVALID_PARAMETER
        closed = await client.call(remoteread.CLOSE_QUEUE, context=client.context)
        assert (closed.status, closed.context) == (0, NULL_CONTEXT_HANDLE)
    assert await remote.bodies() == [b"two"]


async def test_opening_fails_with_the_code_of_its_reason(remote: Remote) -> None:
    async with RawRemoteRead(remote, "") as client:
        for name, access, share, code in (
            (THERE + "-not-there", 1, 0, ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND),
            (r"DIRECT=OS:ELSEWHERE\private$\orders", 1, 0, ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND),
            (THERE, 2, 0, ErrorCode.MQ_ERROR_INVALID_PARAMETER),
            (THERE, MOVE, 0, ErrorCode.MQ_ERROR_INVALID_PARAMETER),
            (THERE, 1, 7, ErrorCode.MQ_ERROR_INVALID_PARAMETER),
        ):
            with pytest.raises(RpcFault) as caught:
                await client.open(name, access, share)
            assert caught.value.status == code, name
        await client.open(THERE, share=1)
        with pytest.raises(RpcFault) as caught:
            await client.open(THERE)
        assert caught.value.status == ErrorCode.MQ_ERROR_SHARING_VIOLATION


async def test_a_cursor_walks_and_receives(remote: Remote) -> None:
    await remote.send(b"one", b"two", b"three")
    async with RawRemoteRead(remote) as client:
        cursor = (await client.call(remoteread.CREATE_CURSOR, context=client.context)).cursor
        assert body_of(await client.start(cursor=cursor, action=Action.MQ_ACTION_PEEK_CURRENT)) == b"one"
        assert body_of(await client.start(cursor=cursor, action=Action.MQ_ACTION_PEEK_NEXT)) == b"two"
        assert body_of(await client.start(cursor=cursor)) == b"two"
        assert await client.end() == 0
        assert await client.status(remoteread.CLOSE_CURSOR, cursor=cursor) == 0
        assert await client.status(remoteread.CLOSE_CURSOR, cursor=cursor) == ErrorCode.MQ_ERROR_INVALID_HANDLE
        assert (await client.start(cursor=cursor)).status == 0xC0000008
    assert await remote.bodies() == [b"one", b"three"]


@REPRESENTATIONS
async def test_lookup_identifiers_find_every_neighbour(remote: Remote, representation: Representation) -> None:
    await remote.send(b"one", b"two", b"three")
    async with RawRemoteRead(remote, representation=representation) as client:
        front = await client.start(action=Action.MQ_ACTION_PEEK_CURRENT)
        here = 4 << 56 | front.sequence_id  # priority 3
        two = await client.start(lookup_id=here, action=Action.MQ_LOOKUP_PEEK_NEXT)
        assert body_of(two) == b"two"
        assert body_of(await client.start(lookup_id=here, action=Action.MQ_LOOKUP_PEEK_CURRENT)) == b"one"
        assert body_of(await client.start(action=Action.MQ_LOOKUP_PEEK_NEXT)) == b"one"
        there = 4 << 56 | two.sequence_id
        assert body_of(await client.start(lookup_id=there, action=Action.MQ_LOOKUP_RECEIVE_PREV)) == b"one"
        gone = await client.start(2, lookup_id=here, action=Action.MQ_LOOKUP_PEEK_CURRENT)
        assert gone.status == ErrorCode.MQ_ERROR_TRANSACTION_USAGE
        assert await client.end() == 0
        timed = await client.start(2, lookup_id=there, timeout=5, action=Action.MQ_LOOKUP_PEEK_CURRENT)
        assert timed.status == ErrorCode.MQ_ERROR_INVALID_PARAMETER
    assert await remote.bodies() == [b"two", b"three"]


@REPRESENTATIONS
@pytest.mark.parametrize("length", [8, 10])
async def test_a_large_body_comes_in_sections(remote: Remote, representation: Representation, length: int) -> None:
    body = bytes(range(length)) * 101
    await remote.send(body, label="a label", time_to_reach_queue=1_000)
    async with RawRemoteRead(remote, representation=representation) as client:
        whole = await client.start(action=Action.MQ_ACTION_PEEK_CURRENT, max_body_size=len(body))
        (packet,) = [one.section for one in whole.sections]
        parts = await client.start(action=Action.MQ_ACTION_PEEK_CURRENT, max_body_size=100)
        first, second = parts.sections
        assert [first.section_type, second.section_type] == [1, 2]
        assert first.section == packet[: first.size] and first.section.endswith(body[:100])
        assert first.size_alloc - first.size == len(body) - 100
        assert packet == first.section + body[100:] + second.section and second.size == second.size_alloc
    (message,) = await taken(remote)
    until = int.from_bytes(packet[12:16], "little")
    assert until == message.sent_time + 1_000


async def taken(remote: Remote) -> list[Message]:
    async with await remote.manager.open_queue(NAME) as queue:
        return await queue.receive_many(10)


@REPRESENTATIONS
async def test_messages_move_into_subqueues_and_back(remote: Remote, representation: Representation) -> None:
    await remote.send(b"one", b"two")
    async with RawRemoteRead(remote, representation=representation) as client:
        front = await client.start(action=Action.MQ_ACTION_PEEK_CURRENT)
        here = 4 << 56 | front.sequence_id
        target = await client.open(THERE + ";later", MOVE, method=remoteread.OPEN_QUEUE_FOR_MOVE)
        move = {"context_from": client.context, "lookup_id": here}
        for context, transaction, status in (
            (target.move_context + 1, bytes(16), ErrorCode.MQ_ERROR_INVALID_HANDLE),
            (target.move_context, b"a transaction id", ErrorCode.MQ_ERROR_TRANSACTION_USAGE),
            (target.move_context, bytes(16), 0),
            (target.move_context, bytes(16), ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND),
        ):
            moved = await client.call(remoteread.MOVE_MESSAGE, context_to=context, transaction_id=transaction, **move)
            assert moved.status == status
        there = (await client.open(THERE + ";later")).context
        found = await client.call(
            remoteread.START_RECEIVE, context=there, request_id=9, action=Action.MQ_ACTION_PEEK_CURRENT
        )
        packet = found.sections[0].section
        behind = packet[int.from_bytes(packet[8:12], "little") :]
        assert ExtensionHeader.parse(behind[:12]).remaining_headers_size == len(behind) - 12
        header = SubqueueHeader.parse(behind[12:160])
        assert header.move_counter == 1
        assert header.subqueue_name.decode("utf-16-le").rstrip("\0") == "later"
        back = await client.open(THERE, MOVE, method=remoteread.OPEN_QUEUE_FOR_MOVE)
        returned = await client.call(
            remoteread.MOVE_MESSAGE, context_from=there, context_to=back.move_context, lookup_id=here
        )
        assert returned.status == 0
        await remote.manager.create_queue(r".\private$\other", security=OPEN)
        elsewhere = r"DIRECT=OS:SERVING\private$\other;x"
        other = await client.open(elsewhere, MOVE, method=remoteread.OPEN_QUEUE_FOR_MOVE)
        unrelated = await client.call(remoteread.MOVE_MESSAGE, context_to=other.move_context, **move)
        assert unrelated.status == 0xC000000D
    assert await remote.bodies() == [b"one", b"two"]


async def test_a_waiting_read_is_cancelled_also_over_another_connection_of_the_association(remote: Remote) -> None:
    async with RawRemoteRead(remote) as client, RawRemoteRead(remote, "", group=client.rpc.group_id) as other:
        waiting = asyncio.ensure_future(client.start(7, timeout=0xFFFFFFFF))
        await eventually(lambda: any(one.reads for one in remote.server.queues._by_number.values()))
        assert (await client.start(7)).status == ErrorCode.MQ_ERROR_INVALID_PARAMETER
        other.context = client.context
        assert await other.status(remoteread.CANCEL_RECEIVE, request_id=8) == ErrorCode.MQ_ERROR
        assert await other.status(remoteread.CANCEL_RECEIVE, request_id=7) == 0
        assert (await waiting).status == ErrorCode.MQ_ERROR_OPERATION_CANCELLED
        await remote.send(b"one")
        assert body_of(await client.start(7)) == b"one"
        assert (await client.start(7)).status == ErrorCode.MQ_ERROR_INVALID_PARAMETER


async def test_handles_and_requests_of_nobody_are_refused(remote: Remote) -> None:
    await remote.send(b"one")
    async with RawRemoteRead(remote) as client, RawRemoteRead(remote, "") as other:
        assert await client.end() == ErrorCode.MQ_ERROR_INVALID_HANDLE
        assert body_of(await client.start()) == b"one"
        assert await client.end(2) == ErrorCode.MQ_ERROR_INVALID_PARAMETER
        assert await other.status(remoteread.PURGE_QUEUE) == ErrorCode.MQ_ERROR_INVALID_HANDLE
        other.context = client.context
        with pytest.raises(RpcFault):
            await other.end()
        target = await client.open(THERE + ";x", MOVE, method=remoteread.OPEN_QUEUE_FOR_MOVE)
        with pytest.raises(RpcFault):
            await other.call(
                remoteread.MOVE_MESSAGE, context_from=client.context, context_to=target.move_context, lookup_id=1
            )


async def test_purging_needs_the_right_to_receive(remote: Remote) -> None:
    await remote.send(b"one")
    async with RawRemoteRead(remote, "") as client:
        client.context = (await client.open(THERE, int(Access.PEEK))).context
        assert (await client.start()).status == ErrorCode.MQ_ERROR_ACCESS_DENIED
        assert await client.status(remoteread.PURGE_QUEUE) == 0xC0000022
        client.context = (await client.open(THERE)).context
        assert await client.status(remoteread.PURGE_QUEUE) == 0
    assert await remote.bodies() == []


@pytest.mark.public_report("HangfireIO/Hangfire#333")
@REPRESENTATIONS
async def test_transactions_of_other_machines_are_refused(remote: Remote, representation: Representation) -> None:
    await remote.send(b"one")
    identifier = bytes(range(16))
    async with RawRemoteRead(remote, representation=representation) as client:
        front = await client.start(action=Action.MQ_ACTION_PEEK_CURRENT)
        enlisted = await client.call(
            remoteread.ENLIST_REMOTE_TRANSACTION, transaction_id=identifier, token=b"propagation token",
            queue_format=QueueFormatValue(format_type=0),
        )  # fmt: skip
        assert enlisted.status == ErrorCode.MQ_ERROR_TRANSACTION_ENLIST
        start = {"context": client.context, "request_id": 1}
        begin = remoteread.START_TRANSACTIONAL_RECEIVE
        begun = await client.call(begin, transaction_id=identifier, **start)
        assert begun.status == ErrorCode.MQ_ERROR_TRANSACTION_USAGE
        marked = {"acknowledgement_class": 0xC004, "lookup_id": 4 << 56 | front.sequence_id}
        status = await client.status(remoteread.SET_USER_ACKNOWLEDGEMENT_CLASS, **marked)
        assert status == ErrorCode.MQ_ERROR_TRANSACTION_USAGE
        missing = {"acknowledgement_class": 0, "lookup_id": 1}
        status = await client.status(remoteread.SET_USER_ACKNOWLEDGEMENT_CLASS, **missing)
        assert status == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND
        assert body_of(await client.call(begin, **start)) == b"one"
        assert await client.status(remoteread.END_TRANSACTIONAL_RECEIVE, ack=2, request_id=1) == 0
    assert await remote.bodies() == []


async def test_a_transactional_queue_knows_no_transaction_of_others(remote: Remote) -> None:
    await remote.manager.create_queue(r".\private$\exact", transactional=True, security=OPEN)
    async with RawRemoteRead(remote, r"DIRECT=OS:SERVING\private$\exact") as client:
        for action, code in (
            (Action.MQ_ACTION_RECEIVE, ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE),
            (Action.MQ_ACTION_PEEK_CURRENT, ErrorCode.MQ_ERROR_TRANSACTION_USAGE),
        ):
            begun = await client.call(
                remoteread.START_TRANSACTIONAL_RECEIVE, context=client.context, request_id=1, action=action,
                transaction_id=bytes(range(16)),
            )  # fmt: skip
            assert begun.status == code


@pytest.mark.parametrize("step", ["waiting", "sent", "given back", "acknowledged"])
async def test_a_reader_that_vanishes_has_the_message_or_leaves_it_in_its_place(remote: Remote, step: str) -> None:
    if step != "waiting":
        await remote.send(b"one", b"two")
    async with RawRemoteRead(remote) as client:
        if step == "waiting":
            waiting = asyncio.ensure_future(client.start(timeout=0xFFFFFFFF))
            await eventually(lambda: any(one.reads for one in remote.server.queues._by_number.values()))
            client.rpc.abort()
            with pytest.raises(Exception, match="lost"):
                await waiting
            await remote.send(b"one", b"two")
        else:
            assert body_of(await client.start()) == b"one"
            if step != "sent":
                assert await client.end(delete=step == "acknowledged") == 0
            client.rpc.abort()
    await eventually(lambda: not remote.server.queues)
    assert await remote.bodies() == ([b"two"] if step == "acknowledged" else [b"one", b"two"])


async def test_a_message_returns_when_its_read_is_not_ended_in_time(tmp_path: Path) -> None:
    async with serving(tmp_path, pending_request_timeout=0.2) as remote:
        await remote.send(b"one")
        async with RawRemoteRead(remote) as client:
            assert body_of(await client.start(1)) == b"one"
            assert body_of(await client.start(2, timeout=30_000)) == b"one"
            assert await client.end(1) == ErrorCode.MQ_ERROR_INVALID_PARAMETER
            assert await client.end(2) == 0
        assert await remote.bodies() == []


async def test_messages_return_one_after_the_other_when_their_reads_are_not_ended_in_time(tmp_path: Path) -> None:
    async with serving(tmp_path, pending_request_timeout=0.2) as remote:
        for body in (b"one", b"two"):
            await remote.send(body)
        async with RawRemoteRead(remote) as client:
            (queue,) = remote.server.queues._by_number.values()
            await client.start(1)
            await asyncio.sleep(0.05)  # the second read ends later
            await client.start(2)
            await eventually(lambda: not queue.begun)
            for request_id in (1, 2):
                assert await client.end(request_id) == ErrorCode.MQ_ERROR_INVALID_HANDLE
            assert await remote.bodies() == [b"one", b"two"]


@pytest.mark.parametrize("delete", [True, False], ids=["taken", "returned"])
async def test_a_read_and_its_end_are_refused_when_the_disk_refuses_them(remote: Remote, delete: bool) -> None:
    await remote.send(b"one", b"two")
    async with RawRemoteRead(remote) as client:
        await client.start(1)
        store: Any = remote.manager.context.store
        store.fail(OSError("no space left"))
        assert await client.end(1, delete=delete) == ErrorCode.MQ_ERROR_MESSAGE_STORAGE_FAILED
        assert (await client.start(2)).status == ErrorCode.MQ_ERROR_MESSAGE_STORAGE_FAILED


class Write(asyncio.Future[None]):
    """A write of the store, which its waiters cannot cancel."""

    def cancel(self, msg: object = None) -> bool:
        return False


async def test_the_end_of_a_read_is_answered_when_it_is_on_disk(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    await remote.send(b"one")
    async with RawRemoteRead(remote) as client:
        await client.start()
        write = Write()
        with monkeypatch.context() as patch:
            patch.setattr(remote.manager.context.store, "durable", lambda: write)
            ending = asyncio.ensure_future(client.end())
            assert (await client.call(remoteread.GET_SERVER_PORT)).status, "a later call need not wait"
        assert not ending.done()
        write.set_exception(MessageQueuingError(ErrorCode.MQ_ERROR_MESSAGE_STORAGE_FAILED, "the write failed"))
        assert await ending == ErrorCode.MQ_ERROR_MESSAGE_STORAGE_FAILED


@pytest.mark.parametrize("lost", [False, True], ids=["answered", "lost"])
async def test_many_reads_wait_for_the_disk(remote: Remote, monkeypatch: pytest.MonkeyPatch, lost: bool) -> None:
    """Some of them with their answers, those beyond the limit without."""
    bodies = [bytes([number]) * 60_000 for number in range(12)]
    await remote.send(*bodies)
    write = Write()
    async with remote.open() as queue:
        (there,) = remote.server.queues._by_number.values()
        with monkeypatch.context() as patch:
            patch.setattr(remote.manager.context.store, "pending", lambda: write)
            reading = asyncio.ensure_future(queue.begin_many(len(bodies)))
            await eventually(lambda: len(there.begun) + len(there.reads) == len(bodies), "all have begun")
        assert there.begun and there.reads and not reading.done()
        if lost:
            queue.node.abort()
            with pytest.raises(MessageQueuingError, match="cannot be read from"):
                await reading
        write.set_result(None)
        if lost:
            await eventually(lambda: not remote.server.queues, "the connection has ended there")
        else:
            assert [received_message(one.lookup_identifier, one.value()).body for one in await reading] == bodies
            (end, *_) = await queue.end_many([one.lookup_identifier for one in await reading], delete=True)
            assert end is None
    assert await remote.bodies() == (bodies if lost else [])


async def test_messages_with_one_lookup_identifier_stay_where_they_are(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    await remote.send(b"one", b"two")
    async with remote.open() as queue:
        with monkeypatch.context() as patch:
            patch.setattr("qmnode.remote_read.remoteread_server.SEQUENTIAL_ID", 0)
            with pytest.raises(MessageQueuingError, match="gave one lookup identifier to several messages"):
                await queue.begin_many(2)
    assert await remote.bodies() == [b"one", b"two"]


@pytest.mark.parametrize("representation", [NDR, NDR64], ids=lambda one: one.name)
@pytest.mark.parametrize("size", range(1, 6))
def test_a_response_with_one_section_is_what_its_declaration_makes_of_it(
    representation: Representation, size: int
) -> None:
    section = remoteread.SectionBuffer(size_alloc=size, section=b"packet"[:size])
    whole = remoteread.StartReceiveResponse(arrive_time=7, sequence_id=1 << 40, sections=[section], status=0)
    declared = whole.encode(representation)
    assert remoteread.write_one_section(7, 1 << 40, b"packet"[:size], representation) == declared
    assert remoteread.read_one_section(declared, representation) == (7, 1 << 40, b"packet"[:size])
    for end in range(len(declared)):
        assert remoteread.read_one_section(declared[:end], representation) is None
    part = remoteread.SectionBuffer(section_type=1, size_alloc=size, section=b"packet"[:size])
    for other in ({"sections": [section, section]}, {"sections": [part]}, {"sections": None}, {"status": 1}):
        response = remoteread.StartReceiveResponse(**{"sections": [section], "status": 0} | other)
        assert remoteread.read_one_section(response.encode(representation), representation) is None
