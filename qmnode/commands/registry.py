"""Commands that are imported when they are run: with many commands, ``--help`` stays as fast as with one."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from qmnode.commands.complaint import complain
from qmnode.commands.quick import exit_code

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Row:
    """A command of a table."""

    target: str
    """``module:attribute`` of a ``typer.Typer``: with one command it is the command, with several a group of them.
    ``module:attribute/name`` is one command of a group."""
    help: str
    """One line for the list of commands."""

    def load(self, name: str) -> Any:
        """Import the command."""
        module, _, place = self.target.partition(":")
        attribute, _, inner = place.partition("/")
        command: Any = typer.main.get_command(getattr(import_module(module), attribute))
        if inner:
            command = command.commands[inner]
        command.name = name
        return command


def command_table(table: Mapping[str, Row]) -> type[TyperGroup]:
    """A class for ``typer.Typer(cls=...)`` whose commands are those of ``table``."""

    class TableGroup(TyperGroup):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            for name, row in table.items():
                self.add_command(TyperCommand(name, help=row.help))  # enough for help; replaced when it is run

        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
            name, command, rest = super().resolve_command(ctx, args)
            row = table.get(name) if name else None
            return name, row.load(name) if name and row else command, rest

    return TableGroup


def _print_version(wanted: bool) -> None:
    if wanted:
        from qmnode.version import program_version

        print(program_version())
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
]
PROGRAM: Final = "qmnode"


_UsageError: Final[Any] = typer.BadParameter.__base__  # typer does not export it
_CommandError: Final[Any] = _UsageError.__base__


def run(app: typer.Typer, program: str = PROGRAM) -> None:
    """Run a command line to its exit code: 0 done, 1 failed, 2 wrong usage, 3 no node, 4 no message in time."""

    def work() -> int:
        try:
            code = app(prog_name=program, standalone_mode=False)
        except _UsageError as error:
            complain(_usage(error, program))
            return int(error.exit_code)
        except _CommandError as error:
            complain(error.format_message())
            return int(error.exit_code)
        except typer.Abort:
            complain("nothing was done")
            return 1
        return code if isinstance(code, int) else 0

    sys.exit(exit_code(work))


def _usage(error: Any, program: str) -> str:
    """A line: what is wrong, and where help is. Help itself, where a command was given without anything."""
    if error.ctx is None:
        return f"{program}: {error.format_message()}"
    if type(error).__name__ == "NoArgsIsHelpError":
        return f"{error.ctx.command_path}: name a command"
    path, message = error.ctx.command_path, " ".join(error.format_message().split())
    message = message.removeprefix("Invalid value: ")
    return f"{path}: {message[:1].lower()}{message[1:].rstrip('.')} (see '{path} --help')"
