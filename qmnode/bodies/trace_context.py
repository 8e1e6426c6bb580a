"""The W3C trace context that a program put into the headers of a message, in Extension.

NServiceBus and AMQP programs call the header ``traceparent``, Rebus.Diagnostics calls it ``rbs-ot-tracestate``; the
value of both is a traceparent. Nodes read it and never change it.
"""

import re
from typing import Final, NamedTuple

TRACEPARENT: Final = "traceparent"
REBUS: Final = "rbs-ot-tracestate"
_VALUE: Final = rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})"
_HEADERS: Final = (
    (b"<Key>", re.compile(rb"<Key>(?:traceparent|rbs-ot-tracestate)</Key>\s*<Value>" + _VALUE + rb"[<-]")),
    (b'"', re.compile(rb'"(?:traceparent|rbs-ot-tracestate)"\s*:\s*"' + _VALUE + rb'["-]')),
)
"""The part before the name of a header, and the header from there."""
_TEXT: Final = re.compile(_VALUE.decode())
_NO_VERSION: Final = "ff"
_MENTIONS: Final = 100
"""Places where the name of a header is looked at: an Extension of megabytes may be full of it."""
_NAMES: Final = (b"traceparent", b"rbs-ot-tracestate")
_WIDE_NAMES: Final = tuple(name.decode().encode("utf-16-le") for name in _NAMES)


class TraceContext(NamedTuple):
    """The span of a program, of which the spans about its message are children."""

    trace_id: int
    span_id: int
    is_sampled: bool

    def __str__(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.is_sampled):02x}"


def parse(text: str) -> TraceContext | None:
    """Parse a traceparent of any version; None if it is none."""
    match = _TEXT.fullmatch(text[:55]) if text[55:56] in ("", "-") else None
    return None if match is None or (text[55:] and match[1] == "00") else _context(*match.groups())


def find(extension: bytes) -> TraceContext | None:
    """Return the context in the headers of NServiceBus, Rebus or an AMQP program; None without a valid one."""
    if b"\0" in extension and any(name in extension for name in _WIDE_NAMES):
        extension = extension.replace(b"\0", b"")  # UTF-16, of which only these ASCII characters count
    found = [match for name in _NAMES if (match := _header(extension, name)) is not None]
    if not found:
        return None
    return _context(*(part.decode() for part in min(found, key=re.Match.start).groups()))


def _header(extension: bytes, name: bytes) -> re.Match[bytes] | None:
    """The first header of this name: a search for its pattern takes ten times as long as one for the name."""
    at = extension.find(name)
    for _ in range(_MENTIONS):
        if at < 0:
            break
        for before, header in _HEADERS:
            if at >= len(before) and (match := header.match(extension, at - len(before))) is not None:
                return match
        at = extension.find(name, at + 1)
    return None


def _context(version: str, trace: str, span: str, flags: str) -> TraceContext | None:
    trace_id, span_id = int(trace, 16), int(span, 16)
    if version == _NO_VERSION or not trace_id or not span_id:
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & 1))
