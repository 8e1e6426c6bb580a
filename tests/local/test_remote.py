"""``qmnode.connect()``: what works with an embedded queue manager works through the socket."""

import asyncio
import os
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

import qmnode
from qmnode import Access, Message, MessageQueuingError, Share
from qmnode.local.audited_calls import LocalChange
from qmnode.local.frames import FrameKind
from qmnode.local.remote import RemoteQueueManager
from qmnode.local.server import LocalServer
from qmnode.settings.node import LocalSettings
from qmnode.structures.error_codes import ErrorCode
from tests.doors.unix import connected_as
from tests.local.conftest import FORMAT, NAME, Service


async def open_both(remote: RemoteQueueManager, **properties: bool) -> tuple[qmnode.QueueApi, qmnode.QueueApi]:
    await remote.create_queue(NAME, **properties)  # type: ignore[arg-type]
    return await remote.open_queue(FORMAT, Access.SEND), await remote.open_queue(FORMAT, Access.RECEIVE)


async def test_the_node_says_who_it_is(service: Service, remote: RemoteQueueManager) -> None:
    assert remote.identifier == service.manager.identifier
    assert remote.computer_name == service.manager.computer_name


async def test_a_message_arrives_with_its_properties(remote: RemoteQueueManager) -> None:
    sender, receiver = await open_both(remote)
    identifier = await sender.send(
        Message(b"\x00body", label="Grüße, 世界", priority=6, recoverable=True, app_specific=7, extension=b"more")
    )
    message = await receiver.receive(timeout=60)
    assert (message.body, message.label, message.priority) == (b"\x00body", "Grüße, 世界", 6)
    assert (message.recoverable, message.app_specific, message.extension) == (True, 7, b"more")
    assert message.identifier == identifier
    assert message.identifier[:16] == remote.identifier
    assert message.arrival_time > 0


async def test_a_message_that_is_received_and_sent_on_keeps_its_dead_letter_queue(
    remote: RemoteQueueManager,
) -> None:
    sender, receiver = await open_both(remote)
    await sender.send(Message(b"1", application_dead_letter_queue=r".\private$\undelivered"))
    for _ in range(2):
        message = await receiver.receive(timeout=60)
        await sender.send(message)
    assert (await receiver.receive(timeout=60)).application_dead_letter_queue == r".\private$\undelivered"


async def test_many_tasks_send_and_each_gets_the_identifier_of_its_own_message(remote: RemoteQueueManager) -> None:
    sender, receiver = await open_both(remote)
    bodies = [str(i).encode() for i in range(500)]
    identifiers = await asyncio.gather(*(sender.send(Message(body)) for body in bodies))
    received = await receiver.receive_many(1000, timeout=60)
    assert [message.body for message in received] == bodies
    assert [message.identifier for message in received] == identifiers


async def test_of_messages_that_travel_together_only_the_bad_one_is_refused(remote: RemoteQueueManager) -> None:
    sender, receiver = await open_both(remote)
    await remote.set_queue(NAME, quota=3)
    outcomes = await asyncio.gather(
        sender.send(Message(b"a" * 1000)),
        sender.send(Message(b"b" * 10_000)),
        sender.send(Message(b"c" * 1000)),
        return_exceptions=True,
    )
    assert isinstance(outcomes[1], MessageQueuingError)
    assert [message.body[:1] for message in await receiver.receive_many(10, timeout=60)] == [b"a", b"c"]


async def test_a_transaction_sends_and_receives_all_or_nothing(remote: RemoteQueueManager) -> None:
    sender, receiver = await open_both(remote, transactional=True)
    with pytest.raises(RuntimeError, match="the application fails"):
        async with remote.transaction() as tx:
            await sender.send(Message(b"lost"), transaction=tx)
            raise RuntimeError("the application fails")
    async with remote.transaction() as tx:
        await sender.send(Message(b"1"), transaction=tx)
        await sender.send_many([Message(b"2"), Message(b"3")], transaction=tx)
    with pytest.raises(RuntimeError, match="again"):
        async with remote.transaction() as tx:
            assert (await receiver.receive(timeout=60, transaction=tx)).body == b"1"
            raise RuntimeError("again")
    assert [message.body for message in await receiver.receive_many(5, timeout=60)] == [b"1", b"2", b"3"]


async def test_a_transaction_that_has_ended_takes_no_more(remote: RemoteQueueManager) -> None:
    sender, _ = await open_both(remote, transactional=True)
    async with remote.transaction() as tx:
        await sender.send(Message(b"1"), transaction=tx)
    with pytest.raises(MessageQueuingError) as caught:
        await sender.send(Message(b"2"), transaction=tx)
    assert caught.value.code == ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE


async def test_cursors_lookup_identifiers_and_two_phase_receives_work(remote: RemoteQueueManager) -> None:
    sender, receiver = await open_both(remote)
    await sender.send_many([Message(b"1"), Message(b"2"), Message(b"3")])
    async with receiver.cursor() as cursor:
        first = await cursor.peek(timeout=60)
        second = await cursor.peek_next(timeout=60)
        assert (first.body, second.body) == (b"1", b"2")
        assert (await cursor.receive(timeout=60)).body == b"2"
    assert (await receiver.peek_by_lookup_id(seek="last")).body == b"3"
    assert (await receiver.receive_by_lookup_id(first.lookup_identifier)).body == b"1"
    begun = await receiver.receive_begin(timeout=60)
    await receiver.receive_end(begun.lookup_identifier, delete=False)
    assert (await receiver.peek(timeout=60)).body == b"3"


async def test_a_message_moves_to_a_subqueue(remote: RemoteQueueManager) -> None:
    sender, receiver = await open_both(remote)
    await sender.send(Message(b"1"))
    subqueue = await remote.open_queue(f"{FORMAT};later", Access.MOVE)
    await receiver.move((await receiver.peek(timeout=60)).lookup_identifier, subqueue)
    later = await remote.open_queue(f"{FORMAT};later", Access.RECEIVE)
    assert (await later.receive(timeout=60)).body == b"1"


async def test_queues_are_listed_changed_and_deleted(remote: RemoteQueueManager) -> None:
    created = await remote.create_queue(NAME, label="first")
    assert (await remote.set_queue(NAME, label="second")).label == "second"
    assert [q.pathname for q in await remote.queues([qmnode.QueueType.PRIVATE])] == [created.pathname]
    await remote.delete_queue(NAME)
    with pytest.raises(MessageQueuingError) as caught:
        await remote.queue(NAME)
    assert caught.value.code == ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND


async def test_a_waiting_receive_times_out(remote: RemoteQueueManager) -> None:
    _, receiver = await open_both(remote)
    with pytest.raises(MessageQueuingError) as caught:
        await receiver.receive(timeout=0.01)
    assert caught.value.code == ErrorCode.MQ_ERROR_IO_TIMEOUT


async def test_a_cancelled_receive_takes_no_message(remote: RemoteQueueManager) -> None:
    sender, receiver = await open_both(remote)
    waiting = asyncio.create_task(receiver.receive())
    assert len(await remote.queues()) > 0  # a round trip: the receive is at the node
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await sender.send(Message(b"1"))
    assert (await receiver.receive(timeout=60)).body == b"1"


async def test_a_call_that_is_cancelled_before_it_was_read_ends(remote: RemoteQueueManager) -> None:
    _, receiver = await open_both(remote)
    waiting = asyncio.create_task(receiver.receive())
    await asyncio.sleep(0)  # the call is made, and leaves together with its cancellation
    waiting.cancel()
    async with asyncio.timeout(60):
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_a_receive_that_is_cancelled_too_late_returns_its_message(remote: RemoteQueueManager) -> None:
    sender, receiver = await open_both(remote)
    for count in range(200):
        waiting = asyncio.create_task(receiver.receive())
        await sender.send(Message(str(count).encode()))
        waiting.cancel()
        try:
            body = (await waiting).body
        except asyncio.CancelledError:
            body = (await receiver.receive(timeout=60)).body
        assert body == str(count).encode()


async def test_of_two_calls_that_travel_together_one_can_be_cancelled(remote: RemoteQueueManager) -> None:
    sender, receiver = await open_both(remote)
    first, second = (asyncio.create_task(sender.send(Message(body))) for body in (b"1", b"2"))
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert first.cancelled()
    assert [(await receiver.receive(timeout=60)).body for _ in range(2)] == [b"1", b"2"]


async def test_a_call_to_a_node_that_hangs_ends_when_it_is_cancelled_twice(tmp_path: Path) -> None:
    frames: asyncio.Queue[bytes] = asyncio.Queue()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            frames.put_nowait(data)
        writer.close()  # Python 3.12 waits for it where the server ends

    async with await asyncio.start_unix_server(hang, tmp_path / "node.sock"):
        waiting = asyncio.create_task(qmnode.connect(tmp_path / "node.sock").__aenter__())
        assert b"version" in await frames.get()
        waiting.cancel()
        cancellation = await frames.get()
        assert cancellation[4] == FrameKind.CANCEL
        assert not waiting.done()
        waiting.cancel()
        async with asyncio.timeout(60):
            with pytest.raises(asyncio.CancelledError):
                await waiting


async def test_waiting_does_not_hold_up_other_calls(remote: RemoteQueueManager) -> None:
    sender, receiver = await open_both(remote)
    waiting = [asyncio.create_task(receiver.receive()) for _ in range(20)]
    await sender.send_many([Message(str(i).encode()) for i in range(20)])
    bodies = [(await task).body for task in waiting]
    assert sorted(bodies, key=int) == [str(i).encode() for i in range(20)]


async def test_what_a_client_left_open_is_run_down(service: Service, remote: RemoteQueueManager) -> None:
    sender, receiver = await open_both(remote, transactional=True)
    await sender.send(Message(b"1"), transaction="single")
    other = await qmnode.connect(service.socket)
    theirs = await other.open_queue(FORMAT, Access.RECEIVE, Share.DENY_NONE)
    tx = other.transaction()
    assert (await theirs.receive(timeout=60, transaction=tx)).body == b"1"
    waiting = asyncio.create_task(theirs.receive())
    assert len(await other.queues()) > 0
    await other.close()
    with pytest.raises(MessageQueuingError) as caught:
        await waiting
    assert caught.value.code == ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE
    # Its transaction was aborted and its waiting read cancelled: the message is here again, for us.
    assert (await receiver.receive(timeout=60)).body == b"1"


async def test_a_share_mode_ends_with_the_connection_that_had_it(service: Service, remote: RemoteQueueManager) -> None:
    await remote.create_queue(NAME)
    ours = set(service.server.connections)
    other = await qmnode.connect(service.socket)
    (theirs,) = service.server.connections - ours
    await other.open_queue(FORMAT, Access.RECEIVE, Share.DENY_RECEIVE)
    with pytest.raises(MessageQueuingError) as caught:
        await remote.open_queue(FORMAT, Access.RECEIVE)
    assert caught.value.code == ErrorCode.MQ_ERROR_SHARING_VIOLATION
    await other.close()
    await theirs.gone.wait()
    await remote.open_queue(FORMAT, Access.RECEIVE)


async def test_a_closed_queue_refuses(remote: RemoteQueueManager) -> None:
    sender, _ = await open_both(remote)
    await sender.close()
    await sender.close()
    with pytest.raises(MessageQueuingError) as caught:
        await sender.send(Message(b"1"))
    assert caught.value.code == ErrorCode.MQ_ERROR_INVALID_HANDLE


async def test_nobody_there_is_said_clearly(tmp_path: Path) -> None:
    with pytest.raises(MessageQueuingError, match="qmnode run") as caught:
        await qmnode.connect(tmp_path / "nothing.sock")
    assert caught.value.code == ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE


async def test_the_socket_of_the_environment_is_used(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMNODE_SOCKET", f"unix:{service.socket}")
    async with qmnode.connect() as manager:
        assert manager.identifier == service.manager.identifier


async def test_only_owner_and_group_may_connect(service: Service) -> None:
    assert service.socket.stat().st_mode & 0o777 == 0o660


async def test_a_stopped_node_fails_what_is_under_way(service: Service) -> None:
    remote = await qmnode.connect(service.socket, reconnect=0)
    _, receiver = await open_both(remote)
    waiting = asyncio.create_task(receiver.receive())
    assert len(await remote.queues()) > 0
    await service.server.stop()
    with pytest.raises(MessageQueuingError) as caught:
        await waiting
    assert caught.value.code == ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE
    assert not service.socket.exists()
    await remote.close()


async def test_a_socket_that_answers_is_not_taken_over(service: Service) -> None:
    from qmnode.local.server import LocalServer

    with pytest.raises(MessageQueuingError, match="another node answers"):
        await LocalServer(service.manager, service.server.settings).start()


async def test_a_socket_that_was_left_behind_is_replaced(service: Service, tmp_path: Path) -> None:
    import socket

    from qmnode.local.server import LocalServer

    left = tmp_path / "left.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(left))
    server = LocalServer(service.manager, LocalSettings(socket=left))
    await server.start()
    async with qmnode.connect(left) as manager:
        assert manager.identifier == service.manager.identifier
    await server.stop()


async def test_large_messages_travel(remote: RemoteQueueManager) -> None:
    sender, receiver = await open_both(remote)
    body = os.urandom(3 * 1024 * 1024)
    await asyncio.gather(*(sender.send(Message(body)) for _ in range(8)))
    received = await receiver.receive_many(8, timeout=60)
    assert all(message.body == body for message in received)
    with pytest.raises(MessageQueuingError, match="4 MB"):
        await sender.send(Message(bytes(4 * 1024 * 1024)))


async def test_a_received_message_can_be_sent_on_as_it_is(remote: RemoteQueueManager) -> None:
    sender, receiver = await open_both(remote)
    await sender.send(
        Message(
            b"1", label="on", priority=6, recoverable=True, time_to_be_received=1000, correlation_identifier=b"c" * 20
        )
    )
    first = await receiver.receive(timeout=60)
    await sender.send(first)
    again = await receiver.receive(timeout=60)
    for name in ("body", "label", "priority", "recoverable", "time_to_be_received", "correlation_identifier"):
        assert getattr(again, name) == getattr(first, name), name
    assert again.identifier != first.identifier


async def test_administration_reaches_the_node(service: Service, remote: RemoteQueueManager, tmp_path: Path) -> None:
    await remote.create_queue(NAME, transactional=True)
    queue = await remote.open_queue(FORMAT, Access.SEND)
    transaction = remote.transaction()
    await queue.send(Message(b"a"), transaction=transaction)
    there, here = await remote.status(), await service.manager.status()
    assert replace(there, disk_free_bytes=here.disk_free_bytes) == here
    (found,) = await remote.list_transactions()
    assert found == (await service.manager.list_transactions())[0]
    await remote.backup(tmp_path / "backup")
    assert (tmp_path / "backup" / "CURRENT").is_file()
    assert await remote.queue_security(NAME) == await service.manager.queue_security(NAME)


async def test_backups_and_outcomes_are_for_the_nodes_own_user(
    service: Service, remote: RemoteQueueManager, tmp_path: Path
) -> None:
    (connection,) = service.server.connections
    connection.methods.user_id = 4711
    with pytest.raises(MessageQueuingError) as caught:
        await remote.backup(tmp_path / "backup")
    assert caught.value.code == ErrorCode.MQ_ERROR_ACCESS_DENIED
    assert not (tmp_path / "backup").exists()


async def test_more_than_a_frame_holds_is_received_in_parts_and_none_is_lost(remote: RemoteQueueManager) -> None:
    sender, receiver = await open_both(remote)
    for _ in range(18):
        await sender.send(Message(b"\0" * 4_190_000))
    received = 0
    while received < 18:
        received += len(await receiver.receive_many(1000, timeout=60))
    assert received == 18


async def test_a_batch_that_no_frame_holds_is_refused_and_the_connection_lives(remote: RemoteQueueManager) -> None:
    sender, receiver = await open_both(remote)
    with pytest.raises(MessageQueuingError, match="fewer messages") as refused:
        await sender.send_many([Message(b"\0" * 4_000_000)] * 18)
    assert refused.value.code == ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
    await sender.send(Message(b"next"))
    assert (await receiver.receive(timeout=60)).body == b"next"


@pytest.mark.parametrize("many", [False, True])
async def test_a_timeout_that_is_no_number_is_refused(remote: RemoteQueueManager, many: bool) -> None:
    _, receiver = await open_both(remote)
    with pytest.raises(MessageQueuingError) as refused:
        await (receiver.receive_many(2, float("nan")) if many else receiver.receive(float("nan")))
    assert refused.value.code == ErrorCode.MQ_ERROR_INVALID_PARAMETER


async def test_what_a_caller_names_is_audited_within_bounds(service: Service, remote: RemoteQueueManager) -> None:
    told: list[LocalChange] = []
    service.server.audit = told.append
    with pytest.raises(MessageQueuingError):
        await remote.set_queue(NAME + "x" * 1_000_000, **{"y" * 1_000_000: True})  # type: ignore[call-arg]
    (change,) = told
    assert (len(change.target), [len(name) for name in change.properties]) == (512, [512])
    assert change.outcome == "failed"


async def test_a_transaction_from_elsewhere_is_refused_as_an_embedded_node_refuses_it(
    service: Service, remote: RemoteQueueManager
) -> None:
    sender, _ = await open_both(remote, transactional=True)
    with pytest.raises(MessageQueuingError) as refused:
        await sender.send(Message(b"x"), transaction=service.manager.transaction())
    assert refused.value.code == ErrorCode.MQ_ERROR_TRANSACTION_ENLIST


async def test_applications_have_a_limit_of_connections(service: Service) -> None:
    limit = service.server.settings.connections
    async with AsyncExitStack() as stack:
        for _ in range(limit):
            await stack.enter_async_context(qmnode.connect(service.socket))
        with pytest.raises(MessageQueuingError, match="applications are connected") as refused:
            async with qmnode.connect(service.socket):
                pass
        assert refused.value.code == ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
    async with asyncio.timeout(60):
        while service.server.connections:
            await asyncio.sleep(0.01)
    async with qmnode.connect(service.socket) as manager:
        assert manager.identifier == service.manager.identifier


async def test_an_application_has_a_limit_of_handles_and_can_close_some(remote: RemoteQueueManager) -> None:
    await remote.create_queue(r".\private$\many")
    opened = [await remote.open_queue(r"DIRECT=OS:.\private$\many") for _ in range(50)]
    with pytest.raises(MessageQueuingError, match="close some") as refused:
        await remote.open_queue(r"DIRECT=OS:.\private$\many")
    assert refused.value.code == ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
    await opened[0].close()
    await remote.open_queue(r"DIRECT=OS:.\private$\many")


@pytest.fixture
async def incomplete(tmp_path: Path) -> AsyncIterator[Service]:
    async with qmnode.QueueManager.open(tmp_path / "store") as manager:
        server = LocalServer(manager, LocalSettings(socket=tmp_path / "node.sock"), complete=False)
        await server.start()
        yield Service(manager, server, tmp_path / "node.sock")
        await server.stop()


async def test_only_status_is_answered_before_the_queue_manager_is_complete(incomplete: Service) -> None:
    async with qmnode.connect(incomplete.socket) as remote:
        first = asyncio.create_task(remote.create_queue(NAME))
        second = asyncio.create_task(remote.delete_queue(NAME))
        abandoned = asyncio.create_task(remote.create_queue(NAME))
        assert (await remote.status()).queue_count == 0
        abandoned.cancel()
        with pytest.raises(asyncio.CancelledError):
            await abandoned
        assert not first.done()
        incomplete.server.complete()
        await asyncio.gather(first, second)
        assert (await remote.status()).queue_count == 0


async def test_calls_that_wait_end_with_the_server(incomplete: Service) -> None:
    async with qmnode.connect(incomplete.socket) as remote:
        waiting = asyncio.create_task(remote.create_queue(NAME))
        await remote.status()
        await incomplete.server.stop()
        with pytest.raises(MessageQueuingError, match="the connection to the node"):
            await waiting
    assert (await incomplete.manager.status()).queue_count == 0


async def test_a_connection_that_says_nothing_ends(tmp_path: Path) -> None:
    async with qmnode.QueueManager.open(tmp_path / "store") as manager:
        settings = LocalSettings(socket=tmp_path / "node.sock", greeting_time=0.2)
        server = LocalServer(manager, settings)
        await server.start()
        reader, writer = await asyncio.open_unix_connection(settings.socket)
        async with qmnode.connect(settings.socket) as greeted, asyncio.timeout(60):
            assert await reader.read() == b""
            assert (await greeted.status()).queue_count == 0
            assert len(server.connections) == 1
        writer.close()
        await server.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users")
async def test_the_connections_of_others_never_keep_root_out(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        settings = LocalSettings(socket=Path(folder) / "node.sock", mode=0o666, connections=8, greeting_time=600)
        async with qmnode.QueueManager.open(tmp_path / "store") as manager:
            server = LocalServer(manager, settings)
            await server.start()
            doors = [
                connected_as(settings.socket, user, (user,)) for user in (60_001, 60_002, 60_003) for _ in range(8)
            ]
            async with asyncio.timeout(60):
                while len(server.connections) != 8:
                    await asyncio.sleep(0.01)
            assert Counter(one.user_id for one in server.connections) == {60_001: 4, 60_002: 4}
            async with AsyncExitStack() as stack:
                for _ in range(8):
                    await stack.enter_async_context(qmnode.connect(settings.socket))
                with pytest.raises(MessageQueuingError, match="applications are connected"):
                    await stack.enter_async_context(qmnode.connect(settings.socket))
            for door in doors:
                door.close()
            await server.stop()
