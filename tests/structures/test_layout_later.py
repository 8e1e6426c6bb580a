"""Structures that contain each other: a declaration may name a structure that comes after it."""

import pytest

from qmnode.structures.errors import PacketError
from qmnode.structures.fields import Later, array, length8, nested, u8
from qmnode.structures.layout import Structure


class Branch(Structure, section="test"):
    """Counts leaves."""

    leaf_count: int = length8(0, "count", "", of="leaves")
    leaves: tuple["Leaf", ...] = array(1, Later(lambda: Leaf), "leaves", "")


class Leaf(Structure, section="test"):
    """A number, and more of the same."""

    number: int = u8(0, "number", "")
    branch: Branch = nested(1, Branch, "")


def leaf(number, *leaves):
    return Leaf(number=number, branch=Branch(leaves=leaves))


def test_structures_that_contain_each_other_round_trip():
    value = leaf(1, leaf(2), leaf(3, leaf(4)))

    assert value.write() == bytes([1, 2, 2, 0, 3, 1, 4, 0])
    assert Leaf.parse(value.write()) == value
    assert Leaf.parse(memoryview(value.write())) == value
    assert Branch.parse(value.branch.write()) == value.branch


def test_their_depth_is_bounded():
    with pytest.raises(PacketError, match="nested too deep"):
        Leaf.parse(bytes([0, 1]) * 1000 + bytes(2))


def test_only_the_structure_that_comes_later_is_taken():
    with pytest.raises(PacketError, match="must be a Leaf"):
        Branch(leaves=(Branch(leaves=()),))
