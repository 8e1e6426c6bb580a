"""``qmnode transaction``: what has not ended, and how what is in doubt ends."""

from __future__ import annotations

from typing import Annotated

import typer

from qmnode.commands.output import print_json, print_table, say
from qmnode.commands.target import ConfigOption, JsonOption, SocketOption, YesOption, confirm, with_node
from qmnode.management.documents import TransactionDocument
from qmnode.structures.guid import guid_from_text

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="List and resolve transactions.")


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


@app.command(epilog="Example: qmnode transaction resolve 7d3f1c52-9c2e-4b53-8a0f-0d6f3c1a2b4e --commit --yes")
def resolve(
    identifier: Annotated[str, typer.Argument(metavar="GUID", help="The transaction.")],
    commit: Annotated[bool, typer.Option("--commit/--abort", help="What its coordinator has decided.")],
    yes: YesOption = False,
    socket: SocketOption = None,
    config: ConfigOption = None,
) -> None:
    """End a transaction that is in doubt, in the place of its coordinator. For root and the node's own user."""
    try:
        transaction = guid_from_text(identifier)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    outcome = "commit" if commit else "abort"
    confirm(f"{outcome.capitalize()} {identifier}, although its coordinator may decide otherwise?", yes)
    with_node(socket, config, lambda qm: qm.resolve_transaction(transaction, commit))
    say(f"{identifier}: {outcome} is done")
