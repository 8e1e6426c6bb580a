"""Converts PDUs of big-endian clients to little-endian: in RPC each side writes in its own order (C706 14.1).

Only the fields that the layouts in ``pdu`` read are converted. Signed or sealed bytes stay as they came, and stub data
are read in their original order.
"""

import struct
from typing import Final

from qmnode.dcerpc.errors import PduError

_BIND_HEAD: Final = "HHIB3s"
_ELEMENT_HEAD: Final = "HBB"
_SYNTAX: Final = "IHH8sI"
_REQUEST_HEAD: Final = "IHH"
_TRAILER: Final = "BBBBI"


class _Turner:
    """Reads big-endian fields and stores them as little-endian."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._position = 0
        self.turned = b""

    def take(self, form: str) -> tuple[int, ...]:
        """Convert the next fields. Raises PduError if they are missing."""
        big = struct.Struct(f">{form}")
        if self._position + big.size > len(self._body):
            raise PduError(f"{big.size} bytes at {self._position} in a body of {len(self._body)}")
        fields = big.unpack_from(self._body, self._position)
        self._position += big.size
        self.turned += struct.pack(f"<{form}", *fields)
        return fields

    def whole(self) -> bytes:
        """The whole PDU, with unconverted parts as they are."""
        return self.turned + self._body[self._position :]


def bind_body(body: bytes) -> bytes:
    """Convert the body of a bind or an alter_context."""
    turner = _Turner(body)
    *_, elements, _ = turner.take(_BIND_HEAD)
    for _ in range(elements):
        _, transfer_syntaxes, _ = turner.take(_ELEMENT_HEAD)
        for _ in range(1 + transfer_syntaxes):
            turner.take(_SYNTAX)
    return turner.whole()


def request_body(body: bytes) -> bytes:
    """Convert the body of a request, without its stub data."""
    turner = _Turner(body)
    turner.take(_REQUEST_HEAD)
    return turner.whole()


def trailer(octets: bytes) -> bytes:
    """Convert the fields of a sec_trailer."""
    turner = _Turner(octets)
    turner.take(_TRAILER)
    return turner.whole()
