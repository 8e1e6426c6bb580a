"""Tables and cells of Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def cell(text: str) -> str:
    """The text as one line; a bar that would end the cell is escaped. In code it does not end it."""
    return re.sub(r"(`[^`]*`)|(?<!\\)\|", lambda found: found[1] or r"\|", " ".join(text.split()))


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    return lines + [f"| {' | '.join(cell(one) for one in row)} |" for row in rows]


def prose(docstring: str | None) -> str:
    """A docstring as Markdown: roles of Sphinx become code, without the tilde and path that they may have."""
    text = re.sub(r":[a-z:]+:`~?([^`]+)`", r"`\1`", docstring or "")
    return text.replace("``", "`")
