"""``mqenterprise message find|show|failures``: messages of many nodes, where they are."""

import base64
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TextIO

import typer

from mqenterprise.commands.chosen_nodes import (
    DEFAULT_ACCESS,
    NO_NODES,
    Access,
    Nodes,
    checked_where,
    report_errors,
    with_machine,
)
from mqenterprise.commands.directory_option import FAILED, AsJson
from mqenterprise.commands.job import print_entry, summary
from mqenterprise.operations.errors import NodeError
from mqenterprise.operations.jobs import job_name, log_entries, watch
from mqenterprise.operations.node_client import NodeClient
from mqenterprise.operations.nodes import each
from mqenterprise.operations.search import Search, merged
from mqenterprise.operations.settings import OperationsSettings
from qmnode.administration.failures import BY
from qmnode.commands.message import (
    BODIES,
    FAILURE_QUEUES,
    NO_EDIT,
    AgainOption,
    DryRunOption,
    Edit,
    FailureQueues,
    GroupedBy,
    ImportedFile,
    ImportOutcomes,
    ImportTarget,
    Lookups,
    OutputOption,
    TargetOption,
    TransactionalOption,
    WaitOption,
    WhereOption,
    batches,
    opened_source,
    print_failures,
    written,
)
from qmnode.commands.node_options import WideOption, YesOption, confirm
from qmnode.commands.option_groups import Commands
from qmnode.commands.output import counted, print_body, print_facts, print_json, progress, say, size_text, write_json
from qmnode.commands.receive import lookup
from qmnode.commands.table_writer import print_row
from qmnode.management.documents import lookup_text
from qmnode.management.message_documents import MessageDocument
from qmnode.management.operation_routes import FailureGroups, JobDocument

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
    facts = {name: value for name, value in message.model_dump().items() if name not in BODIES}
    print_facts(with_machine(machine, facts))
    print()
    print_message_body(message)


@app.command(epilog="Example: mqenterprise message failures --all --by exception")
def failures(
    queues: FailureQueues = None,
    by: GroupedBy = None,
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
        times = [{"first": group.first, "last": group.last} for group in groups]
        print_failures(
            keys, [group.document(keys) | one for group, one in zip(groups, times, strict=True)], "at", wide=wide
        )
    for name, answer in answers:
        for queue in answer.refused:
            say(f"{name}: {queue} was left out: it may not be read")
        if answer.left_out:
            say(f"{name}: {counted(answer.left_out, 'message')} of further groups left out: search fewer queues")
    if report_errors(errors, asked):
        raise typer.Exit(FAILED)


Name = Annotated[
    str, typer.Argument(metavar="QUEUE", help="Name, or a pattern with * and ? for several queues; of each machine.")
]
Target = Annotated[str, typer.Option("--to", metavar="QUEUE", help="Path name at each machine, or a format name.")]
AllMessages = Annotated[bool, typer.Option("--all-messages", help="All messages that are there now.")]


@dataclass(frozen=True, slots=True)
class Choice:
    """The options that choose messages, and how jobs over them run."""

    lookups: Lookups = None
    where: WhereOption = None
    all_messages: AllMessages = False
    dry_run: DryRunOption = False
    wait: WaitOption = True

    def job(self, kind: str, name: str, target: str = "", transactional: bool | None = None) -> dict[str, Any]:
        """The job as the management API takes it. Exit with usage unless messages are chosen in one way."""
        if bool(self.lookups) + bool(self.where) + self.all_messages != 1:
            raise typer.BadParameter("choose messages by LOOKUP or by --where, or say --all-messages")
        return {
            "kind": kind,
            "queues": [name],
            "where": checked_where(self.where),
            "messages": [lookup_text(lookup(text)) for text in self.lookups or ()],
            "target": target,
            "transactional": transactional,
            "dry_run": self.dry_run,
        }


NO_CHOICE: Final = Choice()


def _moving(kind: str, explanation: str) -> Callable[..., None]:
    def move(
        name: Name,
        target: Target,
        choice: Choice = NO_CHOICE,
        transactional: TransactionalOption = None,
        nodes: Nodes = NO_NODES,
        access: Access = DEFAULT_ACCESS,
        as_json: AsJson = False,
    ) -> None:
        _run(choice.job(kind, name, target, transactional), choice.wait, nodes, access, as_json)

    move.__doc__ = explanation
    return move


def _returning(kind: str, explanation: str) -> Callable[..., None]:
    def return_(
        name: Name,
        choice: Choice = NO_CHOICE,
        target: TargetOption = "",
        transactional: TransactionalOption = None,
        nodes: Nodes = NO_NODES,
        access: Access = DEFAULT_ACCESS,
        as_json: AsJson = False,
    ) -> None:
        _run(choice.job(kind, name, target, transactional), choice.wait, nodes, access, as_json)

    return_.__doc__ = explanation
    return return_


for _kind, _make, _example, _explanation in (
    (
        "move",
        _moving,
        "orders --to orders-later --where older=1d --site Bremen",
        "Move messages into another queue, there or elsewhere. docs/reference/promises.md has the promises.",
    ),
    (
        "copy",
        _moving,
        "orders --to orders-test --all-messages --machine ams-shop",
        "Send copies of messages to another queue; the messages stay.",
    ),
    (
        "return",
        _returning,
        "error --where 'header.NServiceBus.FailedQ=sales*' --all",
        "Return failed messages to where they failed, as 'qmnode message return' does; or all to the queue of --to.",
    ),
    (
        "replay",
        _returning,
        "'orders;journal' --where after=2026-11-22T14:00 --site Bremen",
        "Send the messages of journals once more, to where they were or to the queue of --to; the journals stay.",
    ),
):
    app.command(_kind, epilog=f"Example: mqenterprise message {_kind} {_example}")(_make(_kind, _explanation))


@app.command(epilog="Example: mqenterprise message delete orders --where 'label=test*' --site Bremen")
def delete(
    name: Name,
    choice: Choice = NO_CHOICE,
    yes: YesOption = False,
    nodes: Nodes = NO_NODES,
    access: Access = DEFAULT_ACCESS,
    as_json: AsJson = False,
) -> None:
    """Delete messages, as a purge does: their senders learn of it if they asked for that. This cannot be undone."""
    wanted = choice.job("delete", name)
    nodes.check()
    if not choice.dry_run:
        at = ", ".join(nodes.machine or ()) or (f"all machines of site {nodes.site}" if nodes.site else "all machines")
        confirm(f"Delete the chosen messages of {name} at {at}?", yes)
    _run(wanted, choice.wait, nodes, access, as_json)


def _run(
    wanted: Mapping[str, Any],
    wait: bool,
    nodes: Nodes,
    access: Access,
    as_json: bool,
) -> None:
    nodes.check()
    if wanted["messages"] and len(nodes.machine or ()) != 1:
        raise typer.BadParameter("a LOOKUP is that of one machine: name it with --machine")
    jobs: dict[str, JobDocument] = {}
    errors: dict[str, NodeError] = {}

    async def work(settings: OperationsSettings, clients: list[NodeClient]) -> int:
        with progress(str(wanted["kind"])) as bar:

            def seen(machine: str, job: JobDocument) -> None:
                jobs[machine] = job
                scanned = sum(one.scanned for one in jobs.values())
                bar(scanned, max(scanned, sum(one.total for one in jobs.values())))

            async def at_node(client: NodeClient) -> None:
                job = await client.start_job(wanted)
                seen(client.machine, job)
                if wait:
                    jobs[client.machine] = await watch(client, job, lambda now: seen(client.machine, now))

            try:
                async for client, answer in each(clients, at_node, settings.concurrency):
                    if isinstance(answer, NodeError):
                        errors[client.machine] = answer
            finally:  # Ctrl-C stops only the watching
                going = [job_name(name, job.job) for name, job in jobs.items() if job.state == "running"]
                if wait and going and len(jobs) + len(errors) < len(clients) + len(going):
                    say(f"jobs go on: mqenterprise job show {' '.join(going)}")
        for client in clients:
            if client.machine in jobs and client.machine not in errors and wait:
                await _print_outcomes(client, jobs[client.machine])
        return len(clients)

    asked = nodes.run(access, work)
    for name, job in sorted(jobs.items()):
        if as_json:
            print_json(with_machine(name, job.model_dump(mode="json")))
        say(summary(name, job))
    failed = report_errors(errors, asked)
    if failed or (wait and any(job.failed or job.state != "done" for job in jobs.values())):
        raise typer.Exit(FAILED)


async def _print_outcomes(client: NodeClient, job: JobDocument) -> None:
    if not (job.failed or job.dry_run):
        return
    async for entry in log_entries(client, job.job):
        if job.dry_run or entry.result in ("failed", "gone"):
            print_entry(client.machine, entry, error=True)


@app.command(epilog="Example: mqenterprise message export 'orders*' --where older=1d --all --output orders.ndjson")
def export(
    queues: QueuesAtNodes,
    where: WhereOption = None,
    output: OutputOption = Path("-"),
    nodes: Nodes = NO_NODES,
    access: Access = DEFAULT_ACCESS,
) -> None:
    """Write messages as JSON lines, one node after the other: the machine, all properties, the decoded body, the whole
    packet. They stay. Exit code 1: a node did not answer, or its stream broke; then its lines are not all."""
    nodes.check()
    wanted = checked_where(where)
    errors: dict[str, NodeError] = {}

    async def work(settings: OperationsSettings, clients: list[NodeClient], target: TextIO) -> tuple[int, int]:
        count = 0
        with progress("writing") as bar:
            for client in clients:
                try:
                    async with client.export(queues, wanted) as lines:
                        async for line in lines:
                            write_json(with_machine(client.machine, line), target)
                            count += 1
                            bar(count, None)
                except NodeError as error:
                    errors[client.machine] = error
        return count, len(clients)

    with written(output) as target:
        count, asked = nodes.run(access, lambda settings, clients: work(settings, clients, target))
    say(f"{counted(count, 'message')} written")
    if report_errors(errors, asked):
        raise typer.Exit(FAILED)


@app.command("import", epilog="Example: mqenterprise message import orders.ndjson --machine ams-shop --to orders-test")
def import_messages(
    source: ImportedFile,
    machine: OneMachine,
    target: ImportTarget = "",
    transactional: TransactionalOption = None,
    again: AgainOption = False,
    dry_run: DryRunOption = False,
    access: Access = DEFAULT_ACCESS,
    as_json: AsJson = False,
) -> None:
    """Send exported messages from one machine, each once: what was imported into the same queue before is refused. Exit
    code 1: some lines were refused or known, or the node did not answer; then begin it again."""
    outcomes = ImportOutcomes(as_json)

    async def work(client: NodeClient, lines: TextIO) -> None:
        for batch in batches(lines, target, outcomes.add):
            items = [item | {"packet": base64.b64encode(item["packet"]).decode()} for _, item in batch]
            answer = await client.import_messages(
                {"messages": items, "transactional": transactional, "again": again, "dry_run": dry_run}
            )
            for (number, _), result in zip(batch, answer.results, strict=False):
                outcomes.add(number, result.model_dump(exclude_none=True))

    with opened_source(source) as lines:
        try:
            access.at_one(machine, lambda client: work(client, lines))
        finally:
            say(str(outcomes) or "nothing was imported")
    outcomes.check()


@app.command(
    "edit", epilog="Example: mqenterprise message edit error 0x400000000000012 --machine ams-shop --value '{\"Id\": 7}'"
)
def edit_message(
    queue: QueueAtNode,
    place: LookupAtNode,
    machine: OneMachine,
    edit: Edit = NO_EDIT,
    access: Access = DEFAULT_ACCESS,
    as_json: AsJson = False,
) -> None:
    """Change a message and send it again: the changed one takes its place in one write. Says what cannot be kept."""
    changes = edit.changes()
    if "body" in changes:
        changes["base64"] = base64.b64encode(changes.pop("body")).decode()
    editing = changes | {"target": edit.target, "keep": edit.keep, "dry_run": edit.dry_run}
    one = lookup_text(lookup(place))
    edited = access.at_one(machine, lambda client: client.edit(queue, one, editing))
    if as_json:
        print_json(with_machine(machine, edited.model_dump(mode="json")))
    for sentence in edited.lost:
        say(f"not kept: {sentence}")
    say("nothing is changed: this was a dry run" if edit.dry_run else f"sent to {edited.target} at {machine}")
