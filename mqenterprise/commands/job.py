"""``mqenterprise job list|show|pause|resume|cancel|undo``: jobs over messages at many nodes."""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from mqenterprise.commands.chosen_nodes import (
    DEFAULT_ACCESS,
    NO_NODES,
    Access,
    Nodes,
    failing_with_sentence,
    report_errors,
    with_machine,
)
from mqenterprise.commands.directory_option import FAILED, AsJson
from mqenterprise.operations.errors import NodeError
from mqenterprise.operations.jobs import job_name, log_entries, parse_job_name
from mqenterprise.operations.node_client import NodeClient
from mqenterprise.operations.nodes import each
from mqenterprise.operations.settings import OperationsSettings
from qmnode.commands.job import print_jobs
from qmnode.commands.job import summary as job_summary
from qmnode.commands.node_options import WideOption
from qmnode.commands.option_groups import Commands
from qmnode.commands.output import print_facts, print_json, say
from qmnode.commands.table_writer import print_row
from qmnode.management.operation_routes import JobDocument, LogEntry

app = Commands(
    no_args_is_help=True,
    help="List, watch, pause, resume, cancel and undo jobs over messages at many nodes.",
)

Names = Annotated[list[str], typer.Argument(metavar="MACHINE/JOB...", help="Jobs, as 'job list' names them.")]


def summary(machine: str, job: JobDocument) -> str:
    """The state of a job in one line."""
    return job_summary(job.model_dump(), job_name(machine, job.job))


def print_entry(machine: str, entry: LogEntry, *, error: bool = False) -> None:
    """Print the outcome for one message."""
    target = f"to {entry.target}" if entry.target else None
    optional = (target, entry.way or None, entry.detail or None)
    parts = (machine, entry.lookup_identifier, entry.queue, entry.result, *optional)
    if error:
        say("  ".join(filter(None, parts)))
    else:
        print_row(*parts)


@app.command("list", epilog="Example: mqenterprise job list --all --state running")
def list_jobs(
    nodes: Nodes = NO_NODES,
    state: Annotated[str, typer.Option(help="Only jobs that are running, paused, cancelled or done.")] = "",
    access: Access = DEFAULT_ACCESS,
    as_json: AsJson = False,
    wide: WideOption = False,
) -> None:
    """List the jobs of nodes, the latest of each first. Exit code 1: a node did not answer."""
    if state not in ("", "running", "paused", "cancelled", "done"):
        raise typer.BadParameter("a job is running, paused, cancelled or done", param_hint="--state")
    nodes.check()
    rows: list[tuple[str, JobDocument]] = []
    errors: dict[str, NodeError] = {}

    async def work(settings: OperationsSettings, clients: list[NodeClient]) -> int:
        async for client, jobs in each(clients, lambda one: one.jobs(), settings.concurrency):
            if isinstance(jobs, NodeError):
                errors[client.machine] = jobs
            else:
                rows.extend((client.machine, job) for job in jobs if state in ("", job.state))
        return len(clients)

    asked = nodes.run(access, work)
    rows.sort(key=lambda row: (row[0].casefold(), -row[1].job))
    if as_json:
        for name, job in rows:
            print_json(with_machine(name, job.model_dump(mode="json")))
    else:
        print_jobs([(job_name(name, job.job), job.model_dump()) for name, job in rows], wide=wide)
    if report_errors(errors, asked):
        raise typer.Exit(FAILED)


@app.command(epilog="Example: mqenterprise job show ams-shop/7 --log")
def show(
    names: Names,
    log: Annotated[bool, typer.Option("--log", help="Show the outcome for each message.")] = False,
    access: Access = DEFAULT_ACCESS,
    as_json: AsJson = False,
) -> None:
    """Show jobs: their progress, their rate, and with --log the outcome for each message."""

    async def one(client: NodeClient, number: int) -> None:
        job = await client.job(number)
        if log:
            async for entry in log_entries(client, number):
                if as_json:
                    print_json(with_machine(client.machine, entry.model_dump(mode="json")))
                else:
                    print_entry(client.machine, entry)
        elif as_json:
            print_json(with_machine(client.machine, job.model_dump(mode="json")))
        else:
            print_facts(with_machine(client.machine, job.model_dump()))
        say(summary(client.machine, job))

    _with_jobs(names, access, one)


def _control(action: str, explanation: str) -> Callable[..., None]:
    def control(names: Names, access: Access = DEFAULT_ACCESS) -> None:
        async def one(client: NodeClient, number: int) -> None:
            say(summary(client.machine, await client.control_job(number, action)))

        _with_jobs(names, access, one)

    control.__doc__ = explanation
    return control


for _action, _explanation in (
    ("pause", "Stop jobs for now; they keep their places."),
    ("resume", "Let paused jobs go on where they were."),
    ("cancel", "End jobs. Their work so far stays done; undo takes it back."),
    ("undo", "Take jobs back: moved messages that are still there return to their old places, and copies go."),
):
    app.command(_action, epilog=f"Example: mqenterprise job {_action} ams-shop/7 bre-router/3")(
        _control(_action, _explanation)
    )


def _with_jobs(
    names: list[str],
    access: Access,
    work: Callable[[NodeClient, int], Awaitable[None]],
) -> None:
    with failing_with_sentence():
        numbers: defaultdict[str, list[int]] = defaultdict(list)
        for machine, number in map(parse_job_name, dict.fromkeys(names)):
            numbers[machine.casefold()].append(number)
    errors: dict[str, NodeError] = {}

    async def at_node(client: NodeClient) -> None:
        for number in numbers[client.machine.casefold()]:
            try:
                await work(client, number)
            except NodeError as error:
                errors[job_name(client.machine, number)] = error

    async def all_of_them(settings: OperationsSettings, clients: list[NodeClient]) -> None:
        async for _ in each(clients, at_node, settings.concurrency):
            pass

    access.run(all_of_them, [*numbers])
    if report_errors(errors, 0):
        raise typer.Exit(FAILED)
