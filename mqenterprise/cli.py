"""The ``mqenterprise`` command: a table of commands, each imported only when it is used."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup


@dataclass(frozen=True, slots=True)
class _Entry:
    """A command: the module whose ``app`` holds it, and its line of help. ``group``: all of ``app`` is the command."""

    module: str
    help: str
    group: bool = False


_TOPOLOGY = "mqenterprise.commands.topology"
COMMANDS: dict[str, _Entry] = {
    "directory": _Entry("mqenterprise.commands.directory", "A private directory: up, down, backup.", group=True),
    "queue": _Entry("mqenterprise.commands.queue", "Public queues: publish, find, set, unpublish.", group=True),
    "machine": _Entry("mqenterprise.commands.machine", "Queue managers: who may do what with them.", group=True),
    "keys": _Entry("mqenterprise.commands.keys", "Encryption keys: status, rotate, retire, rollback.", group=True),
    "certificate": _Entry(
        "mqenterprise.commands.certificate", "Users' certificates: register, list, renew, revoke.", group=True
    ),
    "route": _Entry("mqenterprise.commands.route", "Where messages go: explain, table, simulate.", group=True),
    "validate": _Entry(_TOPOLOGY, "Check a declared enterprise, without a directory."),
    "plan": _Entry(_TOPOLOGY, "Say what it takes to make the directory as declared; exit 2 when there is something."),
    "apply": _Entry(_TOPOLOGY, "Make the directory as declared, or carry out a saved plan."),
    "rollback": _Entry(_TOPOLOGY, "Undo a plan that was applied."),
    "drift": _Entry(_TOPOLOGY, "Say what was changed by hand since the last apply; exit 2 when there is something."),
    "export": _Entry(_TOPOLOGY, "Write a running directory as the declaration that says the same."),
    "analyze": _Entry("mqenterprise.commands.pipeline", "Say where messages went: tables and a report, with Spark."),
    "simulate": _Entry("mqenterprise.commands.pipeline", "Simulate a declared enterprise, with known answers."),
    "show": _Entry(_TOPOLOGY, "Draw the sites and routing links, in the terminal or as SVG."),
}


class _Commands(TyperGroup):
    """The table as a click group."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command: Any = typer.main.get_group(import_module(entry.module).app)
        return command if entry.group else command.get_command(ctx, cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of commands from the table, so that help imports none of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


app = typer.Typer(cls=_Commands, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback()
def mqenterprise() -> None:
    """The enterprise around Message Queuing nodes."""


def main() -> None:
    """Entry point of the ``mqenterprise`` command."""
    app()
