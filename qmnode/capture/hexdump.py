"""Read bytes from the text of a hex dump.

It reads plain hex (also with colons or hyphens between bytes), ``xxd`` and ``xxd -p``, ``hexdump`` with and without
``-C``, and ``od -t x1``. It also reads the dumps of Wireshark, tcpdump, WinDbg and PowerShell, C and Python literals,
and the dumps of MS-MQQB section 4: lines of bytes among lines of other text, which separate one dump from the next.
"""

import codecs
import re
from dataclasses import dataclass, field
from typing import NamedTuple

LARGEST_DUMP = 64 << 20
"""The most bytes of a dump, counting repeated lines (``*``)."""


class Dump(NamedTuple):
    """One contiguous run of dumped bytes."""

    line: int
    """Its first line in the text, counted from 1."""
    data: bytes


class DumpError(ValueError):
    """A dump that contradicts itself; ``line`` counts from 1."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(f"line {line}: {sentence}")
        self.line = line


class _Line(NamedTuple):
    offset: str
    """As printed; empty if the line has none."""
    data: bytes


@dataclass(slots=True)
class _Run:
    line: int = 0
    data: bytearray = field(default_factory=bytearray)
    base: int = 0
    """The offset that the dump prints for its first byte."""
    has_offsets: bool = False
    last: bytes = b""
    repeats: bool = False
    """Whether "*" follows the last line: the same bytes again, up to the next offset."""
    bases: tuple[int, ...] = (16, 8, 10)
    """Possible bases of its offsets: ``od`` prints octal, some tools decimal. Known once only one fits."""


# A file can be one long line: the repetitions below are possessive, so that they never backtrack.
_OFFSET = re.compile(
    r"\s*(?:0[xX])?(?P<offset>[0-9A-Fa-f]{8}`[0-9A-Fa-f]{8}|[0-9A-Fa-f]{4,16})(?P<colon>:?)(?P<space>\s+)(?P<rest>\S.*)"
)
_OFFSET_ALONE = re.compile(r"\s*(?:0[xX])?([0-9A-Fa-f]{6,16}):?\s*")
_COLUMNS = re.compile(r"\s{2,}|\t")
_BYTES = re.compile(r"(?:[0-9A-Fa-f]{2})++")
_SEPARATED = re.compile(r"[0-9A-Fa-f]{2}(?:([:-])[0-9A-Fa-f]{2})?(?:\1[0-9A-Fa-f]{2})*+[:-]?")
_NUMBER = re.compile(r"0[xX]((?:[0-9A-Fa-f]{2}){4,}+)")
_ROW_AND_TEXT = re.compile(r"((?:[0-9A-Fa-f]{2} ){16})\S.*")
_WINDBG_HYPHEN = re.compile(r"(?<= [0-9A-Fa-f]{2})-(?=[0-9A-Fa-f]{2}\b)")
_COLUMN_NUMBERS = bytes(range(16))
"""The column numbers that PowerShell prints above the first row."""
_LITERAL = re.compile(r"(?:(?:0[xX]|\\x)[0-9A-Fa-f]{2}|[\s,;{}()\"'\[\]]++|b(?=[\"']))++")
_LITERAL_BYTE = re.compile(r"(?:0[xX]|\\x)([0-9A-Fa-f]{2})")
_ASSIGNMENT = re.compile(r"[^=\"'\\]*=\s*(?:new\s+\w+\s*\[\d*\]\s*)?")
_LEAST_ASSIGNED = 4
"""The least bytes of a literal after an equals sign: fewer are a number in some other text."""
_COMMENT = re.compile(r"/\*[^*]*\*/|//.*")
_QUOTED = re.compile(r"b(?:'((?:[^'\\]++|\\.)*+)'|\"((?:[^\"\\]++|\\.)*+)\")")
_PYTHON = re.compile(rf"[\s\[\](),]*(?:{_QUOTED.pattern}[\s\[\](),+\\]*+)++")
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"', "0": "\0"}
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_LONG_LINE = 1024
"""The most characters of a line that may be truncated where the beginning of a file ends."""
_WORDS_OFFSET = 7
"""Digits of the offset that ``hexdump`` prints before 16-bit words, which are little-endian on usual machines."""


def text_of(data: bytes) -> str:
    """Decode bytes as text, by their byte-order mark (PowerShell writes UTF-16), or else as UTF-8."""
    return data.decode(next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8"), "replace")


def looks_like_dump(start: bytes) -> bool:
    """Whether a file with this beginning is text with at least one dump line. The last line may be truncated."""
    text = text_of(start)
    if any(char < " " and char not in "\t\n\r\f" for char in text):
        return False
    lines = text.splitlines()
    return any(_read(line, offsets=False) for line in lines) or (bool(lines) and _may_become_line(lines[-1]))


def _may_become_line(beginning: str) -> bool:
    """Whether the rest of a truncated line may make it a dump line: it ends within a byte or a literal."""
    whole = (beginning[: len(beginning) - cut] for cut in range(5))
    return any(
        len(line) > _LONG_LINE and _read(line + quote, offsets=False) for line in whole for quote in ("", "'", '"')
    )


def parse_hex_dump(text: str) -> list[Dump]:
    """The runs of bytes in a text. Other lines end a run, and so does an offset that begins again at zero.

    Raises DumpError for a dump whose offsets and bytes do not agree.
    """
    dumps: list[Dump] = []
    run = _Run()
    for number, text_line in enumerate(text.splitlines(), 1):
        if text_line.strip() == "*" and run.last:
            run.repeats = True
            continue
        line = _read(text_line, offsets=run.has_offsets)
        if line == ("", _COLUMN_NUMBERS) and not run.line:
            line = None
        if run.line and (line is None or _begins_again(run, line)):
            dumps.append(Dump(run.line, bytes(run.data)))
            run = _Run()
        if line is not None:
            _append(run, number, line)
    if run.line:
        dumps.append(Dump(run.line, bytes(run.data)))
    return [dump for dump in dumps if dump.data]


def _begins_again(run: _Run, line: _Line) -> bool:
    return bool(line.offset) != run.has_offsets or (run.has_offsets and int(line.offset, 16) == 0)


def _append(run: _Run, number: int, line: _Line) -> None:
    if not run.line:
        run.line, run.has_offsets = number, bool(line.offset)
        run.base = int(line.offset, 16) if line.offset else 0
    elif run.has_offsets:
        _go_to(run, number, line.offset)
    run.data += line.data
    run.last = line.data
    if len(run.data) > LARGEST_DUMP:
        raise DumpError(number, f"the dump comes to more than {LARGEST_DUMP} bytes")


def _go_to(run: _Run, number: int, printed: str) -> None:
    """Extend or shorten the run to the next line's offset: repeat its last line, or remove a column of text."""
    expected = run.base + len(run.data)
    offset = _offset(run, printed, expected)
    if run.repeats and offset > expected:
        if offset - run.base > LARGEST_DUMP:
            raise DumpError(number, f"the dump comes to more than {LARGEST_DUMP} bytes")
        missing = offset - expected
        run.data += (run.last * (missing // len(run.last) + 1))[:missing]
    elif expected - len(run.last) < offset < expected:
        del run.data[offset - expected :]
    elif offset != expected:
        raise DumpError(number, f"the offset is {printed}, and the lines before it come to {expected:#x}")
    run.repeats = False


def _offset(run: _Run, printed: str, expected: int) -> int:
    agreeing = tuple(base for base in run.bases if _value(printed, base) == expected)
    run.bases = agreeing or run.bases
    return _value(printed, run.bases[0])


def _value(printed: str, base: int) -> int:
    try:
        return int(printed, base)
    except ValueError:
        return -1


def _read(text: str, *, offsets: bool) -> _Line | None:
    """A line of a dump, or None for any other line. ``offsets`` means that the lines before it had offsets."""
    if offsets and (alone := _OFFSET_ALONE.fullmatch(text)):
        return _Line(alone[1], b"")
    if (match := _OFFSET.fullmatch(text)) and (line := _with_offset(match)):
        return line
    data = _plain(text) or _literal(text)
    return _Line("", data) if data else None


def _plain(text: str) -> bytes:
    """The bytes of a line of hexadecimal digits, possibly in groups; none for any other line."""
    words = text.split()
    if all(_BYTES.fullmatch(word) for word in words):
        return bytes.fromhex("".join(words))
    if all(_SEPARATED.fullmatch(word) for word in words):
        return bytes.fromhex("".join(words).replace(":", "").replace("-", ""))
    return bytes.fromhex(number[1]) if (number := _NUMBER.fullmatch(text.strip())) else b""


def _literal(text: str) -> bytes:
    """The bytes of a line of C or Python; none for any other line."""
    assigned = _ASSIGNMENT.match(text)
    value = text[assigned.end() :] if assigned else text
    if _PYTHON.fullmatch(value):
        data = b"".join(_unescaped(single or double) for single, double in _QUOTED.findall(value))
    elif _LITERAL.fullmatch(value := _COMMENT.sub("", value)):
        data = bytes.fromhex("".join(_LITERAL_BYTE.findall(value)))
    else:
        return b""
    return data if not assigned or len(data) >= _LEAST_ASSIGNED else b""


def _unescaped(literal: str) -> bytes:
    """The bytes between the quotes of a Python literal; none if they are not in Python's notation."""

    def character(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else _ESCAPED[match[2]]

    try:
        literal.encode("ascii")
        return _ESCAPE.sub(character, literal).encode("latin-1")
    except (KeyError, UnicodeEncodeError):
        return b""


def _with_offset(match: re.Match[str]) -> _Line | None:
    columns = _COLUMNS.split(match["rest"].split(" |")[0].rstrip())
    words = _WINDBG_HYPHEN.sub(" ", columns[0]).split(" ")
    if not all(_BYTES.fullmatch(word) for word in words):
        row = _ROW_AND_TEXT.fullmatch(match["rest"])
        return _Line(match["offset"], bytes.fromhex(row[1])) if row else None
    widths = {len(word) for word in words}
    # One space after it and no colon: the first word is an offset only if its length is not that of the others.
    if not match["colon"] and len(match["space"]) == 1 and widths != {2} and len(match["offset"]) != _WORDS_OFFSET:
        return None
    if len(words) == 8 and widths == {2} and len(columns) > 1:
        second = columns[1].split()
        if all(len(word) == 2 and _BYTES.fullmatch(word) for word in second):
            words += second
    data = bytes.fromhex("".join(words))
    if len(match["offset"]) == _WORDS_OFFSET and not match["colon"] and widths == {4}:
        data = b"".join(data[at : at + 2][::-1] for at in range(0, len(data), 2))
    return _Line(match["offset"].replace("`", ""), data)
