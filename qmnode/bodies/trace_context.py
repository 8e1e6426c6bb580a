"""The W3C trace context that a program put into the headers of a message, in Extension.

NServiceBus and AMQP programs call the header ``traceparent``, Rebus.Diagnostics calls it ``rbs-ot-tracestate``; the
value of both is a traceparent. Nodes read it and never change it.
"""

import re
from typing import Final, NamedTuple

TRACEPARENT: Final = "traceparent"
REBUS: Final = "rbs-ot-tracestate"
_VALUE: Final = r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})"
_WHOLE: Final = re.compile(_VALUE)
_NO_VERSION: Final = "ff"


_VALID: Final = rf"(?!{_NO_VERSION})[0-9a-f]{{2}}-(?!0{{32}})[0-9a-f]{{32}}-(?!0{{16}})[0-9a-f]{{16}}-[0-9a-f]{{2}}"


class _Header(NamedTuple):
    """How programs of a kind write their headers."""

    before: bytes
    """The part before the name of a header."""
    whole: re.Pattern[bytes]
    """The header from there; its value is the group ``value``."""
    valid: re.Pattern[bytes]
    """A valid value, which is a group, and what is behind it."""


def _header(before: str, between: str, behind: str) -> _Header:
    whole = f"{before}(?:{TRACEPARENT}|{REBUS}){between}(?P<value>{_VALUE}){behind}"
    return _Header(before.encode(), re.compile(whole.encode()), re.compile(f"({_VALID}){behind}".encode()))


_HEADERS: Final = (_header("<Key>", r"</Key>\s*<Value>", "[<-]"), _header('"', r'"\s*:\s*"', '["-]'))
_ODD: Final = b"13579bdf"
_MENTIONS: Final = 100
"""Places where the name of a header is looked at: an Extension of megabytes may be full of it."""
_LONGEST_KEPT: Final = 4096
"""Bytes of an Extension before its context that are compared with the next one."""
_NAMES: Final = (TRACEPARENT.encode(), REBUS.encode())
_WIDE_NAMES: Final = (TRACEPARENT.encode("utf-16-le"), REBUS.encode("utf-16-le"))


class TraceContext(NamedTuple):
    """The span of a program, of which the spans about its message are children."""

    trace_id: int
    span_id: int
    is_sampled: bool

    def __str__(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.is_sampled):02x}"


def parse(text: str) -> TraceContext | None:
    """Parse a traceparent of any version; None if it is none."""
    match = _WHOLE.fullmatch(text[:55]) if text[55:56] in ("", "-") else None
    return None if match is None or (text[55:] and match[1] == "00") else _context(*match.groups())


def find(extension: bytes) -> TraceContext | None:
    """Return the context in the headers of NServiceBus, Rebus or an AMQP program; None without a valid one."""
    return parse(Contexts().find(extension).decode())


def is_sampled(traceparent: bytes) -> bool:
    """Whether its program exports spans. It is valid."""
    return traceparent[-1] in _ODD


class Contexts:
    """Finds the contexts of many messages: what a program writes before one is mostly the same in its next message."""

    def __init__(self) -> None:
        self._before = b"\0"
        """The last Extension with a context, up to that; it has no null character."""
        self._valid = _HEADERS[0].valid

    def find(self, extension: bytes) -> bytes:
        """Return the traceparent in the headers of NServiceBus, Rebus or an AMQP program, as far as all versions have
        it; empty without a valid one.
        """
        if b"\0" in extension:
            if any(name in extension for name in _WIDE_NAMES):
                extension = extension.replace(b"\0", b"")  # UTF-16, of which only these ASCII characters count
        elif extension.startswith(self._before) and (match := self._valid.match(extension, len(self._before))):
            return match[1]
        found = [found for name in _NAMES if (found := _first(extension, name)) is not None]
        if not found:
            return b""
        match, self._valid = min(found, key=lambda one: one[0].start())
        begin = match.start("value")
        self._before = extension[:begin] if begin <= _LONGEST_KEPT else b"\0"
        return match["value"] if self._valid.match(extension, begin) else b""


def _first(extension: bytes, name: bytes) -> tuple[re.Match[bytes], re.Pattern[bytes]] | None:
    """The first header of this name, and the pattern of valid values. A search for the pattern of a header takes ten
    times as long as one for the name.
    """
    at = extension.find(name)
    for _ in range(_MENTIONS):
        if at < 0:
            break
        for before, header, valid in _HEADERS:
            if at >= len(before) and (match := header.match(extension, at - len(before))) is not None:
                return match, valid
        at = extension.find(name, at + 1)
    return None


def _context(version: str, trace: str, span: str, flags: str) -> TraceContext | None:
    trace_id, span_id = int(trace, 16), int(span, 16)
    if version == _NO_VERSION or not trace_id or not span_id:
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & 1))
