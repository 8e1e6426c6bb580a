"""A damaged log is rebuilt from its whole parts, whatever the senders of its messages put into them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from qmnode.storage import log_records
from qmnode.storage.log_records import BLOCK, HEADER, LogReader, changes, rebuild_log

if TYPE_CHECKING:
    from pathlib import Path


def batch(number: int, *values: bytes) -> bytes:
    """A batch that puts values into the first column family, each under a key of one byte."""
    entries = b"".join(b"\x05\x01\x01k" + varint(len(value)) + value for value in values)
    return struct.pack("<QI", number, len(values)) + entries


def varint(number: int) -> bytes:
    parts = []
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def log_of(*records: bytes) -> bytearray:
    content = bytearray()
    for record in records:
        for fragment in log_records._framed(record, len(content)):
            content += fragment
    return content


def rebuilt(folder: Path, content: bytes | bytearray, left_out: int = 0) -> list[bytes]:
    (folder / "damaged").write_bytes(content)
    assert rebuild_log(folder / "damaged", folder / "rebuilt") == left_out
    return list(LogReader().feed((folder / "rebuilt").read_bytes()))


def values(records: list[bytes]) -> list[bytes | None]:
    return [change.value for record in records for change in changes(record)]


FORGED = batch(1, b"forged")[12:]
LARGE = b"." * 2 * BLOCK + FORGED * 3  # what follows the damage begins in this body, and ends like a batch


def test_whole_changes_on_both_sides_of_damage_are_found(tmp_path: Path) -> None:
    content = log_of(batch(1, b"a", LARGE, b"b"), batch(4, b"c"))
    content[BLOCK // 2] ^= 1
    records = rebuilt(tmp_path, content)
    assert values(records) == [b"b", b"c"]
    content[BLOCK // 2] ^= 1
    content[BLOCK + BLOCK // 2] ^= 1
    assert values(rebuilt(tmp_path, content)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("place", "bit"),
    [(8, 1), (12, 4), (14, 1), (22, 1), (22, 128)],
    ids=["count", "tag", "length of the key", "length of the body", "where it ends"],
)
def test_a_body_that_ends_like_a_batch_adds_nothing_to_one_with_a_damaged_beginning(
    tmp_path: Path, place: int, bit: int
) -> None:
    content = log_of(batch(1, b"a", LARGE, b"b"), batch(4, b"c"))
    content[HEADER.size + place] ^= bit
    assert values(rebuilt(tmp_path, content, 1)) == [b"c"]


def test_a_beginning_of_zeros_leads_nowhere(tmp_path: Path) -> None:
    content = log_of(batch(1, b"a", LARGE), batch(3, b"c"))
    content[: BLOCK // 2] = bytes(BLOCK // 2)
    assert values(rebuilt(tmp_path, content, 1)) == [b"c"]


def test_a_body_that_looks_like_records_adds_none_when_a_bit_of_its_block_is_wrong(tmp_path: Path) -> None:
    forged = bytes(log_of(batch(90, b"forged")))
    content = log_of(batch(1, b"first"), batch(2, (b"." * 99 + forged) * 500 + b"."), batch(3, b"last"))
    content[BLOCK // 2] ^= 1
    records = rebuilt(tmp_path, content)
    assert not any(b"forged" in record and len(record) < 100 for record in records)
    assert records[0] == batch(1, b"first")
    assert records[-1] == batch(3, b"last")
