"""What comes in small pieces takes little more memory than its bytes, however small the pieces are."""

import tracemalloc
from collections.abc import Callable

import pytest

from qmnode.local.frames import FrameKind, FrameReader, frame
from qmnode.protocol.received import Framer
from tests.protocol.machines import message

SIZE = 300_000


def stream_of_frame() -> tuple[Callable[[bytes], list[object]], bytes]:
    return FrameReader().feed, frame(FrameKind.CALL, 7, bytes(SIZE))  # type: ignore[return-value]


def stream_of_packet() -> tuple[Callable[[bytes], list[object]], bytes]:
    return Framer(1 << 20).feed, bytes(message(1, body=bytes(SIZE)))  # type: ignore[return-value]


@pytest.mark.parametrize("stream", [stream_of_frame, stream_of_packet])
@pytest.mark.parametrize("piece", [1, 3, 50])
def test_small_pieces_are_kept_in_as_many_bytes(
    stream: Callable[[], tuple[Callable[[bytes], list[object]], bytes]], piece: int
) -> None:
    feed, content = stream()
    pieces = [content[at : at + piece] for at in range(0, len(content), piece)]
    last = pieces.pop()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for one in pieces:
            assert feed(bytes(bytearray(one))) == []
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept < 1.5 * SIZE
    assert len(feed(last)) == 1
