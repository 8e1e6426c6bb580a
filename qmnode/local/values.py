"""The values of the rarer calls: JSON, with bytes, queue descriptions and errors as tagged values."""

import json
from dataclasses import MISSING, Field, fields
from typing import Any, Final

from qmnode.errors import MessageQueuingError
from qmnode.local.frames import FrameError
from qmnode.model.administration import (
    BridgeInformation,
    IncomingSequenceInformation,
    NodeStatus,
    RefusedMessages,
    TransactionInformation,
)
from qmnode.model.api import QueueInformation, QueueType
from qmnode.model.waiting_reasons import Waiting, WaitReason
from qmnode.objects.table import QUEUE
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid

_BYTES: Final = "$bytes"
_QUEUE: Final = "$queue"
_STATUS: Final = "$status"
_TRANSACTION: Final = "$transaction"
_SEQUENCE: Final = "$incoming_sequence"
_REFUSED: Final = "$refused_messages"
_WAITING: Final = "$waiting"

_NAMES: Final[dict[type, frozenset[str]]] = {
    kind: frozenset(field.name for field in fields(kind))
    for kind in (
        BridgeInformation,
        IncomingSequenceInformation,
        NodeStatus,
        QueueInformation,
        RefusedMessages,
        TransactionInformation,
        Waiting,
    )
}


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


_ADDED: Final[dict[type, frozenset[str]]] = {
    IncomingSequenceInformation: frozenset({"is_known", "refused_count", "waiting"}),
    NodeStatus: frozenset(field.name for field in fields(NodeStatus) if not _is_required(field)) - {"warnings"},
    QueueInformation: frozenset(field.name for field in fields(QueueInformation) if field.kw_only)
    | {row.name for row in QUEUE.values() if row.added},
}
"""Fields that came after the first release, by type. Each has a default, for the answers of older nodes."""


def encode(value: object) -> bytes:
    """JSON of plain values, bytes, and what a queue manager tells of itself."""
    return json.dumps(value, default=_to_plain, separators=(",", ":")).encode()


def encode_for_first_release(value: object) -> bytes:
    """The same without the fields that the first release does not know."""
    return json.dumps(value, default=_to_plain_of_first_release, separators=(",", ":")).encode()


def _to_plain_of_first_release(value: object) -> Any:
    plain = _to_plain(value)
    for attributes in plain.values() if type(value) in _ADDED else ():
        for name in _ADDED[type(value)]:
            del attributes[name]
    return plain


def _to_plain(value: object) -> Any:
    match value:
        case bytes() | bytearray() | memoryview():
            return {_BYTES: bytes(value).hex()}
        case QueueInformation():
            return {_QUEUE: _attributes(value)}
        case NodeStatus():
            return {_STATUS: _attributes(value)}
        case TransactionInformation():
            return {_TRANSACTION: _attributes(value)}
        case BridgeInformation():
            return _attributes(value)
        case IncomingSequenceInformation():
            return {_SEQUENCE: _attributes(value)}
        case RefusedMessages():
            return {_REFUSED: _attributes(value)}
        case Waiting():
            return {_WAITING: _attributes(value)}
        case _:
            raise TypeError(f"{type(value).__name__} cannot travel to or from the node")


def _attributes(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def decode(body: bytes) -> Any:
    """The other way round. FrameError for anything else."""
    try:
        return json.loads(body, object_hook=_from_plain)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FrameError(f"not a value of this protocol: {error}") from error


def _from_plain(value: dict[str, Any]) -> Any:
    if _BYTES in value:
        return bytes.fromhex(value[_BYTES])
    if _QUEUE in value:
        attributes: dict[str, Any] = value[_QUEUE]
        attributes["queue_type"] = QueueType(attributes["queue_type"])
        attributes["identifier"] = Guid(attributes["identifier"])
        attributes["type"] = Guid(attributes["type"])
        for name in ("subqueues", "next_hops"):
            attributes[name] = tuple(attributes[name])
        return _of_known_fields(QueueInformation, attributes)
    if _STATUS in value:
        attributes = value[_STATUS]
        lists: dict[str, Any] = {
            name: tuple(attributes.get(name, ())) for name in ("warnings", "plain_peers", "waiting", "probes")
        }
        lists["bridges"] = tuple(
            _of_known_fields(BridgeInformation, bridge) for bridge in attributes.get("bridges", ())
        )
        return _of_known_fields(NodeStatus, attributes | lists)
    if _TRANSACTION in value:
        return _of_known_fields(
            TransactionInformation, value[_TRANSACTION] | {"queues": tuple(value[_TRANSACTION]["queues"])}
        )
    if _SEQUENCE in value:
        return _of_known_fields(
            IncomingSequenceInformation, value[_SEQUENCE] | {"source": Guid(value[_SEQUENCE]["source"])}
        )
    if _WAITING in value:
        return _of_known_fields(Waiting, value[_WAITING] | {"reason": _reason_of(value[_WAITING]["reason"])})
    if _REFUSED in value:
        return _of_known_fields(RefusedMessages, value[_REFUSED] | {"source": Guid(value[_REFUSED]["source"])})
    return value


def _reason_of(text: str) -> WaitReason:
    try:
        return WaitReason(text)
    except ValueError:  # of a newer node
        return WaitReason.REFUSED


def _of_known_fields(kind: type, attributes: dict[str, Any]) -> Any:
    """A value made of the fields that are known here; a newer node may send more."""
    names = _NAMES[kind]
    return kind(**{name: value for name, value in attributes.items() if name in names})


def encode_error(error: MessageQueuingError) -> bytes:
    """Encode code and sentence of an error."""
    return encode(error_value(error))


def error_value(error: MessageQueuingError) -> list[Any]:
    """Code and sentence, as part of another value."""
    return [int(error.code), error.sentence]


def decode_error(value: Any) -> MessageQueuingError:
    """The error that the node raised."""
    code, sentence = value
    return MessageQueuingError(ErrorCode(code), sentence)
