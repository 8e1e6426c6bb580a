"""A damaged log is rebuilt from its whole parts, whatever the senders of its messages put into them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from qmnode.storage import log_rebuild
from qmnode.storage.log_ends import BLOCK, HEADER
from qmnode.storage.log_rebuild import rebuild_log

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


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
        for fragment in log_rebuild._framed(record, len(content)):
            content += fragment
    return content


def rebuilt(folder: Path, content: bytes | bytearray) -> list[bytes]:
    (folder / "damaged").write_bytes(content)
    rebuild_log(folder / "damaged", folder / "rebuilt")
    return list(log_rebuild._records((folder / "rebuilt").read_bytes()))


def test_whole_entries_behind_a_damaged_beginning_are_found_in_one_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b"\x04\x00\x00" * 20_000 + b"\xff"  # each of these could be the first of thousands of entries
    content = log_of(batch(1, b"a", body, b"b"))
    content[HEADER.size + 1] ^= 1
    calls = 0
    entry = log_rebuild._entry

    def counted(rest: bytes, place: int) -> int | None:
        nonlocal calls
        calls += 1
        assert calls <= 2 * len(content)
        return entry(rest, place)

    monkeypatch.setattr(log_rebuild, "_entry", counted)
    (record,) = rebuilt(tmp_path, content)
    assert record[12:] == b"\x05\x01\x01k\x01b"


def test_a_body_that_looks_like_records_adds_none_when_a_bit_of_its_block_is_wrong(tmp_path: Path) -> None:
    forged = bytes(log_of(batch(90, b"forged")))
    content = log_of(batch(1, b"first"), batch(2, (b"." * 99 + forged) * 500 + b"."), batch(3, b"last"))
    content[BLOCK // 2] ^= 1
    records = rebuilt(tmp_path, content)
    assert not any(b"forged" in record and len(record) < 100 for record in records)
    assert records[0] == batch(1, b"first")
    assert records[-1] == batch(3, b"last")
