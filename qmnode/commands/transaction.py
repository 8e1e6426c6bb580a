"""``qmnode transaction``: the transactions that have not ended."""

from qmnode.commands.node_options import NODE, JsonOption, Node, WideOption
from qmnode.commands.option_groups import Commands
from qmnode.commands.output import print_json
from qmnode.commands.table_writer import print_table
from qmnode.management.documents import TransactionDocument

app = Commands(no_args_is_help=True, help="List transactions.")


@app.callback()
def transaction() -> None:
    """List the transactions that have not ended, with their age and state."""


@app.command("list", epilog="Example: qmnode transaction list --json")
def list_transactions(node: Node = NODE, as_json: JsonOption = False, wide: WideOption = False) -> None:
    """List the transactions that have not ended."""
    found = node.run(lambda qm: qm.list_transactions())
    transactions = [TransactionDocument.of(transaction) for transaction in found]
    if as_json:
        print_json({"transactions": [transaction.model_dump(mode="json") for transaction in transactions]})
        return
    print_table(
        ("transaction", "state", "in doubt", "operations", "queues"),
        [(one.identifier, one.state, one.in_doubt, one.operation_count, one.queues) for one in transactions],
        right=("operations",),
        whole=("transaction",),
        drop=("operations", "in doubt"),
        wide=wide,
    )
