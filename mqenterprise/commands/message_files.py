"""``mqenterprise message export|import|edit``: the files of many nodes, and one message of one node."""

import base64
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from mqenterprise.commands.message import LookupAtNode, OneMachine, QueueAtNode, QueuesAtNodes
from mqenterprise.commands.message_jobs import app as app
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
from mqenterprise.operations.node_client import NodeClient
from mqenterprise.operations.settings import OperationsSettings
from qmnode.commands.message_files import NO_EDIT, Edit, batches, opened_source, written
from qmnode.commands.message_operations import DryRunOption, TransactionalOption
from qmnode.commands.messages import lookup
from qmnode.commands.output import counted, print_json, progress, say, write_json
from qmnode.commands.selecting import WhereOption
from qmnode.management.documents import lookup_text


@app.command(epilog="Example: mqenterprise message export 'orders*' --where older=1d --all --output orders.ndjson")
def export(
    queues: QueuesAtNodes,
    where: WhereOption = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="File; - is standard output.")] = Path("-"),
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
    source: Annotated[Path, typer.Argument(metavar="FILE", help="An exported file; - is standard input.")],
    machine: OneMachine,
    target: Annotated[
        str,
        typer.Option(
            "--to", metavar="QUEUE", help="Queue to send to. Default: for each message the queue that it was in."
        ),
    ] = "",
    transactional: TransactionalOption = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also import messages that were imported into the same queue before.")
    ] = False,
    dry_run: DryRunOption = False,
    access: Access = DEFAULT_ACCESS,
    as_json: AsJson = False,
) -> None:
    """Send exported messages from one machine, each once: what was imported into the same queue before is refused. Exit
    code 1: some lines were refused or known, or the node did not answer; then begin it again."""
    outcomes: Counter[str] = Counter()

    def tell(number: int, result: dict[str, Any]) -> None:
        outcomes[result["result"]] += 1
        if as_json:
            print_json({"line": number} | result)
        elif result["result"] in ("refused", "known"):
            say(f"line {number}: {result['detail']}")

    async def work(client: NodeClient, lines: TextIO) -> None:
        for batch in batches(lines, target, tell):
            items = [item | {"packet": base64.b64encode(item["packet"]).decode()} for _, item in batch]
            answer = await client.import_messages(
                {"messages": items, "transactional": transactional, "again": again, "dry_run": dry_run}
            )
            for (number, _), result in zip(batch, answer.results, strict=False):
                tell(number, result.model_dump(exclude_none=True))

    with opened_source(source) as lines:
        try:
            access.at_one(machine, lambda client: work(client, lines))
        finally:
            say(
                ", ".join(f"{count:,} {result}" for result, count in sorted(outcomes.items())) or "nothing was imported"
            )
    if outcomes["refused"] or outcomes["known"]:
        raise typer.Exit(FAILED)


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
