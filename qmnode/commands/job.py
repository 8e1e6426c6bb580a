"""``qmnode job``: jobs over messages, which go on in the node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qmnode.commands.node_options import NODE, JsonOption, Node, WideOption
from qmnode.commands.option_groups import Commands
from qmnode.commands.output import counted, print_facts, print_json, say
from qmnode.commands.table_writer import print_row, print_table
from qmnode.management.documents import lookup_text, time_or_none

if TYPE_CHECKING:
    from qmnode.local.remote import RemoteQueueManager

app = Commands(
    no_args_is_help=True,
    help="List, watch, pause, resume, cancel and undo jobs over messages.",
)

Number = Annotated[int, typer.Argument(metavar="JOB", help="Number of the job.")]
PAST = {
    "move": "moved",
    "copy": "copied",
    "delete": "deleted",
    "return": "returned",
    "replay": "replayed",
    "undo": "taken back",
}


def summary(job: Mapping[str, Any], name: str = "") -> str:
    """The state of a job in one line; ``name`` is the one that it has beside jobs of other nodes."""
    past = PAST.get(job["kind"], job["kind"])
    done = f"would be {past}" if job["dry_run"] else past
    parts = [f"job {name or job['job']} is {job['state']}: {counted(job['done'], 'message')} {done}"]
    if job["failed"]:
        parts.append(f"{job['failed']:,} not")
    if job["state"] == "running" and job["rate"] and job["seconds_left"] is not None:
        parts.append(f"{job['rate']:,.0f} a second, {job['seconds_left']:,.0f} s left")
    if job["reason"]:
        parts.append(job["reason"])
    return ", ".join(parts)


def print_entry(entry: dict[str, Any], *, error: bool = False) -> None:
    """Print the outcome for one message."""
    target, way, detail = (entry.get(name) for name in ("target", "way", "detail"))
    parts = (
        lookup_text(entry["lookup"]),
        entry["queue"],
        entry["result"],
        f"to {target}" if target else None,
        f"({way})" if way else None,
        f"({detail})" if detail else None,
    )
    if error:
        say("  ".join(filter(None, parts)))
    else:
        print_row(*parts)


@app.command("list", epilog="Example: qmnode job list")
def list_jobs(node: Node = NODE, as_json: JsonOption = False, wide: WideOption = False) -> None:
    """List the jobs of the node, the latest first."""
    jobs = node.run(lambda manager: manager.operations.jobs())
    if as_json:
        for job in jobs:
            print_json(job)
        return
    rows = [(job["job"], job | {"created": time_or_none(job["created"])}) for job in jobs]
    print_jobs(rows, right=("job",), wide=wide)


def print_jobs(jobs: Sequence[tuple[int | str, Mapping[str, Any]]], *, right: tuple[str, ...] = (), wide: bool) -> None:
    """Print jobs as a table, each with its number, which belongs to the ``right``, or its name."""
    print_table(
        ("job", "what", "queues", "to", "state", "done", "not", "of", "begun", "by"),
        [
            (
                name,
                f"{job['kind']} (dry run)" if job["dry_run"] else job["kind"],
                ", ".join(job["queues"]),
                job["target"] or None,
                job["state"],
                job["done"],
                job["failed"],
                job["total"],
                job["created"] and f"{job['created']:%Y-%m-%d %H:%M:%S}",
                job["asker"],
            )
            for name, job in jobs
        ],
        right=(*right, "done", "not", "of"),
        whole=("job", "queues", "to", "begun"),
        drop=("by", "begun", "to", "of", "not"),
        wide=wide,
    )


@app.command(epilog="Example: qmnode job show 7 --log")
def show(
    number: Number,
    log: Annotated[bool, typer.Option("--log", help="Show the outcome for each message.")] = False,
    node: Node = NODE,
    as_json: JsonOption = False,
) -> None:
    """Show a job: its progress, its rate, and with --log the outcome for each message."""

    async def work(manager: RemoteQueueManager) -> dict[str, Any]:
        job = await manager.operations.job(number)
        if not log:
            return job
        async for entry in manager.operations.job_log(number):
            if as_json:
                print_json(entry | {"lookup": lookup_text(entry["lookup"])})
            else:
                print_entry(entry)
        return job

    job = node.run(work)
    if as_json and not log:
        print_json(job)
    elif not log:
        times = {name: time_or_none(job[name]) for name in ("created", "ended")}
        print_facts(job | times)
    say(summary(job))


@app.command(epilog="Example: qmnode job pause 7")
def pause(number: Number, node: Node = NODE) -> None:
    """Stop a job for now; it keeps its place."""
    _control(number, "pause", node)


@app.command(epilog="Example: qmnode job resume 7")
def resume(number: Number, node: Node = NODE) -> None:
    """Let a paused job go on where it was."""
    _control(number, "resume", node)


@app.command(epilog="Example: qmnode job cancel 7")
def cancel(number: Number, node: Node = NODE) -> None:
    """End a job. Its work so far stays done; undo takes it back."""
    _control(number, "cancel", node)


@app.command(epilog="Example: qmnode job undo 7")
def undo(number: Number, node: Node = NODE) -> None:
    """Take a job back: moved messages that are still there return to their old places, copies go. Deleted messages and
    those that were sent anew cannot come back."""
    _control(number, "undo", node)


def _control(number: int, action: str, node: Node) -> None:
    say(summary(node.run(lambda manager: manager.operations.control_job(number, action))))
