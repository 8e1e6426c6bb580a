"""A queue manager that receives, for tests of what it takes: reception with a store of records, and no queues."""

from __future__ import annotations

from typing import Any

from qmnode.protocol.commands import Family
from qmnode.protocol.incoming_sequences import IncomingSequences
from qmnode.protocol.message_id_history import MessageIdHistory
from qmnode.protocol.received import MessageReader, ReceivedMessage
from qmnode.protocol.reception import Admission, Destination, DestinationKind, Neighbour, Reception
from qmnode.settings.protocol import TransferSettings
from qmnode.shares import Accountant
from qmnode.structures.guid import Guid
from qmnode.structures.user_message import DirectQueueFormatName
from tests.protocol.machines import ALL_ACKNOWLEDGMENTS, BOB, TIME, message

SEQUENCE = 0x6_0000_0001
ADMIN = DirectQueueFormatName(direct_format_name=r"OS:alice\private$\admin")


class Receiver:
    """Bob's queue manager: reception with a store that takes records, and queues as the test says."""

    def __init__(self, store: dict[tuple[Family, bytes], bytes] | None = None, **parameters: Any) -> None:
        self.parameters = TransferSettings(**parameters)
        self.history = MessageIdHistory(self.parameters, Accountant())
        self.incoming = IncomingSequences(self.parameters, Accountant())
        self.reception = Reception(BOB, self.parameters, self.history, self.incoming)
        self.store = {} if store is None else store
        pairs = [(family, key, value) for (family, key), value in self.store.items()]
        self.history.load((key, value) for family, key, value in pairs if family is Family.MESSAGE_ID_HISTORY)
        self.incoming.load(((k, v) for family, k, v in pairs if family is Family.INCOMING_SEQUENCE), 0.0)
        self.destination = Destination(DestinationKind.LOCAL, "queue")
        self.reader = MessageReader()

    def read(self, *packets: bytes) -> list[ReceivedMessage]:
        return [self.reader.read(packet) for packet in packets]

    def admit(
        self,
        *packets: bytes,
        address: str = "127.0.0.7",
        now: float = 0.0,
        time: int = TIME,
        speaks_for: Guid | None = None,
        **more: Any,
    ) -> Admission:
        """Admit packets and write what comes of it. The neighbour is known to speak for the source ``speaks_for``."""
        messages = self.read(*packets)
        destinations = dict.fromkeys(self.reception.unresolved(messages, {}), self.destination)
        neighbour = Neighbour(address)
        if speaks_for is not None:
            neighbour.known[speaks_for] = True
        return self.reception.admit(messages, destinations, now=now, time=time, neighbour=neighbour, **more)

    def take(self, *packets: bytes, **more: Any) -> Admission:
        """Admit, write and sync."""
        admission = self.admit(*packets, **more)
        for family, key, value in admission.records:
            if value is None:
                self.store.pop((family, key), None)
            else:
                self.store[family, key] = value
        self.reception.persisted(admission, 0.0)
        return admission

    def transactional_queue(self) -> Receiver:
        self.destination = Destination(DestinationKind.LOCAL, "queue", transactional=True)
        return self

    def forwarding(self) -> Receiver:
        self.destination = Destination(DestinationKind.FORWARD, "outgoing")
        return self

    def without_queue(self) -> Receiver:
        self.destination = Destination(DestinationKind.UNKNOWN)
        return self


def identifiers(admission: Admission) -> list[int]:
    return [taken.received.message_id for taken in admission.taken]


def answered(admission: Admission) -> list[int]:
    return [acknowledgment.message_class for acknowledgment in admission.administration]


def asking(message_id: int = 1, **more: Any) -> bytes:
    """A message that wants every acknowledgment."""
    return message(message_id, properties=ALL_ACKNOWLEDGMENTS, admin_queue=ADMIN, **more)
