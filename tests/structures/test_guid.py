"""GUIDs: wire bytes and text, MS-MQMQ 2.2.18.1.1."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmnode.structures.guid import ZERO_GUID, Guid, guid_from_bytes, guid_from_text, guid_to_text, new_guid

guids = st.binary(min_size=16, max_size=16).map(Guid)


def test_the_first_three_fields_are_little_endian_on_the_wire():
    assert guid_to_text(bytes(range(16))) == "03020100-0504-0706-0809-0a0b0c0d0e0f"


@given(guids)
def test_text_and_bytes_round_trip_and_agree_with_the_standard_library(guid):
    text = guid_to_text(guid)

    assert guid_from_text(text) == guid
    assert text == str(UUID(bytes_le=guid))


@pytest.mark.parametrize("written", [str.upper, str.lower, lambda text: "{" + text + "}"])
def test_any_case_and_braces_are_accepted(written):
    guid = new_guid()

    assert guid_from_text(written(guid_to_text(guid))) == guid


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "{03020100-0504-0706-0809-0a0b0c0d0e0f",
        "03020100-0504-0706-0809-0a0b0c0d0e0f}",
        "03020100-0504-0706-0809-0a0b0c0d0e0",
        "03020100-0504-0706-0809-0a0b0c0d0e0f\n",
        "030201000504070608090a0b0c0d0e0f",
        "0302010٠-0504-0706-0809-0a0b0c0d0e0f",
    ],
)
def test_other_text_is_refused(text):
    with pytest.raises(ValueError, match="not a GUID"):
        guid_from_text(text)


@given(st.text())
def test_arbitrary_text_is_a_guid_or_a_value_error(text):
    try:
        guid = guid_from_text(text)
    except ValueError:
        return
    assert len(guid) == 16


def test_new_guids_differ_and_are_not_zero():
    assert new_guid() != new_guid()
    assert new_guid() != ZERO_GUID


@pytest.mark.parametrize("length", [0, 15, 17])
def test_other_lengths_are_refused(length):
    with pytest.raises(ValueError, match="16 bytes"):
        guid_from_bytes(bytes(length))


def test_a_view_is_copied():
    buffer = bytearray(range(16))
    guid = guid_from_bytes(memoryview(buffer))
    buffer[0] = 255

    assert guid == bytes(range(16))
