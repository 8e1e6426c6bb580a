"""The allocator of the process: what it does with memory that was freed."""

import ctypes
from typing import Final

_TRIM_THRESHOLD: Final = -1
_TOP_PAD: Final = -2
_MMAP_THRESHOLD: Final = -3
"""The numbers of these parameters for mallopt(3)."""
_MIB: Final = 1 << 20
_LARGEST: Final = 4 * _MIB
"""Blocks up to this size come from the heap. A batch of messages, and what RocksDB writes it into, are smaller."""
_KEPT: Final = 16 * _MIB
"""Free bytes at the end of the heap that are not given back."""


def keep_freed_memory() -> None:
    """Let freed blocks be used again. Without this the kernel maps, clears and unmaps the memory of every batch of
    messages. Nothing happens where the C library has no such parameters.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_MMAP_THRESHOLD, _LARGEST)
    mallopt(_TRIM_THRESHOLD, _KEPT)
    mallopt(_TOP_PAD, _MIB)
