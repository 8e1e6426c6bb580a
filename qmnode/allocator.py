"""Memory for large messages. Freed blocks and buffers are used again: fresh memory costs more than what is read into
it. A message that an application sends alone is read straight into the bytes object that is stored, to save a copy.
"""

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakValueDictionary

_TRIM_THRESHOLD: Final = -1
_TOP_PAD: Final = -2
_MMAP_THRESHOLD: Final = -3
"""The numbers of these parameters for mallopt(3)."""
_MIB: Final = 1 << 20
_LARGEST: Final = 5 * _MIB
"""Blocks up to this size come from the heap. The largest message, a batch of messages, and what RocksDB writes it into,
are smaller.
"""
_KEPT: Final = 64 * _MIB
"""Free bytes at the end of the heap that are not given back: those of some large messages that come and go."""


def keep_freed_memory() -> None:
    """Let freed blocks be used again. Without this the kernel maps, clears and unmaps the memory of every batch of
    messages. Nothing happens where the C library has no such parameters.
    """
    import ctypes  # applications do without

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_MMAP_THRESHOLD, _LARGEST)
    mallopt(_TRIM_THRESHOLD, _KEPT)
    mallopt(_TOP_PAD, _MIB)


def return_freed_memory() -> None:
    """Return freed blocks to the system, also those between used ones: after a peak. Takes milliseconds for each
    100 MiB. Nothing happens where the C library has no such function.
    """
    import ctypes  # applications do without

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


LENT_FROM: Final = 128 * 1024
"""Bytes that are worth a buffer of their own."""
_LENDERS: Final = 8
"""Buffers of a thread, and unfinished bytes objects."""
LEFT_TO_LEND: Final = 3
"""Those of them that are left for others when a message is handed on in lent memory: its application may be slow."""
LENT_TO_STRANGERS: Final = 2
"""The most that peers hold of them who have not proven who they are: once used, a buffer keeps its memory."""
SPARED: Final = _LENDERS - LENT_TO_STRANGERS
"""Those of them that are spared for others."""
_ROOM: Final = 64
"""Bytes before what is read into a buffer, for what is put before it."""
_LENT_SIZE: Final = _ROOM + 4 * _MIB + 64 * 1024
"""Enough for the largest message, and what is around it."""


class _Lenders(threading.local):
    """The memory for large messages of a thread."""

    def __init__(self) -> None:
        self.buffers: list[bytearray] = []
        self.sizes: dict[int, int] = {}
        """By the identities of the buffers: the bytes for which they were lent last."""
        self.filled = 0
        """Bytes of large messages that have been read into their places."""
        self.unfinished: WeakValueDictionary[int, Any] = WeakValueDictionary()
        """Memory of bytes objects that are being filled, by its identity."""
        self.grown = -1
        """Bytes that the last large content grew by when it got another head. Below 0 it shrank, or there was none."""


_OF_THREAD: Final = _Lenders()


def lend(size: int, spared: int = 0) -> memoryview | None:
    """A buffer of so many bytes, until the last view of it is gone. None if it would be too large, and when all are
    lent but those that are spared for others.
    """
    lenders = _LENDERS - spared
    end = _ROOM + size
    if end > _LENT_SIZE:
        return None
    buffers = _OF_THREAD.buffers
    for buffer in buffers[:lenders]:
        if not _is_lent(buffer):
            break
    else:
        if len(buffers) >= lenders:
            return None
        buffer = bytearray(_LENT_SIZE)  # the system gives it memory as it is used
        buffers.append(buffer)
    _OF_THREAD.sizes[id(buffer)] = size
    return memoryview(buffer)[_ROOM:end]


def _is_lent(buffer: bytearray) -> bool:
    try:
        buffer.append(0)  # only while there is no view of it
    except BufferError:
        return True
    buffer.pop()
    return False


def lendable() -> int:
    """The number of buffers that this thread can be lent now."""
    return _LENDERS - sum(map(_is_lent, _OF_THREAD.buffers))


def with_head(head: bytes, content: bytes | bytearray | memoryview) -> bytes | memoryview:
    """Some content with a head before it. If it is all that was read into a buffer that this thread was lent, nothing
    is copied, and the head takes the place of one that was put there before.
    """
    if type(content) is memoryview and _OF_THREAD.sizes.get(id(content.obj)) == len(content):
        lent = memoryview(content.obj)[: _ROOM + len(content)]
        begin = _ROOM - len(head)
        if begin >= 0:
            lent[begin:_ROOM] = head
            return lent[begin:].toreadonly()
    return head + content


def lend_in_bytes(size: int) -> memoryview | None:
    """Memory for content of so many bytes that ``with_other_head`` need not copy: it is the end of a bytes object that
    is as much larger as the last content grew. None if that is not known, if it would be too large, and when many are
    unfinished.
    """
    of_thread = _OF_THREAD
    before = of_thread.grown
    if before < 0 or before + size > _LENT_SIZE or len(of_thread.unfinished) >= _LENDERS:
        return None
    memory = _new_memory()(before + size)
    memory.before = before
    of_thread.unfinished[id(memory)] = memory
    return memoryview(memory).cast("B")[before : before + size]


@functools.cache
def _new_memory() -> Callable[[int], Any]:
    """Where the memory of a new bytes object of so many bytes begins. The object is its attribute ``content``. Such an
    object may be written until others see it (Python/C API, PyBytes_AsString).
    """
    import ctypes  # applications do without

    api = ctypes.pythonapi
    allocate = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_char_p, ctypes.c_ssize_t)(
        ("PyBytes_FromStringAndSize", api)
    )
    address_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(("PyBytes_AsString", api))

    # One type for all sizes: to make one costs more than a copy of a smaller message.
    from_address = (ctypes.c_ubyte * _LENT_SIZE).from_address

    def new_memory(size: int) -> Any:
        content = allocate(None, size)
        memory: Any = from_address(address_of(content))
        memory.content = content  # the object lives as long as a view of its memory
        return memory

    return new_memory


def with_other_head(head: bytes, content: bytes | bytearray | memoryview, end: int) -> bytes:
    """Large content with a head in the place of its bytes up to ``end``. If it is all of some memory that was lent in a
    bytes object and grows by what is before it there, nothing is copied, and the content is no longer what it was.
    """
    of_thread = _OF_THREAD
    of_thread.grown = grown = len(head) - end
    if type(content) is memoryview:
        memory = of_thread.unfinished.get(id(content.obj))
        if memory is not None and memory.before == grown == len(memory.content) - len(content):
            del of_thread.unfinished[id(memory)]
            memoryview(memory).cast("B")[: len(head)] = head
            finished: bytes = memory.content
            return finished
    return b"".join((head, memoryview(content)[end:]))


def filled(count: int) -> None:
    """Count bytes of a large message that have been read into their place."""
    _OF_THREAD.filled += count


def total_filled() -> int:
    """All bytes of large messages that this thread has read into their places: it grows while such messages come in."""
    return _OF_THREAD.filled
