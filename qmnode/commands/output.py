"""The output of commands: facts for people, JSON for programs, progress on long work."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from qmnode.structures.text import ascii_json, printable, printable_json, printable_lines

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console


def escape_what_the_output_has_not() -> None:
    """Write escapes for characters that the encoding of the output lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names may have letters that the output has not


def _console(*, error: bool = False) -> Console:
    from rich.console import Console

    escape_what_the_output_has_not()
    return Console(stderr=error, highlight=False, emoji=False, markup=False)


def say(sentence: str) -> None:
    """Print a remark that is no part of the result, to standard error."""
    print(printable_lines(sentence), file=sys.stderr)


def json_text(document: BaseModel | Mapping[str, Any]) -> str:
    """One JSON document on one line, without characters that a terminal would act on."""
    if isinstance(document, dict):
        return printable_json(json.dumps(document, ensure_ascii=False))
    try:
        return printable_json(document.model_dump_json())  # type: ignore[union-attr]
    except ValueError:  # text with halves of surrogate pairs, which UTF-8 cannot have
        values = document.model_dump(mode="json")  # type: ignore[union-attr]
        return printable_json(json.dumps(values, ensure_ascii=False, separators=(",", ":")))


def print_json(document: BaseModel | Mapping[str, Any]) -> None:
    """One JSON document on one line."""
    write_json(document, sys.stdout)


def write_json(document: BaseModel | Mapping[str, Any], target: TextIO) -> None:
    """One JSON document on one line of a file, with JSON's escapes for characters that its encoding lacks."""
    text = json_text(document)
    is_unicode = (target.encoding or "").lower().startswith("utf")
    target.write(f"{text if is_unicode else ascii_json(text)}\n")


def print_body(text: str) -> None:
    """A body as text. A terminal gets escapes for what it would act on; a pipe or a file gets the text as it is."""
    print(printable_lines(text) if sys.stdout.isatty() else text)


def print_facts(facts: Mapping[str, object]) -> None:
    """Names and values, one pair a line. In a terminal, values are broken between words, and never within one."""
    rows = [(name.replace("_", " "), cell(value)) for name, value in facts.items()]
    escape_what_the_output_has_not()
    width = max((len(name) for name, _ in rows), default=0) + 2
    for name, value in rows:
        lines = _lines(value, width) if sys.stdout.isatty() else [f"{'':{width}}{value}"]
        if not lines[0][:width].strip():
            lines[0] = f"{name:{width}}{lines[0][width:]}"
        else:
            print(name)
        for line in lines:
            print(line.rstrip())


def _lines(value: str, start: int) -> list[str]:
    """The lines of a terminal that a value takes from a column on: a word that has no room there begins before it."""
    import shutil

    from rich.cells import cell_len

    columns = shutil.get_terminal_size().columns
    lines = [""]
    for word in value.split(" "):
        if lines[-1] and max(start, cell_len(lines[-1])) + 1 + cell_len(word) <= columns:
            lines[-1] += f" {word}"
        else:
            place = max(0, min(start, columns - cell_len(word)))
            lines[len(lines) - (not lines[-1]) :] = [f"{'':{place}}{word}"]
    return lines


def cell(value: object) -> str:
    """A value on one line, for people; names and labels come from others."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return printable(", ".join(map(str, value))) or "-"
        case _:
            return printable(str(value))


def size_text(count: int) -> str:
    """Return a number of bytes with a unit, for people."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def age_text(since: float | None) -> str | None:
    """The time since a moment in seconds since 1970 (UTC), in its largest unit, for people."""
    if since is None:
        return None
    seconds = max(0, int(time.time() - since))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def counted(count: int, thing: str, things: str | None = None) -> str:
    """A number and what it counts: ``1 queue``, ``2 queues``."""
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on standard error, if that is a terminal: call with what is done, and how much there is (None: unknown)."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = _console(error=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
