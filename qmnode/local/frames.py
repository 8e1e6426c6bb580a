"""The bytes on the socket: frames with a head of twelve bytes, and messages in batches.

    offset  width  field
    0       4      size      bytes after this field
    4       1      kind      what the frame is: a call, or its answer
    5       3      reserved  0
    8       4      number    of the call; its answer has the same
    12             body      by kind

Messages travel in batches, as UserMessage packets (MS-MQMQ 2.2.20). A received one has the bytes before it that the
node stores there, so that it is passed on without taking it apart. All integers are little-endian.
"""

import socket
import struct
import threading
from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from qmnode.allocator import LENT_FROM, filled, lend, lend_in_bytes
from qmnode.structures.packet_view import LARGE, Packet

if TYPE_CHECKING:
    import asyncio

PROTOCOL_VERSION: Final = 1
ADDED_FIELDS: Final = "added_fields"
GREETING: Final = {"version": PROTOCOL_VERSION, ADDED_FIELDS: True}
"""The hello of an application. With ``added_fields`` it promises to ignore fields that it does not know; the
first release fails at them, and gets none that are newer."""
PROGRAM: Final = "program"
"""In the hello of an application that connects again: 16 bytes that no other has. With it in the answer, the node keeps
a mark of each call that has a slot (qmnode.local.program_calls).
"""
TOGETHER_FIELD: Final = "together"
"""In the hello of a node that gives several callers messages with one receive (TOGETHER)."""
MOST_SLOTS: Final = 2_048
"""The highest slot: no program fills the store with marks of calls that it never makes again."""
HEAD: Final = struct.Struct("<IB3xI")
HEAD_SIZE: Final = HEAD.size
SIZE_FIELD: Final = 4
MAXIMUM_FRAME: Final = 64 * 1024 * 1024
"""Bytes of one frame. A message has at most 4 MiB, so a batch of any message fits."""
BATCH_BYTES: Final = 256 * 1024
"""After so many bytes a sender begins another frame: frames of several callers take turns, and the node stores a large
message while it reads the next.
"""
SEND_BUFFER: Final = 512 * 1024
"""Bytes that the kernel takes from a sender before the receiver has read them, as far as it allows. With fewer, both
wake up for every piece of a large message.
"""

NO_TRANSACTION: Final = 0
SINGLE_TRANSACTION: Final = 0xFFFFFFFF
FOR_EVER: Final = -1.0

SEND_HEAD: Final = struct.Struct("<IIII")
"""Handle of the queue, number of the transaction, how, count. How: TOGETHER if the messages stand or fall together,
REPEATED if the call was made before with this number, and a slot above them.
"""
TOGETHER: Final = 1
REPEATED: Final = 2
SLOT_SHIFT: Final = 2
RECEIVE_HEAD: Final = struct.Struct("<IIId")
"""Handle of the queue, number of the transaction, limit, seconds to wait (negative: for ever)."""
ROOM: Final = struct.Struct("<II")
"""Behind RECEIVE_HEAD, from a receiver of one message that has room for so many bytes of a body, and of all else that
is stored with it. A larger message stays where it is, and the receive fails with MQ_ERROR_BUFFER_OVERFLOW.
"""
SLOT: Final = struct.Struct("<I")
"""Behind RECEIVE_HEAD instead: REPEATED, TOGETHER, and a slot above them. TOGETHER: the messages are for several
callers, and the node takes no more of them than it can keep in the mark, or one.
"""
_SENT: Final = struct.Struct("<III")
_unpack_sent: Final = _SENT.unpack_from
_SENT_ALONE: Final = struct.Struct(SEND_HEAD.format + _SENT.format.removeprefix("<"))
_SENT_ALONE_SIZE: Final = _SENT_ALONE.size
_RECEIVED: Final = struct.Struct("<QI")
RECEIVED_SIZE: Final = _RECEIVED.size
"""Bytes before each message in the answer of a receive."""
_unpack_received: Final = _RECEIVED.unpack_from
_SMALLEST_ITEM: Final = 12


LOGIN: Final = "login"
"""The keyword of a call with the application's credentials for the directory."""
PUBLISHING: Final = frozenset({"create_queue", "delete_queue", "register_certificate", "set_queue"})
"""The methods that take it: those that write public queues, and a user's certificates, to the directory."""
REQUESTS: Final = frozenset(
    {
        "allow_peek_when_locked",
        "application_dead_letter_queue",
        "authentication_level",
        "authentication_provider_name",
        "authentication_provider_type",
        "deliver_at",
        "deliver_in",
        "sender_certificate",
        "sender_identifier",
        "sender_identifier_type",
        "signature",
        "symmetric_key",
        "tracing_requested",
    }
)
"""Properties of a message (MS-MQDMPR 3.1.1.12) that tell the node what to do with it: they travel beside the packet."""


class FrameKind(IntEnum):
    """The kind of a frame. Calls are below 128."""

    HELLO = 1
    CALL = 2
    """Any method but the ones below: JSON."""
    SEND = 3
    RECEIVE = 4
    PEEK = 5
    CANCEL = 6
    """The call with this number is no longer waited for. Its answer comes all the same."""

    RESULT = 128
    """The result of a call, as JSON."""
    IDENTIFIERS = 129
    """Of the messages that were sent: 20 bytes each."""
    MESSAGES = 130
    FAILED = 131
    """The MQ_ERROR code and a sentence, JSON."""
    MIXED = 132
    """Sent messages that do not stand together, some refused: JSON, for each its identifier or its error."""


class FrameError(Exception):
    """The other side sent something that is not a frame of this protocol. The connection is closed."""


class Frame(NamedTuple):
    """A frame: its kind, the number of its call, and its body."""

    kind: int
    number: int
    data: Packet
    """Its body, up to ``alone`` if there is that. A large one may be a view, of memory that is used again once there is
    none.
    """
    alone: memoryview | None = None
    """The packet of a large message that is sent alone, if it is in memory of its own (``lend_in_bytes``). It is apart
    from ``data`` because a stored value has less room before the packet than a call has.
    """

    @property
    def body(self) -> bytes:
        """Its ``data``, as bytes in any case."""
        return bytes(self.data)


Sent = tuple[int, Sequence[bytes], bytes]
"""A message on its way to the node: the size of its packet, the packet in parts, and what a packet has no place for
(JSON, mostly empty).
"""
_new: Final = tuple.__new__
_MESSAGES: Final = int(FrameKind.MESSAGES)
_RECEIVED_ALONE: Final = struct.Struct(HEAD.format + _RECEIVED.format.removeprefix("<"))
_pack_received_alone: Final = _RECEIVED_ALONE.pack
_ALONE_SIZE: Final = _RECEIVED_ALONE.size - SIZE_FIELD


def frame(kind: FrameKind, number: int, *parts: bytes) -> bytes:
    """Return a whole frame as bytes."""
    return b"".join(frame_parts(kind, number, *parts))


def frame_parts(kind: FrameKind, number: int, *parts: Packet) -> tuple[Packet, ...]:
    """Return a whole frame in parts, to be joined with others."""
    return HEAD.pack(HEAD_SIZE - SIZE_FIELD + sum(map(len, parts)), kind, number), *parts


_PIECE: Final = 256 * 1024
_SMALL: Final = 16 * 1024
"""Fewer bytes are copied."""


_BEGIN: Final = 1024
"""Bytes that are read behind a large body: they tell whether another one follows, which is then read to its place."""
_SPARE: Final = 16
"""Pieces of large bodies that a thread keeps: fresh memory costs more than what is read into it."""
_LENT: Final = frozenset({FrameKind.SEND, FrameKind.MESSAGES})
"""Frames whose large bodies may be views of memory that is used again once nobody looks at it any more."""


class _Shared(threading.local):
    """The buffers of all connections of a thread. Bytes that its loop reads into ``view`` are taken at once."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_PIECE))
        self.begin = self.view[:_BEGIN]
        self.spare: list[bytearray] = []


_SHARED: Final = _Shared()


class FrameReader:
    """Cuts a stream of bytes into frames. FrameError for a size that no frame may have.

    A stream is either fed to it, or read into its buffers. A large body is read into one if there is one to spare;
    otherwise its parts are joined when all has come.
    """

    __slots__ = (
        "_before",
        "_begun",
        "_filled",
        "_follows_large",
        "_kept",
        "_lent",
        "_missing",
        "_parts",
        "_piece",
        "_pieces",
        "_received",
        "limit",
    )

    def __init__(self, limit: int = MAXIMUM_FRAME) -> None:
        self.limit = limit
        self._kept = bytearray()
        """Bytes of a body, or of a head, that came before the rest."""
        self._begun: tuple[int, int] | None = None
        """Kind and number of the frame whose body has not come in whole."""
        self._missing = 0
        """The bytes that its body still lacks."""
        self._received = 0
        """The bytes of it that have come. Memory for others is taken only as far as it doubles them."""
        self._parts: list[bytearray | memoryview] = []
        """The beginning of its body, before the bytes that are kept."""
        self._lent: memoryview | None = None
        """All of its body behind ``_before``, if that is read into one buffer."""
        self._before = b""
        """The beginning of its body, if the rest is a packet that is read to memory of its own."""
        self._piece: memoryview | None = None
        """The part of a large body that is read now."""
        self._pieces: list[bytearray] = []
        """The whole pieces among its parts, for use again."""
        self._filled = 0
        """The bytes of that part that have come."""
        self._follows_large = False
        """Whether a body was read into one buffer, and little has come behind it."""

    def buffer(self) -> memoryview:
        """Where to read the next bytes to; then call ``filled``."""
        if self._piece is not None:
            return self._piece[self._filled :]
        if self._begun is None or self._missing < _SMALL:
            return _SHARED.begin if self._follows_large else _SHARED.view
        if self._kept:
            self._parts.append(self._kept)
            self._kept = bytearray()
        if self._missing >= LENT_FROM and not self._pieces and self._begun[0] in _LENT and self._borrow():
            return self.buffer()
        spare = _SHARED.spare
        size = min(self._missing, _PIECE, _PIECE if spare else max(_SMALL, self._received))
        piece = spare.pop() if spare else bytearray(_PIECE if size > _PIECE // 2 else size)
        if len(piece) == _PIECE:
            self._pieces.append(piece)
        self._piece, self._filled = memoryview(piece)[:size], 0
        return self._piece

    def _borrow(self) -> bool:
        """Read the rest of the body to where all of it has room."""
        size = sum(map(len, self._parts)) + self._missing
        lent = self._lend_alone(size) or lend(size)
        if lent is None:
            return False
        place = 0
        for part in self._parts:
            lent[place : place + len(part)] = part
            place += len(part)
        self._parts.clear()
        self._lent = self._piece = lent
        self._filled = place
        return True

    def _lend_alone(self, size: int) -> memoryview | None:
        """Memory for the packet of a message that is sent alone; what is before the packet is kept. None for another
        body of so many bytes, and if there is no such memory.
        """
        assert self._begun is not None
        if self._begun[0] != FrameKind.SEND or not self._parts or len(self._parts[0]) < _SENT_ALONE_SIZE:
            return None
        first = memoryview(self._parts[0])
        _, _, _, count, packet_size, more, _ = _SENT_ALONE.unpack_from(first)
        if count != 1 or more or _SENT_ALONE_SIZE + packet_size != size:
            return None
        lent = lend_in_bytes(packet_size)
        if lent is not None:
            self._before, self._parts[0] = bytes(first[:_SENT_ALONE_SIZE]), first[_SENT_ALONE_SIZE:]
        return lent

    def filled(self, count: int) -> list[Frame]:
        """The frames that are whole when so many bytes have been read to ``buffer``."""
        if self._piece is None:
            self._follows_large &= count < _BEGIN
            return self.feed(bytes(_SHARED.view[:count]))
        self._missing -= count
        self._received += count
        self._filled += count
        if self._lent is not None:
            filled(count)
        if self._filled < len(self._piece):
            return []
        if self._lent is None:
            self._parts.append(self._piece)
        self._piece = None
        return [] if self._missing else [self._whole()]

    def _whole(self) -> Frame:
        assert self._begun is not None
        body: Packet
        alone: memoryview | None = None
        if self._lent is not None:
            body, self._lent = self._lent.toreadonly(), None
            self._follows_large = True
            if self._before:
                alone, body, self._before = body, self._before, b""
        else:
            body = b"".join((*self._parts, self._kept)) if self._parts else bytes(self._kept)
        kind, number = self._begun
        self._begun, self._kept = None, bytearray()
        self._parts.clear()
        if self._pieces:
            _SHARED.spare += self._pieces[: _SPARE - len(_SHARED.spare)]
            self._pieces.clear()
        return Frame(kind, number, body, alone)

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are whole with these bytes."""
        frames: list[Frame] = []
        if self._begun is not None:
            with memoryview(data) as view:
                self._kept += view[: self._missing]
            if len(data) < self._missing:
                self._missing -= len(data)
                self._received += len(data)
                return frames
            frames.append(self._whole())
            data = data[self._missing :]
        elif self._kept:
            data = bytes(self._kept) + data
        self._kept = bytearray()
        start, end = 0, len(data)
        while end - start >= HEAD_SIZE:
            size, kind, number = HEAD.unpack_from(data, start)
            if not HEAD_SIZE - SIZE_FIELD <= size <= self.limit:
                raise FrameError(f"a frame of {size} bytes; frames have {HEAD_SIZE - SIZE_FIELD} to {self.limit}")
            stop = start + SIZE_FIELD + size
            start += HEAD_SIZE
            if stop > end:
                self._begun, self._missing, self._received = (kind, number), stop - end, end - start
                break
            frames.append(_new(Frame, (kind, number, data[start:stop], None)))
            start = stop
        if self._begun is not None and end - start >= max(_SMALL, end // 4):  # a view keeps all of the data
            self._parts.append(memoryview(data)[start:])
        elif start < end:
            self._kept += data[start:]
        return frames


_FEW_PARTS: Final = 16


def join_small(parts: Sequence[Packet]) -> Sequence[Packet]:
    """Frames in parts to write together, none of them empty: many small ones are joined, and large ones never."""
    if len(parts) > _FEW_PARTS:
        if max(map(len, parts)) < _SMALL:
            return (b"".join(parts),)
        parts = [part for small, run in groupby(parts, _is_small) for part in ((b"".join(run),) if small else run)]
    return [part for part in parts if part]  # asyncio never ends with an empty one (Python 3.12)


def enlarge_send_buffer(transport: "asyncio.BaseTransport") -> None:
    """Let large messages go to the kernel at once."""
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)


def _is_small(part: Packet) -> bool:
    return len(part) < _SMALL


def pack_sent(items: Iterable[Sent]) -> list[bytes]:
    """Messages to send, in parts."""
    parts: list[bytes] = []
    for size, packet, more in items:
        parts.append(_SENT.pack(size, len(more), 0))
        parts += packet
        if more:
            parts.append(more)
    return parts


def unpack_sent(call: Frame, count: int) -> tuple[list[Packet], dict[int, bytes]]:
    """The packets of a call, large ones as views, and by their places in the list what few of them have
    besides. FrameError when the counts and sizes do not fit the bytes.
    """
    if call.alone is not None:
        return [call.alone], {}
    body, offset = call.data, SEND_HEAD.size
    end = len(body)
    if count * _SMALLEST_ITEM > end - offset:
        raise FrameError(f"{count} messages announced in {end - offset} bytes")
    packets: list[Packet] = []
    besides: dict[int, bytes] = {}
    is_whole = type(body) is bytes
    for number in range(count):
        start = offset + _SENT.size
        if start > end:
            raise FrameError("a batch ends inside the head of a message")
        size, more, _reserved = _unpack_sent(body, offset)
        offset = start + size
        if offset + more > end:
            raise FrameError(f"a message of {size} bytes with {more} more in a batch that ends before")
        if size < LARGE:
            packets.append(body[start:offset] if is_whole else bytes(body[start:offset]))
        else:
            packets.append(memoryview(body)[start:offset])
        if more:
            besides[number] = bytes(body[offset : offset + more])
            offset += more
    return packets, besides


def pack_received(items: Iterable[tuple[int, Packet]]) -> list[Packet]:
    """Messages that were received or peeked at, in parts: lookup identifier and stored value of each."""
    parts: list[Packet] = []
    pack = _RECEIVED.pack
    for lookup, value in items:
        parts += (pack(lookup, len(value)), value)
    return parts


def received_parts(number: int, items: Sequence[tuple[int, Packet]]) -> Sequence[Packet]:
    """The whole frame that answers a receive, in parts."""
    if len(items) != 1:
        return frame_parts(FrameKind.MESSAGES, number, *pack_received(items))
    lookup, value = items[0]
    size = len(value)
    return _pack_received_alone(_ALONE_SIZE + size, _MESSAGES, number, lookup, size), value


def unpack_received(body: Packet) -> list[tuple[int, Packet]]:
    """The other way round. A large value that is most of the body is a view of it."""
    items: list[tuple[int, Packet]] = []
    offset, end = 0, len(body)
    while offset < end:
        if end - offset < RECEIVED_SIZE:
            raise FrameError("a batch ends inside the head of a message")
        lookup, size = _unpack_received(body, offset)
        offset += RECEIVED_SIZE
        if size > end - offset:
            raise FrameError(f"a message of {size} bytes in a batch that ends before")
        shared = size >= LARGE and 2 * size >= end
        value = (memoryview(body) if shared else body)[offset : offset + size]
        items.append((lookup, value if shared or type(value) is bytes else bytes(value)))
        offset += size
    return items
