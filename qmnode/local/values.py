"""What travels in the rarer calls: JSON, with bytes, queue descriptions and errors as tagged values."""

import json
from dataclasses import fields
from typing import Any, Final

from qmnode.errors import MessageQueuingError
from qmnode.local.frames import FrameError
from qmnode.model.administration import IncomingSequenceInformation, NodeStatus, TransactionInformation
from qmnode.model.api import QueueInformation, QueueType
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid

_BYTES: Final = "$bytes"
_QUEUE: Final = "$queue"
_STATUS: Final = "$status"
_TRANSACTION: Final = "$transaction"
_SEQUENCE: Final = "$incoming_sequence"
_STATUS_FIELDS: Final = {field.name for field in fields(NodeStatus)}
"""A newer node may say more."""


def encode(value: object) -> bytes:
    """JSON of plain values, bytes, and QueueInformation."""
    return json.dumps(value, default=_to_plain, separators=(",", ":")).encode()


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
        case IncomingSequenceInformation():
            return {_SEQUENCE: _attributes(value)}
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
        return QueueInformation(**attributes)
    if _STATUS in value:
        known = {name: found for name, found in value[_STATUS].items() if name in _STATUS_FIELDS}
        return NodeStatus(**known | {"warnings": tuple(known["warnings"])})
    if _TRANSACTION in value:
        return TransactionInformation(**value[_TRANSACTION] | {"queues": tuple(value[_TRANSACTION]["queues"])})
    if _SEQUENCE in value:
        return IncomingSequenceInformation(**value[_SEQUENCE] | {"source": Guid(value[_SEQUENCE]["source"])})
    return value


def encode_error(error: MessageQueuingError) -> bytes:
    """Code and sentence."""
    return encode(error_value(error))


def error_value(error: MessageQueuingError) -> list[Any]:
    """Code and sentence, as part of another value."""
    return [int(error.code), error.sentence]


def decode_error(value: Any) -> MessageQueuingError:
    """The error that the node raised."""
    code, sentence = value
    return MessageQueuingError(ErrorCode(code), sentence)
