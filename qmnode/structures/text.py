"""Escapes untrusted text, so that no terminal acts on it, and suggests the nearest known name for a misspelt one."""

import json
import re
from collections.abc import Iterable
from typing import Final

_ACTING: Final = (
    "\x00-\x1f\x7f-\x9f"  # control characters: C0, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # characters that change the direction of writing
    "\u2028\u2029"  # further ends of lines
    "\ud800-\udfff"  # halves of UTF-16 pairs, which cannot be written
)
_IN_TEXT: Final = re.compile(f"[{_ACTING}]")
_IN_LINES: Final = re.compile(f"(?![\\n\\t])[{_ACTING}]")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")
_IN_JSON: Final = re.compile(f"(?!\\n)[{_ACTING}]")


def printable(text: str) -> str:
    r"""Text on one line, with escapes such as ``\x1b`` for the characters that a terminal would act on."""
    return _IN_TEXT.sub(_escape, text)


def printable_lines(text: str) -> str:
    """Text that may have several lines and tabs, with escapes for everything else that a terminal would act on."""
    return _IN_LINES.sub(_escape, text.replace("\r\n", "\n"))


def printable_json(document: str) -> str:
    """A JSON document without such characters: JSON's own escapes replace them, so that the content is unchanged."""
    if document.isascii() and "\x7f" not in document:  # JSON escapes other control characters itself
        return document
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def ascii_json(document: str) -> str:
    """A JSON document in ASCII, for outputs that lack some of its characters. Only its texts can have others."""
    return _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], document)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The known name that is most similar to ``name``, or None."""
    import difflib  # slow to import, needed only for mistakes

    folded = {candidate.casefold(): candidate for candidate in sorted(set(known))}
    found = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=likeness)
    return folded[found[0]] if found else None
