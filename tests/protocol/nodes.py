"""Two queue managers made of the protocol's machines and a store of dictionaries, on a wire that a test breaks.

What a node keeps in memory is lost when it restarts; what its writes put into the store is not. Writes are batches that
are synced in their order, later than they were made, so that a test can kill a node in between.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from qmnode.protocol.acknowledgments import order_ack_packet
from qmnode.protocol.commands import Closed, Family, MessagesAcknowledged, MessagesReceived, Opened, Record
from qmnode.protocol.incoming_sequences import IncomingSequences
from qmnode.protocol.message_id_history import MessageIdHistory
from qmnode.protocol.outgoing_sequences import AckResult, OutgoingSequence, OutgoingSequences
from qmnode.protocol.reception import Admission, Destination, DestinationKind, Neighbour, Reception
from qmnode.protocol.session import Session
from qmnode.protocol.states import Role
from qmnode.settings.protocol import SessionSettings, TransferSettings
from qmnode.shares import Accountant
from qmnode.structures.packet_view import (
    places_of,
    read_sending_fields,
    read_sequence_fields,
    with_sequence_fields,
)
from qmnode.structures.packets import is_order_queue
from qmnode.structures.user_message import DirectQueueFormatName
from tests.protocol.machines import ALICE, BOB, TIME, message, transactional

if TYPE_CHECKING:
    from qmnode.protocol.received import DestinationName, ReceivedMessage
    from qmnode.structures.guid import Guid

TX_QUEUE = DirectQueueFormatName(direct_format_name=r"TCP:127.0.0.2\private$\tx")
PLAIN_QUEUE = DirectQueueFormatName(direct_format_name=r"TCP:127.0.0.2\private$\plain")
OUT = b"outgoing"


def prepared(sequence: OutgoingSequence, packet: bytes) -> bytes | None:
    """The packet to send, with PreviousTxSequenceNumber changed where a gap is bridged; None: do not send it now."""
    header_at = places_of(packet).transaction_header
    identifier, number, previous = read_sequence_fields(packet, header_at)
    bridge = sequence.prepare(identifier, number)
    if bridge is None or bridge == previous:
        return None if bridge is None else packet
    return bytes(with_sequence_fields(packet, header_at, identifier, number, bridge))


@dataclass
class Disk:
    """What survives: records, the outgoing queue in order, and what was delivered."""

    records: dict[tuple[Family, bytes], bytes] = field(default_factory=dict)
    outgoing: dict[int, bytes] = field(default_factory=dict)
    delivered: list[int] = field(default_factory=list)
    next_position: int = 0
    next_message_id: int = 1

    def apply(self, records: list[Record]) -> None:
        for family, key, value in records:
            if value is None:
                self.records.pop((family, key), None)
            else:
                self.records[family, key] = value

    def family(self, wanted: Family) -> list[tuple[bytes, bytes]]:
        return [(key, value) for (family, key), value in self.records.items() if family is wanted]


@dataclass
class Connection:
    """A session of a node and the bytes on their way from it."""

    session: Session
    wire: bytearray = field(default_factory=bytearray)
    sent: bytearray = field(default_factory=bytearray)
    """What the wire has carried."""


class Node:
    """A queue manager that sends from its outgoing queue and delivers what it gets."""

    def __init__(self, identifier: Guid, address: str, disk: Disk, parameters: SessionSettings, now: float) -> None:
        self.identifier = identifier
        self.address = address
        self.disk = disk
        self.parameters = parameters
        transfer = TransferSettings()
        self.history = MessageIdHistory(transfer, Accountant())
        self.history.load(disk.family(Family.MESSAGE_ID_HISTORY))
        self.incoming = IncomingSequences(transfer, Accountant())
        self.incoming.load(disk.family(Family.INCOMING_SEQUENCE), now)
        self.outgoing = OutgoingSequences(transfer, 1_700_000_000)
        last = disk.family(Family.SEQUENCE_IDENTIFIERS)
        self.outgoing.load(disk.family(Family.OUTGOING_SEQUENCE), last[0][1] if last else None)
        self.reception = Reception(identifier, transfer, self.history, self.incoming)
        self.connections: list[Connection] = []
        self.peer_address = ""
        self.express: deque[bytes] = deque()
        """Order acknowledgments on their way out: express, so in memory only."""
        self.cursor = -1
        self.writes: deque[tuple[Admission | None, Connection | None, list[Record], list[int], list[int]]] = deque()
        """Batches not yet synced: what they settle, records, delivered message identifiers, removed positions."""

    # --- sending ---
    def commit(self, count: int) -> list[int]:
        """A transaction of so many messages, on disk when this returns; their identifiers."""
        assignment = self.outgoing.assign(OUT, count)
        identifiers = []
        for number in range(assignment.first_number, assignment.first_number + count):
            identifier = self._message_id()
            packet = transactional(
                identifier, assignment.sequence_id, number, number - 1, source=self.identifier, queue=TX_QUEUE
            )
            self._store(packet)
            identifiers.append(identifier)
        self.sync()
        self.disk.apply(list(assignment.records))
        return identifiers

    def send(self) -> int:
        """A recoverable message, on disk when this returns."""
        identifier = self._message_id()
        self._store(message(identifier, source=self.identifier, queue=PLAIN_QUEUE, recoverable=True))
        return identifier

    def _message_id(self) -> int:
        identifier = self.disk.next_message_id
        self.disk.next_message_id += 1
        return identifier

    def _store(self, packet: bytes) -> None:
        self.disk.outgoing[self.disk.next_position] = packet
        self.disk.next_position += 1

    def pump(self, now: float) -> None:
        """Hand what waits to the newest open session."""
        open_connections = [item for item in self.connections if not item.session.closed and item.session.room()]
        if not open_connections:
            return
        connection = open_connections[-1]
        session = connection.session
        while self.express and session.room():
            session.send_messages([None], [self.express.popleft()], now, TIME)
        sequence = self.outgoing.get(OUT)
        for position in sorted(self.disk.outgoing):
            if position <= self.cursor or not session.room():
                continue
            packet: Any = self.disk.outgoing[position]
            if packet[62] & 0x10:  # UserHeader.Flags.TH
                packet = prepared(sequence, packet)
                if packet is None:
                    break
                self.outgoing.sent(sequence, now)
            self.cursor = position
            session.send_messages([position], [packet], now, TIME)

    def rewind(self) -> None:
        """Begin again at the head of the outgoing queue."""
        self.cursor = -1

    # --- receiving ---
    def collect(self, now: float) -> None:
        """Take what the sessions say."""
        for connection in list(self.connections):
            for command in connection.session.commands():
                match command:
                    case MessagesReceived(messages):
                        self._admit(connection, list(messages), now)
                    case MessagesAcknowledged(released, journaled, _):
                        done = [token for token in (*released, *journaled) if isinstance(token, int)]
                        self.writes.append((None, None, [], [], done))
                    case Opened(remote, _):
                        self.outgoing.get(OUT).destination = remote
                    case Closed():
                        self._closed(connection)
                    case _:
                        pass
            connection.wire += b"".join(connection.session.data_to_send())

    def _closed(self, connection: Connection) -> None:
        if connection in self.connections:
            self.connections.remove(connection)
        if not any(not item.session.closed for item in self.connections):
            self.outgoing.disconnected(self.outgoing.get(OUT))
        self.outgoing.get(OUT).rewind()
        self.rewind()

    def _resolve(self, name: DestinationName) -> Destination:
        text = name.name.decode("utf-16-le").rstrip("\0") if name.kind == 7 else ""
        if name.kind == 3 and int.from_bytes(name.name, "little") == 4:
            return Destination(DestinationKind.ORDER_QUEUE)
        if text and is_order_queue(DirectQueueFormatName(direct_format_name=text)):
            return Destination(DestinationKind.ORDER_QUEUE)
        return Destination(DestinationKind.LOCAL, transactional=text.endswith("tx"))

    def _admit(self, connection: Connection, messages: list[ReceivedMessage], now: float) -> None:
        destinations = {name: self._resolve(name) for name in self.reception.unresolved(messages, {})}
        admission = self.reception.admit(
            messages, destinations, now=now, time=TIME, neighbour=Neighbour(self.peer_address)
        )
        delivered = [taken.received.message_id for taken in admission.taken]
        records, removed = list(admission.records), []
        for author, body in admission.order_acks_received:
            result, sequence = self.outgoing.take_order_ack(
                author, body.tx_sequence_id, body.tx_sequence_number, now, TIME
            )
            assert result is not AckResult.FORGED
            if result is AckResult.PROGRESS and sequence is not None:
                records.append(sequence.record())
                removed += self._acknowledged(body.tx_sequence_id, body.tx_sequence_number)
        self.writes.append((admission, connection, records, delivered, removed))

    def _acknowledged(self, sequence_id: int, number: int) -> list[int]:
        positions = []
        for position, packet in self.disk.outgoing.items():
            flags = read_sending_fields(packet)[3]
            if flags >> 20 & 1:
                identifier, own, _ = read_sequence_fields(packet, places_of(packet).transaction_header)
                if identifier == sequence_id and own <= number:
                    positions.append(position)
        return positions

    def sync(self, limit: int | None = None, now: float = 0.0) -> None:
        """Sync the oldest writes, all or ``limit`` of them: they are on disk, and only then acknowledged."""
        while self.writes and (limit is None or limit > 0):
            admission, connection, records, delivered, removed = self.writes.popleft()
            self.disk.apply(records)
            self.disk.delivered += delivered
            for position in removed:
                self.disk.outgoing.pop(position, None)
            if admission is not None and connection is not None:
                self.reception.persisted(admission, now)
                connection.session.messages_settled(admission.ordinal, admission.recoverable_ordinal, now)
            if limit is not None:
                limit -= 1

    def expire(self, now: float) -> None:
        """Timers, of sessions and of what is beside them."""
        for connection in list(self.connections):
            connection.session.expire(now)
        for acknowledgment in self.incoming.take_order_acknowledgments(now):
            self.express.append(order_ack_packet(acknowledgment, self.identifier, self._message_id(), TIME))
        if self.outgoing.take_resends(now):
            self.rewind()


class World:
    """Alice and Bob. Every breakage is a method; ``heal`` lets everything settle."""

    def __init__(self, window: int = 8) -> None:
        self.now = 1000.0
        self.parameters = SessionSettings(window_size=window)
        self.disks = [Disk(), Disk()]
        self.nodes = [self._node(0), self._node(1)]
        self.pairs: list[tuple[Connection, Connection]] = []
        """Connections that are up: the initiator's end and the acceptor's."""
        self.recorded: list[tuple[int, bytes]] = []
        """Who got, or should have got, which bytes from the initiator of a connection that is gone."""

    def _node(self, which: int) -> Node:
        identifier, address, peer = ((ALICE, "127.0.0.1", "127.0.0.2"), (BOB, "127.0.0.2", "127.0.0.1"))[which]
        node = Node(identifier, address, self.disks[which], self.parameters, self.now)
        node.peer_address = peer
        return node

    def connect(self, initiator: int = 0) -> None:
        """A new connection, whatever the others do."""
        one, other = self.nodes[initiator], self.nodes[1 - initiator]
        ends = (
            Connection(Session(Role.INITIATOR, one.identifier, self.parameters, self.now, direct=True)),
            Connection(Session(Role.ACCEPTOR, other.identifier, self.parameters, self.now)),
        )
        one.connections.append(ends[0])
        other.connections.append(ends[1])
        ends[0].session.connected(self.now)
        self.pairs.append(ends)
        self.collect()

    def collect(self) -> None:
        for node in self.nodes:
            node.collect(self.now)

    def carry(self, pair: int, back: bool, size: int) -> None:
        """Some bytes of a connection arrive."""
        if not self.pairs:
            return
        source, target = self.pairs[pair % len(self.pairs)][:: -1 if back else 1]
        data, source.wire = bytes(source.wire[:size]), source.wire[size:]
        if data:
            source.sent += data
            target.session.receive_data(data, self.now)
        self.collect()

    def cut(self, pair: int) -> None:
        """A connection breaks: what is on the wire is lost."""
        if not self.pairs:
            return
        ends = self.pairs.pop(pair % len(self.pairs))
        which = 0 if ends[0] in self.nodes[0].connections else 1
        self.recorded.append((1 - which, bytes(ends[0].sent + ends[0].wire)))
        for end in ends:
            end.session.disconnected(self.now)
        self.collect()

    def replay(self, which: int) -> None:
        """All that an initiator sent on a dead connection arrives again on a new one, whose end hears no answer."""
        if not self.recorded:
            return
        target, data = self.recorded[which % len(self.recorded)]
        node = self.nodes[target]
        end = Connection(Session(Role.ACCEPTOR, node.identifier, self.parameters, self.now))
        node.connections.insert(0, end)
        end.session.receive_data(data, self.now)
        self.collect()
        end.session.disconnected(self.now)
        self.collect()

    def restart(self, which: int) -> None:
        """A node is killed: its memory and what it had not synced are gone. Its connections break."""
        for pair in [pair for pair in self.pairs if any(end in self.nodes[which].connections for end in pair)]:
            self.pairs.remove(pair)
            for end in pair:
                end.session.disconnected(self.now)
        self.nodes[which] = self._node(which)
        self.collect()

    def pump(self) -> None:
        for node in self.nodes:
            node.pump(self.now)
        self.collect()

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for node in self.nodes:
            node.expire(self.now)
        self.pairs = [pair for pair in self.pairs if not any(end.session.closed for end in pair)]
        self.collect()

    def heal(self, rounds: int = 400) -> bool:
        """A good network for a while. Whether both outgoing queues became empty."""
        for _ in range(rounds):
            for pair in [pair for pair in self.pairs if any(end.session.closed for end in pair)]:
                self.pairs.remove(pair)
                for end in pair:
                    end.session.disconnected(self.now)
            self.collect()
            if not self.pairs:
                self.connect()
            self.pump()
            for index in range(len(self.pairs)):
                self.carry(index, False, 1 << 20)
                self.carry(index, True, 1 << 20)
            for node in self.nodes:
                node.sync(now=self.now)
            self.collect()
            if not self.disks[0].outgoing and not self.disks[1].outgoing and not any(n.express for n in self.nodes):
                return True
            self.advance(1.0)
        return False
