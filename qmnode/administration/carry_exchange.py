"""The request of a carrier to a node, in bytes: messages to confirm, to drop and to hold. Numbers are little-endian.

1. The epoch of the carrier (8 bytes), the numbers of keys to confirm, of keys to drop and of messages to hold (4 each).
2. These keys (28 bytes each): lookup identifier at the source, big-endian, source machine, and number of the message.
3. These messages: lookup identifier at the source (8 bytes), second of arrival there (4), aborted receives and moves
   (1 each), size of the packet (4), and the UserMessage packet (MS-MQMQ 2.2.20).
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Self

from qmnode.errors import MessageQueuingError
from qmnode.model.stored_message import TransferredMessage
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.packet_view import IDENTIFIER, SOURCE

AT_ONCE: Final = 500
"""The most messages to hold with one request."""
_MOST_KEYS: Final = 100_000
KEY_SIZE: Final = 28
_LOOKUP_SIZE: Final = 8
_HEAD: Final = struct.Struct("<QIII")
_MESSAGE: Final = struct.Struct("<QIBBI")


def key_of(message: TransferredMessage) -> bytes:
    """The key of a message in the ledger: its lookup identifier at the source, and its identifier."""
    packet = message.packet
    key = message.lookup_identifier.to_bytes(_LOOKUP_SIZE, "big") + packet[SOURCE] + packet[IDENTIFIER]
    return key if len(key) == KEY_SIZE else key.ljust(KEY_SIZE, b"\0")  # a packet that is cut off


def key_text(key: bytes) -> str:
    """A key for people: the lookup identifier, a hyphen, and the identifier, in hexadecimal digits."""
    return f"{key[:_LOOKUP_SIZE].hex()}-{key[_LOOKUP_SIZE:].hex()}"


def key_from_text(text: str) -> bytes:
    """A key as ``key_text`` writes it. MQ_ERROR_INVALID_PARAMETER for another text."""
    try:
        key = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        key = b""
    if len(key) != KEY_SIZE:
        raise MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_PARAMETER, f"{text!r:.80} is no key of a carried message")
    return key


def lookup_of_key(key: bytes) -> int:
    """The lookup identifier at the source."""
    return int.from_bytes(key[:_LOOKUP_SIZE], "big")


def write_messages(messages: Iterable[TransferredMessage]) -> bytes:
    """Messages one behind the other."""
    pack, parts = _MESSAGE.pack, list[bytes]()
    for lookup, arrival, aborts, moves, packet in messages:
        parts += (pack(lookup, arrival, aborts, moves, len(packet)), packet)
    return b"".join(parts)


def read_messages(content: bytes, start: int, count: int) -> list[TransferredMessage]:
    """Read ``count`` messages, which end with the content. MQ_ERROR_INVALID_PARAMETER if they do not."""
    found, unpack, at, end = list[TransferredMessage](), _MESSAGE.unpack_from, start, len(content)
    for _ in range(count):
        if at + _MESSAGE.size > end:
            raise _too_short()
        lookup, arrival, aborts, moves, size = unpack(content, at)
        at += _MESSAGE.size
        found.append(TransferredMessage(lookup, arrival, aborts, moves, content[at : at + size]))
        at += size
    if at != end:
        raise _too_short()
    return found


class CarryExchange(NamedTuple):
    """Messages to confirm, in the order for the queue, to drop and to hold: all or nothing."""

    epoch: int
    confirm: Sequence[bytes] = ()
    """Keys, in the order for the queue."""
    drop: Sequence[bytes] = ()
    hold: Sequence[TransferredMessage] = ()

    def write(self) -> bytes:
        """The content of the request."""
        head = _HEAD.pack(self.epoch, len(self.confirm), len(self.drop), len(self.hold))
        return b"".join((head, *self.confirm, *self.drop, write_messages(self.hold)))

    @classmethod
    def read(cls, content: bytes) -> Self:
        """From the content of a request. MQ_ERROR_INVALID_PARAMETER if it is longer or shorter than it says."""
        if len(content) < _HEAD.size:
            raise _too_short()
        epoch, confirmed, dropped, held = _HEAD.unpack_from(content)
        if held > AT_ONCE or confirmed + dropped > _MOST_KEYS:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INVALID_PARAMETER,
                f"at most {AT_ONCE} messages are held, and {_MOST_KEYS} confirmed or dropped, with one request",
            )
        keys_end = _HEAD.size + KEY_SIZE * (confirmed + dropped)
        if keys_end > len(content):
            raise _too_short()
        keys = [content[at : at + KEY_SIZE] for at in range(_HEAD.size, keys_end, KEY_SIZE)]
        return cls(epoch, keys[:confirmed], keys[confirmed:], read_messages(content, keys_end, held))


def _too_short() -> MessageQueuingError:
    return MessageQueuingError(
        ErrorCode.MQ_ERROR_INVALID_PARAMETER, "the request is not as long as it says: is the carrier another release?"
    )
