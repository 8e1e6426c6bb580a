"""``mqenterprise explain MACHINE.PROPERTY``: the source of a value, the losers, and the present value of the node."""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from mqenterprise.commands.chosen_nodes import DEFAULT_ACCESS, Access
from mqenterprise.commands.directory_option import FAILED, AsJson, opened, print_document
from mqenterprise.operations.errors import NodeError, OperationsError
from mqenterprise.operations.nodes import chosen_nodes, connected
from mqenterprise.operations.settings import load_settings
from mqenterprise.topology.check import Checked, load
from mqenterprise.topology.declared_table import declared_table
from mqenterprise.topology.ldap_target import LdapTarget
from mqenterprise.topology.normal_form import Kind, Table
from mqenterprise.topology.plan import TargetError, shown
from mqenterprise.topology.problems import DeclarationError
from mqenterprise.topology.provenance import (
    DOCUMENT,
    LOCAL,
    OF_HOSTS,
    ROLLOUT,
    ROUTING,
    SHOWN_BY_NODES,
    Asked,
    NodeAnswer,
    Standing,
    UnknownValue,
    asked,
    located,
    standings,
)
from qmnode.commands.error_line import complain
from qmnode.commands.option_groups import Commands
from qmnode.commands.table_writer import print_table
from qmnode.settings.sizes import UNLIMITED
from qmnode.structures.text import printable

app = Commands()


@app.command(epilog="Example: mqenterprise explain ams-shop.quota --declared contoso.yaml")
def explain(
    value: Annotated[
        str,
        typer.Argument(
            help="MACHINE.PROPERTY, MACHINE\\QUEUE.PROPERTY, SITE.PROPERTY, SITE|SITE.PROPERTY or USER.PROPERTY.",
            metavar="VALUE",
        ),
    ],
    declared: Annotated[
        Path | None, typer.Option("--declared", help="The declaration, to name file and line of the value.")
    ] = None,
    access: Access = DEFAULT_ACCESS,
    as_json: AsJson = False,
) -> None:
    """Show by which road a declared value comes to a machine, the values that lost, and the present one of the node.

    Without --nodes, the node is not asked.
    """
    try:
        about = asked(value)
        in_directory = about.row is not None and not about.is_private
        checked = None if declared is None else load(declared, for_directory=in_directory)
        present, table = _tables(about, checked, access)
        about = located(about, present, table)
        node = _ask(about, access)
        found = standings(about, checked, table, present, node)
    except DeclarationError as error:
        for problem in error.problems:
            complain(str(problem))
    except (UnknownValue, TargetError) as error:
        complain(str(error))
    else:
        _show(about, found, node, as_json)
        return
    raise typer.Exit(FAILED)


def _tables(about: Asked, checked: Checked | None, access: Access) -> tuple[Table, Table | None]:
    """Read the table of the directory and that of the declaration."""
    with ExitStack() as stack:
        if about.row is None or about.is_private:
            return Table(), None
        directory = stack.enter_context(opened(access.directory_file))
        snapshot = LdapTarget(directory, access=about.name == "access").snapshot()
        names = snapshot.canonical if about.name == "access" else lambda trustee: trustee
        return snapshot.table, None if checked is None else declared_table(checked, names)


def _ask(about: Asked, access: Access) -> NodeAnswer:
    """Ask the node for its value, over its management API."""
    if silence := _silence(about):
        return NodeAnswer(unknown=silence)
    try:
        settings = load_settings(access.nodes_file)
        nodes = chosen_nodes(settings, lambda: opened(access.directory_file), machines=[about.machine], site=None)

        async def answer() -> NodeAnswer:
            async with connected(settings, nodes) as (client,):
                if about.queue is not None:
                    queue = await client.queue(f"{about.machine}\\{about.queue}")
                    return NodeAnswer(queue.model_dump(mode="json").get(about.name))
                if about.name in LOCAL:
                    document = (await client.document(everything=False)).model_dump(mode="json")
                    return _of_local((await client.node()).local_settings, about.name, document)
                if about.name in ROUTING:
                    return _of_routing((await client.node()).routing, about.name)
                if about.name == "weakened_security":
                    state = await client.node()
                    return NodeAnswer(state.weakened_security, state.weakened_security_source)
                quotas = (await client.quotas()).model_dump(mode="json")
                own = {name: UNLIMITED if kb is None else kb for name, kb in quotas["quota_settings"].items()}
                return NodeAnswer(quotas[about.name], quotas[f"{about.name}_source"], own.get(about.name))

        return asyncio.run(answer())
    except (OperationsError, NodeError) as error:
        return NodeAnswer(unknown=error.sentence)


def _silence(about: Asked) -> str:
    """Why no node is asked; empty if one can be."""
    match about.kind:
        case Kind.QUEUE:
            return "qmnode queue acl show has it" if about.name == "access" else ""
        case Kind.SITE | Kind.ROUTING_LINK:
            return "it is a fact of all nodes; mqenterprise route explain shows the way of a message"
        case Kind.USER:
            return "nodes read it when a message is signed; mqenterprise certificate list shows it"
    if about.name in OF_HOSTS:
        return "qmnode status shows what it runs with"
    if about.name in {*SHOWN_BY_NODES, *LOCAL}:
        return ""
    return "no node obeys it" if about.row is not None and about.row.unobeyed else "a node does not show it"


def _of_routing(found: Mapping[str, Any], name: str) -> NodeAnswer:
    if name not in found:
        return NodeAnswer(unknown="the node has not read it from the directory, or is of an earlier release")
    value = found[name]
    return NodeAnswer(tuple(value) if isinstance(value, list) else value)


def _of_local(found: Mapping[str, Any], name: str, document: Mapping[str, Any]) -> NodeAnswer:
    """Addresses or bridges of the status, with their losers."""
    if name not in found:
        return NodeAnswer(unknown="the node is of an earlier release")
    source = found["addresses_source"] if name == "addresses" else ""
    return NodeAnswer(tuple(found[name]), source, tuple(found[f"{name}_settings"]), document[name])


def _show(about: Asked, found: tuple[Standing, ...], node: NodeAnswer, as_json: bool) -> None:
    in_directory = about.row if not about.is_private else None
    road = (
        ROLLOUT
        if about.name in OF_HOSTS
        else DOCUMENT
        if in_directory is None
        else f"the directory: {in_directory.attribute}"
    )
    if as_json:
        now: dict[str, Any] = {"value": node.value, "source": node.source or None, "unknown": node.unknown or None}
        print_document({"value": about.title, "road": road, "standings": [asdict(one) for one in found], "node": now})
        return
    typer.echo(printable(f"{about.title} comes by {road}"))
    rows = [[one.where, shown(about.name, one.value), one.place, one.fate] for one in found]
    answer = shown(about.name, node.value) if not node.unknown else "unknown"
    source = f"from the {node.source}" if node.source else ""
    rows.append(["node now", answer, "", node.unknown or source])
    print_table(["from", "value", "where", "outcome"], rows, whole=("value", "where", "outcome"))
    if about.row is not None and about.row.unobeyed:
        typer.echo(f"No node obeys it: {about.row.unobeyed}.")
