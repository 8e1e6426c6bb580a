"""The terms of conformance: kinds of packets, rules, findings, and a node's handling of a broken rule."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple


class Kind(StrEnum):
    """The packets of MS-MQQB 2.2 and MS-MQMQ 2.2.20."""

    PING = "Ping"
    ESTABLISH_CONNECTION = "EstablishConnection"
    CONNECTION_PARAMETERS = "ConnectionParameters"
    SESSION_ACK = "SessionAck"
    ORDER_ACK = "OrderAck"
    FINAL_ACK = "FinalAck"
    USER_MESSAGE = "UserMessage"


class Handling(StrEnum):
    """A node's handling of a packet that breaks a rule."""

    REFUSED = "refused"
    """It discards the packet and closes the session (MS-MQQB 3.1.5.1.3)."""
    REJECTED = "rejected"
    """The destination answers with a negative acknowledgment (MS-MQQB 3.1.5.8.3), and does not store the message."""
    IGNORED = "ignored"
    """It drops the packet, and the session continues."""
    TOLERATED = "tolerated"
    """It accepts the packet like a correct one, for the stated reason."""


class Treatment(NamedTuple):
    """A handling, and the reason if it is not REFUSED."""

    handling: Handling
    why: str = ""


REFUSED: Final = Treatment(Handling.REFUSED)


def tolerated(why: str) -> Treatment:
    return Treatment(Handling.TOLERATED, why)


def rejected(why: str) -> Treatment:
    return Treatment(Handling.REJECTED, why)


def ignored(why: str) -> Treatment:
    return Treatment(Handling.IGNORED, why)


class Finding(NamedTuple):
    """A MUST that a packet breaks."""

    structure: str
    field: str
    offset: int | None
    """Offset in bytes from the packet's beginning."""
    sentence: str
    section: str
    handling: str = ""
    """A node's handling of the packet (``Handling``); empty for a rule between packets."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """A packet with the facts that the predicates need."""

    kind: Kind
    packet: Any
    from_client: bool | None
    """Whether the client sent it; None where the capture does not show it."""
    order_body: Any = None
    """OrderAck Body or FinalAck Body, if the body is one."""

    @property
    def base(self) -> Any:
        return self.packet.base_header

    @property
    def user(self) -> Any:
        return self.packet.user_header

    @property
    def properties(self) -> Any:
        return self.packet.message_properties_header


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. ``broken`` returns True for a packet of ``kinds`` that breaks it; ``sentence`` states it."""

    kinds: frozenset[Kind]
    field: str
    """Structure and field as the specification names them: "BaseHeader.Flags"."""
    section: str
    sentence: str
    broken: Callable[[Seen], bool]
    treatment: Treatment = REFUSED
