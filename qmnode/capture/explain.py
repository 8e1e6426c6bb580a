"""A captured packet explained: its kind, its decode tree with meanings, and every MUST that it breaks."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from qmnode.capture.conversations import Conversations
from qmnode.capture.meanings import explain_values
from qmnode.capture.packetizer import is_ping
from qmnode.capture.rules import NOTES, RULES, Finding, Kind, Rule, Seen
from qmnode.capture.source import Captured, Carrier
from qmnode.structures.acks import ACK_BODY_SIZE, ORDER_ACK_LABEL, FinalAckBody, OrderAckBody, is_order_queue
from qmnode.structures.annotate import Annotation, annotate
from qmnode.structures.errors import PacketError
from qmnode.structures.internal_packets import ConnectionParameters, EstablishConnection, SessionAck
from qmnode.structures.layout import Structure
from qmnode.structures.message_classes import MessageClass
from qmnode.structures.packets import read_packet
from qmnode.structures.ping import Ping

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_KINDS: Final[dict[type, Kind]] = {
    Ping: Kind.PING,
    EstablishConnection: Kind.ESTABLISH_CONNECTION,
    ConnectionParameters: Kind.CONNECTION_PARAMETERS,
    SessionAck: Kind.SESSION_ACK,
}
_BODIES: Final[dict[Kind, type[OrderAckBody | FinalAckBody]]] = {
    Kind.ORDER_ACK: OrderAckBody,
    Kind.FINAL_ACK: FinalAckBody,
}
_LEAST_FINAL_CLASS: Final = 0x4000
"""MS-MQQB 3.1.5.1.1: the class of a FinalAck is not less."""


@dataclass(slots=True)
class Explained:
    """A captured packet with all that is known about it."""

    captured: Captured
    kind: Kind | None = None
    """None if the bytes are no packet."""
    packet: Any = None
    tree: Annotation | None = None
    error: PacketError | None = None
    """Why the bytes are no packet."""
    findings: list[Finding] = field(default_factory=list)
    """What a sender must not do, and this one did. An error and a damage are not among them."""
    notes: list[Finding] = field(default_factory=list)
    """What is remarkable and breaks no MUST."""

    @property
    def error_section(self) -> str:
        """The section of the structure that the error is in; empty without an error."""
        return _sections().get(self.error.structure, "") if self.error else ""

    @property
    def broken(self) -> bool:
        """Whether its sender is to blame for anything."""
        return self.error is not None or bool(self.findings)


@cache
def _sections() -> dict[str, str]:
    """The section of each structure, by the name that errors have for it."""
    return {kind.PLAN.name: kind.section() for kind in Structure.__subclasses__()}


class Explainer:
    """Explains the packets of one capture, in order: some rules depend on the packets before."""

    def __init__(self) -> None:
        self._conversations = Conversations()

    def explain(self, captured: Captured) -> Explained:
        """Explain one packet. Never raises for what is in it."""
        explained = Explained(captured)
        if captured.lost:
            self._conversations.damaged(captured.route)
            return explained
        try:
            explained.packet = _parse(captured)
        except PacketError as error:
            explained.error = error
            self._conversations.damaged(captured.route)
            return explained
        seen = look_at(explained.packet, captured.route.from_client if captured.route else None)
        explained.kind = seen.kind
        explained.tree = tree = _tree(seen)
        explained.findings = [
            *_value_findings(tree),
            *check(seen, RULES, tree),
            *self._conversations.check(seen, captured.route),
        ]
        explained.notes = list(check(seen, NOTES, tree))
        return explained


def _parse(captured: Captured) -> Any:
    data = captured.data
    if captured.carrier == Carrier.UDP or (captured.carrier == Carrier.FILE and is_ping(data)):
        return Ping.parse(data)
    return read_packet(data)


def look_at(packet: Any, from_client: bool | None) -> Seen:
    """A parsed packet with its kind.

    Acknowledgments of transactions are known by their class, not by all that 3.1.5.1.1 asks of them, so that one that
    lacks a part of it is shown as a wrong acknowledgment and not as some message.
    """
    kind = _KINDS.get(type(packet)) or _message_kind(packet)
    body = None
    if kind in _BODIES and packet.message_properties_header.message_size == ACK_BODY_SIZE:
        body = _BODIES[kind].parse(bytes(packet.message_properties_header.message_body))
    return Seen(kind, packet, from_client, body)


def _message_kind(packet: Any) -> Kind:
    properties = packet.message_properties_header
    if properties.message_class == MessageClass.MQMSG_CLASS_ORDER_ACK:
        return Kind.ORDER_ACK
    to_order_queue = is_order_queue(packet.user_header.destination_queue)
    if properties.message_class >= _LEAST_FINAL_CLASS and (to_order_queue or properties.label == ORDER_ACK_LABEL):
        return Kind.FINAL_ACK
    return Kind.USER_MESSAGE


def _tree(seen: Seen) -> Annotation:
    tree = annotate(seen.packet)
    if seen.order_body is not None:
        (body,) = (line for line in tree.walk() if line.name == "MessageBody")
        body.children = [annotate(seen.order_body, body.offset)]
    explain_values(tree, seen.packet)
    return tree


def _value_findings(tree: Annotation, section: str = "") -> Iterator[Finding]:
    """The problems that the declarations of fields tell of."""
    section = tree.section or section
    if tree.problem:
        sentence = tree.problem.removeprefix(f"{tree.structure}.{tree.name}").lstrip(" .:")
        yield Finding(tree.structure, tree.name, tree.offset, sentence, section)
    for child in tree.children:
        yield from _value_findings(child, section)


def check(seen: Seen, rules: Sequence[Rule], tree: Annotation) -> Iterator[Finding]:
    """What of ``rules`` a packet breaks."""
    for rule in rules:
        if seen.kind in rule.kinds and rule.broken(seen):
            structure, _, name = rule.field.rpartition(".")
            yield Finding(structure, name, _offset(tree, structure, name), rule.sentence, rule.section)


def _offset(tree: Annotation, structure: str, name: str) -> int | None:
    """Where the field is; for one that is not there, where its structure begins."""
    begins = None
    for line in tree.walk():
        if line.structure == structure and line.name == name:
            return line.offset
        if begins is None and structure in (line.name, line.structure):
            begins = line.offset
    return begins
