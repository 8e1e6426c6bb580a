"""``mqenterprise trace``: the way of a message over the nodes, asked live."""

import typer

from mqenterprise.commands.chosen_nodes import DEFAULT_ACCESS, Access, MachineOption, SiteOption
from mqenterprise.commands.directory_option import FAILED, AsJson, opened
from mqenterprise.operations.node_client import NodeClient
from mqenterprise.operations.settings import OperationsSettings
from mqenterprise.operations.tracing import Way, way
from qmnode.commands.option_groups import Commands
from qmnode.commands.output import print_json, say
from qmnode.commands.table_writer import print_row
from qmnode.commands.trace import CorrelationOption, LabelOption, MessageArgument, criteria

app = Commands()


def _path(access: Access, found: Way) -> list[str]:
    """The machines on the way, by the directory; none if that does not say."""
    from mqenterprise.routes.enterprise import UnknownName, of_directory
    from mqenterprise.routes.explanation import explain

    with opened(access.directory_file) as directory:
        topology = of_directory(directory)
    try:
        hops = explain(topology, topology.machine(found.source), topology.machine(found.reached)).hops
    except UnknownName:
        return []
    return [topology.machine_name(hop.machine) for hop in hops]


@app.command(epilog=r"Example: mqenterprise trace '7d3f1c52-9c2e-4b53-8a0f-0d6f3c1a2b4e\65537'")
def trace(
    message: MessageArgument = "",
    label: LabelOption = "",
    correlation: CorrelationOption = "",
    machine: MachineOption = None,
    site: SiteOption = None,
    access: Access = DEFAULT_ACCESS,
    as_json: AsJson = False,
) -> None:
    """Show where a message was and is, who waits and why, and what no node could say. Asks all nodes of the directory.

    Each node has one and a half seconds to answer. Exit code 1: no node knows the message.
    """
    wanted = criteria(message, label, correlation)
    asked = {("message" if name == "identifier" else name): value for name, value in wanted.items()}

    async def work(settings: OperationsSettings, clients: list[NodeClient]) -> Way:
        return await way(clients, asked, settings.concurrency)

    found = access.run(work, machine or (), site)
    if found.source and found.reached and not (machine or site):
        found.add_unrecorded(_path(access, found))
    if as_json:
        print_json(found.as_json())
    else:
        for step in found.steps:
            print_row(f"{step.time:%Y-%m-%d %H:%M:%S}" if step.time else "-", step.machine, step.text, step.label)
    for name, why in sorted(found.unknown.items()):
        say(f"{name}: not known: {why}")
    if not found.steps:
        say("no node knows the message")
        raise typer.Exit(FAILED)
