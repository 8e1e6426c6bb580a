"""A message of AMQP 1.0 (part 3.2): its sections, from bytes and back; :mod:`qmnode.amqp.mapping` has the meaning."""

from dataclasses import dataclass, field
from typing import Any, Final

from qmnode.amqp.codec import CodecError, Decoder, Described, Symbol, Timestamp, UByte, UInt, ULong, encode

_HEADER: Final = 0x70
_DELIVERY_ANNOTATIONS: Final = 0x71
_MESSAGE_ANNOTATIONS: Final = 0x72
_PROPERTIES: Final = 0x73
_APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
_FOOTER: Final = 0x78

_NAMES: Final = {
    Symbol("amqp:header:list"): _HEADER,
    Symbol("amqp:delivery-annotations:map"): _DELIVERY_ANNOTATIONS,
    Symbol("amqp:message-annotations:map"): _MESSAGE_ANNOTATIONS,
    Symbol("amqp:properties:list"): _PROPERTIES,
    Symbol("amqp:application-properties:map"): _APPLICATION_PROPERTIES,
    Symbol("amqp:data:binary"): DATA,
    Symbol("amqp:amqp-sequence:list"): SEQUENCE,
    Symbol("amqp:amqp-value:*"): VALUE,
    Symbol("amqp:footer:map"): _FOOTER,
}

HEADER_FIELDS: Final = ("durable", "priority", "ttl", "first_acquirer", "delivery_count")
PROPERTY_FIELDS: Final = (
    "message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type", "content_encoding",
    "absolute_expiry_time", "creation_time", "group_id", "group_sequence", "reply_to_group_id",
)  # fmt: skip
_TYPES: Final[dict[str, type[Any]]] = {
    "priority": UByte,
    "ttl": UInt,
    "delivery_count": UInt,
    "content_type": Symbol,
    "content_encoding": Symbol,
    "absolute_expiry_time": Timestamp,
    "creation_time": Timestamp,
    "group_sequence": UInt,
}
_ACCEPTED: Final[dict[str, tuple[type[Any], ...]]] = {
    "durable": (bool,),
    "priority": (int,),
    "ttl": (int,),
    "first_acquirer": (bool,),
    "delivery_count": (int,),
    "message_id": (int, str, bytes, object),
    "correlation_id": (int, str, bytes, object),
    "user_id": (bytes,),
    "absolute_expiry_time": (int,),
    "creation_time": (int,),
    "group_sequence": (int,),
}


@dataclass(slots=True)
class AmqpMessage:
    """A message as AMQP has it. Fields that are not set are not in the dictionaries."""

    header: dict[str, Any] = field(default_factory=dict)
    annotations: dict[Any, Any] = field(default_factory=dict)
    properties: dict[str, Any] = field(default_factory=dict)
    application_properties: dict[str, Any] = field(default_factory=dict)
    body_kind: int = DATA
    body: Any = b""
    """bytes of all data sections, the value, or the list of all sequences."""
    body_bytes: bytes = b""
    """The sections of a body that is not data, as they came."""


def parse(data: bytes) -> AmqpMessage:
    """The message in these bytes. CodecError."""
    message = AmqpMessage()
    decoder = Decoder(data)
    parts: list[Any] = []
    kind = 0
    first = last = 0
    while not decoder.at_end:
        start = decoder.position
        section = decoder.value()
        if not isinstance(section, Described):
            raise CodecError("a message consists of sections, and this is none")
        number = _NAMES.get(section.descriptor, section.descriptor)
        if number in (DATA, SEQUENCE, VALUE):
            if kind not in (0, number) or (kind == VALUE):
                raise CodecError("a message has sections of data, or of sequences, or one value")
            first, last, kind = (first if kind else start), decoder.position, number
            parts.append(section.value)
        else:
            _place(message, number, section.value)
    if kind == 0:
        return message  # no body at all: some clients leave out an empty one
    message.body_kind = kind
    message.body = _body(kind, parts)
    if kind != DATA:
        message.body_bytes = data[first:last]
    return message


def _body(kind: int, parts: list[Any]) -> Any:
    if kind == VALUE:
        return parts[0]
    if kind == DATA:
        if not all(isinstance(part, bytes) for part in parts):
            raise CodecError("a data section holds binary data")
        return b"".join(parts)
    if not all(isinstance(part, list) for part in parts):
        raise CodecError("a sequence section holds a list")
    return [value for part in parts for value in part]


def _place(message: AmqpMessage, number: Any, value: Any) -> None:
    match number:
        case 0x70:
            message.header = _fields(HEADER_FIELDS, value)
        case 0x73:
            message.properties = _fields(PROPERTY_FIELDS, value)
        case 0x72:
            message.annotations = _map(value)
        case 0x74:
            message.application_properties = _map(value)
            if not all(isinstance(key, str) for key in message.application_properties):
                raise CodecError("application properties have names that are text")
        case 0x71 | 0x78:
            _map(value)
        case _:
            raise CodecError(f"a message has no section {number!r:.80}")


def _map(value: Any) -> dict[Any, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise CodecError("a section of annotations or properties is a map")
    return value


def _fields(names: tuple[str, ...], values: Any) -> dict[str, Any]:
    if not isinstance(values, list) or len(values) > len(names):
        raise CodecError(f"a section with {names[0]} is a list of at most {len(names)} fields")
    found = {name: value for name, value in zip(names, values, strict=False) if value is not None}
    for name, value in found.items():
        accepted = _ACCEPTED.get(name, (str,))
        if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in accepted):
            raise CodecError(f"{name.replace('_', '-')} of a message cannot be {value!r:.80}")
    return found


def _list(names: tuple[str, ...], fields: dict[str, Any]) -> list[Any]:
    values = [
        None if (value := fields.get(name)) is None else _TYPES.get(name, lambda same: same)(value) for name in names
    ]
    while values and values[-1] is None:
        values.pop()
    return values


def write(message: AmqpMessage) -> bytes:
    """The bytes of a message. CodecError if a value has no encoding."""
    out = [encode(Described(ULong(_HEADER), _list(HEADER_FIELDS, message.header)))] if message.header else []
    if message.annotations:
        out.append(encode(Described(ULong(_MESSAGE_ANNOTATIONS), message.annotations)))
    if message.properties:
        out.append(encode(Described(ULong(_PROPERTIES), _list(PROPERTY_FIELDS, message.properties))))
    if message.application_properties:
        out.append(encode(Described(ULong(_APPLICATION_PROPERTIES), message.application_properties)))
    out.append(message.body_bytes or encode(Described(ULong(message.body_kind), message.body)))
    return b"".join(out)
