"""SASL in front of AMQP 1.0 (part 5.3), the server's side, without I/O: bytes in, bytes and an attempt out.

The engine below does SASL with Cyrus only, which a Python package does not bring. The mechanisms here are three, and
each takes one step: PLAIN (RFC 4616), EXTERNAL (RFC 4422, the client's certificate) and ANONYMOUS (RFC 4505).
"""

import struct
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from qmnode.amqp.codec import CodecError, Decoder, Described, UByte, ULong, encode, symbols

SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
PLAIN: Final = "PLAIN"
EXTERNAL: Final = "EXTERNAL"
ANONYMOUS: Final = "ANONYMOUS"

_MECHANISMS: Final = 0x40
_INIT: Final = 0x41
_CHALLENGE: Final = 0x42
_RESPONSE: Final = 0x43
_OUTCOME: Final = 0x44
_HEAD: Final = struct.Struct(">IBBH")
_SASL_FRAME: Final = 1
_LONGEST_FRAME: Final = 8192
"""The specification has 512 bytes for frames before the connection is open; tokens may be longer."""


class SaslState(Enum):
    """The stages of the negotiation."""

    HEADER = auto()
    INIT = auto()
    RESPONSE = auto()
    """The client chose PLAIN and sent no credentials with that: they were asked for."""
    DECIDING = auto()
    DONE = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class Attempt:
    """The identity that a client claims, with its proof."""

    mechanism: str
    user: str = ""
    password: str = ""
    """The secret of PLAIN; empty for other mechanisms."""

    def __repr__(self) -> str:
        return f"<Attempt {self.mechanism} {self.user!r}>"


class SaslServer:
    """One negotiation. ``feed`` it until it returns an attempt, then ``decide``; what came after is in ``rest``."""

    def __init__(self, mechanisms: list[str]) -> None:
        self.mechanisms = mechanisms
        self.state = SaslState.HEADER
        self.without = False
        """The client begins with AMQP at once, which is as good as ANONYMOUS."""
        self.out = bytearray()
        """Bytes that are to be sent to the client."""
        self._in = bytearray()

    @property
    def rest(self) -> bytes:
        """The bytes that came after the negotiation."""
        return bytes(self._in)

    def feed(self, data: bytes) -> Attempt | None:
        """Take bytes; the attempt, once there is one."""
        self._in += data
        if self.state is SaslState.HEADER and not self._read_header():
            return Attempt(ANONYMOUS) if self.without else None
        while self.state in (SaslState.INIT, SaslState.RESPONSE):
            frame = self._frame()
            if frame is None:
                return None
            try:
                attempt = self._take(frame)
            except (CodecError, IndexError, TypeError):
                self.state = SaslState.FAILED
                return None
            if attempt is not None:
                self.state = SaslState.DECIDING
                return attempt
        return None

    def decide(self, accepted: bool) -> None:
        """Whether the attempt proved it."""
        self.state = SaslState.DONE if accepted else SaslState.FAILED
        if not self.without:
            self._send(_OUTCOME, [UByte(0 if accepted else 1)])

    def _read_header(self) -> bool:
        """Whether a negotiation has begun."""
        header = bytes(self._in[: len(SASL_HEADER)])
        if header == SASL_HEADER:
            del self._in[: len(SASL_HEADER)]
            self.out += SASL_HEADER
            self._send_raw(b"\x00" + encode(ULong(_MECHANISMS)) + _list_of(symbols(self.mechanisms)))
            self.state = SaslState.INIT
            return True
        if header == AMQP_HEADER and ANONYMOUS in self.mechanisms:
            self.without = True
            self.state = SaslState.DECIDING
        elif len(header) == len(SASL_HEADER) or not (SASL_HEADER.startswith(header) or AMQP_HEADER.startswith(header)):
            self.out += SASL_HEADER  # 2.2: answer with the header that would do, and close
            self.state = SaslState.FAILED
        return False

    def _frame(self) -> bytes | None:
        """The body of the next frame; None if it is not whole yet, or there is none."""
        if len(self._in) < _HEAD.size:
            return None
        size, offset, kind, _ = _HEAD.unpack_from(self._in)
        if not _HEAD.size <= offset * 4 <= size <= _LONGEST_FRAME or kind != _SASL_FRAME:
            self.state = SaslState.FAILED
            return None
        if len(self._in) < size:
            return None
        body = bytes(self._in[offset * 4 : size])
        del self._in[:size]
        return body

    def _take(self, body: bytes) -> Attempt | None:
        decoder = Decoder(body)
        frame = decoder.value()
        if not isinstance(frame, Described) or not isinstance(frame.value, list) or not decoder.at_end:
            raise CodecError("no SASL frame")
        expected = _INIT if self.state is SaslState.INIT else _RESPONSE
        if frame.descriptor != expected:
            raise CodecError("another SASL frame than is due")
        fields = [*frame.value, None, None]
        if self.state is SaslState.RESPONSE:
            return _plain(fields[0])
        return self._chosen(str(fields[0]), fields[1])

    def _chosen(self, mechanism: str, response: Any) -> Attempt | None:
        if mechanism not in self.mechanisms:
            self.decide(accepted=False)
            return None
        if mechanism != PLAIN:
            return Attempt(mechanism)
        if response is None:
            self._send(_CHALLENGE, [b""])
            self.state = SaslState.RESPONSE
            return None
        return _plain(response)

    def _send(self, descriptor: int, fields: list[Any]) -> None:
        self._send_raw(encode(Described(ULong(descriptor), fields)))

    def _send_raw(self, body: bytes) -> None:
        self.out += _HEAD.pack(_HEAD.size + len(body), 2, _SASL_FRAME, 0) + body


def _list_of(value: bytes) -> bytes:
    """A list whose one value is encoded already."""
    return b"\xd0" + struct.pack(">II", len(value) + 4, 1) + value


def _plain(response: Any) -> Attempt:
    """RFC 4616: authorization identity, NUL, authentication identity, NUL, password."""
    if not isinstance(response, bytes) or response.count(b"\0") != 2:
        raise CodecError("credentials that are not those of PLAIN")
    authorization, user, password = (part.decode("utf-8", "replace") for part in response.split(b"\0"))
    if authorization not in ("", user):
        raise CodecError("nobody may act for another")
    return Attempt(PLAIN, user, password)
