"""Messages of AMQP as messages of Message Queuing, and back: docs/reference/amqp-messages.md, which a test reads.

Application properties travel in ``extension``, as headers of NServiceBus or Rebus do. So do the other fields without a
property of Message Queuing, under names that begin with ``AMQP.``.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import Any, Final
from uuid import UUID

from qmnode.administration.queue_names import is_format_name
from qmnode.amqp.addresses import address_of, opened_name
from qmnode.amqp.codec import (
    Byte,
    Char,
    CodecError,
    Decimal32,
    Decimal64,
    Decimal128,
    Decoder,
    Float,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    decimal_from_text,
    decimal_to_text,
    encode,
)
from qmnode.amqp.sections import DATA, NONE, VALUE, AmqpMessage, parse
from qmnode.bodies import activex
from qmnode.bodies.activex import VECTOR, Vt
from qmnode.bodies.choice import HEADER_FORMATS, read_headers, write_headers
from qmnode.bodies.limits import CARRIED, BodyError, Budget
from qmnode.errors import MessageQueuingError
from qmnode.model.duplicates import identity_of
from qmnode.model.message import INFINITE, Message, fault
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import guid_from_text, guid_to_text
from qmnode.structures.names import cut_utf16

NSERVICEBUS, REBUS = HEADER_FORMATS
_OURS: Final = "AMQP."
_TYPES: Final = "AMQP.types"
_BODY: Final = "AMQP.body"
_SECTIONS: Final = "sections"
"""Values of ``AMQP.body`` beside the names of types: the body has the bytes of the sections, or there is none."""
_ABSENT: Final = "absent"
_SUBJECT: Final = "AMQP.subject"
_LONGEST_LABEL: Final = 249
"""The longest label, in UTF-16 units."""
_PRIORITY: Final = "AMQP.priority"
_FIRST_ACQUIRER: Final = "AMQP.first-acquirer"
_NO_PRIORITY: Final = 4
"""The priority of AMQP that says nothing, and is the default of Message Queuing."""

_KEPT: Final = {
    "content_type": "AMQP.content-type",
    "content_encoding": "AMQP.content-encoding",
    "group_id": "AMQP.group-id",
    "reply_to_group_id": "AMQP.reply-to-group-id",
}
_IDENTIFIERS: Final = {"message_id": "AMQP.message-id", "correlation_id": "AMQP.correlation-id"}
_GROUP_SEQUENCE: Final = "AMQP.group-sequence"
_REPLY_TO: Final = "AMQP.reply-to"

JMS_TYPE: Final = Symbol("x-opt-jms-msg-type")
"""The kind of message that a JMS program sent, which clients of JMS cannot always see from the body."""
_JMS_TYPE: Final = "AMQP.jms-msg-type"
_JMS_TYPES: Final = 6
JMS_REPLY_TO: Final = Symbol("x-opt-jms-reply-to")
"""The kind of the reply-to: 0 for a queue, 1 for a topic, 2 and 3 for temporary ones."""
_TOPICS: Final = (1, 3)
_ANNOTATION: Final = "AMQP.annotation."
"""The beginning of the names of headers that keep annotations."""
CLASS: Final = Symbol("x-opt-msmq-class")
APP_SPECIFIC: Final = Symbol("x-opt-msmq-app-specific")
BODY_TYPE: Final = Symbol("x-opt-msmq-body-type")
EXTENSION: Final = Symbol("x-opt-msmq-extension")
DELAYED_DELIVERY: Final = "DELAYED_DELIVERY"
"""The capability that connections offer, without which clients of JMS refuse to delay a message."""
DELIVERY_TIME: Final = Symbol("x-opt-delivery-time")
"""When to deliver a message, in milliseconds since 1970. Receivers get it too, as JMSDeliveryTime."""
DELIVERY_DELAY: Final = Symbol("x-opt-delivery-delay")
"""The same as milliseconds from when it was sent."""
_NOT_KEPT: Final = (JMS_TYPE, CLASS, APP_SPECIFIC, BODY_TYPE, EXTENSION, DELIVERY_DELAY)


@dataclass(frozen=True, slots=True)
class MappingContext:
    """The node as the mapping sees it."""

    is_here: Callable[[str], bool]
    """Whether a format name is of a queue of this node."""
    now: Callable[[], float]
    is_foreign: bool = False
    """Whether short addresses in messages are a peer's, and none of this node's queues."""


# Identifiers


_machine_text = lru_cache(maxsize=256)(guid_to_text)


def identifier_text(identifier: bytes) -> str:
    """An OBJECTID as Message Queuing writes it: ``12345678-...\\42``."""
    return f"{_machine_text(identifier[:16])}\\{int.from_bytes(identifier[16:20], 'little')}"


def identifier_of(value: Any) -> bytes | None:
    """The OBJECTID that a text is, or None."""
    if not isinstance(value, str):
        return None
    guid, separator, number = value.partition("\\")
    if not separator or not number.isascii() or not number.isdigit() or int(number) >= 1 << 32:
        return None
    try:
        return bytes(guid_from_text(guid.strip("{}"))) + int(number).to_bytes(4, "little")
    except ValueError:
        return None


def _plain_text(value: Any) -> str:
    return str(value)


def _number_text(value: int) -> str:
    return str(int(value))


_NAMES: Final[dict[type, tuple[str, Callable[[Any], str]]]] = {
    type(None): ("null", lambda value: ""),
    bool: ("boolean", lambda value: "true" if value else "false"),
    Byte: ("byte", _number_text),
    UByte: ("ubyte", _number_text),
    Short: ("short", _number_text),
    UShort: ("ushort", _number_text),
    int: ("int", _number_text),
    UInt: ("uint", _number_text),
    Long: ("long", _number_text),
    ULong: ("ulong", _number_text),
    Float: ("float", lambda value: repr(float(value))),
    float: ("double", repr),
    Decimal32: ("decimal32", decimal_to_text),
    Decimal64: ("decimal64", decimal_to_text),
    Decimal128: ("decimal128", decimal_to_text),
    Char: ("char", _plain_text),
    Timestamp: ("timestamp", _number_text),
    UUID: ("uuid", _plain_text),
    bytes: ("binary", bytes.hex),
    str: ("", _plain_text),
    Symbol: ("symbol", _plain_text),
}
"""The name of each simple type, and what writes its values as text."""


def _typed(value: Any) -> tuple[str, str]:
    """The name of a simple value's type, and the value as text."""
    try:
        name, written = _NAMES[type(value)]
    except KeyError:
        raise CodecError(
            f"{value!r:.80} is no simple value: properties have numbers, text, bytes and the like"
        ) from None
    return name, written(value)


def _in_range(kind: type[int], least: int, most: int, text: str) -> int:
    number = int(text)
    if not least <= number <= most:
        raise ValueError(f"{number} is no {kind.__name__}")
    return kind(number)


def _signed(kind: type[int], bits: int) -> Callable[[str], int]:
    return partial(_in_range, kind, -(1 << bits - 1), (1 << bits - 1) - 1)


def _unsigned(kind: type[int], bits: int) -> Callable[[str], int]:
    return partial(_in_range, kind, 0, (1 << bits) - 1)


def _character(text: str) -> Char:
    if len(text) != 1:
        raise ValueError(f"{text!r:.80} is not one character")
    return Char(text)


_READERS: Final[dict[str, Callable[[str], Any]]] = {
    "null": lambda text: None,
    "boolean": lambda text: text == "true",
    "byte": _signed(Byte, 8),
    "ubyte": _unsigned(UByte, 8),
    "short": _signed(Short, 16),
    "ushort": _unsigned(UShort, 16),
    "int": _signed(int, 64),
    "uint": _unsigned(UInt, 32),
    "long": _signed(Long, 64),
    "ulong": _unsigned(ULong, 64),
    "float": lambda text: Float(text),
    "double": float,
    "decimal32": lambda text: Decimal32(decimal_from_text(text, 4)),
    "decimal64": lambda text: Decimal64(decimal_from_text(text, 8)),
    "decimal128": lambda text: Decimal128(decimal_from_text(text, 16)),
    "char": _character,
    "timestamp": _signed(Timestamp, 64),
    "uuid": UUID,
    "binary": bytes.fromhex,
    "symbol": Symbol,
    "encoded": lambda text: Decoder(bytes.fromhex(text)).value(),
}


def _value(text: str, kind: str) -> Any:
    try:
        return _READERS[kind](text) if kind else text
    except (KeyError, ValueError, ArithmeticError):  # somebody else wrote the headers
        return text


# In


def identity(message: AmqpMessage) -> bytes:
    """The identity of a message for the detection of duplicates: its id with the type of that; empty without an id."""
    value = message.properties.get("message_id")
    if value is None:
        return b""
    return identity_of(*_typed(value))


def from_amqp(message: AmqpMessage, place: MappingContext) -> Message:
    """The message to be sent. MessageQueuingError or CodecError if there is none for it."""
    properties: dict[str, Any] = {"recoverable": bool(message.header.get("durable", False))}
    headers, types = _application_headers(message.application_properties)
    priority = message.header.get("priority", _NO_PRIORITY)
    if priority != _NO_PRIORITY:
        properties["priority"] = min(max(priority - 1, 0), 7)
        if properties["priority"] != priority - 1:
            headers[_PRIORITY] = str(int(priority))
    if message.header.get("first_acquirer"):
        headers[_FIRST_ACQUIRER] = "true"
    if message.annotations and not place.is_foreign:  # another broker has delayed its messages itself
        _read_delivery(message.annotations, properties)
    if (lifetime := _lifetime(message, _delivery_of(properties, place.now()))) != INFINITE:
        properties["time_to_be_received"] = lifetime
    if message.properties:
        _read_properties(message, properties, headers, types, place)
    if message.annotations:
        _read_annotations(message, properties)
        _keep_annotations(message.annotations, headers, types)
    body, body_type = _body_in(message, headers, properties.pop("body_type", 0))
    if body_type:
        properties["body_type"] = body_type
    if types:
        headers[_TYPES] = json.dumps(types, separators=(",", ":"))
    if headers:
        properties["extension"] = _beside(properties.get("extension", b""), headers)
    return Message(body, **properties)


def _beside(extension: bytes, headers: dict[str, str]) -> bytes:
    """The Extension of a message with these headers: the one that its sender gave, with the headers added if it has
    headers itself. CodecError if application properties, or what says how to read the body, have no room beside it.
    """
    if not extension:
        return _extension(headers)
    found = read_headers(extension, limits=CARRIED)
    if found.format and not found.reason:
        return _extension(dict(found.values) | headers)
    if headers.get(_BODY, _ABSENT) != _ABSENT or not all(name.startswith(_OURS) for name in headers):
        raise CodecError(
            f"annotation {EXTENSION}: its bytes are no headers, so that application properties, and a body that is not "
            "binary data or a simple value, have no room beside it: leave out one of the two"
        )
    return extension


def _read_properties(
    message: AmqpMessage,
    properties: dict[str, Any],
    headers: dict[str, str],
    types: dict[str, str],
    place: MappingContext,
) -> None:
    if subject := message.properties.get("subject"):
        properties["label"] = _label(subject)
        if properties["label"] != subject:
            headers[_SUBJECT] = subject
    _read_identifiers(message, properties, headers, types)
    if reply_to := message.properties.get("reply_to"):
        try:
            if message.annotations.get(JMS_REPLY_TO) in _TOPICS:
                raise MessageQueuingError(ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME, "a topic")
            if place.is_foreign and not is_format_name(reply_to):
                raise MessageQueuingError(ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME, "a queue of the peer")
            properties["response_queue_format_name"] = _reply_name(reply_to)
        except MessageQueuingError:  # a topic, a temporary queue of another broker: kept for the way back
            headers[_REPLY_TO] = reply_to
    for field, name in _KEPT.items():
        if value := message.properties.get(field):
            headers[name] = value
    if "group_sequence" in message.properties:
        headers[_GROUP_SEQUENCE] = str(message.properties["group_sequence"])


def _label(subject: str) -> str:
    """The label for a subject: as much of it as there is room for, without half a surrogate pair."""
    return cut_utf16(subject, _LONGEST_LABEL).replace("\0", " ")


def _reply_name(address: str) -> str:
    from qmnode.structures.names import QueueNameError, parse_format_name

    name = opened_name(address)
    try:
        parse_format_name(name)
    except QueueNameError as error:
        raise MessageQueuingError(error.code, error.sentence) from None
    return name


def _read_delivery(annotations: dict[Any, Any], properties: dict[str, Any]) -> None:
    for name, field in ((DELIVERY_TIME, "deliver_at"), (DELIVERY_DELAY, "deliver_in")):
        value = annotations.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE,
                f"annotation {name}: it is a number of milliseconds (timestamp, long), and not {type(value).__name__}",
            )
        if sentence := fault(field, value / 1000):
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE, f"annotation {name}, {int(value)} milliseconds: {sentence}"
            )
        properties[field] = value / 1000
    if "deliver_at" in properties and "deliver_in" in properties:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE,
            f"annotations {DELIVERY_TIME} and {DELIVERY_DELAY}: a message has a delivery time or a delay, not both",
        )


def _delivery_of(properties: dict[str, Any], now: float) -> float:
    """When a message is delivered, in seconds since 1970: its lifetimes run from there."""
    return max(now, float(properties.get("deliver_at", 0))) + float(properties.get("deliver_in", 0))


def _lifetime(message: AmqpMessage, delivery: float) -> int:
    """TimeToBeReceived, in seconds from delivery: the shorter of ttl and what is left until absolute-expiry-time."""
    left = INFINITE
    if ttl := message.header.get("ttl"):  # clients send 0 for none
        left = min(left, math.ceil(ttl / 1000))
    if expires := message.properties.get("absolute_expiry_time"):
        left = min(left, max(0, math.ceil(expires / 1000 - delivery)))
    return left


def _application_headers(properties: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    headers: dict[str, str] = {}
    types: dict[str, str] = {}
    for name, value in properties.items():
        if name.startswith(_OURS):
            continue
        kind, headers[name] = _typed(value)
        if kind:
            types[name] = kind
    return headers, types


def _read_identifiers(
    message: AmqpMessage, properties: dict[str, Any], headers: dict[str, str], types: dict[str, str]
) -> None:
    for field, name in _IDENTIFIERS.items():
        value = message.properties.get(field)
        if value is None:
            continue
        if not isinstance(value, str | int | bytes | UUID) or isinstance(value, bool):
            raise CodecError(f"{field.replace('_', '-')} is a number, a UUID, bytes or text")
        if field == "correlation_id" and (identifier := identifier_of(value)) is not None:
            properties["correlation_identifier"] = identifier
            continue
        kind, headers[name] = _typed(value)
        if kind:
            types[name] = kind


def _read_annotations(message: AmqpMessage, properties: dict[str, Any]) -> None:
    for name, field in ((APP_SPECIFIC, "app_specific"), (BODY_TYPE, "body_type")):
        value = message.annotations.get(name)
        if value is not None:
            if sentence := fault(field, value):
                raise CodecError(f"annotation {name}: {sentence}")
            properties[field] = int(value)
    extension = message.annotations.get(EXTENSION)
    if extension is not None:
        if not isinstance(extension, bytes):
            raise CodecError(f"annotation {EXTENSION}: it is binary, and not {type(extension).__name__}")
        properties["extension"] = extension


def _keep_annotations(annotations: dict[Any, Any], headers: dict[str, str], types: dict[str, str]) -> None:
    kind = annotations.get(JMS_TYPE)
    if isinstance(kind, int) and kind in range(_JMS_TYPES):
        headers[_JMS_TYPE] = str(int(kind))
    for key, value in annotations.items():
        if not isinstance(key, str) or key in _NOT_KEPT:
            continue
        name = _ANNOTATION + key
        kind, headers[name] = _typed(value) if type(value) in _NAMES else ("encoded", encode(value).hex())
        if kind:
            types[name] = kind


def _extension(headers: Mapping[str, str | None]) -> bytes:
    form = NSERVICEBUS if any(name.startswith("NServiceBus.") for name in headers) else REBUS
    try:
        return write_headers(headers, form)
    except (BodyError, ValueError) as error:
        raise MessageQueuingError(ErrorCode.MQ_ERROR_PROPERTY, f"the application properties: {error}") from None


_BODY_TYPES: Final[dict[type, int]] = {
    Byte: Vt.VT_I1,
    UByte: Vt.VT_UI1,
    Short: Vt.VT_I2,
    UShort: Vt.VT_UI2,
    int: Vt.VT_I4,
    UInt: Vt.VT_UI4,
    Long: Vt.VT_I8,
    ULong: Vt.VT_UI8,
    Float: Vt.VT_R4,
    float: Vt.VT_R8,
    bool: Vt.VT_BOOL,
    str: Vt.VT_LPWSTR,
    UUID: Vt.VT_CLSID,
    bytes: VECTOR | Vt.VT_UI1,
}
"""The body types that say which type of AMQP it was."""
_TYPES_OF_BODIES: Final[dict[int, Callable[[Any], Any]]] = {
    **{body_type: kind for kind, body_type in _BODY_TYPES.items()},
    Vt.VT_CLSID: lambda value: value,
    Vt.VT_BSTR: str,
    Vt.VT_LPSTR: str,
    activex.BYTE_ARRAY: bytes,
}
_TAGGED: Final[frozenset[type]] = frozenset((Char, Symbol, Decimal32, Decimal64, Decimal128))
"""Types whose values are text in a body, with the name of the type in a header."""
_EPOCH: Final = datetime(1970, 1, 1)


def _body_in(message: AmqpMessage, headers: dict[str, str], body_type: int) -> tuple[bytes, int]:
    if message.body_kind == DATA:
        return message.body, body_type
    if message.body_kind == NONE:
        headers[_BODY] = _ABSENT
        return b"", 0
    if message.body_kind == VALUE:
        value = message.body
        if value is None:
            return b"", Vt.VT_NULL
        try:
            if (simple := _BODY_TYPES.get(type(value))) is not None:
                return activex.encode(value, simple)
            if type(value) in _TAGGED:
                kind, text = _typed(value)
                encoded = activex.encode(text, Vt.VT_LPWSTR)
                headers[_BODY] = kind
                return encoded
            if type(value) is Timestamp:
                encoded = activex.encode(_EPOCH + timedelta(milliseconds=value), Vt.VT_DATE)
                headers[_BODY] = "timestamp"
                return encoded
        except (BodyError, OverflowError):  # a text with half a surrogate pair, a time that no date has
            pass
    headers[_BODY] = _SECTIONS
    return message.body_bytes, 0


# Out


def to_amqp(message: Message, address: str, place: MappingContext) -> AmqpMessage:
    """The message to be delivered from the queue with this address."""
    values = _values(message)
    headers = _with_values(values)
    types = _types_of(headers)
    out = AmqpMessage()
    out.header = {
        "durable": bool(message.recoverable or message.transactional),
        "priority": _priority(headers.get(_PRIORITY, ""), message.priority),
    }
    if message.time_to_be_received != INFINITE:
        expires = message.sent_time + message.time_to_be_received
        out.header["ttl"] = min(max(0, math.ceil((expires - place.now()) * 1000)), INFINITE)
        out.properties["absolute_expiry_time"] = expires * 1000
    if message.aborted_receives:
        out.header["delivery_count"] = message.aborted_receives
    elif _FIRST_ACQUIRER in headers:
        out.header["first_acquirer"] = True
    out.properties |= {
        "message_id": _identifier(headers, types, "message_id") or identifier_text(message.identifier),
        "to": address,
        "creation_time": message.sent_time * 1000,
    }
    _write_properties(message, headers, types, out, place)
    if (kind := headers.get(_JMS_TYPE, "")) in map(str, range(_JMS_TYPES)):
        out.annotations[JMS_TYPE] = Byte(kind)
    for name, text in headers.items():
        if name.startswith(_ANNOTATION):
            out.annotations[Symbol(name.removeprefix(_ANNOTATION))] = _value(text, types.get(name, ""))
    _write_annotations(message, out, is_opaque=bool(message.extension) and not values)
    _body_out(message, headers, out)
    out.application_properties = _application_properties(values, types)
    return out


def application_properties(message: Message) -> dict[str, Any]:
    """Those of :func:`to_amqp` alone, for less work."""
    values = _values(message)
    return _application_properties(values, _types_of(_with_values(values)))


def _with_values(values: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def _values(message: Message) -> Mapping[str, str | None]:
    found = read_headers(message.extension, limits=CARRIED)
    return {} if found.reason else found.values  # damaged ones travel whole, as the extension


def _application_properties(values: Mapping[str, str | None], types: dict[str, str]) -> dict[str, Any]:
    return {
        name: None if value is None else _value(value, types.get(name, ""))
        for name, value in values.items()
        if not name.startswith(_OURS)
    }


def _priority(kept: str, priority: int) -> int:
    """The priority for a receiver: the sender's, if it is one of those that Message Queuing does not have."""
    if kept.isascii() and kept.isdigit() and min(max(int(kept) - 1, 0), 7) == priority:
        return min(int(kept), 255)
    return priority + 1


def _types_of(headers: dict[str, str]) -> dict[str, str]:
    if _TYPES not in headers:
        return {}
    try:
        types = json.loads(headers[_TYPES])
    except ValueError:
        return {}
    return {name: kind for name, kind in types.items() if isinstance(kind, str)} if isinstance(types, dict) else {}


def _identifier(headers: dict[str, str], types: dict[str, str], field: str) -> Any:
    name = _IDENTIFIERS[field]
    if name not in headers:
        return None
    value = _value(headers[name], types.get(name, ""))
    return ULong(value) if isinstance(value, int) and 0 <= value < 1 << 64 else value


def _write_properties(
    message: Message, headers: dict[str, str], types: dict[str, str], out: AmqpMessage, place: MappingContext
) -> None:
    properties = out.properties
    if subject := headers.get(_SUBJECT) or message.label:
        properties["subject"] = subject
    correlation = _identifier(headers, types, "correlation_id")
    if correlation is None and any(message.correlation_identifier):
        correlation = identifier_text(message.correlation_identifier)
    if correlation is not None:
        properties["correlation_id"] = correlation
    if message.response_queue_format_name:
        properties["reply_to"] = address_of(message.response_queue_format_name, place.is_here)
    elif _REPLY_TO in headers:
        properties["reply_to"] = headers[_REPLY_TO]
    for field, name in _KEPT.items():
        text = headers.get(name)
        if text and (text.isascii() or field not in ("content_type", "content_encoding")):
            properties[field] = text
    sequence = headers.get(_GROUP_SEQUENCE, "")
    if sequence.isascii() and sequence.isdigit() and int(sequence) < 1 << 32:
        properties["group_sequence"] = int(sequence)


def _write_annotations(message: Message, out: AmqpMessage, *, is_opaque: bool) -> None:
    if message.message_class != MessageClass.MQMSG_CLASS_NORMAL:
        out.annotations[CLASS] = UInt(message.message_class)
    if message.app_specific:
        out.annotations[APP_SPECIFIC] = UInt(message.app_specific)
    if is_opaque:
        out.annotations[EXTENSION] = message.extension


def _body_out(message: Message, headers: dict[str, str], out: AmqpMessage) -> None:
    kind = headers.get(_BODY, "")
    if kind == _SECTIONS:
        try:
            sections = parse(message.body)
        except CodecError:  # somebody else changed the body
            sections = AmqpMessage(body=message.body)
        out.body_kind, out.body, out.body_bytes = sections.body_kind, sections.body, sections.body_bytes
    elif kind == _ABSENT and not message.body:
        out.body_kind = NONE
    elif message.body_type == Vt.VT_NULL and not message.body:
        out.body_kind, out.body = VALUE, None
    else:
        try:
            out.body = _decoded(message, kind)
            out.body_kind = VALUE
        except (BodyError, ValueError, KeyError, ArithmeticError):  # as bytes, with the type that they should have
            out.body = message.body
            if message.body_type:
                out.annotations[BODY_TYPE] = UInt(message.body_type)


def _decoded(message: Message, kind: str) -> Any:
    """The value of a body that has a type of AMQP; KeyError, BodyError or the like for another one."""
    body_type = message.body_type
    if kind == "timestamp" and body_type == Vt.VT_DATE:
        moment = activex.decode(message.body, body_type, Budget(CARRIED)).replace(tzinfo=UTC)
        return Timestamp((moment - _EPOCH.replace(tzinfo=UTC)) // timedelta(milliseconds=1))
    made = _TYPES_OF_BODIES[body_type]
    value = made(activex.decode(message.body, body_type, Budget(CARRIED)))
    if kind and made is str:
        return _READERS[kind](value)
    if made is str:
        value.encode()  # a text of .NET may have half a surrogate pair, for which AMQP has no string
    return value
