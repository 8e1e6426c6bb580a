"""``qmnode.sync``: the same interface for callers without an event loop, against a node in another process."""

from __future__ import annotations

import asyncio
import gc
import inspect
import re
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import qmnode
from qmnode.local.operations import RemoteOperations
from qmnode.model.api import CursorApi, QueueApi, QueueManagerApi, TransactionApi
from tests.lab.nodes import PROJECT, NodeProcess, running_node
from tests.lab.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAIRS = [
    (QueueManagerApi, qmnode.sync.QueueManager),
    (QueueApi, qmnode.sync.Queue),
    (CursorApi, qmnode.sync.Cursor),
    (TransactionApi, qmnode.sync.Transaction),
    (RemoteOperations, qmnode.sync.Operations),
]
BLOCKING = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__"}
NOT_OVER_THE_SOCKET = {"user_id"}
"""Who asks is what the kernel says of the process."""
ONLY_OVER_THE_SOCKET = {"operations"}
"""A queue manager of the same process has them with the person who asks as an argument."""


def members(interface: type) -> dict[str, Any]:
    names = {name for base in interface.__mro__[:-1] for name in (*vars(base), *getattr(base, "__annotations__", ()))}
    return {
        BLOCKING.get(name, name): getattr(interface, name, None)
        for name in names
        if not name.startswith("_") or name in BLOCKING or name in BLOCKING.values()
    }


def words(annotation: object) -> str:
    """An annotation without the differences that are meant: who waits, and which of the two interfaces it is."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"[\w.]+\.(?=\w)|'", "", text)
    return re.sub(r"(?<=\w)Api\b|Async(?=Iterator)|^Coroutine\[Any, Any, (.*)\]$", r"\1", text)


@pytest.mark.parametrize(("asynchronous", "blocking"), PAIRS, ids=lambda pair: pair.__name__)
def test_names_and_signatures_are_those_of_the_asyncio_interface(asynchronous: type, blocking: type) -> None:
    theirs, ours = members(asynchronous), members(blocking)
    assert theirs.keys() - NOT_OVER_THE_SOCKET == ours.keys() - ONLY_OVER_THE_SOCKET
    for name, method in theirs.items():
        if not callable(method) or name.startswith("_"):
            continue
        expected, found = inspect.signature(method), inspect.signature(ours[name])
        for kind in (expected, found):
            assert "self" in kind.parameters
        assert {n: (p.kind, p.default, words(p.annotation)) for n, p in expected.parameters.items()} == {
            n: (p.kind, p.default, words(p.annotation)) for n, p in found.parameters.items()
        }, name
        assert words(expected.return_annotation) == words(found.return_annotation), name
        assert not inspect.iscoroutinefunction(ours[name]), name
        assert ours[name].__doc__ and (name == "close" or ours[name].__doc__ == method.__doc__), name


def test_connecting_takes_the_same_arguments() -> None:
    expected, found = inspect.signature(qmnode.connect), inspect.signature(qmnode.sync.connect)
    assert str(expected).partition(" ->")[0] == str(found).replace("'", "").partition(" ->")[0]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(
        tmp_path_factory.mktemp("node"), local={"socket": str(tmp_path_factory.getbasetemp() / "s"), "handles": 30}
    ) as node:
        yield node


@pytest.fixture
def address(daemon: NodeProcess, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.getbasetemp() / "s")


@pytest.fixture
def qm(address: str) -> Iterator[qmnode.sync.QueueManager]:
    with qmnode.sync.connect(address) as manager:
        yield manager


@pytest.fixture
def name(qm: qmnode.sync.QueueManager, request: pytest.FixtureRequest) -> str:
    name = rf".\private$\{request.node.name[:60]}"
    qm.create_queue(name, label="orders")
    return f"DIRECT=OS:{name}"


def bodies(queue: qmnode.sync.Queue) -> list[bytes]:
    found = []
    with pytest.raises(qmnode.MessageQueuingError, match="MQ_ERROR_IO_TIMEOUT"):
        while True:
            found.append(queue.receive(timeout=0).body)
    return found


def run_script(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(text), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=PROJECT,
    )


pytestmark = pytest.mark.servers


def test_every_kind_of_object_works_as_its_asyncio_twin(qm: qmnode.sync.QueueManager, name: str) -> None:
    assert qm.computer_name == "ALPHA" == qm.status().computer_name
    assert name.removeprefix("DIRECT=OS:.") in " ".join(information.pathname for information in qm.queues())
    with qm.open_queue(name, qmnode.Access.SEND) as sender, qm.open_queue(name) as queue:
        assert len(sender.send(qmnode.Message(b"1"))) == 20
        assert len(sender.send_many(qmnode.Message(b"%d" % number) for number in (2, 3))) == 2
        assert (queue.peek().body, queue.format_name, queue.access) == (b"1", name, qmnode.Access.RECEIVE)
        with queue.cursor() as cursor:
            assert [cursor.peek().body, cursor.peek_next().body, cursor.receive().body] == [b"1", b"2", b"2"]
        locked = queue.receive_begin(timeout=5)
        queue.receive_end(locked.lookup_identifier, delete=False)
        assert queue.receive_by_lookup_id(locked.lookup_identifier).body == b"1"
        later = qm.open_queue(f"{name};later", qmnode.Access.MOVE)
        queue.move(queue.peek_by_lookup_id(seek="first").lookup_identifier, later)
        assert bodies(queue) == []
        queue.purge()
    with qm.open_queue(f"{name};later") as subqueue:
        assert [message.body for message in subqueue.receive_many(5)] == [b"3"]
    qm.delete_queue(name)


@pytest.mark.timeout(20)
def test_wrong_arguments_raise_and_do_not_wait_for_ever(qm: qmnode.sync.QueueManager) -> None:
    call: Any = qm.find_queues
    with pytest.raises(TypeError, match="positional argument"):
        call("orders")


def test_messages_are_found_and_moved_by_jobs(qm: qmnode.sync.QueueManager, name: str) -> None:
    queue = name.rpartition("\\")[2]
    qm.create_queue(rf".\private$\{queue}-later")
    with qm.open_queue(name, qmnode.Access.SEND) as sender:
        sender.send_many([qmnode.Message(b"%d" % number, label=f"order {number}") for number in range(250)])

    found = [one.message.label for one in qm.operations.find([queue], {"label": "order *"})]
    first = next(qm.operations.find([queue]))
    page = qm.operations.find_page([queue], limit=10)
    job = qm.operations.start_job("move", [queue], {"label": "order 7*"}, target=f"{queue}-later")
    wait_until(lambda: qm.operations.job(job["job"])["state"] == "done", 30, "the end of the job")
    log = list(qm.operations.job_log(job["job"]))

    assert found == [f"order {number}" for number in range(250)]
    assert (first.message.body, len(page.found), page.total) == (b"0", 10, 250)
    assert [entry["result"] for entry in log] == ["moved"] * 11
    assert job["job"] in [one["job"] for one in qm.operations.jobs()]
    assert qm.queue(rf".\private$\{queue}-later").message_count == 11
    assert qm.operations.failures([queue])["groups"] is not None
    assert qm.operations.trace(label="order *")["places"]
    assert qm.operations.history()["step"] == 10
    with pytest.raises(qmnode.MessageQueuingError, match="there is no job"):
        qm.operations.control_job(987, "cancel")
    qm.close()
    with pytest.raises(qmnode.MessageQueuingError):
        next(qm.operations.find([queue]))


def test_a_transaction_commits_at_its_end_and_aborts_when_the_block_raises(qm: qmnode.sync.QueueManager) -> None:
    qm.create_queue(r".\private$\exact", transactional=True)
    with qm.open_queue(r"DIRECT=OS:.\private$\exact", qmnode.Access.SEND) as sender:
        with pytest.raises(ZeroDivisionError), qm.transaction() as tx:
            sender.send(qmnode.Message(b"undone"), transaction=tx)
            _ = 1 / 0
        with qm.transaction() as tx:
            sender.send(qmnode.Message(b"done"), transaction=tx)
            assert tx.identifier
        sender.send(qmnode.Message(b"alone"), "single")
        with pytest.raises(qmnode.MessageQueuingError, match="begin another one"):
            tx.commit()
    with qm.open_queue(r"DIRECT=OS:.\private$\exact") as queue:
        assert bodies(queue) == [b"done", b"alone"]


def test_a_thousand_calls_of_ten_threads_lose_nothing(qm: qmnode.sync.QueueManager, name: str) -> None:
    sender, queue = qm.open_queue(name, qmnode.Access.SEND), qm.open_queue(name)

    def send(thread: int) -> None:
        for number in range(100):
            sender.send(qmnode.Message(b"%d.%d" % (thread, number), recoverable=True))

    def receive(_: int) -> list[bytes]:
        return [queue.receive(timeout=30).body for _ in range(100)]

    with ThreadPoolExecutor(20) as threads:
        sent = [threads.submit(send, thread) for thread in range(10)]
        received = list(threads.map(receive, range(10)))
        for each in sent:
            each.result()
    expected = sorted(b"%d.%d" % (thread, number) for thread in range(10) for number in range(100))
    assert sorted(body for part in received for body in part) == expected
    assert len([thread for thread in threading.enumerate() if thread.name == "qmnode.sync"]) == 1


def test_threads_have_transactions_of_their_own(qm: qmnode.sync.QueueManager) -> None:
    qm.create_queue(r".\private$\threads", transactional=True)
    sender = qm.open_queue(r"DIRECT=OS:.\private$\threads", qmnode.Access.SEND)

    def work(number: int) -> None:
        transaction = qm.transaction()
        sender.send(qmnode.Message(b"%d" % number), transaction)
        transaction.commit() if number % 2 else transaction.abort()

    with ThreadPoolExecutor(10) as threads:
        list(threads.map(work, range(100)))
    with qm.open_queue(r"DIRECT=OS:.\private$\threads") as queue:
        assert sorted(map(int, bodies(queue))) == list(range(1, 100, 2))


def test_iteration_gives_messages_as_they_come(qm: qmnode.sync.QueueManager, name: str) -> None:
    def send() -> None:
        with qm.open_queue(name, qmnode.Access.SEND) as sender:
            for number in range(5):
                sender.send(qmnode.Message(b"%d" % number))

    thread = threading.Thread(target=send)
    seen = []
    with qm.open_queue(name) as queue:
        thread.start()
        for message in queue:
            seen.append(message.body)
            if len(seen) == 5:
                break
    thread.join()
    assert seen == [b"0", b"1", b"2", b"3", b"4"]


def test_closing_twice_is_closing_once_and_calls_after_it_say_so(address: str, name: str) -> None:
    manager = qmnode.sync.connect(address)
    queue = manager.open_queue(name)
    cursor = queue.cursor()
    waiting = ThreadPoolExecutor(1).submit(queue.receive)
    wait_until(lambda: waiting.running(), 30, "the read waits")
    for thing in (cursor, cursor, queue, queue, manager, manager):
        thing.close()
    with pytest.raises(qmnode.MessageQueuingError):
        waiting.result(30)
    for call in (manager.status, queue.peek, cursor.peek):
        with pytest.raises(qmnode.MessageQueuingError):
            call()


def test_it_works_inside_a_running_event_loop_as_in_jupyter(address: str, name: str) -> None:
    async def cell() -> bytes:
        with qmnode.sync.connect(address) as manager:
            manager.open_queue(name, qmnode.Access.SEND).send(qmnode.Message(b"from a cell"))
            return manager.open_queue(name).receive(timeout=60).body

    assert asyncio.run(cell()) == b"from a cell"


def test_what_nobody_refers_to_is_closed_at_the_node(qm: qmnode.sync.QueueManager, name: str) -> None:
    for _ in range(100):  # the node allows 30
        assert qm.open_queue(name).cursor() is not None
    assert not qm.queue(name).message_count


def test_a_queue_keeps_the_connection_that_it_was_opened_through(address: str, name: str) -> None:
    queue = qmnode.sync.connect(address).open_queue(name, qmnode.Access.SEND)
    gc.collect()
    assert queue.send(qmnode.Message(b"1"))


@pytest.mark.public_report("Particular/NServiceBus#4188")
def test_nobody_there_and_a_node_that_ends_are_the_field_s_errors(tmp_path: Path) -> None:
    with pytest.raises(qmnode.MessageQueuingError, match="MQ_ERROR_SERVICE_NOT_AVAILABLE"):
        qmnode.sync.connect(tmp_path / "none.sock")
    with running_node(tmp_path) as node:
        manager = qmnode.sync.connect(node.socket, reconnect=0)
        manager.create_queue(r".\private$\orders")
        queue = manager.open_queue(r"DIRECT=OS:.\private$\orders")
        waiting = ThreadPoolExecutor(1).submit(queue.receive)
    with pytest.raises(qmnode.MessageQueuingError, match="MQ_ERROR_SERVICE_NOT_AVAILABLE"):
        waiting.result(30)
    with pytest.raises(qmnode.MessageQueuingError, match="connect again"):
        manager.status()


INTERRUPTED = """
    import signal, sys, threading, time
    import qmnode

    qm = qmnode.sync.connect(sys.argv[1])
    queue = qm.open_queue(sys.argv[2])
    try:
        print("waiting", flush=True)
        {call}
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    print(qm.open_queue(sys.argv[2], qmnode.Access.SEND).send(qmnode.Message(b"after")).hex() != "")
    print(queue.receive(timeout=60).body)
"""


@pytest.mark.parametrize(
    "call", ["queue.receive()", "next(iter(queue))", "queue.peek()", "queue.cursor().peek()", "queue.receive_begin()"]
)
def test_ctrl_c_ends_a_wait_and_loses_nothing(call: str, address: str, name: str) -> None:
    script = textwrap.dedent(INTERRUPTED).format(call=call)
    with subprocess.Popen(
        [sys.executable, "-c", script, address, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=240)
    assert out.splitlines() == ["interrupted", "True", "b'after'"], err


@pytest.mark.parametrize("before", [True, False])
def test_ctrl_c_while_a_call_is_handed_over_ends_it(address: str, name: str, before: bool) -> None:
    """Just before, or just after, the loop has it: nobody is left who waits for a message, and takes it."""
    answer = run_script(
        f"""
        import signal, sys
        import qmnode

        qm = qmnode.sync.connect(sys.argv[1])
        queue = qm.open_queue(sys.argv[2])
        out = qm.open_queue(sys.argv[2], qmnode.Access.SEND)
        loop = qm._loop._loop
        hand_over = loop.call_soon_threadsafe

        def interrupted(callback, *arguments):
            loop.call_soon_threadsafe = hand_over
            if {before}:
                signal.raise_signal(signal.SIGINT)
            hand_over(callback, *arguments)
            signal.raise_signal(signal.SIGINT)

        loop.call_soon_threadsafe = interrupted
        try:
            queue.receive()
        except KeyboardInterrupt:
            print("interrupted")
        out.send(qmnode.Message(b"after"))
        print(queue.receive(timeout=60).body)
        """,
        address,
        name,
    )
    assert answer.stdout.splitlines() == ["interrupted", "b'after'"], answer.stderr


def test_a_message_that_came_with_ctrl_c_is_returned_first(address: str, name: str) -> None:
    # The interrupt meets a call that the node has answered already: its answer must not get lost.
    answer = run_script(
        """
        import signal, sys, time
        import qmnode
        from qmnode.local.remote import RemoteQueue

        qm = qmnode.sync.connect(sys.argv[1])
        qm.open_queue(sys.argv[2], qmnode.Access.SEND).send(qmnode.Message(b"kept"))
        queue = qm.open_queue(sys.argv[2])
        receive = RemoteQueue.receive

        async def slow(self, *arguments):
            message = await receive(self, *arguments)
            signal.raise_signal(signal.SIGINT)
            time.sleep(1)
            return message

        RemoteQueue.receive = slow
        try:
            message = queue.receive()
            time.sleep(30)
        except KeyboardInterrupt:
            print(message.body)
        """,
        address,
        name,
    )
    assert answer.stdout == "b'kept'\n", answer.stderr


def test_a_forked_child_is_told_to_connect_and_the_parent_goes_on(address: str, name: str) -> None:
    answer = run_script(
        """
        import os, sys, warnings
        import qmnode

        warnings.filterwarnings("ignore", "This process .* is multi-threaded")  # since 3.12, of every such fork
        qm = qmnode.sync.connect(sys.argv[1])
        queue = qm.open_queue(sys.argv[2], qmnode.Access.SEND)
        queue.send(qmnode.Message(b"parent"))
        child = os.fork()
        if not child:
            for call in (qm.status, lambda: queue.send(qmnode.Message(b"lost")), lambda: queue.cursor().peek()):
                try:
                    call()
                except qmnode.MessageQueuingError as error:
                    print(error.name, "forked" in error.sentence)
            del queue, qm
            with qmnode.sync.connect(sys.argv[1]) as own:
                own.open_queue(sys.argv[2], qmnode.Access.SEND).send(qmnode.Message(b"child"))
            sys.exit()
        print(os.waitpid(child, 0)[1], flush=True)
        queue.send(qmnode.Message(b"parent again"))
        print([message.body for message in qm.open_queue(sys.argv[2]).receive_many(9)])
        """,
        address,
        name,
    )
    refused = ["MQ_ERROR_SERVICE_NOT_AVAILABLE True"] * 3
    assert answer.stdout.splitlines() == [*refused, "0", "[b'parent', b'child', b'parent again']"], answer.stderr
    assert "Warning" not in answer.stderr


def test_a_script_that_closes_nothing_ends_at_once_without_a_warning(address: str, name: str) -> None:
    answer = run_script(
        """
        import sys, threading
        import qmnode

        queue = qmnode.sync.connect(sys.argv[1]).open_queue(sys.argv[2])
        threading.Thread(target=queue.receive, daemon=True).start()
        """,
        address,
        name,
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
