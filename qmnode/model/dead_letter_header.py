"""The dead-letter queue that an application named for a message (MS-MQDMPR 3.1.1.12, ApplicationDeadletterQueue), as it
is stored: behind the packet, laid out as DeadLetterHeader (MS-MQRR 2.2.5.4).

A UserMessage packet has no place for it, and it does not travel: only the computer that the message was sent from has
such a queue.
"""

import struct
from typing import Final

from qmnode.model.record import FLAGS, NAMED_DEAD_LETTER, PREFIX_SIZE, with_prefix
from qmnode.structures.base_header import BaseHeader
from qmnode.structures.places import offset_of

_NUMBER: Final = struct.Struct("<I")
_PACKET_SIZE_AT: Final = PREFIX_SIZE + offset_of(BaseHeader, "packet_size")


def _packet_end(value: bytes) -> int:
    return PREFIX_SIZE + int(_NUMBER.unpack_from(value, _PACKET_SIZE_AT)[0])


def packet_of(value: bytes) -> bytes:
    """The packet of a stored value, as it travels."""
    return value[PREFIX_SIZE : _packet_end(value)] if value[FLAGS] & NAMED_DEAD_LETTER else value[PREFIX_SIZE:]


def without_dead_letter_header(value: bytes) -> bytes:
    """A stored value as others know it: prefix and packet."""
    return value[: _packet_end(value)] if value[FLAGS] & NAMED_DEAD_LETTER else value


def with_dead_letter_queue(value: bytes, pathname: str) -> bytes:
    """A stored value that has none, with the path name of its dead-letter queue."""
    name = f"{pathname}\0".encode("utf-16-le")
    name += bytes(-len(name) % _NUMBER.size)
    header = _NUMBER.pack(_NUMBER.size + len(name)) + name
    return with_prefix(value, flags=value[FLAGS] | NAMED_DEAD_LETTER) + header


def dead_letter_queue_of(value: bytes) -> str:
    """The path name in a stored value that has the flag."""
    name = value[_packet_end(value) + _NUMBER.size :].decode("utf-16-le", "replace")
    return name.partition("\0")[0]
