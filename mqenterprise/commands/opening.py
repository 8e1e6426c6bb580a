"""What every command that uses the directory shares: how it is named, opened and complained about."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import structlog
import typer
from rich.console import Console
from rich.table import Table

from mqenterprise.directory.configuration import load_settings
from mqenterprise.directory.service import EnterpriseDirectory
from qmnode.directory.port import DirectoryOperationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FAILED, SOMETHING_TO_DO = 1, 2
UNSEEN_WIDTH = 1000

DirectoryFile = Annotated[
    Path | None,
    typer.Option("--directory", help="YAML file of the directory's settings; the private directory if not given."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def complain(sentence: str) -> None:
    """Say on standard error why a command failed."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(sentence, style="red", markup=False)


@contextmanager
def failing_clearly() -> Iterator[None]:
    """Turn an error of the directory into its sentence and exit code 1."""
    try:
        yield
    except DirectoryOperationError as error:
        complain(error.sentence)
        raise typer.Exit(FAILED) from None


@contextmanager
def opened(file: Path | None) -> Iterator[EnterpriseDirectory]:
    """The directory that the command line names, open. Its errors end the command with their sentence."""
    # What is logged is not the answer, which may be read by a program. Looked up late: tests put others in its place.
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))
    with failing_clearly(), EnterpriseDirectory(load_settings(file)) as directory:
        yield directory


def show(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], *, as_json: bool, empty: str) -> None:
    """Rows as a table with the columns' titles, or as JSON with everything that a row has."""
    if as_json:
        typer.echo(json.dumps(list(rows), ensure_ascii=False, indent=1))
        return
    if not rows:
        typer.echo(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in columns.values():
        table.add_column(title, no_wrap=True)
    for row in rows:
        table.add_row(*(_text(row.get(name)) for name in columns))
    # What is piped into another program is never cut to a width that nobody sees.
    width = None if sys.stdout.isatty() else UNSEEN_WIDTH
    Console(highlight=False, markup=False, width=width).print(table)


def _text(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
