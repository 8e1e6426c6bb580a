"""Spans as messages of OTLP, in Protocol Buffers.

The tracer and the exporter of the SDK need ten times the processor for the same bytes, because they expect spans that
change, and attributes of any type. A message of Protocol Buffers may have its fields in any order and in parts, so that
those which many spans share are encoded once.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from qmnode.version import program_version

SCOPE: Final = "qmnode"
_SHARED: Final = 1024
"""Parts of spans that are kept encoded."""
_ATTRIBUTE: Final = b"\x4a"
"""The tag of an attribute in a span."""
_DOUBLE: Final = Struct("<d")
_ROOT: Final = Struct("<2s16s2s8ssQsQ")
"""trace_id, span_id, start_time_unix_nano and end_time_unix_nano of a span, each behind its tag (and size)."""
_CHILD: Final = Struct(_ROOT.format + "2s8s")
"""The same and parent_span_id."""


def span(trace_id: bytes, span_id: bytes, parent_id: bytes, begin: int, end: int, *fields: bytes) -> bytes:
    """Encode a span as a field of its scope: identifiers of 16, 8 and 8 bytes, the last one empty without a parent,
    nanoseconds since 1970 (UTC), and what the functions below encode.
    """
    own = b"\x0a\x10", trace_id, b"\x12\x08", span_id, b"\x39", begin, b"\x41", end
    head = _CHILD.pack(*own, b"\x22\x08", parent_id) if parent_id else _ROOT.pack(*own)
    return _field(b"\x12", b"".join((head, *fields)))


def named(name: str, kind: str, is_child: bool, attributes: Mapping[str, str | float]) -> bytes:
    """Encode the name, the kind (a member of OpenTelemetry's SpanKind) and attributes of a span."""
    from opentelemetry.proto.trace.v1.trace_pb2 import Span, SpanFlags

    flags = int(SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK)
    if is_child:
        flags |= int(SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)
    own = Span(name=_text(name), kind=Span.SpanKind.Value(f"SPAN_KIND_{kind}"), flags=flags)
    return b"".join((own.SerializeToString(), *[attribute(key, value) for key, value in attributes.items()]))


def attribute(key: str, value: str | float, tag: bytes = _ATTRIBUTE) -> bytes:
    """Encode an attribute, of a span unless the tag is another."""
    if isinstance(value, str):
        content = _text(value).encode()
        return _before(tag, key, b"\x0a", len(content)) + content
    if isinstance(value, float):
        return _before(tag, key, b"\x21", _DOUBLE.size) + _DOUBLE.pack(value)
    content = _number(value)
    return _before(tag, key, b"\x18", len(content)) + content


@lru_cache(_SHARED)
def _before(tag: bytes, key: str, kind: bytes, size: int) -> bytes:
    """The bytes of an attribute before its value, which has so many bytes."""
    if kind == b"\x0a":  # a text
        kind += _number(size)
    before = _field(b"\x0a", key.encode()) + b"\x12" + _number(len(kind) + size) + kind
    return tag + _number(len(before) + size) + before


def failed(error: str) -> bytes:
    """Encode why a span failed; nothing if it did not."""
    if not error:
        return b""
    from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

    status = Status(code=Status.STATUS_CODE_ERROR, message=_text(error))
    return attribute("error.type", error) + bytes(Span(status=status).SerializeToString())


def request(spans: Sequence[bytes], resource: Mapping[str, Any]) -> bytes:
    """Encode the request of a client of OTLP with encoded spans of the node with these attributes."""
    from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans

    scope = ScopeSpans()
    scope.scope.name, scope.scope.version = SCOPE, program_version()
    own = scope.SerializeToString()
    before = _field(b"\x0a", b"".join([attribute(key, value, b"\x0a") for key, value in resource.items()]))
    size = sum(map(len, spans))
    before += b"\x12" + _number(len(own) + size) + own
    return b"".join((b"\x0a", _number(len(before) + size), before, *spans))  # once: they may be a megabyte


def _field(tag: bytes, content: bytes) -> bytes:
    """A field of a message that is a message itself, or a text, already encoded."""
    return b"".join((tag, _number(len(content)), content))


def _number(number: int) -> bytes:
    if number <= 0x7F:
        return _SHORT[number]
    if number <= 0x3FFF:
        return bytes((number & 0x7F | 0x80, number >> 7))
    octets = []
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*octets, number))


_SHORT: Final = [bytes((number,)) for number in range(0x80)]


def _text(text: str) -> str:
    """The text without halves of surrogate pairs, which names of queues may have and OTLP cannot."""
    return text if text.isascii() else text.encode(errors="replace").decode()
