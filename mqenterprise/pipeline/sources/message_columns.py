"""From stored messages to columns, many at a time: fixed fields by numpy, names once for each that there is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from qmnode.export.decoding import sender_of
from qmnode.model.packet_parts import (
    ADMINISTRATION_SHIFT,
    DESTINATION_SHIFT,
    HAS_CONNECTOR,
    HAS_TRANSACTION,
    HEAD,
    PROPERTIES,
    RECOVERABLE_FLAG,
    RESPONSE_SHIFT,
    SOURCE,
    Names,
)
from qmnode.model.positions import SEQUENCE_MASK
from qmnode.structures.guid import guid_to_text
from qmnode.structures.user_header import UserFlags

_TIME: Final = pa.timestamp("us", tz="UTC")
MESSAGE_SCHEMA: Final = pa.schema(
    [
        ("node_id", pa.string()),
        ("node", pa.string()),
        ("queue", pa.string()),
        ("queue_type", pa.string()),
        ("lookup_id", pa.int64()),
        ("sequential_id", pa.int64()),
        ("arrival_time", _TIME),
        ("expiry_time", _TIME),
        ("aborted_receives", pa.int32()),
        ("moves", pa.int32()),
        ("source_id", pa.string()),
        ("message_number", pa.int64()),
        ("destination", pa.string()),
        ("administration_queue", pa.string()),
        ("response_queue", pa.string()),
        ("message_class", pa.int32()),
        ("priority", pa.int32()),
        ("recoverable", pa.bool_()),
        ("transactional", pa.bool_()),
        ("hop_count", pa.int32()),
        ("size", pa.int64()),
        ("body_size", pa.int64()),
        ("sent_time", _TIME),
        ("time_to_reach_queue", pa.int64()),
        ("time_to_be_received", pa.int64()),
        ("acknowledgments", pa.int32()),
        ("correlation_id", pa.binary()),
        ("body_type", pa.int64()),
        ("app_specific", pa.int64()),
        ("privacy_level", pa.int32()),
        ("label", pa.string()),
        ("sender", pa.string()),
        ("body", pa.binary()),
    ]
)
"""Columns of messages. ``lookup_id`` is the order of delivery in a queue, ``sequential_id`` the order of arrival at the
node. ``body`` is read only when it is asked for."""

_HEAD: Final = np.dtype(
    [
        ("version", "u1"), ("record_flags", "u1"), ("aborts", "u1"), ("moves", "u1"), ("place", "<u4"),
        ("expires", "<u4"), ("arrival", "<u8"), ("packet_version", "u1"), ("reserved", "u1"), ("base_flags", "<u2"),
        ("signature", "<u4"), ("size", "<u4"), ("reach", "<u4"), ("source", "V16"), ("address", "V16"),
        ("lifetime", "<u4"), ("sent", "<u4"), ("number", "<u4"), ("flags", "<u4"),
    ]
)  # fmt: skip
"""The prefix of a stored message, BaseHeader and UserHeader: as qmnode.model.packet_parts.HEAD has them."""
_PROPERTIES: Final = np.dtype(
    [
        ("flags", "u1"), ("label_length", "u1"), ("message_class", "<u2"), ("correlation", "V20"),
        ("body_type", "<u4"), ("app_specific", "<u4"), ("body_size", "<u4"), ("allocated", "<u4"),
        ("privacy", "<u4"), ("hash", "<u4"), ("encryption", "<u4"), ("extension_size", "<u4"),
    ]
)  # fmt: skip
_INFINITE: Final = 0xFFFF_FFFF
_SECURED: Final = UserFlags.SH.mask
_BEFORE_NAMES_END: Final = HAS_TRANSACTION | HAS_CONNECTOR | _SECURED
"""With none of these, the names are all there is between UserHeader and MessagePropertiesHeader, but for a trace."""
_KINDS: Final = 0x7FC00
"""Flags.DQ, AQ and RQ."""
_ADDRESSES: Final = slice(SOURCE.start, SOURCE.start + 32)
_NAMES_KEPT: Final = 65536


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What is the same for all messages of a queue."""

    node_id: str
    node: str
    queue_id: int
    queue: str
    queue_type: str


class MessageColumns:
    """Makes record batches of the messages of one queue."""

    def __init__(self, facts: QueueFacts, schema: pa.Schema) -> None:
        self._facts = facts
        self._schema = schema
        self._names: dict[tuple[bytes, int, bytes], tuple[str, str | None, str | None]] = {}

    def batch(self, keys: Sequence[bytes], values: Sequence[bytes]) -> pa.RecordBatch:
        """Messages, in the order of their keys, as one batch."""
        messages = _Messages(keys, values, self._known)
        arrays = []
        for field in self._schema:
            if (same := getattr(self._facts, field.name, None)) is not None:
                arrays.append(pa.repeat(pa.scalar(same, field.type), len(values)))
            else:
                arrays.append(_COLUMNS[field.name](messages, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _known(self, value: bytes, flags: int, end: int) -> tuple[str, str | None, str | None]:
        """Destination, administration and response queue of a message: its names' bytes are the same in many."""
        if flags & _BEFORE_NAMES_END:
            names = Names(value, b"", b"")
            for shift in (DESTINATION_SHIFT, ADMINISTRATION_SHIFT, RESPONSE_SHIFT):
                names.skip(flags >> shift & 7)
            end = names.offset
        key = value[_ADDRESSES], flags & _KINDS, value[HEAD.size : end]
        found = self._names.get(key)
        if found is None:
            if len(self._names) >= _NAMES_KEPT:
                self._names.clear()
            names = Names(value, key[0][:16], key[0][16:])
            destination = names.take(flags >> DESTINATION_SHIFT & 7)
            administration = names.take(flags >> ADMINISTRATION_SHIFT & 7)
            response = names.take(flags >> RESPONSE_SHIFT & 7, administration)
            found = self._names[key] = destination, administration or None, response or None
        return found


class _Messages:
    """Some messages, and what several of their columns need."""

    def __init__(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        known: Callable[[bytes, int, int], tuple[str, str | None, str | None]],
    ) -> None:
        self.keys = keys
        self.values = values
        self._known = known
        self.head = np.frombuffer(b"".join([value[: HEAD.size] for value in values]), _HEAD)

    @cached_property
    def lookup(self) -> Any:
        return np.frombuffer(b"".join(self.keys), np.dtype([("queue", ">u4"), ("lookup", ">u8")]))["lookup"].astype(
            "i8"
        )

    @cached_property
    def places(self) -> list[int]:
        places: list[int] = self.head["place"].tolist()
        return places

    @cached_property
    def properties(self) -> Any:
        size = PROPERTIES.size
        parts = [value[place : place + size] for value, place in zip(self.values, self.places, strict=True)]
        return np.frombuffer(b"".join(parts), _PROPERTIES)

    @cached_property
    def names(self) -> list[tuple[str, str | None, str | None]]:
        known = self._known
        flags = self.head["flags"].tolist()
        return [known(*one) for one in zip(self.values, flags, self.places, strict=True)]

    def flag(self, mask: int) -> Any:
        return self.head["flags"] & mask != 0


def _head(name: str, mask: int = -1) -> "_Column":
    if mask == -1:
        return lambda messages, kind: pa.array(messages.head[name].astype(_numpy(kind)), kind)
    return lambda messages, kind: pa.array((messages.head[name] & mask).astype(_numpy(kind)), kind)


def _property(name: str, mask: int = -1) -> "_Column":
    return lambda messages, kind: pa.array((messages.properties[name].astype("i8") & mask).astype(_numpy(kind)), kind)


def _numpy(kind: pa.DataType) -> str:
    return "i4" if kind == pa.int32() else "i8"


def _seconds(name: str) -> "_Column":
    """Seconds, or null for ever."""

    def column(messages: _Messages, kind: pa.DataType) -> pa.Array:
        seconds = messages.head[name]
        return pa.array(seconds.astype("i8"), kind, mask=seconds == _INFINITE)

    return column


def _moment(name: str) -> "_Column":
    """Seconds since 1970, or null for never."""

    def column(messages: _Messages, kind: pa.DataType) -> pa.Array:
        seconds = messages.head[name]
        return pa.array(seconds.astype("i8") * 1_000_000, pa.int64(), mask=seconds == _INFINITE).cast(kind)

    return column


def _name(place: int) -> "_Column":
    return lambda messages, kind: pa.array([names[place] for names in messages.names], kind)


def _flag(mask: int) -> "_Column":
    return lambda messages, kind: pa.array(messages.flag(mask), kind)


def _sources(messages: _Messages, kind: pa.DataType) -> pa.Array:
    found: dict[bytes, str] = {}
    texts: list[str] = []
    for value in messages.values:
        source = value[SOURCE]
        text = found.get(source)
        if text is None:
            text = found[source] = guid_to_text(source)
        texts.append(text)
    return pa.array(texts, kind)


def _hops(messages: _Messages, kind: pa.DataType) -> pa.Array:
    return pa.array((messages.head["flags"] & UserFlags.RC.mask).astype("i4"), kind)


def _labels(messages: _Messages, kind: pa.DataType) -> pa.Array:
    size = PROPERTIES.size
    lengths = messages.properties["label_length"].tolist()
    return pa.array(
        [
            value[place + size : place + size + 2 * length - 2].decode("utf-16-le", "replace") if length else None
            for value, place, length in zip(messages.values, messages.places, lengths, strict=True)
        ],
        kind,
    )


def _bodies(messages: _Messages, kind: pa.DataType) -> pa.Array:
    properties = messages.properties
    starts = (
        messages.head["place"].astype("i8")
        + PROPERTIES.size
        + 2 * properties["label_length"].astype("i8")
        + properties["extension_size"]
    )
    ends = (starts + properties["body_size"]).tolist()
    return pa.array(
        [value[start:end] for value, start, end in zip(messages.values, starts.tolist(), ends, strict=True)], kind
    )


def _senders(messages: _Messages, kind: pa.DataType) -> pa.Array:
    flags = messages.head["flags"].tolist()
    if not messages.flag(_SECURED).any():
        return pa.nulls(len(flags), kind)
    return pa.array(
        [sender_of(value, one) if one & _SECURED else None for value, one in zip(messages.values, flags, strict=True)],
        kind,
    )


def _correlations(messages: _Messages, kind: pa.DataType) -> pa.Array:
    return pa.array(messages.properties["correlation"].tolist(), kind)


_Column = Callable[[_Messages, pa.DataType], pa.Array]
_COLUMNS: Final[dict[str, _Column]] = {
    "lookup_id": lambda messages, kind: pa.array(messages.lookup, kind),
    "sequential_id": lambda messages, kind: pa.array(messages.lookup & SEQUENCE_MASK, kind),
    "arrival_time": lambda messages, kind: pa.array(messages.head["arrival"].astype("i8"), pa.int64()).cast(kind),
    "expiry_time": _moment("expires"),
    "aborted_receives": _head("aborts"),
    "moves": _head("moves"),
    "source_id": _sources,
    "message_number": _head("number"),
    "destination": _name(0),
    "administration_queue": _name(1),
    "response_queue": _name(2),
    "message_class": _property("message_class"),
    "priority": _head("base_flags", 7),
    "recoverable": _flag(RECOVERABLE_FLAG),
    "transactional": _flag(HAS_TRANSACTION),
    "hop_count": _hops,
    "size": _head("size"),
    "body_size": _property("body_size"),
    "sent_time": _moment("sent"),
    "time_to_reach_queue": _seconds("reach"),
    "time_to_be_received": _seconds("lifetime"),
    "acknowledgments": _property("flags", 0x0F),
    "correlation_id": _correlations,
    "body_type": _property("body_type"),
    "app_specific": _property("app_specific"),
    "privacy_level": _property("privacy"),
    "label": _labels,
    "sender": _senders,
    "body": _bodies,
}
