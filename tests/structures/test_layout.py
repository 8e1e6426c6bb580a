"""The layout engine on small declarations of its own."""

from __future__ import annotations

import pickle

import pytest

from qmnode.structures.errors import PacketError
from qmnode.structures.fields import (
    AFTER,
    Flags,
    array,
    bits,
    choice,
    const8,
    data,
    length8,
    length16,
    nested,
    padding,
    text,
    text_to_null,
    u8,
    u16,
    u32,
    view,
)
from qmnode.structures.layout import Structure


class Options(Flags, width=8):
    LOW = bits(0, 3, "Three bits")
    TAIL = bits(3, 1, "A tail is present")
    KIND = bits(4, 2, "Kind of content")


class Tail(Structure, section="TEST 2"):
    """A tail."""

    number: int = u32(0, "Number", "Any")


class Pair(Structure, section="TEST 3"):
    """Two numbers."""

    first: int = u8(0, "First", "At most nine", allowed=range(10), strict=True)
    second: int = u16(1, "Second", "Any")


class Whole(Structure, section="TEST 1", total="size_of_all"):
    """All kinds of field."""

    version: int = const8(0, "Version", 7, "Always 7")
    flags: int = u8(1, "Flags", "Options", bits=Options, default=0)
    size_of_all: int = u16(2, "Size", "Bytes of everything", default=0)
    name_length: int = length8(4, "NameLength", "Characters of Name", of="name", unit=2)
    pair_count: int = length8(5, "PairCount", "Pairs", of="pairs")
    body_length: int = length16(6, "BodyLength", "Bytes of Body", of="body")
    name: str = text(8, "Name", "A name", empty_is_absent=True, default="")
    pairs: tuple[Pair, ...] = array(AFTER, Pair, "Pairs", "Pairs of numbers", default=())
    body: bytes = view(AFTER, "Body", "A body", default=b"")
    padding: bytes = padding()
    content: Tail | Pair | None = choice(
        AFTER, "Content", "What KIND says", on="flags.KIND", cases={0: None, 1: Tail, 2: Pair}, default=None
    )
    tail: Tail | None = nested(AFTER, Tail, "The tail", when="flags.TAIL", default=None)


class Row(Structure, section="TEST 4"):
    """A count and what it counts."""

    pair_count: int = length8(0, "PairCount", "Pairs", of="pairs")
    pairs: tuple[Pair, ...] = array(1, Pair, "Pairs", "Pairs of numbers", default=())


class Line(Structure, section="TEST 5"):
    """Text that only a null ends."""

    words: str = text_to_null(0, "Words", "Text")


EXAMPLE = Whole(
    name="Aé", pairs=[Pair(first=1, second=2), Pair(first=3, second=4)], body=b"xyz", tail=Tail(number=9),
    content=Pair(first=5, second=6),
)  # fmt: skip


def test_a_constructor_sets_flags_totals_and_padding() -> None:
    assert EXAMPLE.flags == Options.of(TAIL=1, KIND=2)
    assert EXAMPLE.size_of_all == EXAMPLE.size == len(EXAMPLE.write())
    assert (EXAMPLE.name_length, EXAMPLE.pair_count, EXAMPLE.body_length) == (3, 2, 3)
    assert len(EXAMPLE.padding) == -(8 + 6 + 6 + 3) % 4


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_what_is_written_parses_to_the_same_value(kind: type) -> None:
    assert Whole.parse(kind(EXAMPLE.write())) == EXAMPLE


def test_bytes_that_parse_are_written_back_with_their_padding() -> None:
    written = bytearray(EXAMPLE.write())
    place = written.index(b"xyz") + 3
    written[place] = 0xAA
    assert Whole.parse(bytes(written)).write() == written


def test_a_body_is_a_view_of_the_buffer() -> None:
    written = EXAMPLE.write()
    body = Whole.parse(written).body
    assert isinstance(body, memoryview)
    assert body.obj is written


def test_every_truncation_is_a_packet_error() -> None:
    written = EXAMPLE.write()
    for stop in range(len(written)):
        with pytest.raises(PacketError) as caught:
            Whole.parse(written[:stop])
        assert caught.value.structure
        assert caught.value.field


def test_bytes_left_over_are_rejected_unless_asked_for() -> None:
    with pytest.raises(PacketError, match="left over"):
        Tail.parse(b"\0\0\0\0\0")
    assert Tail.parse_from(b"\xff\1\0\0\0\0", 1) == (Tail(number=1), 5)


def test_a_count_larger_than_the_bytes_is_rejected_before_anything_is_taken() -> None:
    with pytest.raises(PacketError, match="left"):
        Row.parse(b"\xff\0")


def test_a_value_outside_of_its_range_is_rejected_on_both_ways() -> None:
    with pytest.raises(PacketError, match="First"):
        Pair.parse(b"\x0a\0\0")
    with pytest.raises(PacketError, match="First"):
        Pair(first=10, second=0)
    with pytest.raises(PacketError, match="Second"):
        Pair(first=1, second=65536)


def test_text_up_to_a_null() -> None:
    assert Line.parse("h\u0100i\0".encode("utf-16-le")) == Line(words="h\u0100i")
    with pytest.raises(PacketError, match="null"):
        Line.parse(b"a\0\0")
    with pytest.raises(PacketError, match="null"):
        Line(words="a\0b")


def test_replace_sets_what_follows() -> None:
    shorter = EXAMPLE.replace(tail=None, body=b"")
    assert Options.TAIL.get(shorter.flags) == 0
    assert shorter.size_of_all == shorter.size
    assert EXAMPLE.replace() == EXAMPLE


def test_values_are_immutable_equal_by_type_and_survive_pickling() -> None:
    with pytest.raises(AttributeError):
        EXAMPLE.body = b""  # type: ignore[misc]
    assert Tail(number=1) != (1,)
    assert pickle.loads(pickle.dumps(EXAMPLE)) == EXAMPLE


def test_annotations_cover_every_byte_in_order() -> None:
    written = EXAMPLE.write()
    leaves = [line for line in Whole.annotate(written).walk() if not line.children]
    assert [line.offset for line in leaves] == [sum(before.width for before in leaves[:n]) for n in range(len(leaves))]
    assert sum(line.width for line in leaves) == len(written)


def test_a_wrong_declaration_is_refused() -> None:
    with pytest.raises(TypeError, match="declared at 3"):
        type(Tail)("Wrong", (Structure,), {"a": u8(0, "A", ""), "b": u8(3, "B", "")})
    with pytest.raises(TypeError, match="nothing counts it"):
        type(Tail)("Wrong", (Structure,), {"a": data(0, "A", "")})
