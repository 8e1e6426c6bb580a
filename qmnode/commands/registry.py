"""Commands that are imported when they are run: with many commands, ``--help`` stays as fast as with one."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from qmnode.commands.quick import exit_code

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Row:
    """A command of a table."""

    target: str
    """``module:attribute`` of a ``typer.Typer``: with one command it is the command, with several a group of them."""
    help: str
    """One line for the list of commands."""

    def load(self, name: str) -> Any:
        """Import the command."""
        module, _, attribute = self.target.partition(":")
        command = typer.main.get_command(getattr(import_module(module), attribute))
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


PROGRAM: Final = "qmnode"


def run(app: typer.Typer) -> None:
    """Run a command line to its exit code: 0 done, 1 failed, 2 wrong usage, 3 no node, 4 no message in time."""

    def work() -> int:
        app(prog_name=PROGRAM)
        return 0

    sys.exit(exit_code(work))
