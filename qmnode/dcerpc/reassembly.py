"""Fragments: reassembling calls from them, and splitting stub data into them."""

from collections.abc import Iterable, Iterator
from typing import Final

from qmnode.dcerpc.errors import PduError
from qmnode.dcerpc.pdu import FIRST_FRAGMENT, HEADER_SIZE, LAST_FRAGMENT, WHOLE

_OVERHEAD: Final = HEADER_SIZE + 8 + 8
_ALIGNMENT: Final = 16
SMALLEST_FRAGMENT: Final = 200
"""The least fragment size, even if a peer asks for less: C706 12.6.3.1 requires everyone to accept 1,432 bytes."""
_PARTIAL_CALLS: Final = 64


class Reassembly:
    """The calls of a connection with missing fragments, within a limit on the bytes that they hold together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._partial: dict[int, tuple[object, bytearray]] = {}

    def add(self, call_id: int, first: bool, last: bool, kind: object, stub: bytes) -> bytes | None:
        """Add a fragment; return the stub data after the last. Raises PduError. ``kind``: equal in all fragments."""
        if first and last:
            if call_id in self._partial:
                raise PduError(f"call {call_id} begins again before it is complete")
            if len(stub) > self._limit:
                raise PduError(f"a call of {len(stub)} bytes: at most {self._limit}")
            return stub
        if first:
            if call_id in self._partial or len(self._partial) >= _PARTIAL_CALLS:
                raise PduError(f"call {call_id} begins again, or too many calls have begun")
            self._partial[call_id] = (kind, bytearray())
        found = self._partial.get(call_id)
        if found is None:
            raise PduError(f"a later fragment of call {call_id}, which has not begun")
        if found[0] != kind:
            raise PduError(f"fragments of call {call_id} are for different methods, or of different clients")
        if not stub and not last:
            raise PduError("an empty fragment that is not the last one")
        self._held += len(stub)
        if self._held > self._limit:
            raise PduError(f"fragments of more than {self._limit} bytes")
        found[1].extend(stub)
        if not last:
            return None
        del self._partial[call_id]
        self._held -= len(found[1])
        return bytes(found[1])

    def forget(self, call_id: int) -> None:
        """Forget an abandoned call."""
        found = self._partial.pop(call_id, None)
        if found is not None:
            self._held -= len(found[1])


def fragments(stub: bytes, largest: int, token_size: int) -> Iterable[tuple[int, bytes, int]]:
    """The flags, the piece and the alloc_hint of each fragment: PDUs of at most ``largest`` bytes."""
    room = max(largest, SMALLEST_FRAGMENT) - _OVERHEAD - token_size
    if token_size:
        room -= _ALIGNMENT
    size = len(stub)
    if size <= room:
        return ((WHOLE, stub, size),)
    return _fragments(stub, room)


def _fragments(stub: bytes, room: int) -> Iterator[tuple[int, bytes, int]]:
    size = len(stub)
    for start in range(0, size, room):
        flags = (FIRST_FRAGMENT if start == 0 else 0) | (LAST_FRAGMENT if start + room >= size else 0)
        yield flags, stub[start : start + room], size - start
