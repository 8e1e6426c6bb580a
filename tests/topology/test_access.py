"""Access lists: the names of rights and their masks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqenterprise.topology import access_lists
from mqenterprise.topology.declaration import Access


@given(st.integers(0, 0xFFFFFFFF))
def test_names_give_their_mask_back(value):
    text = access_lists.line("Someone: else", "allow", value)

    assert access_lists.parsed(text) == ("Someone: else", "allow", value)


@pytest.mark.parametrize(
    ("rights", "value"),
    [
        (("receive",), 0x3),
        (("receive_journal",), 0xA),
        (("generic_read",), 0x2002B),
        (("generic_write",), 0x20024),
        (("generic_all",), 0xF003F),
        (("send", "peek"), 0x6),
    ],
)
def test_the_masks_are_those_of_the_specification(rights, value):
    assert access_lists.mask(rights) == value


def test_two_names_of_one_trustee_are_one_entry():
    entries = [Access(to="Everyone", allow=("send",)), Access(to="S-1-1-0", allow=("peek",))]

    assert access_lists.normal(entries, lambda name: "Everyone") == ("Everyone: allow peek send",)


def test_two_ways_to_say_the_same_are_equal():
    one = [Access(to="Everyone", allow=("generic_read",))]
    other = [Access(to="everyone", allow=("receive_journal", "receive", "get_properties", "get_permissions"))]

    assert access_lists.normal(one, str.title) == access_lists.normal(other, str.title)
