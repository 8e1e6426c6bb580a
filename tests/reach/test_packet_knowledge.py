"""Only structures know how a packet is laid out: everything above them names what it reads."""

from __future__ import annotations

import pytest

from tests.reach.packet_knowledge import PROJECT, excepted, exceptions, found, found_in


def test_no_other_room_knows_the_bytes_of_a_packet() -> None:
    unlisted = [str(one) for one in found() if excepted(one.file) is None]
    assert not unlisted, f"give these a name in qmnode/structures/packet_view.py: {unlisted}"


def test_the_list_of_other_formats_is_true() -> None:
    used = {excepted(one.file) for one in found()}
    assert sorted(exceptions().keys() - used) == [], "these have no formats any more: take them off the list"
    for name, exception in exceptions().items():
        assert (PROJECT / name).exists(), name
        assert len(str(exception["reason"]).split()) >= 4, name


@pytest.mark.parametrize(
    "planted",
    [
        "import struct\n_SIZE = struct.Struct('<I')",
        "from struct import Struct\nread = Struct('<4xI').unpack_from",
        "import struct\ndef size(packet): return struct.unpack_from('<I', packet, 8)[0]",
        "from struct import unpack_from\ndef size(packet): return unpack_from('<I', packet, 8)[0]",
        "def priority(packet): return packet[2] & 7",
        "def size(packet): return int.from_bytes(packet[8:12], 'little')",
        "def label(value, place): return value[place + 1]",
        "def source(received): return received.packet[16:32]",
        "from qmnode.structures.layout import offset_of",
        "import numpy as np\n_HEAD = np.dtype([('size', '<u4')])",
    ],
)
def test_planted_knowledge_is_found(planted: str) -> None:
    assert list(found_in(planted, "planted.py"))


@pytest.mark.parametrize(
    "innocent",
    [
        "def source(packet): return packet[SOURCE]",
        "def rest(packet): return packet[NAMES_AT:]",
        "def first(packet): return packet[0]",
        "def part(names): return names[1]",
        "def size(packet): return packet_size_of(packet)",
    ],
)
def test_named_places_are_no_knowledge(innocent: str) -> None:
    assert not list(found_in(innocent, "innocent.py"))
