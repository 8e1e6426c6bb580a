"""``mqenterprise route explain|table|simulate``: where messages go, why, and what happens when something is out."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mqenterprise.commands.chosen_nodes import DEFAULT_ACCESS, Access
from mqenterprise.commands.directory_option import (
    FAILED,
    SOMETHING_TO_DO,
    AsJson,
    DirectoryFile,
    complete_computer,
    opened,
    print_document,
    show,
)
from mqenterprise.routes.documents import explained, gates, simulated
from mqenterprise.routes.enterprise import NamedTopology, UnknownName, of_declaration, of_directory
from mqenterprise.routes.explanation import SECTIONS, Explanation, Hop, explain
from mqenterprise.routes.simulation import FoundJourney, Simulation, TooMuch, simulate
from mqenterprise.topology.check import load
from mqenterprise.topology.problems import DeclarationError
from qmnode.commands.error_line import complain
from qmnode.commands.node_options import WideOption
from qmnode.commands.option_groups import Commands
from qmnode.routing import NoRouteError, Router
from qmnode.structures.guid import Guid
from qmnode.structures.text import printable

if TYPE_CHECKING:
    from datetime import datetime

    from mqenterprise.operations.node_client import NodeClient
    from mqenterprise.operations.settings import OperationsSettings
    from mqenterprise.operations.tracing import Present

app = Commands(no_args_is_help=True, help="Where messages go, and why.")

Declared = Annotated[
    Path | None, typer.Option("--declared", help="A declaration (YAML file or directory of them) in place of LDAP.")
]
TABLE_COLUMNS = {
    "site": "to site",
    "cost": "cost",
    "next_site": "by site",
    "next_hop": "next hop",
    "alternatives": "else",
    "rule": "why",
}
SHOWN = 20
"""The most journeys of each kind that are shown. --json has all."""


@app.command("explain")
def explain_command(
    source: Annotated[
        str, typer.Argument(help="The sending computer.", metavar="FROM", autocompletion=complete_computer)
    ],
    destination: Annotated[
        str,
        typer.Argument(
            help="The receiving computer, or computer\\queue.", metavar="TO", autocompletion=complete_computer
        ),
    ],
    declared: Declared = None,
    brief: Annotated[bool, typer.Option("--brief", help="Only the rule that decides at each hop.")] = False,
    now: Annotated[
        bool, typer.Option("--now", help="Also ask the nodes on the way what messages wait for at present.")
    ] = False,
    access: Access = DEFAULT_ACCESS,
    as_json: AsJson = False,
) -> None:
    """Show the way of a message, with the rule of MS-MQBR that decides at each hop.

    Exit code 1: there is no way. Exit code 2, with --now: messages wait on it.
    """
    with _topology(declared, access.directory_file) as topology:
        found = explain(topology, topology.machine(source), topology.machine(destination))
        state = _ask(topology, found, access) if now else {}
        if as_json:
            print_document(explained(topology, found, state))
        else:
            for line in _lines(topology, found, state, brief=brief):
                typer.echo(printable(line))
    if not found.arrives:
        raise typer.Exit(FAILED)
    if any(one.waiting for one in state.values()):
        raise typer.Exit(SOMETHING_TO_DO)


def _ask(topology: NamedTopology, found: Explanation, access: Access) -> "dict[str, Present]":
    from mqenterprise.operations.tracing import present

    machines = [topology.snapshot.machines[hop.machine] for hop in found.hops]
    path = [machine.name for machine in machines]

    async def work(settings: "OperationsSettings", clients: "list[NodeClient]") -> "dict[str, Present]":
        return await present(clients, path, settings.concurrency)

    return access.run(work, [machine.name for machine in machines if not machine.foreign])


@app.command()
def table(
    node: Annotated[
        str, typer.Argument(help="The computer whose table it is.", metavar="NODE", autocompletion=complete_computer)
    ],
    declared: Declared = None,
    directory: DirectoryFile = None,
    as_json: AsJson = False,
    wide: WideOption = False,
) -> None:
    """Show a computer's next hop for every other site, with the cost and the fall-backs."""
    with _topology(declared, directory) as topology:
        show(
            _table(topology, topology.machine(node)),
            TABLE_COLUMNS,
            as_json=as_json,
            empty="no other sites",
            whole=("to site", "by site", "next hop"),
            drop=("else", "why", "by site"),
            wide=wide,
        )


@app.command("simulate")
def simulate_command(
    without_link: Annotated[list[str] | None, typer.Option(help="A routing link, SITE-SITE; may be repeated.")] = None,
    without: Annotated[list[str] | None, typer.Option(help="A computer that is off; may be repeated.")] = None,
    only_from: Annotated[str | None, typer.Option("--from", help="Only journeys from this site.")] = None,
    declared: Declared = None,
    directory: DirectoryFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the effect of an outage of links and computers: changed journeys, cut-off sites, overloaded gates.

    Exit code 2: messages would wait.
    """
    if not without_link and not without:
        complain("say what is out: --without-link SITE-SITE, or --without COMPUTER")
        raise typer.Exit(SOMETHING_TO_DO)
    with _topology(declared, directory) as topology:
        found = simulate(
            topology,
            links=[link for text in without_link or () for link in topology.links(text)],
            machines=[topology.machine(name) for name in without or ()],
            only_from=None if only_from is None else topology.site(only_from),
        )
        if as_json:
            print_document(simulated(topology, found))
        else:
            _tell(topology, found)
    if found.waiting:
        raise typer.Exit(SOMETHING_TO_DO)


@contextmanager
def _topology(declared: Path | None, directory: Path | None) -> Iterator[NamedTopology]:
    try:
        if declared is not None:
            yield of_declaration(load(declared, for_directory=True).declaration)
            return
        with opened(directory) as service:
            topology = of_directory(service)
        yield topology
    except DeclarationError as error:
        for problem in error.problems:
            complain(str(problem))
    except (UnknownName, TooMuch) as error:
        complain(str(error))
    else:
        return
    raise typer.Exit(FAILED)


def _lines(
    topology: NamedTopology, found: Explanation, state: "Mapping[str, Present]", *, brief: bool
) -> Iterator[str]:
    names = [topology.machine_name(hop.machine) for hop in found.hops]
    yield f"{' -> '.join(names)}, cost {found.cost}"
    if state:
        yield from _state_of_way(found, state)
    for number, hop in enumerate(found.hops, 1):
        machine = topology.snapshot.machines[hop.machine]
        yield ""
        yield f"{number}. {machine.name} ({topology.site_names(machine.sites)})" + _step(topology, hop)
        asked = hop.considered[-1:] if brief else hop.considered
        for rule in asked:
            verdict = "YES" if rule.applies else "no "
            yield f"   {verdict} {rule.rule.name.lower().replace('_', ' ')} (MS-MQBR {SECTIONS[rule.rule]}): {rule.why}"
        if hop.link is not None:
            left = "" if hop.decision is None else f", {hop.decision.cost} to go"
            else_ = "there is no other way" if hop.detour is None else f"without it the way costs {hop.detour}"
            yield f"   by the link {topology.link_name(hop.link)}, cost {hop.link.cost}{left}; {else_}"
        if hop.alternatives:
            yield f"   if it does not answer: {topology.machine_names(hop.alternatives)}"
        if hop.problem:
            yield f"   {hop.problem}"
        if (present := state.get(machine.name)) is not None:
            yield from _state_of_machine(present)


def _state_of_way(found: Explanation, state: "Mapping[str, Present]") -> Iterator[str]:
    """The directory's answer beside that of the nodes."""
    waits = [(name, one.waiting[0]) for name, one in state.items() if one.waiting]
    yield "By the directory it arrives." if found.arrives else "By the directory it does not arrive."
    for name, first in waits:
        yield f"Now it waits at {name}, because {first.sentence}{_since(first.since)}"
    silent = [name for name, one in state.items() if one.unknown]
    if silent:
        yield f"Not known now: {', '.join(silent)}"
    elif not waits:
        yield "Now nothing waits on the way."


def _state_of_machine(present: "Present") -> Iterator[str]:
    if present.unknown:
        yield f"   now not known: {present.unknown}"
    elif not present.waiting:
        yield "   now nothing waits"
    for one in present.waiting[:SHOWN]:
        what = f"{one.messages:,} in {one.queue}" if one.queue else "the whole node"
        again = f", next try {one.next_try.astimezone():%H:%M:%S}" if one.next_try else ""
        yield f"   now {what}: {one.reason}: {one.sentence}{_since(one.since)}{again}; {one.step}"
    if len(present.waiting) > SHOWN:
        yield f"   and {len(present.waiting) - SHOWN:,} queues more"


def _since(time: "datetime | None") -> str:
    return f", since {time.astimezone():%Y-%m-%d %H:%M:%S}" if time else ""


def _step(topology: NamedTopology, hop: Hop) -> str:
    if hop.next is not None:
        return f" sends to {topology.machine_name(hop.next)}"
    if hop.problem:
        return " cannot send it on"
    assert hop.decision is not None
    if hop.decision.site is None:
        return ": it has arrived"
    return f" puts it into the connector queue of {topology.site_name(hop.decision.site)}"


def _table(topology: NamedTopology, node: Guid) -> list[dict[str, Any]]:
    snapshot = topology.snapshot
    router = Router(snapshot, node)
    own = snapshot.machines[node].sites
    rows = []
    for site in sorted(snapshot.sites.values(), key=lambda each: each.name.casefold()):
        if site.identifier in own:
            continue
        routes = [found for mine in own if (found := router.routing_table(mine).get(site.identifier)) is not None]
        row: dict[str, Any] = {"site": site.name, "cost": min((route.cost for route in routes), default=None)}
        if not any(site.identifier in each.sites for each in snapshot.machines.values()):
            rows.append(row | {"rule": "nobody is there"})
            continue
        try:
            decision = router.next_hops_to_site(site.identifier)
        except NoRouteError as error:
            rows.append(row | {"rule": str(error)})
            continue
        hops = [topology.machine_name(hop) for hop in (*decision.hops, *decision.fall_back)]
        row |= {
            "next_site": None if decision.site is None else topology.site_name(decision.site),
            "next_hop": next(iter(hops), None),
            "alternatives": ", ".join(hops[1:]),
            "rule": decision.rule.value,
        }
        rows.append(row)
    return rows


def _tell(topology: NamedTopology, found: Simulation) -> None:
    def name(way: FoundJourney) -> str:
        return printable(way.problem or f"{' -> '.join(map(topology.machine_name, way.path))}, cost {way.cost}")

    typer.echo(
        f"Of {found.journeys:,} journeys between sites, {len(found.changed):,} take another way "
        f"and {len(found.waiting):,} wait. Simulated: {found.of}."
    )
    if found.cut_off:
        typer.echo(printable(f"Cut off: {topology.site_names(sorted(found.cut_off, key=topology.site_name))}"))
    for title, journeys in (("These wait:", found.waiting), ("These take another way:", found.changed)):
        if journeys:
            typer.echo(f"\n{title}")
        for journey in journeys[:SHOWN]:
            ends = printable(f"{topology.machine_name(journey.source)} to {topology.machine_name(journey.destination)}")
            typer.echo(f"  {ends}\n    before: {name(journey.before)}\n    now:    {name(journey.after)}")
        if len(journeys) > SHOWN:
            typer.echo(f"  and {len(journeys) - SHOWN:,} more; --json has all of them")
    typer.echo("")
    columns = {"gate": "site gate", "before": "journeys before", "after": "now", "overloaded": "overloaded"}
    show(gates(topology, found), columns, as_json=False, empty="no site gates")
