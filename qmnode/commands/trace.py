"""``qmnode trace``: the way of a message as this node knows it now."""

from typing import Annotated

import typer

from qmnode.commands.node_options import NODE, JsonOption, Node
from qmnode.commands.option_groups import Commands
from qmnode.commands.output import print_json, say
from qmnode.commands.table_writer import print_row
from qmnode.management.operation_routes import TraceDocument

app = Commands()

MessageArgument = Annotated[str, typer.Argument(metavar="MESSAGE", help=r"Identifier of the message, as GUID\number.")]
LabelOption = Annotated[str, typer.Option("--label", help="Label, or a pattern with * and ?.")]
CorrelationOption = Annotated[str, typer.Option("--correlation", help="Correlation identifier.")]


def criteria(message: str, label: str, correlation: str) -> dict[str, str]:
    """The criteria that are given. Exits with usage without one."""
    given = {"identifier": message, "label": label, "correlation": correlation}
    found = {name: value for name, value in given.items() if value}
    if not found:
        raise typer.BadParameter("say which message: its identifier, --label or --correlation")
    return found


@app.command(epilog=r"Example: qmnode trace '7d3f1c52-9c2e-4b53-8a0f-0d6f3c1a2b4e\65537'")
def trace(
    message: MessageArgument = "",
    label: LabelOption = "",
    correlation: CorrelationOption = "",
    node: Node = NODE,
    as_json: JsonOption = False,
) -> None:
    """Show where a message is on this node, why it waits, and whether it passed. `mqenterprise trace` asks all nodes.

    Exit code 1: the node does not know it.
    """
    wanted = criteria(message, label, correlation)
    document = TraceDocument.of(node.run(lambda qm: qm.operations.trace(**wanted)))
    if as_json:
        print_json(document)
    else:
        for report in document.reports:
            print_row(report.time, report.machine, f"sent to {report.next_hop}" if report.next_hop else "arrived")
        for place in document.places:
            print_row(place.arrived, document.machine, place.text(), place.identifier, place.label)
        if document.began and not document.places:
            say("this node sent it, and has no copy: it left")
        elif document.passed and not document.places:
            say("it came here within half an hour, and was received or went on: passed, not recorded")
        if not document.complete:
            say(f"only {document.scanned:,} messages were looked at in the time for it")
        if document.refused:
            say(f"{document.refused} queues were left out: they may not be read")
    if not (document.places or document.reports or document.passed or document.began):
        say("this node does not know the message; nodes on the way keep no entry of those that passed")
        raise typer.Exit(1)
