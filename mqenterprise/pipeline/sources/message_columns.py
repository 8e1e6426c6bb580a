"""Turn stored messages into columns, many at a time: fixed fields by numpy, and each distinct name once."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from qmnode.bodies.choice import Decoded, Headers, decode, read_headers
from qmnode.bodies.values_as_json import plain
from qmnode.export.decoding import sender_of
from qmnode.model.positions import SEQUENCE_MASK
from qmnode.model.stored_message import (
    ADDRESS,
    ADMINISTRATION_SHIFT,
    DESTINATION_SHIFT,
    HAS_CONNECTOR,
    HAS_TRANSACTION,
    HEAD,
    PREFIX_FIELDS,
    PREFIX_SIZE,
    RECOVERABLE_FLAG,
    RESPONSE_SHIFT,
    SOURCE,
    Names,
)
from qmnode.structures.guid import guid_to_text
from qmnode.structures.packet_view import (
    HEADERS_FIELDS,
    PROPERTIES_CODES,
    PROPERTIES_FIELDS,
    PROPERTIES_SIZE,
    TRANSACTION_HEADER_SIZE,
    places_of,
)
from qmnode.structures.user_message import UserFlags

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
        ("format", pa.string()),
        ("headers", pa.string()),
        ("decoded", pa.string()),
        ("undecoded_headers", pa.string()),
    ]
)
"""Columns of messages. ``lookup_id`` is the order of delivery in a queue, ``sequential_id`` the order of arrival at the
node. ``body`` is read only when it is asked for, and so are ``format`` (a name), ``headers`` and ``decoded`` (JSON),
and the reason why ``headers`` lacks some."""
DECODED: Final = ("format", "headers", "decoded", "undecoded_headers")


def _layout(names: Sequence[str], codes: str) -> Any:
    """The type of fields that ``struct`` has these codes for."""
    types = [f"V{size}" if size else _TYPES[code] for size, code in re.findall(r"(\d*)([a-zA-Z])", codes)]
    return np.dtype(list(zip(names, types, strict=True)))


_TYPES: Final = {"B": "u1", "H": "<u2", "I": "<u4", "Q": "<u8"}
_HEAD: Final = _layout((*PREFIX_FIELDS, *HEADERS_FIELDS), HEAD.format)
"""The prefix of a stored message, BaseHeader and UserHeader."""
_PROPERTIES: Final = _layout(PROPERTIES_FIELDS, PROPERTIES_CODES)
_INFINITE: Final = 0xFFFF_FFFF
_SECURED: Final = UserFlags.SH.mask
_KINDS: Final = 0x7FC00
"""Flags.DQ, AQ and RQ."""
_ADDRESSES: Final = slice(SOURCE.start, ADDRESS.stop)
_NAMES_KEPT: Final = 65536


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """The values that all messages of a queue share."""

    node_id: str
    node: str
    queue_id: int
    queue: str
    queue_type: str


class MessageColumns:
    """Make record batches of the messages of one queue."""

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
        """Return destination, administration and response queue of a message. Many messages share these bytes."""
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
    """Some messages end to end in one buffer, and the values that several of their columns need."""

    def __init__(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        known: Callable[[bytes, int, int], tuple[str, str | None, str | None]],
    ) -> None:
        self.keys = keys
        self.values = values
        self._known = known
        self._packed = b"".join(values)
        sizes = np.fromiter(map(len, values), "i8", len(values))
        self.starts = np.cumsum(sizes) - sizes
        self.head = self.at(self.starts, _HEAD)

    def at(self, places: Any, kind: Any) -> Any:
        """Return the values at these places of the buffer, one for each place."""
        size = np.dtype(kind).itemsize
        everywhere = np.ndarray(len(self._packed) - size + 1, f"V{size}", self._packed, strides=(1,))
        return everywhere[places].view(kind)

    @cached_property
    def lookup(self) -> Any:
        return np.frombuffer(b"".join(self.keys), np.dtype([("queue", ">u4"), ("lookup", ">u8")]))["lookup"].astype(
            "i8"
        )

    @cached_property
    def places(self) -> Any:
        """The places of the MessagePropertiesHeaders in the buffer."""
        return self.starts + self.head["place"]

    @cached_property
    def properties(self) -> Any:
        return self.at(self.places, _PROPERTIES)

    @cached_property
    def contents(self) -> list[tuple[bytes, bytes]]:
        """Return the extension and the body of each message."""
        properties = self.properties
        starts = self.head["place"].astype("i8") + PROPERTIES_SIZE + 2 * properties["label_length"].astype("i8")
        middles = starts + properties["extension_size"]
        ends = middles + properties["message_size"]
        places = zip(self.values, starts.tolist(), middles.tolist(), ends.tolist(), strict=True)
        return [(value[start:middle], value[middle:end]) for value, start, middle, end in places]

    @cached_property
    def decoded(self) -> list[Decoded | None]:
        """Return the body of each message as a value; None if it is encrypted."""
        types, privacy = self.properties["body_type"].tolist(), self.properties["privacy_level"].tolist()
        rows = zip(self.contents, self.headers, types, privacy, strict=True)
        return [
            None if private else decode(body, kind, headers=headers.values)
            for (_, body), headers, kind, private in rows
        ]

    @cached_property
    def headers(self) -> list[Headers]:
        """Return the headers of NServiceBus or Rebus of each message."""
        return [read_headers(extension) for extension, _ in self.contents]

    @cached_property
    def names(self) -> tuple[Any, list[tuple[str, str | None, str | None]]]:
        """Return, for each message, the number of its names, and the names by number."""
        flags, ends = self.head["flags"], self._name_ends
        codes, found = np.empty(len(flags), "i4"), list[tuple[str, str | None, str | None]]()
        for end in np.unique(ends).tolist():
            rows = np.flatnonzero(ends == end)
            keys = np.empty(len(rows), [("addresses", "V32"), ("kinds", "<u4"), ("names", f"V{end - HEAD.size}")])
            keys["addresses"] = self.at(self.starts[rows] + _ADDRESSES.start, "V32")
            keys["kinds"] = flags[rows] & _KINDS
            keys["names"] = self.at(self.starts[rows] + HEAD.size, keys["names"].dtype)
            numbers, first = _numbered(keys)
            codes[rows] = numbers + len(found)
            found += [self._known(self.values[row], int(flags[row]), end) for row in rows[first].tolist()]
        return codes, found

    @property
    def _name_ends(self) -> Any:
        """Return where the names of each message end, or a little later, but before the parts that differ in each."""
        flags = self.head["flags"]
        ends = self.head["place"].astype("i8") - np.where(flags & HAS_TRANSACTION, TRANSACTION_HEADER_SIZE, 0)
        for row in np.flatnonzero(flags & (HAS_CONNECTOR | _SECURED)).tolist():
            ends[row] = places_of(self.values[row], PREFIX_SIZE).connector_type
        return ends

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
    """Return seconds, or null for an infinite time."""

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
    def column(messages: _Messages, kind: pa.DataType) -> pa.Array:
        codes, found = messages.names
        return _decoded(codes, pa.array([names[place] for names in found], kind))

    return column


def _numbered(records: Any) -> tuple[Any, Any]:
    """Number the distinct byte strings. Return the number of each row, and the first row of each number."""
    buffers = [None, pa.py_buffer(records)]
    encoded = pa.FixedSizeBinaryArray.from_buffers(pa.binary(records.itemsize), len(records), buffers)
    encoded = encoded.dictionary_encode()
    numbers = encoded.indices.to_numpy()
    first = np.empty(len(encoded.dictionary), "i8")
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]
    return numbers, first


def _decoded(codes: Any, texts: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes), texts).dictionary_decode()


def _flag(mask: int) -> "_Column":
    return lambda messages, kind: pa.array(messages.flag(mask), kind)


def _sources(messages: _Messages, kind: pa.DataType) -> pa.Array:
    sources = np.ascontiguousarray(messages.head["source_queue_manager"])
    numbers, first = _numbered(sources)
    return _decoded(numbers, pa.array([guid_to_text(sources[row].tobytes()) for row in first], kind))


def _hops(messages: _Messages, kind: pa.DataType) -> pa.Array:
    return pa.array((messages.head["flags"] & UserFlags.RC.mask).astype("i4"), kind)


def _labels(messages: _Messages, kind: pa.DataType) -> pa.Array:
    """Return labels without the terminating zero; null without a label."""
    lengths = messages.properties["label_length"].astype("i8")
    counts = np.maximum(lengths - 1, 0)
    ends = np.concatenate(([0], np.cumsum(counts)))
    places = np.repeat(messages.places + PROPERTIES_SIZE - 2 * ends[:-1], counts) + 2 * np.arange(ends[-1])
    units = messages.at(places, "<u2")
    text = units.tobytes().decode("utf-16-le", "replace")
    if len(text) != len(units) or (units & 0xF800 == 0xD800).any():
        # Characters of two units, or broken ones: each label by itself.
        parts = [units[start:end].tobytes().decode("utf-16-le", "replace") for start, end in pairwise(ends.tolist())]
        return pa.array(parts, kind, mask=lengths == 0)
    sizes = 1 + (units >= 0x80).astype("i4") + (units >= 0x800)
    offsets = np.concatenate(([0], np.cumsum(sizes)))[ends].astype("i4")
    valid = np.packbits(lengths > 0, bitorder="little")
    return pa.StringArray.from_buffers(
        len(lengths), pa.py_buffer(offsets), pa.py_buffer(text.encode()), pa.py_buffer(valid)
    )


def _bodies(messages: _Messages, kind: pa.DataType) -> pa.Array:
    return pa.array([body for _, body in messages.contents], kind)


def _formats(messages: _Messages, kind: pa.DataType) -> pa.Array:
    """Return the names of the formats; null for unknown formats and encrypted bodies."""
    return pa.array([None if one is None else one.format or None for one in messages.decoded], kind)


def _values(messages: _Messages, kind: pa.DataType) -> pa.Array:
    """Return the values as JSON; null where there is none."""
    return pa.array([None if one is None or one.reason else _json(one.value) for one in messages.decoded], kind)


def _headers(messages: _Messages, kind: pa.DataType) -> pa.Array:
    """Return the known headers as JSON; null where there are none. Of damaged ones, those that can be read."""
    found = messages.headers
    return pa.array(
        [_json(dict(one.values)) if one.values or (one.format and not one.reason) else None for one in found], kind
    )


def _undecoded_headers(messages: _Messages, kind: pa.DataType) -> pa.Array:
    """Return why headers could not be read; null where all could."""
    return pa.array([one.reason or None for one in messages.headers], kind)


def _json(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False)


def _senders(messages: _Messages, kind: pa.DataType) -> pa.Array:
    flags = messages.head["flags"].tolist()
    if not messages.flag(_SECURED).any():
        return pa.nulls(len(flags), kind)
    return pa.array(
        [sender_of(value) if one & _SECURED else None for value, one in zip(messages.values, flags, strict=True)],
        kind,
    )


def _correlations(messages: _Messages, kind: pa.DataType) -> pa.Array:
    found = np.ascontiguousarray(messages.properties["correlation_id"])
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(20), len(found), [None, pa.py_buffer(found)]).cast(kind)


_Column = Callable[[_Messages, pa.DataType], pa.Array]
_COLUMNS: Final[dict[str, _Column]] = {
    "lookup_id": lambda messages, kind: pa.array(messages.lookup, kind),
    "sequential_id": lambda messages, kind: pa.array(messages.lookup & SEQUENCE_MASK, kind),
    "arrival_time": lambda messages, kind: pa.array(messages.head["arrival"].astype("i8"), pa.int64()).cast(kind),
    "expiry_time": _moment("expires"),
    "aborted_receives": _head("aborts"),
    "moves": _head("moves"),
    "source_id": _sources,
    "message_number": _head("message_id"),
    "destination": _name(0),
    "administration_queue": _name(1),
    "response_queue": _name(2),
    "message_class": _property("message_class"),
    "priority": _head("base_flags", 7),
    "recoverable": _flag(RECOVERABLE_FLAG),
    "transactional": _flag(HAS_TRANSACTION),
    "hop_count": _hops,
    "size": _head("base_packet_size"),
    "body_size": _property("message_size"),
    "sent_time": _moment("sent_time"),
    "time_to_reach_queue": _seconds("base_time_to_reach_queue"),
    "time_to_be_received": _seconds("time_to_be_received"),
    "acknowledgments": _property("flags", 0x0F),
    "correlation_id": _correlations,
    "body_type": _property("body_type"),
    "app_specific": _property("application_tag"),
    "privacy_level": _property("privacy_level"),
    "label": _labels,
    "sender": _senders,
    "body": _bodies,
    "format": _formats,
    "headers": _headers,
    "decoded": _values,
    "undecoded_headers": _undecoded_headers,
}
