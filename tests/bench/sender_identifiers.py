"""What it costs that unsigned messages name their sender: at the sender, at the receiver, and for the reader.

Each line compares a message with a SID with the same message without one, in turns. The last line is a whole way in one
process: sent, transferred, stored and acknowledged by two nodes, in processor time.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Final

from qmnode import Access, Message, QueueManager, Settings
from qmnode.model.serialization import Destination, serialize, serialize_plain
from qmnode.model.stored_message import PREFIX_SIZE, received_message
from qmnode.protocol.incoming_sequences import IncomingSequences
from qmnode.protocol.message_id_history import MessageIdHistory
from qmnode.protocol.received import MessageReader
from qmnode.protocol.reception import Destination as Target
from qmnode.protocol.reception import DestinationKind, Neighbour, Reception
from qmnode.settings.protocol import TransferSettings
from qmnode.shares import Accountant
from qmnode.structures.guid import Guid
from qmnode.structures.names import PrivateFormatName
from qmnode.structures.security_descriptor import Sid
from tests.bench import Comparison, bench, medians
from tests.bench.peer import loopback_address

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH: Final = 100
TOTAL: Final = 4_000
ROUNDS: Final = 7
BODY: Final = bytes(1024)
NOW: Final = 1_800_000_000.0
SOURCE, TARGET = Guid(bytes(range(16))), Guid(bytes(range(16, 32)))
ALICE: Final = Sid.from_text("S-1-5-21-1004336348-1177238915-682003330-1001")
BARS: Final = {"plain": 1.25, "labelled": 1.25, "receive": 1.35, "read": 1.3, "whole": 1.2}


def _destination(*, named: bool) -> Destination:
    made = Destination(SOURCE, PrivateFormatName(TARGET, 5), TARGET, transit=True)
    if named:
        made.name_sender(ALICE.write())
    return made


class Numbers:
    """Numbers that only grow, as those of a node."""

    def __init__(self) -> None:
        self._next = 1

    def take(self, count: int) -> range:
        """The next numbers."""
        first, self._next = self._next, self._next + count
        return range(first, first + count)


def _sending(*, named: bool) -> tuple[Callable[[], object], Callable[[], object]]:
    destination, numbers = _destination(named=named), Numbers()
    messages = [Message(BODY, recoverable=True) for _ in range(BATCH)]
    labelled = Message(BODY, recoverable=True, label="order")
    return (
        lambda: serialize_plain(messages, destination, numbers.take, NOW),
        lambda: serialize(labelled, destination, 1, NOW),
    )


def _packets(*, named: bool) -> list[bytes]:
    messages = [Message(BODY, recoverable=True) for _ in range(BATCH)]
    values = serialize_plain(messages, _destination(named=named), Numbers().take, NOW)
    assert values is not None
    return [value[PREFIX_SIZE:] for _, value in values]


def _receiving(*, named: bool) -> Callable[[], object]:
    """A batch from the reader of the session to the decisions, which have seen none of it before."""
    packets, parameters, reader = _packets(named=named), TransferSettings(), MessageReader()
    target = Target(DestinationKind.LOCAL, "queue")

    def receive() -> None:
        reception = Reception(
            TARGET, parameters, MessageIdHistory(parameters, Accountant()), IncomingSequences(parameters, Accountant())
        )
        received = [reader.read(packet) for packet in packets]
        destinations = dict.fromkeys(reception.unresolved(received, {}), target)
        admission = reception.admit(received, destinations, now=0.0, time=int(NOW), neighbour=Neighbour("127.0.0.1"))
        assert len(admission.taken) == BATCH

    return receive


def _reading(*, named: bool) -> Callable[[], object]:
    value = serialize(Message(BODY, label="order"), _destination(named=named), 1, NOW)
    return lambda: received_message(1, value).priority


def _settings(name: str, address: str) -> Settings:
    return Settings(
        computer_name=name,
        quotas={"queue_manager_quota": 0xFFFFFFFF},  # type: ignore[arg-type]
        transport={"address": address},  # type: ignore[arg-type]
    )


async def _whole_way() -> list[float]:
    """Processor seconds of a message, without and with a SID."""
    taken: list[list[float]] = [[], []]
    with tempfile.TemporaryDirectory() as place:
        one, other = loopback_address(), loopback_address()
        async with (
            QueueManager.open(Path(place) / "receiver", _settings("RECEIVER", other)) as receiver,
            QueueManager.open(Path(place) / "sender", _settings("SENDER", one)) as sender,
        ):
            for node in (receiver, sender):
                await node.network.start()
            await receiver.create_queue(r".\private$\q")
            queue = receiver.names.find(r".\private$\q")
            name = rf"DIRECT=TCP:{other}\private$\q"
            plain = await sender.open_queue(name, Access.SEND)
            outgoing = sender.names.find(plain.format_name)
            named = await sender.open_queue(name, Access.SEND)
            named.destination.name_sender(ALICE.write())  # type: ignore[attr-defined]
            for _ in range(ROUNDS):
                for out, times in zip((plain, named), taken, strict=True):
                    begun = process_time()
                    for _ in range(TOTAL // BATCH):
                        await out.send_many([Message(BODY, recoverable=True) for _ in range(BATCH)])
                    while outgoing.message_count:
                        await asyncio.sleep(0.001)
                    times.append((process_time() - begun) / TOTAL)
            assert queue.message_count == 2 * ROUNDS * TOTAL
    return [statistics.median(times) for times in taken]


@bench("messages that name their sender")
def named_senders() -> list[Comparison]:
    """Each step with a SID, over the same step without."""
    found = []
    kinds = (_sending(named=False), _sending(named=True))
    steps = {
        "plain": ("serialize 100 bodies", kinds[0][0], kinds[1][0]),
        "labelled": ("serialize a message with a label", kinds[0][1], kinds[1][1]),
        "receive": ("receive and decide about 100", _receiving(named=False), _receiving(named=True)),
        "read": ("read a message's headers", _reading(named=False), _reading(named=True)),
    }
    for step, (name, without, with_one) in steps.items():
        baseline, seconds = medians([without, with_one], calls=1 if "100" in name else 50, rounds=1000)
        found.append(Comparison(name, seconds, "without a SID", baseline, BARS[step]))
    baseline, seconds = asyncio.run(_whole_way())
    found.append(Comparison("node to node, CPU of a message", seconds, "without a SID", baseline, BARS["whole"]))
    return found
