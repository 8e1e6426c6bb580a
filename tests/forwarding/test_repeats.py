"""Transactional messages that come again while their destination is away are stored once by who passes them on."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace

from qmnode import Access, Message, QueueManager
from qmnode.delivery.queue_sender import Repeats
from qmnode.directory.file import FileDirectory
from qmnode.protocol.received import MessageReader
from qmnode.settings.protocol import TransferSettings
from qmnode.structures.guid import guid_to_text
from tests.forwarding.enterprise import Directory, Machine
from tests.lab.waiting import eventually
from tests.protocol.machines import ALICE, CAROL, transactional
from tests.transport.conftest import PLAIN, TRANSACTIONAL, settings_of

SEQUENCE = 7


class Waiting:
    """A queue of a routing server that is not connected."""

    def __init__(self) -> None:
        self.repeats = Repeats(SimpleNamespace(message_count=1, locked={}))  # type: ignore[arg-type]
        self.reader = MessageReader()

    def stored(self, number: int, previous: int, *, sequence: int = SEQUENCE, source: bytes = ALICE) -> bool:
        packet = transactional(number, sequence, number, previous, source=source, address=CAROL)
        return not self.repeats.is_repeated(self.reader.read(packet), 0)


def test_what_waits_is_not_stored_again() -> None:
    queue = Waiting()
    assert [queue.stored(number, number - 1) for number in (1, 2, 3)] == [True, True, True]
    assert [queue.stored(number, number - 1) for number in (1, 2, 3, 4)] == [False, False, False, True]


def test_a_gap_that_its_source_has_bridged_is_no_gap() -> None:
    queue = Waiting()
    assert [queue.stored(1, 0), queue.stored(5, 1), queue.stored(1, 0), queue.stored(5, 1)] == [
        True,
        True,
        False,
        False,
    ]


def test_what_comes_out_of_turn_is_stored_and_begins_anew() -> None:
    queue = Waiting()
    assert [queue.stored(1, 0), queue.stored(9, 8), queue.stored(1, 0)] == [True, True, True]


def test_sources_and_sequences_are_told_apart() -> None:
    queue = Waiting()
    assert queue.stored(1, 0)
    assert queue.stored(1, 0, source=CAROL)
    assert queue.stored(1, 0, sequence=SEQUENCE + 1)
    assert not queue.stored(1, 0, source=CAROL)


def test_what_has_left_may_come_again() -> None:
    queue = Waiting()
    queue.stored(1, 0)
    queue.repeats.forget()
    assert queue.stored(1, 0)


async def test_a_source_that_sends_again_and_again_does_not_fill_the_routing_server(tmp_path: Path) -> None:
    machines = {
        "SOURCE": Machine("SOURCE", ["south"]),
        "ROUTER": Machine("ROUTER", ["south", "north"], routing_server=True),
        "TARGET": Machine("TARGET", ["north"]),
    }
    directory = Directory(tmp_path / "directory.yaml", machines)
    directory.write()
    async with AsyncExitStack() as stack:
        nodes: dict[str, QueueManager] = {}

        async def start(name: str) -> None:
            machine = machines[name]
            transfer = TransferSettings(retry_interval=0.1, retry_maximum=0.2, resend_timeouts=(1, 1, 1800, 21600))
            settings = settings_of(name, machine.listens).model_copy(update={"transfer": transfer})
            node = await QueueManager.open(tmp_path / name, settings, directory=FileDirectory(directory.file))
            stack.push_async_callback(node.close)
            node.adopt_identifier(machine.identifier)
            for queue in (PLAIN, TRANSACTIONAL):
                await node.create_queue(queue, transactional=queue == TRANSACTIONAL)
            await node.network.start()
            nodes[name] = node

        for name in ("SOURCE", "ROUTER"):
            await start(name)
        source, router = nodes["SOURCE"], nodes["ROUTER"]
        target = f"PRIVATE={guid_to_text(machines['TARGET'].identifier)}\\00000006"
        async with await source.open_queue(target, Access.SEND) as out, source.transaction() as transaction:
            for number in range(50):
                await out.send(Message(b"%d" % number), transaction=transaction)
        await eventually(lambda: any(one.received_messages >= 150 for one in router.network.connections()))
        assert (await router.queue(target)).message_count == 50
        async with await router.open_queue(target, Access.RECEIVE_ADMIN) as waiting:
            await waiting.purge()  # which is no reason for the destination to miss anything
        await start("TARGET")
        async with await nodes["TARGET"].open_queue(f"DIRECT=OS:{TRANSACTIONAL}") as queue:
            assert [(await queue.receive(timeout=60)).body for _ in range(50)] == [
                b"%d" % number for number in range(50)
            ]
