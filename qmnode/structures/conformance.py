"""Checks packets against the rules: their kind, and each broken rule for which a node refuses them."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

from qmnode.structures.acks import ACK_BODY_SIZE, ORDER_ACK_LABEL, FinalAckBody, OrderAckBody, is_order_queue
from qmnode.structures.errors import PacketError
from qmnode.structures.fields import Array, Choice, Data, Field, Nested, Scalar
from qmnode.structures.findings import REFUSED, Finding, Handling, Kind, Rule, Seen, Treatment
from qmnode.structures.internal_packets import ConnectionParameters, EstablishConnection, SessionAck
from qmnode.structures.layout import Structure
from qmnode.structures.message_classes import MessageClass
from qmnode.structures.ping import Ping
from qmnode.structures.rules import RULES, VALUES

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
"""The lowest class of a FinalAck, MS-MQQB 3.1.5.1.1."""


def look_at(packet: Any, from_client: bool | None) -> Seen:
    """A parsed packet with its kind.

    Acknowledgments of transactions are recognised by their class alone, not by all conditions of 3.1.5.1.1, so that an
    incomplete one is shown as a wrong acknowledgment and not as an ordinary message.
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


def treatment_of_value(structure: str, field: str, bits: str = "") -> Treatment:
    """The treatment of a packet with a forbidden value in a field, or in some bits of it."""
    return VALUES.get((structure, field, bits), REFUSED)


def violation(packet: Structure) -> Finding | None:
    """The first broken rule for which a node refuses the packet, or None."""
    return next(violations(packet), None)


def violations(packet: Structure) -> Iterator[Finding]:
    """All broken rules for which a node refuses the packet, without offsets."""
    yield from _refused_values(packet)
    seen = look_at(packet, None)
    for rule in _refusing(seen.kind):
        if rule.broken(seen):
            structure, _, name = rule.field.rpartition(".")
            yield Finding(structure, name, None, rule.sentence, rule.section, Handling.REFUSED)


@cache
def _refusing(kind: Kind) -> tuple[Rule, ...]:
    return tuple(rule for rule in RULES if kind in rule.kinds and rule.treatment.handling is Handling.REFUSED)


# --- what one field alone may hold
def _refused_values(value: Structure) -> Iterator[Finding]:
    for attribute, problem_of in _checks(type(value)):
        held = getattr(value, attribute)
        if held is not None:
            yield from problem_of(held)


@cache
def _checks(kind: type[Structure]) -> tuple[tuple[str, Callable[[Any], Iterator[Finding]]], ...]:
    """The checks for a structure of this kind, by attribute."""
    found: list[tuple[str, Callable[[Any], Iterator[Finding]]]] = []
    choices = {item.on: item.cases.keys() for item in kind.PLAN.fields if isinstance(item, Choice)}
    for item in kind.PLAN.fields:
        match item:
            case Scalar(attribute=attribute, allowed=allowed) if choices.get(attribute, ()) == allowed:
                pass  # the reader takes no other number: it has no case for it
            case Scalar():
                if (check := _check_of_number(kind, item)) is not None:
                    found.append((item.attribute, check))
            case Data(holds=holds) if holds is not None:
                found.append((item.attribute, _check_of_content(kind, item.name, holds)))
            case Nested() | Choice() if _has_checks(item):
                found.append((item.attribute, _inside))
            case Array(item=each) if _has_checks(each):
                found.append((item.attribute, _inside_each))
    return tuple(found)


def _has_checks(item: Field | None) -> bool:
    """Whether a value of this field is a structure with checks: a list may have thousands of those without."""
    match item:
        case Nested(structure=kind):
            return bool(_checks(kind))
        case Choice(cases=cases):
            return any(_has_checks(case) for case in cases.values())
    return False


def _inside(held: Any) -> Iterator[Finding]:
    return _refused_values(held) if isinstance(held, Structure) else iter(())


def _inside_each(held: Any) -> Iterator[Finding]:
    for one in held:
        yield from _inside(one)


def _check_of_number(kind: type[Structure], item: Scalar) -> Callable[[int], Iterator[Finding]] | None:
    name, section = kind.PLAN.name, kind.section()
    allowed = item.allowed if item.form == "number" else None
    if treatment_of_value(name, item.name) is not REFUSED:
        allowed = None
    parts = [
        part
        for part in (item.bits.FIELDS.values() if item.bits is not None else ())
        if part.allowed is not None and treatment_of_value(name, item.name, part.name) is REFUSED
    ]
    if allowed is None and not parts:
        return None

    def check(held: int) -> Iterator[Finding]:
        if allowed is not None and held not in allowed:
            yield Finding(name, item.name, None, f"must not be 0x{held:X}", section, Handling.REFUSED)
        for part in parts:
            if (value := part.get(held)) not in part.allowed:  # type: ignore[operator]
                sentence = f"{part.name} must not be 0x{value:X}"
                yield Finding(name, item.name, None, sentence, section, Handling.REFUSED)

    return check


def _check_of_content(
    kind: type[Structure], field: str, holds: type[Structure]
) -> Callable[[bytes], Iterator[Finding]]:
    def check(held: bytes) -> Iterator[Finding]:
        if held:
            try:
                holds.parse(bytes(held))
            except PacketError as error:
                yield Finding(kind.PLAN.name, field, None, str(error), kind.section(), Handling.REFUSED)

    return check
