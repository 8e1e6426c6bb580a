"""``mqenterprise message find|show|failures``: messages of many nodes, where they are."""

from contextlib import aclosing
from typing import Annotated, Any

import typer

from mqenterprise.commands.opening import FAILED, AsJson
from mqenterprise.commands.over_nodes import (
    DEFAULT_ACCESS,
    NO_NODES,
    Access,
    Nodes,
    checked_where,
    report_errors,
    with_machine,
)
from mqenterprise.operations.errors import NodeError
from mqenterprise.operations.failures import merged
from mqenterprise.operations.many import each
from mqenterprise.operations.node_client import NodeClient
from mqenterprise.operations.search import Search
from mqenterprise.operations.settings import OperationsSettings
from qmnode.administration.failures import BY
from qmnode.commands.groups import Commands
from qmnode.commands.message_files import FAILURE_QUEUES
from qmnode.commands.messages import lookup
from qmnode.commands.output import counted, print_body, print_facts, print_json, say, size_text
from qmnode.commands.selecting import WhereOption
from qmnode.commands.tables import print_row, print_table
from qmnode.commands.target import WideOption
from qmnode.management.documents import lookup_text
from qmnode.management.message_documents import MessageDocument
from qmnode.management.operation_routes import FailureGroups

app = Commands(
    no_args_is_help=True,
    help="Find messages at many nodes, and move, copy, delete, return or replay them.",
)

QueuesAtNodes = Annotated[
    list[str], typer.Argument(metavar="QUEUE...", help="Names, or patterns with * and ?, of each machine.")
]
QueueAtNode = Annotated[str, typer.Argument(metavar="QUEUE", help="Path name or format name.")]
LookupAtNode = Annotated[str, typer.Argument(metavar="LOOKUP", help="Lookup identifier.")]
OneMachine = Annotated[str, typer.Option("--machine", "-m", metavar="COMPUTER", help="Machine that has the message.")]
_BODIES = (
    "base64",
    "text",
    "decoded",
    "headers",
    "format",
    "headers_format",
    "extension",
    "packet",
    "sender_certificate",
)


@app.command(epilog="Example: mqenterprise message find 'orders*' --where value.Order.Customer=4711 --all")
def find(
    queues: QueuesAtNodes,
    where: WhereOption = None,
    nodes: Nodes = NO_NODES,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, help="Most messages to show, of all nodes together.")
    ] = 100,
    cursor: Annotated[str, typer.Option(help="Continue where an earlier search stopped, with the same machines.")] = "",
    bodies: Annotated[bool, typer.Option("--bodies", help="Also show the decoded bodies and the headers.")] = False,
    access: Access = DEFAULT_ACCESS,
    as_json: AsJson = False,
) -> None:
    """Find messages without removing them. Each is printed as its node finds it; Ctrl-C ends the search at all nodes.

    Exit code 1: nothing was found, or a node did not answer. The printed cursor continues with those that did not.
    """
    nodes.check()
    wanted = checked_where(where)

    async def work(settings: OperationsSettings, clients: list[NodeClient]) -> tuple[Search, int]:
        body, number = "decoded" if bodies or as_json else "none", 0
        search = Search(clients, queues, wanted, body=body, concurrency=settings.concurrency)
        if cursor:
            search.go_on(cursor)
        async with aclosing(search.found(count)) as found:
            async for name, one in found:
                number += 1
                if as_json:
                    print_json(with_machine(name, one.model_dump(mode="json")))
                else:
                    _print_found(name, one.queue, one.message, bodies=bodies)
        return search, number

    search, number = nodes.run(access, work)
    for name, node in search.nodes.items():
        for queue in node.refused:
            say(f"{name}: {queue} was left out: it may not be read")
    scanned, total = (sum(getattr(node, what) for node in search.nodes.values()) for what in ("scanned", "total"))
    more = f"; go on with --cursor '{search.cursor}'" if search.cursor else ""
    at = counted(len(search.nodes), "node")
    say(f"{counted(number, 'message')} found among {max(scanned, number):,} of {total:,} at {at}{more}")
    errors = {name: node.error for name, node in search.nodes.items() if node.error is not None}
    if report_errors(errors, len(search.nodes)) or not number:
        raise typer.Exit(FAILED)


def _print_found(machine: str, queue: str, message: MessageDocument, *, bodies: bool) -> None:
    arrived = f"{message.arrival_time:%Y-%m-%d %H:%M:%S}" if message.arrival_time else "-"
    label = f"(unreadable) {message.label}" if message.unreadable else message.label
    print_row(machine, queue, message.lookup_identifier, arrived, size_text(message.body_size), label)
    if bodies:
        print_message_body(message)


def print_message_body(message: MessageDocument) -> None:
    """The headers and the body of a message: decoded, as text, or as base64."""
    for name, value in (message.headers or {}).items():
        print_body(f"  {name}: {value}")
    if message.undecoded:
        say(f"{message.lookup_identifier}: not decoded: {message.undecoded}")
    if message.decoded is not None and not isinstance(message.decoded, str):
        print_json({"body": message.decoded})
    else:
        print_body(str(message.decoded or message.text or message.base64 or ""))


@app.command("show", epilog="Example: mqenterprise message show orders 0x400000000000012 --machine ams-shop")
def show_message(
    queue: QueueAtNode,
    place: LookupAtNode,
    machine: OneMachine,
    access: Access = DEFAULT_ACCESS,
    as_json: AsJson = False,
) -> None:
    """Show one message with all its properties, its headers and its body; it stays."""
    place = lookup_text(lookup(place))

    async def one(client: NodeClient) -> MessageDocument:
        return await client.message(queue, place, body="decoded")

    message: MessageDocument = access.at_one(machine, one)
    if as_json:
        print_json(with_machine(machine, message.model_dump(mode="json")))
        return
    facts = {name: value for name, value in message.model_dump().items() if name not in _BODIES}
    print_facts(with_machine(machine, facts))
    print()
    print_message_body(message)


@app.command(epilog="Example: mqenterprise message failures --all --by exception")
def failures(
    queues: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUEUE...",
            help="Queues to look in. Default: dead letters, poison subqueues, and queues named error.",
        ),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", help="Property to group by: reason, queue, sender or exception; may be given again."),
    ] = None,
    where: WhereOption = None,
    nodes: Nodes = NO_NODES,
    access: Access = DEFAULT_ACCESS,
    as_json: AsJson = False,
    wide: WideOption = False,
) -> None:
    """Show the failed messages of all nodes in groups, the largest first, with the --where that returns or deletes each
    group. Exit code 1: a node did not answer."""
    nodes.check()
    if unknown := set(by or ()) - set(BY):
        raise typer.BadParameter(f"{min(unknown)!r}: failures are grouped by {', '.join(BY)}", param_hint="--by")
    names, wanted, keys = queues or list(FAILURE_QUEUES), checked_where(where), by or ["reason", "queue"]
    answers: list[tuple[str, FailureGroups]] = []
    errors: dict[str, NodeError] = {}

    async def work(settings: OperationsSettings, clients: list[NodeClient]) -> int:
        def ask(client: NodeClient) -> Any:
            return client.failures(names, keys, wanted)

        async for client, answer in each(clients, ask, settings.concurrency):
            if isinstance(answer, NodeError):
                errors[client.machine] = answer
            else:
                answers.append((client.machine, answer))
        return len(clients)

    asked = nodes.run(access, work)
    groups = merged(answers, keys)
    if as_json:
        for group in groups:
            print_json(group.document(keys))
    else:
        print_table(
            ("count", *keys, "first", "last", "last hour", "hour before", "at"),
            [
                (
                    group.count,
                    *group.key,
                    f"{group.first:%Y-%m-%d %H:%M}" if group.first else None,
                    f"{group.last:%Y-%m-%d %H:%M}" if group.last else None,
                    group.last_hour,
                    group.hour_before,
                    ", ".join(sorted(group.machines)),
                )
                for group in groups
            ],
            right=("count", "last hour", "hour before"),
            whole=("first", "last"),
            drop=("hour before", "last hour", "first", "last", "at"),
            wide=wide,
        )
        for group in groups[:10]:
            say(f"{group.count:,}: " + " ".join(f"--where '{text}'" for text in group.where))
    for name, answer in answers:
        for queue in answer.refused:
            say(f"{name}: {queue} was left out: it may not be read")
        if answer.left_out:
            say(f"{name}: {counted(answer.left_out, 'message')} of further groups left out: search fewer queues")
    if report_errors(errors, asked):
        raise typer.Exit(FAILED)
