"""Receives that end early: each message was received or is in its place, never both and never neither.

An application that speaks the protocol byte by byte ends its receive after every number of passes of the event loop,
from the one in which the node gets the call to those in which it has answered.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import qmnode
from qmnode import Access, Message, MessageQueuingError, Share
from qmnode.local import values
from qmnode.local.frames import (
    FOR_EVER,
    GREETING,
    NO_TRANSACTION,
    RECEIVE_HEAD,
    ROOM,
    SINGLE_TRANSACTION,
    Frame,
    FrameKind,
    FrameReader,
    frame,
    unpack_received,
)
from qmnode.model.stored_message import received_message
from qmnode.structures.error_codes import ErrorCode
from tests.local.conftest import FORMAT, NAME, Service

if TYPE_CHECKING:
    from qmnode.local.server import LocalConnection

PASSES = range(12)
"""Passes of the event loop from a call to its end. In a few the call is read, its messages are taken and written to
the disk, and its answer is written."""
BODIES = [b"first", b"second", b"third"]
CALL = 100


class Application(asyncio.Protocol):
    """An application whose frames are written and read one by one."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._frames = FrameReader()
        self._answers: dict[int, list[Frame]] = {}
        self._changed = asyncio.Event()
        self._ended = False
        self.handle = 0
        self.writer: asyncio.Transport
        self.connection: LocalConnection

    def data_received(self, data: bytes) -> None:
        for each in self._frames.feed(data):
            self._answers.setdefault(each.number, []).append(each)
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._changed.set()

    async def connect(self) -> Application:
        """Greet, and open the queue."""
        others = set(self._service.server.connections)
        self.writer, _ = await asyncio.get_running_loop().create_unix_connection(
            lambda: self, str(self._service.socket)
        )
        self.write(FrameKind.HELLO, 1, values.encode(GREETING))
        await self.answer(1)
        (self.connection,) = self._service.server.connections - others
        opened = await self.call(2, "manager", 0, "open_queue", FORMAT, int(Access.RECEIVE), int(Share.DENY_NONE))
        self.handle = opened[0]
        return self

    def write(self, kind: FrameKind, number: int, *parts: bytes) -> None:
        self.writer.write(frame(kind, number, *parts))

    def receive(
        self, number: int = CALL, limit: int = 3, timeout: float = FOR_EVER, unit: int = NO_TRANSACTION
    ) -> None:
        self.write(FrameKind.RECEIVE, number, RECEIVE_HEAD.pack(self.handle, unit, limit, timeout))

    async def call(self, number: int, what: str, handle: int, method: str, *arguments: object) -> Any:
        self.write(FrameKind.CALL, number, values.encode([what, handle, method, list(arguments), {}]))
        answer = await self.answer(number)
        assert answer.kind == FrameKind.RESULT, answer
        return values.decode(answer.body)

    async def more(self) -> bool:
        """Wait for more answers; False if there will be none."""
        async with asyncio.timeout(60):
            await self._changed.wait()
        self._changed.clear()
        return not self._ended

    async def answer(self, number: int) -> Frame:
        """The next answer of a call with this number."""
        while not self._answers.get(number):
            assert await self.more(), "the node closed"
        return self._answers[number].pop(0)

    async def all(self) -> list[Frame]:
        """The other answers until the node has closed, and has run down what the application left."""
        while not self._ended:
            await self.more()
        await self.connection.gone.wait()
        return [answer for _, answers in sorted(self._answers.items()) for answer in answers]


def bodies(*answers: Frame) -> list[bytes]:
    """The bodies of the messages in answers that are no errors."""
    received = [answer for answer in answers if answer.kind == FrameKind.MESSAGES]
    return [received_message(*entry).body for answer in received for entry in unpack_received(answer.body)]


async def left_in(service: Service, name: str = FORMAT) -> list[bytes]:
    """Take out what is left in the queue."""
    queue = await service.manager.open_queue(name, Access.RECEIVE)
    left = []
    try:
        while True:
            left.append((await queue.receive(timeout=0)).body)
    except MessageQueuingError as error:
        assert error.code == ErrorCode.MQ_ERROR_IO_TIMEOUT
    await queue.close()
    return left


async def passes(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
async def sender(service: Service) -> qmnode.QueueApi:
    await service.manager.create_queue(NAME, journaling=True)
    return await service.manager.open_queue(FORMAT, Access.SEND)


async def send(sender: qmnode.QueueApi) -> None:
    await sender.send_many([Message(body, recoverable=body != b"second") for body in BODIES])


async def begin(
    application: Application, sender: qmnode.QueueApi, *, waits: bool, **how: Any
) -> asyncio.Task[None] | None:
    """Begin a receive of messages that are there, or that are sent now that it waits."""
    if not waits:
        await send(sender)
        application.receive(**how)
        return None
    application.receive(**how)
    await application.call(3, "manager", 0, "queues")  # a round trip: the receive is at the node
    return asyncio.create_task(send(sender))


@pytest.mark.parametrize("waits", [False, True], ids=["there", "waits"])
@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("unit", [NO_TRANSACTION, SINGLE_TRANSACTION], ids=["none", "single"])
async def test_a_receive_that_is_cancelled_has_its_messages_or_leaves_them(
    service: Service, sender: qmnode.QueueApi, waits: bool, limit: int, unit: int
) -> None:
    application = await Application(service).connect()
    for count in PASSES:
        number = CALL + count
        sending = await begin(application, sender, waits=waits, number=number, limit=limit, unit=unit)
        await passes(count)
        application.write(FrameKind.CANCEL, number)
        answer = await application.answer(number)
        if answer.kind == FrameKind.FAILED:
            assert values.decode(answer.body)[0] == ErrorCode.MQ_ERROR_OPERATION_CANCELLED
        else:
            assert len(bodies(answer)) in (1, limit)
        received = bodies(answer)
        if sending is not None:
            await sending
        assert received + await left_in(service) == BODIES
    application.writer.close()


@pytest.mark.parametrize("waits", [False, True], ids=["there", "waits"])
@pytest.mark.parametrize("by", ["node", "application"])
async def test_a_connection_that_ends_has_its_messages_or_leaves_them(
    service: Service, sender: qmnode.QueueApi, waits: bool, by: str
) -> None:
    received = kept = 0
    for count in PASSES:
        application = await Application(service).connect()
        sending = await begin(application, sender, waits=waits)
        await passes(count)
        if by == "node":
            application.connection.end()
        else:
            application.writer.write_eof()
        got = bodies(*await application.all())
        if sending is not None:
            await sending
        assert got + await left_in(service) == BODIES
        received += bool(got)
        kept += not got
    assert received
    assert kept


async def test_messages_of_a_connection_that_ends_go_to_others_in_their_order(
    service: Service, sender: qmnode.QueueApi
) -> None:
    for count in PASSES:
        gone, stays = await Application(service).connect(), await Application(service).connect()
        await send(sender)
        for number in range(3):
            gone.receive(CALL + number, limit=1)
        await passes(count)
        for number in range(3):
            stays.receive(CALL + number, limit=1)
        gone.connection.end()
        got = bodies(*await gone.all())
        for _ in got:
            await sender.send(Message(b"fourth"))
        rest = [body for number in range(3) for body in bodies(await stays.answer(CALL + number))]
        assert got + rest == BODIES + [b"fourth"] * len(got)
        stays.writer.close()


async def test_a_journal_has_what_was_received_and_nothing_else(service: Service, sender: qmnode.QueueApi) -> None:
    for count in PASSES:
        application = await Application(service).connect()
        await begin(application, sender, waits=False)
        await passes(count)
        application.connection.end()
        got = bodies(*await application.all())
        assert await left_in(service, f"{FORMAT};JOURNAL") == got
        await left_in(service)
        await left_in(service, f"{FORMAT};JOURNAL")


async def test_a_cancelled_receive_ends_once_however_often_it_is_cancelled(
    service: Service, sender: qmnode.QueueApi
) -> None:
    application = await Application(service).connect()
    application.receive()
    for _ in range(3):
        application.write(FrameKind.CANCEL, CALL)
    application.receive(CALL + 1, limit=2)
    assert (await application.answer(CALL)).kind == FrameKind.FAILED
    await send(sender)
    got = bodies(await application.answer(CALL + 1))
    assert got + await left_in(service) == BODIES
    application.writer.close()


async def test_a_number_may_be_used_again_when_its_receive_was_cancelled(
    service: Service, sender: qmnode.QueueApi
) -> None:
    application = await Application(service).connect()
    await send(sender)
    application.receive(limit=1)
    application.write(FrameKind.CANCEL, CALL)
    application.receive(limit=2)
    assert (await application.answer(CALL)).kind == FrameKind.FAILED
    assert bodies(await application.answer(CALL)) == BODIES[:2]
    assert await left_in(service) == BODIES[2:]
    application.writer.close()


async def test_two_receives_with_one_number_end_the_connection(service: Service, sender: qmnode.QueueApi) -> None:
    application = await Application(service).connect()
    application.receive()
    application.receive()
    (refusal,) = await application.all()
    assert b"two calls with the number" in refusal.body
    await send(sender)
    assert await left_in(service) == BODIES


async def test_calls_are_done_in_their_order(service: Service, sender: qmnode.QueueApi) -> None:
    await send(sender)
    application = await Application(service).connect()
    application.write(FrameKind.CALL, 3, values.encode(["queue", application.handle, "close", [], {}]))
    application.receive()
    answer = await application.answer(CALL)
    assert values.decode(answer.body)[0] == ErrorCode.MQ_ERROR_INVALID_HANDLE
    assert await left_in(service) == BODIES
    application.writer.close()


@pytest.mark.parametrize("what", ["close", "delete"])
async def test_a_receive_that_waits_learns_that_its_queue_is_gone(
    service: Service, sender: qmnode.QueueApi, what: str
) -> None:
    application = await Application(service).connect()
    application.receive()
    if what == "close":
        await application.call(3, "queue", application.handle, "close")
    else:
        await service.manager.delete_queue(NAME)
    answer = await application.answer(CALL)
    expected = {"close": ErrorCode.MQ_ERROR_OPERATION_CANCELLED, "delete": ErrorCode.MQ_ERROR_QUEUE_NOT_AVAILABLE}
    assert values.decode(answer.body)[0] == expected[what]
    application.writer.close()


async def test_a_receive_of_many_that_waited_has_all_that_came_together(
    service: Service, sender: qmnode.QueueApi
) -> None:
    application = await Application(service).connect()
    await begin(application, sender, waits=True, limit=2)
    assert bodies(await application.answer(CALL)) == BODIES[:2]
    assert await left_in(service) == BODIES[2:]
    application.writer.close()


async def test_a_disk_that_refuses_fails_the_receive(service: Service, sender: qmnode.QueueApi) -> None:
    await send(sender)
    application = await Application(service).connect()
    service.manager.context.store.fail(OSError("no space left"))
    application.receive()
    answer = await application.answer(CALL)
    assert values.decode(answer.body)[0] == ErrorCode.MQ_ERROR_MESSAGE_STORAGE_FAILED
    application.writer.close()


@pytest.mark.parametrize("waits", [False, True], ids=["there", "waits"])
async def test_a_message_that_is_larger_than_the_room_of_a_receiver_stays_for_others(
    service: Service, sender: qmnode.QueueApi, waits: bool
) -> None:
    little, much = await Application(service).connect(), await Application(service).connect()

    def receive(number: int) -> None:
        little.write(FrameKind.RECEIVE, number, RECEIVE_HEAD.pack(little.handle, 0, 1, FOR_EVER) + ROOM.pack(5, 4096))

    for number in range(3) if waits else ():
        receive(CALL + number)
    if waits:
        await little.call(3, "manager", 0, "queues")
        much.receive(CALL, limit=1)
        await much.call(3, "manager", 0, "queues")
    await send(sender)
    for number in () if waits else range(3):
        receive(CALL + number)
    answers = [await little.answer(CALL + number) for number in range(3)]
    if not waits:
        much.receive(CALL, limit=1)
    assert bodies(answers[0]) == [b"first"]
    assert values.decode(answers[1].body)[0] == ErrorCode.MQ_ERROR_BUFFER_OVERFLOW
    assert bodies(await much.answer(CALL), *answers[2:]) + await left_in(service) == [b"second", b"third"]
    little.writer.close()
    much.writer.close()
