"""Establishing a session: the two packets of each side, their negotiated values, and the reasons to refuse them.

3.1.5.2.3, 3.1.5.3, 3.1.5.4. The packets are built and checked here; the table of states decides when they are due.
"""

from collections.abc import Callable
from typing import Final

from qmnode.protocol.errors import RemoteProtocolError
from qmnode.protocol.limits import ACK_TIMEOUT, RECOVERABLE_ACK_TIMEOUT
from qmnode.settings.protocol import SessionSettings
from qmnode.structures.guid import ZERO_GUID, Guid, guid_to_text
from qmnode.structures.internal_packets import (
    ConnectionParameters,
    ConnectionParametersHeader,
    EstablishConnection,
    EstablishConnectionHeader,
    InternalFlags,
    InternalHeader,
    OperatingSystemFlags,
)

ESTABLISHMENT_LIMIT: Final = 572
"""Size limit in bytes of packets before the session is open."""
_REFUSED: Final = InternalHeader(flags=InternalFlags.of(CS=1))
_ACCEPTED: Final = InternalHeader(flags=InternalFlags.of(CS=0))
_MILLISECONDS: Final = 0xFFFF_FFFF


class Establishment:
    """The values that the two sides of a session agree on."""

    __slots__ = (
        "ack_wait_timeout_ms", "admits", "certified", "direct", "identifier", "parameters", "pinged", "received_window",
        "recoverable_ack_timeout_ms", "refuse", "remote",
    )  # fmt: skip

    def __init__(
        self, identifier: Guid, parameters: SessionSettings, remote: Guid, direct: bool, pinged: bool, refuse: bool
    ) -> None:
        self.identifier = identifier
        """QueueManager.Identifier of this side."""
        self.parameters = parameters
        self.remote = remote
        """RemoteQMGuid: null at an initiator that has only a direct format name, until the answer gives it."""
        self.certified: Guid | None = None
        """The queue manager that the peer's certificate names; ZERO_GUID: it names none; None: no certificate."""
        self.admits: Callable[[Guid], bool] | None = None
        """Whether an initiator may speak as it does in the name of a queue manager; None: any may."""
        self.direct = direct
        self.pinged = pinged
        self.refuse = refuse
        self.received_window = parameters.window_size
        """ReceivedWindowSize, the peer's window in messages."""
        self.ack_wait_timeout_ms = parameters.ack_wait_timeout_ms
        """The agreed AckWaitTimeout in milliseconds."""
        self.recoverable_ack_timeout_ms = _MILLISECONDS
        """The agreed RecoverableAckSendTimeout in milliseconds."""

    def request(self, now: float) -> bytes:
        """Build the EstablishConnection request, 3.1.5.2.3."""
        flags = OperatingSystemFlags.of(RE=0x10, SE=not self.pinged, OS=self.parameters.server_class)
        header = EstablishConnectionHeader(
            client_guid=self.identifier,
            server_guid=ZERO_GUID if self.direct else self.remote,
            time_stamp=_milliseconds(now),
            operating_system=flags,
        )
        return EstablishConnection(establish_connection_header=header).write()

    def answer(self, packet: EstablishConnection) -> tuple[bytes, bool]:
        """Build the EstablishConnection response, and return whether it accepts, 3.1.5.3.1.

        A null ServerGuid is valid: with a direct format name the initiator does not know which queue manager it
        reaches, and 3.1.5.2.3 makes it send null. (2.2.1 asks the acceptor to refuse it.) The ClientGuid is not
        checked: an initiator with a null one is answered too, as a peer that the node does not know.
        """
        request = packet.establish_connection_header
        if packet.internal_header.flags & InternalFlags.CS.mask:
            raise RemoteProtocolError("3.1.5.2.3", "a request cannot refuse the connection")
        self._check_certified("3.1.5.3.1", request.client_guid)
        if self.admits is not None and not self.admits(request.client_guid):
            raise RemoteProtocolError(
                "3.1.5.3.1", f"queue manager {guid_to_text(request.client_guid)} has to speak TLS here (security.tls)"
            )
        self.remote = request.client_guid
        self.direct = request.server_guid == ZERO_GUID
        accepted = not self.refuse and request.server_guid in (ZERO_GUID, self.identifier)
        header = EstablishConnectionHeader(
            client_guid=request.client_guid,
            server_guid=self.identifier,
            time_stamp=request.time_stamp,
            operating_system=request.operating_system,
        )
        answer = EstablishConnection(
            internal_header=_ACCEPTED if accepted else _REFUSED, establish_connection_header=header
        )
        return answer.write(), accepted

    def take_answer(self, packet: EstablishConnection, now: float) -> bool:
        """Check the EstablishConnection response, 3.1.5.3.2. False: refused. Raises RemoteProtocolError."""
        answer = packet.establish_connection_header
        if packet.internal_header.flags & InternalFlags.CS.mask:
            return False
        if answer.client_guid != self.identifier:
            raise RemoteProtocolError("3.1.5.3.2", "the answer is for another queue manager")
        if answer.server_guid == ZERO_GUID or (not self.direct and answer.server_guid != self.remote):
            raise RemoteProtocolError("3.1.5.3.2", "another queue manager answered")
        self._check_certified("3.1.5.3.2", answer.server_guid)
        self.remote = answer.server_guid
        round_trip = (_milliseconds(now) - answer.time_stamp) & _MILLISECONDS
        self.recoverable_ack_timeout_ms = _clamp(round_trip * 8, RECOVERABLE_ACK_TIMEOUT)
        return True

    def parameters_request(self) -> bytes:
        """Build the ConnectionParameters request, 3.1.5.3.2."""
        return self._parameters(self.recoverable_ack_timeout_ms)

    def take_parameters(self, packet: ConnectionParameters) -> bytes:
        """Accept the initiator's parameters and build the response, 3.1.5.4.1."""
        header = packet.connection_parameters_header
        if packet.internal_header.flags & InternalFlags.CS.mask:
            raise RemoteProtocolError("3.1.5.4.1", "the connection is refused after it was accepted")
        if header.recoverable_ack_timeout not in RECOVERABLE_ACK_TIMEOUT or header.ack_timeout not in ACK_TIMEOUT:
            raise RemoteProtocolError("2.2.2.1", "an acknowledgment time-out is out of its range")
        self.received_window = max(1, header.window_size)
        self.ack_wait_timeout_ms = header.ack_timeout
        self.recoverable_ack_timeout_ms = header.recoverable_ack_timeout
        return self._parameters(header.recoverable_ack_timeout)

    def take_parameters_answer(self, packet: ConnectionParameters) -> None:
        """Record the acceptor's window, 3.1.5.4.2."""
        if packet.internal_header.flags & InternalFlags.CS.mask:
            raise RemoteProtocolError("2.2.1", "the connection is refused after it was accepted")
        self.received_window = max(1, packet.connection_parameters_header.window_size)

    def _check_certified(self, section: str, claimed: Guid) -> None:
        """Check that the peer's claimed identifier is the one in its certificate."""
        if self.certified is None or self.certified == claimed:
            return
        whose = "no queue manager" if self.certified == ZERO_GUID else f"queue manager {guid_to_text(self.certified)}"
        raise RemoteProtocolError(
            section, f"the peer says that it is {guid_to_text(claimed)}, and its certificate names {whose}"
        )

    def _parameters(self, recoverable_ack_timeout: int) -> bytes:
        header = ConnectionParametersHeader(
            recoverable_ack_timeout=recoverable_ack_timeout,
            ack_timeout=self.ack_wait_timeout_ms,
            window_size=self.parameters.window_size,
        )
        return ConnectionParameters(internal_header=_ACCEPTED, connection_parameters_header=header).write()


def _milliseconds(now: float) -> int:
    """TimeStamp: milliseconds of the monotonic clock, which on Linux counts from the start of the system."""
    return round(now * 1000) & _MILLISECONDS


def _clamp(value: int, limits: range) -> int:
    return min(max(value, limits.start), limits.stop - 1)
