"""Sessions, messages and clocks for tests of the protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from qmnode.protocol.commands import Closed, Command, MessagesReceived, Opened
from qmnode.protocol.session import Session
from qmnode.protocol.states import Role, SessionState
from qmnode.settings.protocol import SessionSettings
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.structures.user_message import (
    BaseFlags,
    BaseHeader,
    DirectQueueFormatName,
    MessagePropertiesHeader,
    PropertyFlags,
    TransactionHeader,
    UserFlags,
    UserHeader,
    UserMessage,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qmnode.protocol.received import ReceivedMessage

ALICE = Guid(b"A" * 16)
BOB = Guid(b"B" * 16)
CAROL = Guid(b"C" * 16)
TIME = 1_800_000_000


def message(
    message_id: int = 1,
    *,
    source: Guid = ALICE,
    address: Guid = ZERO_GUID,
    queue: Any = None,
    recoverable: bool = False,
    flags: int = 0,
    properties: int = 0,
    body: bytes = b"hello",
    time_to_reach_queue: int = 0xFFFFFFFF,
    sent_time: int = TIME,
    transaction: TransactionHeader | None = None,
    hops: int = 0,
    **headers: Any,
) -> bytes:
    """A UserMessage packet; ``flags`` are further UserHeader.Flags, ``properties`` MessagePropertiesHeader.Flags."""
    if transaction is not None:
        recoverable = True
    base = headers.pop("base_header", BaseHeader(flags=BaseFlags.of(PR=0 if transaction else 3)))
    admin = headers.pop("admin_queue", None)
    message_class, label = headers.pop("message_class", 0), headers.pop("label", "")
    return UserMessage(
        base_header=base.replace(time_to_reach_queue=time_to_reach_queue),
        user_header=UserHeader(
            source_queue_manager=source,
            queue_manager_address=address,
            sent_time=sent_time,
            message_id=message_id,
            flags=UserFlags.of(MP=1, DM=int(recoverable), RC=hops) | flags,
            destination_queue=queue or DirectQueueFormatName(direct_format_name=r"TCP:127.0.0.2\private$\q"),
            admin_queue=admin,
        ),
        transaction_header=transaction,
        message_properties_header=MessagePropertiesHeader(
            flags=properties, message_body=body, message_class=message_class, label=label
        ),
        **headers,
    ).write()


def transactional(message_id: int, sequence_id: int, number: int, previous: int, **more: Any) -> bytes:
    """A transactional UserMessage packet."""
    header = TransactionHeader(
        tx_sequence_id=sequence_id, tx_sequence_number=number, previous_tx_sequence_number=previous
    )
    return message(message_id, transaction=header, **more)


ALL_ACKNOWLEDGMENTS = PropertyFlags.of(PA=1, PR=1, NA=1, NR=1)


@dataclass
class Host:
    """One end of a pair: a session, what it said, and what it received."""

    session: Session
    seen: list[Command] = field(default_factory=list)
    received: list[ReceivedMessage] = field(default_factory=list)
    settle: bool = True
    """Settle what comes at once, as a store with no delay would."""

    def collect(self, now: float) -> None:
        """Take the session's commands."""
        for command in self.session.commands():
            self.seen.append(command)
            if isinstance(command, MessagesReceived):
                self.received += command.messages
                if self.settle:
                    last = command.messages[-1]
                    self.session.messages_settled(last.ordinal, last.recoverable_ordinal, now)

    def said(self, kind: type) -> list[Any]:
        """Commands of one kind."""
        return [command for command in self.seen if isinstance(command, kind)]


class SessionPair:
    """An initiator (alice) and an acceptor (bob) with a perfect wire between them."""

    def __init__(
        self,
        parameters: SessionSettings | None = None,
        *,
        bobs: SessionSettings | None = None,
        direct: bool = False,
        now: float = 1000.0,
        refuse: bool = False,
        remote: Guid = BOB,
    ) -> None:
        self.now = now
        mine = parameters or SessionSettings()
        self.alice = Host(Session(Role.INITIATOR, ALICE, mine, now, remote=remote, direct=direct))
        self.bob = Host(Session(Role.ACCEPTOR, BOB, bobs or mine, now, refuse=refuse))

    def establish(self) -> SessionPair:
        """Open the session."""
        self.alice.session.connected(self.now)
        self.run()
        assert self.alice.session.state is self.bob.session.state is SessionState.OPEN
        return self

    def run(self) -> None:
        """Carry bytes until both are silent."""
        while True:
            self.alice.collect(self.now)
            self.bob.collect(self.now)
            there = b"".join(self.alice.session.data_to_send())
            back = b"".join(self.bob.session.data_to_send())
            if not there and not back:
                return
            if there:
                self.bob.session.receive_data(there, self.now)
            if back:
                self.alice.session.receive_data(back, self.now)

    def advance(self, seconds: float) -> None:
        """Let time pass, timer by timer, and carry what they cause."""
        end = self.now + seconds
        while True:
            timers = [host.session.next_timer() for host in (self.alice, self.bob)]
            due = min((timer[1] for timer in timers if timer is not None), default=None)
            if due is None or due > end:
                break
            self.now = max(self.now, due)
            self.alice.session.expire(self.now)
            self.bob.session.expire(self.now)
            self.run()
        self.now = end

    def send(self, packets: Iterable[bytes], host: Host | None = None, first_token: int = 0) -> int:
        """Send packets with tokens counted from ``first_token``; how many the window took."""
        packets = list(packets)
        session = (host or self.alice).session
        taken = session.send_messages(range(first_token, first_token + len(packets)), packets, self.now, TIME)
        self.run()
        return taken


def closed(host: Host) -> Closed:
    """The one Closed command of a host."""
    (command,) = host.said(Closed)
    assert isinstance(command, Closed)
    return command


def opened(host: Host) -> Opened:
    """The one Opened command of a host."""
    (command,) = host.said(Opened)
    assert isinstance(command, Opened)
    return command
