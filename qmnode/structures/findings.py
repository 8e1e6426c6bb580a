"""The terms of conformance: kinds of packets, rules, findings, and what a node does about a broken rule."""

from __future__ import annotations

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
    """What a node does with a packet that breaks a rule."""

    REFUSED = "refused"
    """It discards the packet and closes the session (MS-MQQB 3.1.5.1.3)."""
    REJECTED = "rejected"
    """The destination answers with a negative acknowledgment (MS-MQQB 3.1.5.8.3), and does not store the message."""
    IGNORED = "ignored"
    """It drops the packet, and the session goes on."""
    TOLERATED = "tolerated"
    """It takes the packet as if nothing were wrong, for the reason that stands beside it."""


class Treatment(NamedTuple):
    """A handling, and why it is another one than REFUSED."""

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
    """In bytes from the packet's beginning."""
    sentence: str
    section: str
    handling: str = ""
    """What a node does with the packet (``Handling``); empty for a rule between packets."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """A packet with what the predicates want to know of it."""

    kind: Kind
    packet: Any
    from_client: bool | None
    """None where the capture does not tell."""
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
    """``broken`` answers True for a packet of ``kinds`` that does not keep to ``sentence``."""

    kinds: frozenset[Kind]
    field: str
    """Structure and field as the specification names them: "BaseHeader.Flags"."""
    section: str
    sentence: str
    broken: Callable[[Seen], bool]
    treatment: Treatment = REFUSED
