"""The ``mqenterprise`` command: a table of commands, each imported only when it is used."""

from typing import Final

import typer

from qmnode.commands.registry import Row, VersionOption, command_table, run
from qmnode.commands.standard_streams import complete_streams

COMMANDS: Final = {
    "directory": Row("mqenterprise.commands.directory:app", "A private directory: up, down, backup."),
    "queue": Row("mqenterprise.commands.queue:app", "Public queues: publish, find, set, unpublish."),
    "message": Row(
        "mqenterprise.commands.message:app", "Messages of many nodes: find, move, return, export, and more."
    ),
    "trace": Row("mqenterprise.commands.trace:app", "Show the way of a message over all nodes, and who waits, now."),
    "job": Row("mqenterprise.commands.job:app", "Jobs over messages at many nodes: list, show, pause, undo."),
    "carry": Row("mqenterprise.commands.carry:app", "Carry the messages of a queue of Windows to a node."),
    "switch": Row("mqenterprise.commands.switch:app", "Switch public queues of Windows to a node; take it back."),
    "machine": Row("mqenterprise.commands.machine:app", "Access lists of queue managers: show, allow, deny, remove."),
    "keys": Row("mqenterprise.commands.keys:app", "Encryption keys: status, rotate, retire, rollback."),
    "certificate": Row("mqenterprise.commands.certificate:app", "Users' certificates: register, list, renew, revoke."),
    "console": Row("mqenterprise.commands.console:app", "The whole enterprise in a browser."),
    "route": Row("mqenterprise.commands.route:app", "Where messages go: explain, table, simulate."),
    "validate": Row("mqenterprise.commands.topology:app/validate", "Check a declared enterprise, without a directory."),
    "plan": Row(
        "mqenterprise.commands.topology:app/plan",
        "Show the changes that make the directory as declared. Exit code 2: there are some.",
    ),
    "apply": Row(
        "mqenterprise.commands.topology:app/apply", "Make the directory as declared, or carry out a saved plan."
    ),
    "document": Row(
        "mqenterprise.commands.topology:app/document", "Print the document of a machine, for 'qmnode apply'."
    ),
    "rollback": Row("mqenterprise.commands.topology:app/rollback", "Undo an applied plan."),
    "drift": Row(
        "mqenterprise.commands.topology:app/drift",
        "Show what has changed in the directory since the last apply. Exit code 2: something has.",
    ),
    "export": Row("mqenterprise.commands.topology:app/export", "Write the contents of a directory as a declaration."),
    "survey": Row(
        "mqenterprise.commands.survey:app", "Read an estate of Windows Message Queuing before it moves: report, order."
    ),
    "explain": Row(
        "mqenterprise.commands.explain:app",
        "Show the source of a declared value, the losers, and the value of the node.",
    ),
    "show": Row(
        "mqenterprise.commands.topology:app/show", "Draw the sites and routing links, in the terminal or as SVG."
    ),
    "analyze": Row(
        "mqenterprise.commands.pipeline:app/analyze", "Analyse exported events with Spark: tables and a report."
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
    complete_streams()
    run(app, "mqenterprise")
