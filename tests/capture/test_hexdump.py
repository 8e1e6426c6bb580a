"""Hex dumps in the styles that tools print."""

from __future__ import annotations

import tracemalloc

import pytest

from qmnode.capture.hexdump import DumpError, looks_like_dump, parse_hex_dump, text_of
from tests.lab.cases import cases

BYTES = bytes.fromhex("10c00b004c494f5220000000ffffffff00000300d8050000c0d4010000004000")
SAME = BYTES + bytes(64) + b"aa bb cc dd ab|cd  ef"

STYLES = {
    "xxd": """\
00000000: 10c0 0b00 4c49 4f52 2000 0000 ffff ffff  ....LIOR .......
00000010: 0000 0300 d805 0000 c0d4 0100 0000 4000  ..............@.
""",
    "xxd -p": "10c00b004c494f5220000000ffffffff00000300d8050000c0d401000000\n4000\n",
    "xxd -g1 -u": """\
00000000: 10 C0 0B 00 4C 49 4F 52 20 00 00 00 FF FF FF FF  ....LIOR .......
00000010: 00 00 03 00 D8 05 00 00 C0 D4 01 00 00 00 40 00  ..............@.
""",
    "xxd -i": """\
  0x10, 0xc0, 0x0b, 0x00, 0x4c, 0x49, 0x4f, 0x52, 0x20, 0x00, 0x00, 0x00,
  0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x03, 0x00, 0xd8, 0x05, 0x00, 0x00,
  0xc0, 0xd4, 0x01, 0x00, 0x00, 0x00, 0x40, 0x00
""",
    "hexdump -C": """\
00000000  10 c0 0b 00 4c 49 4f 52  20 00 00 00 ff ff ff ff  |....LIOR .......|
00000010  00 00 03 00 d8 05 00 00  c0 d4 01 00 00 00 40 00  |..............@.|
00000020
""",
    "hexdump": """\
0000000 c010 000b 494c 524f 0020 0000 ffff ffff
0000010 0000 0003 05d8 0000 d4c0 0001 0000 0040
0000020
""",
    "od -t x1": """\
0000000 10 c0 0b 00 4c 49 4f 52 20 00 00 00 ff ff ff ff
0000020 00 00 03 00 d8 05 00 00 c0 d4 01 00 00 00 40 00
0000040
""",
    "Wireshark": """\
0000   10 c0 0b 00 4c 49 4f 52 20 00 00 00 ff ff ff ff   ....LIOR .......
0010   00 00 03 00 d8 05 00 00 c0 d4 01 00 00 00 40 00   ..............@.
""",
    "tcpdump -X": """\
\t0x0000:  10c0 0b00 4c49 4f52 2000 0000 ffff ffff  ....LIOR........
\t0x0010:  0000 0300 d805 0000 c0d4 0100 0000 4000  ..............@.
""",
    "the specification": """\
    - ConnectionParametersHeader:
      AckTimeout: 120000 (0x1D4C0)
 Hex Dump:
 10 C0 0B 00 4C 49 4F 52 20 00 00 00 FF FF FF FF
 00 00 03 00 D8 05 00 00 C0 D4 01 00 00 00 40 00
4.1.6 FRAME 6: Connection Parameters Response
""",
    "Python": 'data = [\n    b"\\x10\\xc0\\x0b\\x00\\x4c\\x49\\x4f\\x52\\x20\\x00\\x00\\x00\\xff\\xff\\xff\\xff"\n'
    '    b"\\x00\\x00\\x03\\x00\\xd8\\x05\\x00\\x00\\xc0\\xd4\\x01\\x00\\x00\\x00\\x40\\x00"\n]\n',
    "a Python value": f"{BYTES!r}\n",
    "an assignment in Python": f"frame = {BYTES!r}\n",
    "C in one line": f"unsigned char x[] = {{ {', '.join(f'0x{byte:02x}' for byte in BYTES)} }};\nint length = 32;\n",
    "C with comments": """\
  0x10, 0xc0, 0x0b, 0x00, 0x4c, 0x49, 0x4f, 0x52, 0x20, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, // BaseHeader
  /* 16 */ 0x00, 0x00, 0x03, 0x00, 0xd8, 0x05, 0x00, 0x00, 0xc0, 0xd4, 0x01, 0x00, 0x00, 0x00, 0x40, 0x00
""",
    "a number of SQL": f"0x{BYTES.hex()}\n",
    "colons": f"{BYTES[:16].hex(':')}:\n{BYTES[16:].hex(':')}\n",
    "BitConverter": f"{BYTES.hex('-').upper()}\n",
    "Format-Hex of Windows PowerShell": """\
           00 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F

00000000   10 C0 0B 00 4C 49 4F 52 20 00 00 00 FF FF FF FF  .À..LIOR ...ÿÿÿÿ
00000010   00 00 03 00 D8 05 00 00 C0 D4 01 00 00 00 40 00  ....Ø...ÀÔ....@.
""",
    "Format-Hex of PowerShell 7": """\
   Label: String (System.String) <3A1B2C4D>

          Offset Bytes                                           Ascii
                 00 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F
          ------ ----------------------------------------------- -----
0000000000000000 10 C0 0B 00 4C 49 4F 52 20 00 00 00 FF FF FF FF �À��LIOR ���ÿÿÿÿ
0000000000000010 00 00 03 00 D8 05 00 00 C0 D4 01 00 00 00 40 00 �� �Ø���ÀÔ���@�
""",
    "WinDbg db": """\
000001f2`3c5d0e10  10 c0 0b 00 4c 49 4f 52-20 00 00 00 ff ff ff ff  ....LIOR .......
000001f2`3c5d0e20  00 00 03 00 d8 05 00 00-c0 d4 01 00 00 00 40 00  ..............@.
""",
    "words of four bytes": "10c00b00 4c494f52 20000000 ffffffff\n00000300 d8050000 c0d40100 00004000\n",
}


@cases("style", STYLES)
def test_styles(style: str) -> None:
    assert looks_like_dump(STYLES[style].encode())
    assert [dump.data for dump in parse_hex_dump(STYLES[style])] == [BYTES]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "utf-8"])
def test_encodings_that_windows_writes_text_in(encoding: str) -> None:
    written = STYLES["xxd"].encode(encoding)
    assert looks_like_dump(written)
    assert [dump.data for dump in parse_hex_dump(text_of(written))] == [BYTES]


LONG = BYTES * 200
LONG_LINES = {
    "plain": LONG.hex(),
    "spaces": LONG.hex(" "),
    "colons": LONG.hex(":"),
    "Python": f"frame = {LONG!r}",
    "C": f"x = {{{', '.join(f'0x{byte:02x}' for byte in LONG)}}}",
}


@pytest.mark.parametrize("style", LONG_LINES)
def test_a_line_is_known_by_any_part_of_its_beginning(style: str) -> None:
    line = LONG_LINES[style].encode()
    assert all(looks_like_dump(line[:size]) for size in range(4090, 4101))
    assert [dump.data for dump in parse_hex_dump(line.decode())] == [LONG]


@pytest.mark.parametrize("line", ["b'\\x1'", "b'\\d'", "b'\u20ac'", "b'", "x = 0x10", "0x123", "12345678-1234", "a:b"])
def test_lines_that_are_almost_bytes(line: str) -> None:
    assert parse_hex_dump(line) == []


HOSTILE_LINES = ("0xff,", "b''", "aa", "aa:", "/*", " ")


@pytest.mark.parametrize("part", HOSTILE_LINES)
def test_a_long_line_takes_no_more_memory_than_a_small_multiple_of_it(part: str) -> None:
    line = part * 50_000 + "!"
    parse_hex_dump(line[:100])
    tracemalloc.start()
    parse_hex_dump(line)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * len(line)


def test_a_row_of_bytes_that_count_up_is_data_inside_of_a_dump() -> None:
    row = "00 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F"
    assert [dump.data for dump in parse_hex_dump(f"10\n{row}\n")] == [b"\x10" + bytes(range(16))]


def test_lines_that_are_the_same_again() -> None:
    text = """\
00000000  10 c0 0b 00 4c 49 4f 52  20 00 00 00 ff ff ff ff  |....LIOR .......|
00000010  00 00 03 00 d8 05 00 00  c0 d4 01 00 00 00 40 00  |..............@.|
00000020  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  |................|
*
00000060  61 61 20 62 62 20 63 63  20 64 64 20 61 62 7c 63  |aa bb cc dd ab|c|
00000070  64 20 20 65 66                                    |d  ef|
00000075
"""
    assert [dump.data for dump in parse_hex_dump(text)] == [SAME]


def test_text_beside_the_bytes_that_looks_like_bytes_is_cut_off() -> None:
    text = """\
00000000  61 61 20 62 62 20 63 63  aa bb cc
00000008  64 64                    dd
0000000a
"""
    assert [dump.data for dump in parse_hex_dump(text)] == [b"aa bb ccdd"]


def test_an_offset_of_zero_and_other_text_begin_another_dump() -> None:
    text = "0000  10 20\n0002  30\n0000  40\nFRAME 2\n0000  50\n\n60 70\n\n80\n"
    assert [(dump.line, dump.data.hex()) for dump in parse_hex_dump(text)] == [
        (1, "102030"),
        (3, "40"),
        (5, "50"),
        (7, "6070"),
        (9, "80"),
    ]


def test_offsets_that_do_not_agree_are_an_error_with_its_line() -> None:
    with pytest.raises(DumpError, match="line 2: the offset is 0020, and the lines before it come to 0x2"):
        parse_hex_dump("0000  10 20\n0020  30\n")


def test_a_repetition_does_not_make_a_large_dump_out_of_a_small_text() -> None:
    with pytest.raises(DumpError, match="more than"):
        parse_hex_dump("00000000  00 00\n*\nfffffffe  00\n")


@pytest.mark.parametrize("text", [b"", b"hello\nworld\n", b"\x00\x01", b"12 / 139\n"])
def test_what_is_no_dump(text: bytes) -> None:
    assert not looks_like_dump(text)
