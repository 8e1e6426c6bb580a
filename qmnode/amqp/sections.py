"""A message of AMQP 1.0 (part 3.2): its sections, from bytes and back; :mod:`qmnode.amqp.mapping` has the meaning."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from qmnode.amqp.codec import (
    NULL,
    UNENCODABLE,
    CodecError,
    Decoder,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    encode,
    encoded_list,
    encoder_of,
)

_HEADER: Final = 0x70
_DELIVERY_ANNOTATIONS: Final = 0x71
_MESSAGE_ANNOTATIONS: Final = 0x72
_PROPERTIES: Final = 0x73
_APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
_FOOTER: Final = 0x78
_BODIES: Final = (DATA, SEQUENCE, VALUE)
NONE: Final = 0
"""The kind of the body of a message without one."""

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
    "durable": bool,
    "priority": UByte,
    "ttl": UInt,
    "first_acquirer": bool,
    "delivery_count": UInt,
    "to": str,
    "subject": str,
    "reply_to": str,
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
        descriptor, value = decoder.described()
        number = _NAMES.get(descriptor, descriptor)
        if number in _BODIES:
            if kind not in (0, number) or (kind == VALUE):
                raise CodecError("a message has sections of data, or of sequences, or one value")
            first, last, kind = (first if kind else start), decoder.position, number
            parts.append(value)
        else:
            _place(message, number, value)
    message.body_kind = kind
    if kind == NONE:
        return message
    message.body = _body(kind, parts)
    if kind != DATA:
        message.body_bytes = data[first:last]
    return message


def _body(kind: int, parts: list[Any]) -> Any:
    if kind == VALUE:
        return parts[0]
    if kind == DATA:
        if len(parts) == 1 and type(parts[0]) is bytes:
            return parts[0]
        if not all(isinstance(part, bytes) for part in parts):
            raise CodecError("a data section holds binary data")
        return b"".join(parts)
    if not all(isinstance(part, list) for part in parts):
        raise CodecError("a sequence section holds a list")
    return [value for part in parts for value in part]


def _place(message: AmqpMessage, number: Any, value: Any) -> None:
    match number:
        case 0x70:
            message.header = _fields(_HEADER_READERS, value)
        case 0x73:
            message.properties = _fields(_PROPERTY_READERS, value)
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


_Readers = tuple[tuple[str, tuple[type[Any], ...], bool], ...]
"""Fields in order, each with its types and whether it may be a boolean, which is an int in Python."""


def _readers(names: tuple[str, ...]) -> _Readers:
    types = [_ACCEPTED.get(name, (str,)) for name in names]
    return tuple((name, accepted, bool in accepted) for name, accepted in zip(names, types, strict=True))


_HEADER_READERS: Final = _readers(HEADER_FIELDS)
_PROPERTY_READERS: Final = _readers(PROPERTY_FIELDS)


def _fields(readers: _Readers, values: Any) -> dict[str, Any]:
    if not isinstance(values, list) or len(values) > len(readers):
        raise CodecError(f"a section with {readers[0][0]} is a list of at most {len(readers)} fields")
    found: dict[str, Any] = {}
    for (name, accepted, takes_boolean), value in zip(readers, values, strict=False):
        if value is None:
            continue
        if not isinstance(value, accepted) or (not takes_boolean and isinstance(value, bool)):
            raise CodecError(f"{name.replace('_', '-')} of a message cannot be {value!r:.80}")
        found[name] = value
    return found


def _section(number: int, value: bytes) -> bytes:
    return b"\x00\x53" + bytes((number,)) + value


_Writers = dict[str, tuple[int, Callable[[Any], bytes]]]
"""The place of each field in its list, and what encodes it."""


def _writers(names: tuple[str, ...]) -> _Writers:
    return {name: (place, encoder_of(_TYPES[name]) if name in _TYPES else encode) for place, name in enumerate(names)}


_HEADER_WRITERS: Final = _writers(HEADER_FIELDS)
_PROPERTY_WRITERS: Final = _writers(PROPERTY_FIELDS)


def _fields_of(writers: _Writers, fields: dict[str, Any]) -> bytes:
    """A list of fields, up to the last that is set."""
    values = [NULL] * len(writers)
    count = 0
    for name, value in fields.items():
        if value is not None:
            place, encoded = writers[name]
            values[place] = encoded(value)
            if place >= count:
                count = place + 1
    return encoded_list(values[:count])


def write(message: AmqpMessage) -> bytes:
    """The bytes of a message. CodecError if a value has no encoding."""
    try:
        return b"".join(_written(message))
    except UNENCODABLE as error:
        raise CodecError(f"a value of the message has no encoding: {error}") from None


def _written(message: AmqpMessage) -> Iterator[bytes]:
    if message.header:
        yield _section(_HEADER, _fields_of(_HEADER_WRITERS, message.header))
    if message.annotations:
        yield _section(_MESSAGE_ANNOTATIONS, encode(message.annotations))
    if message.properties:
        yield _section(_PROPERTIES, _fields_of(_PROPERTY_WRITERS, message.properties))
    if message.application_properties:
        yield _section(_APPLICATION_PROPERTIES, encode(message.application_properties))
    if message.body_kind != NONE:
        yield message.body_bytes or _section(message.body_kind, encode(message.body))
