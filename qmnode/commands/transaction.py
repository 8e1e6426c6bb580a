"""``qmnode transaction``: the transactions that have not ended."""

from __future__ import annotations

import typer

from qmnode.commands.output import print_json, print_table
from qmnode.commands.target import ConfigOption, JsonOption, SocketOption, with_node
from qmnode.management.documents import TransactionDocument

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="List transactions.")


@app.callback()
def transaction() -> None:
    """List the transactions that have not ended, with their age and state."""


@app.command("list", epilog="Example: qmnode transaction list --json")
def list_transactions(socket: SocketOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the transactions that have not ended."""
    found = with_node(socket, config, lambda qm: qm.list_transactions())
    transactions = [TransactionDocument.of(transaction) for transaction in found]
    if as_json:
        print_json({"transactions": [transaction.model_dump(mode="json") for transaction in transactions]})
        return
    print_table(
        ("transaction", "state", "in doubt", "operations", "queues"),
        [(one.identifier, one.state, one.in_doubt, one.operation_count, one.queues) for one in transactions],
        right=("operations",),
    )
