"""Shared by the commands that use the directory: its option, opening, errors, and names that the shell completes."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from qmnode.commands.error_line import complain
from qmnode.structures.text import printable_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mqenterprise.directory.open_directory import EnterpriseDirectory
    from mqenterprise.directory.settings import DirectorySettings

FAILED, SOMETHING_TO_DO = 1, 2

DirectoryFile = Annotated[
    Path | None,
    typer.Option("--directory", help="YAML file of the directory's settings; the private directory if not given."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


@contextmanager
def failing_clearly() -> Iterator[None]:
    """Turn an error of the directory into its sentence and exit code 1."""
    from qmnode.directory.port import DirectoryOperationError

    try:
        yield
    except DirectoryOperationError as error:
        complain(error.sentence, error.result.value)
        raise typer.Exit(FAILED) from None


def directory_settings(file: Path | None) -> DirectorySettings:
    """The settings of the directory that the command line names. DirectoryError if it is the private one, stopped."""
    from mqenterprise.directory.chosen_directory import ENVIRONMENT, default_state, load_settings

    settings = load_settings(file)
    if file is not None or os.environ.get(ENVIRONMENT):
        return settings
    from mqenterprise.directory.errors import DirectoryError
    from mqenterprise.directory.private_slapd import EmbeddedDirectory

    if EmbeddedDirectory(default_state()).pid() is None:
        raise DirectoryError(
            f"the private directory in {default_state()} is stopped: start it with 'mqenterprise directory up'"
        )
    return settings


def log_to_stderr() -> None:
    """Keep the log apart from the answer, which a program may read. The stream is looked up late: tests replace it."""
    import structlog

    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))


@contextmanager
def opened(file: Path | None) -> Iterator[EnterpriseDirectory]:
    """The directory that the command line names, open. Its errors end the command with their sentence."""
    from mqenterprise.directory.open_directory import EnterpriseDirectory

    log_to_stderr()
    with failing_clearly(), EnterpriseDirectory(directory_settings(file)) as directory:
        yield directory


def print_document(document: Any) -> None:
    """One JSON document, over several lines."""
    typer.echo(printable_json(json.dumps(document, ensure_ascii=False, indent=1)))


def show(
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str],
    *,
    as_json: bool,
    empty: str,
    whole: Sequence[str] = (),
    drop: Sequence[str] = (),
    wide: bool = False,
) -> None:
    """Rows as a table with the columns' titles, or as JSON with everything that a row has.

    For ``whole``, ``drop`` and ``wide`` see ``print_table``.
    """
    from qmnode.commands.table_writer import print_table

    if as_json:
        print_document(list(rows))
        return
    if not rows:
        typer.echo(empty)
        return
    cells = [[row.get(name) for name in columns] for row in rows]
    rows_of_cells = [[None if cell == "" else cell for cell in row] for row in cells]
    print_table(list(columns.values()), rows_of_cells, whole=whole, drop=drop, wide=wide)


_PATIENCE: Final = 2.0


def complete_computer(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of queue managers' computers that begin so."""
    from mqenterprise.directory.open_directory import EnterpriseDirectory

    try:
        file = ctx.params.get("directory_file")
        patient = {"connect_timeout": _PATIENCE, "operation_timeout": _PATIENCE}
        settings = directory_settings(Path(file) if file else None).model_copy(update=patient)
        with EnterpriseDirectory(settings) as directory:
            found = [one.computer_name for one in directory.queue_managers.list(attributes=("computer_name",))]
        return sorted(name for name in found if name.casefold().startswith(incomplete.casefold()))
    except Exception:  # a completing shell is no place to report an error
        return []
