"""``mqenterprise message move|copy|delete|return|replay``: each begins a job at every chosen node."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from mqenterprise.commands.job import print_entry, summary
from mqenterprise.commands.message import app as app
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
from mqenterprise.operations.jobs import job_name, log_entries, watch
from mqenterprise.operations.many import each
from mqenterprise.operations.node_client import NodeClient
from mqenterprise.operations.settings import OperationsSettings
from qmnode.commands.message_operations import DryRunOption, Lookups, TargetOption, TransactionalOption, WaitOption
from qmnode.commands.messages import lookup
from qmnode.commands.output import print_json, progress, say
from qmnode.commands.selecting import WhereOption
from qmnode.commands.target import YesOption, confirm
from qmnode.management.documents import lookup_text
from qmnode.management.operation_routes import JobDocument

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
