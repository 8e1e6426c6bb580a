"""The ``mqenterprise`` command: a table of commands, each imported only when it is used."""

from __future__ import annotations

from typing import Final

import typer

from qmnode.commands.registry import Row, VersionOption, command_table, run

COMMANDS: Final = {
    "directory": Row("mqenterprise.commands.directory:app", "A private directory: up, down, backup."),
    "queue": Row("mqenterprise.commands.queue:app", "Public queues: publish, find, set, unpublish."),
    "machine": Row("mqenterprise.commands.machine:app", "Queue managers: who may do what with them."),
    "keys": Row("mqenterprise.commands.keys:app", "Encryption keys: status, rotate, retire, rollback."),
    "certificate": Row("mqenterprise.commands.certificate:app", "Users' certificates: register, list, renew, revoke."),
    "route": Row("mqenterprise.commands.route:app", "Where messages go: explain, table, simulate."),
    "validate": Row("mqenterprise.commands.topology:app/validate", "Check a declared enterprise, without a directory."),
    "plan": Row(
        "mqenterprise.commands.topology:app/plan",
        "Say what it takes to make the directory as declared; exit 2 when there is something.",
    ),
    "apply": Row(
        "mqenterprise.commands.topology:app/apply", "Make the directory as declared, or carry out a saved plan."
    ),
    "rollback": Row("mqenterprise.commands.topology:app/rollback", "Undo a plan that was applied."),
    "drift": Row(
        "mqenterprise.commands.topology:app/drift",
        "Say what was changed by hand since the last apply; exit 2 when there is something.",
    ),
    "export": Row(
        "mqenterprise.commands.topology:app/export", "Write a running directory as the declaration that says the same."
    ),
    "show": Row(
        "mqenterprise.commands.topology:app/show", "Draw the sites and routing links, in the terminal or as SVG."
    ),
    "analyze": Row(
        "mqenterprise.commands.pipeline:app/analyze", "Say where messages went: tables and a report, with Spark."
    ),
    "simulate": Row(
        "mqenterprise.commands.pipeline:app/simulate", "Simulate a declared enterprise, with known answers."
    ),
}

app = typer.Typer(cls=command_table(COMMANDS), no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def mqenterprise(version: VersionOption = False) -> None:
    """The enterprise around Message Queuing nodes.

    Exit codes: 0 done; 1 the operation failed; 2 wrong usage, or there is something to do.
    """


def main() -> None:
    """Entry point of the ``mqenterprise`` command."""
    run(app, "mqenterprise")
