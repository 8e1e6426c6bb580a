"""``qmnode message move``, ``copy``, ``delete``, ``return`` and ``replay``: each begins a job in the node."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from qmnode.commands.completion import complete_queue
from qmnode.commands.job import print_entry, summary
from qmnode.commands.message import WhereOption, app, criteria
from qmnode.commands.messages import lookup
from qmnode.commands.output import print_json, progress, say
from qmnode.commands.target import NODE, JsonOption, Node, YesOption, confirm

if TYPE_CHECKING:
    from qmnode.local.remote import RemoteQueueManager

_POLL = 0.1

Name = Annotated[
    str,
    typer.Argument(
        metavar="QUEUE",
        help="Name, or a pattern with * and ? for several queues.",
        autocompletion=complete_queue,
    ),
]
Lookups = Annotated[list[str] | None, typer.Argument(metavar="LOOKUP", help="Lookup identifiers of messages.")]
AllOption = Annotated[bool, typer.Option("--all", help="All messages that are there now.")]
TargetOption = Annotated[str, typer.Option("--to", metavar="QUEUE", help="Path name or format name of a queue.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done with each message, and change nothing.")
]
WaitOption = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the end of the job.")]
TransactionalOption = Annotated[
    bool | None,
    typer.Option(
        "--transactional/--no-transactional",
        help="How to send to another machine. Default: as the message was sent.",
    ),
]


@dataclass(frozen=True, slots=True)
class Choice:
    """The options that choose messages, and how a job over them runs."""

    lookups: Lookups = None
    where: WhereOption = None
    take_all: AllOption = False
    dry_run: DryRunOption = False
    wait: WaitOption = True

    def run(
        self,
        kind: str,
        name: str,
        node: Node,
        as_json: bool,
        target: str = "",
        transactional: bool | None = None,
    ) -> None:
        """Begin a job of this kind, and show it to its end. Exit code 1 if a message failed."""
        if bool(self.lookups) + bool(self.where) + self.take_all != 1:
            raise typer.BadParameter("choose messages by LOOKUP or by --where, or say --all")
        places, wanted = [lookup(text) for text in self.lookups or ()], criteria(self.where)

        async def work(manager: RemoteQueueManager) -> dict[str, Any]:
            job = await manager.operations.start_job(
                kind, [name], wanted, lookups=places, target=target, transactional=transactional, dry_run=self.dry_run
            )
            return await _watch(manager, job) if self.wait else job

        job = node.run(work)
        if as_json:
            print_json(job)
        say(summary(job))
        if self.wait and (job["failed"] or job["state"] != "done"):
            raise typer.Exit(1)


NO_CHOICE: Final = Choice()


@app.command(epilog="Example: qmnode message move orders --to orders-later --where older=1d")
def move(
    name: Name,
    target: TargetOption,
    choice: Choice = NO_CHOICE,
    transactional: TransactionalOption = None,
    node: Node = NODE,
    as_json: JsonOption = False,
) -> None:
    """Move messages into another queue, here or on another machine. docs/reference/promises.md has the promises."""
    choice.run("move", name, node, as_json, target, transactional)


@app.command(epilog="Example: qmnode message copy orders --to orders-test --all")
def copy(
    name: Name,
    target: TargetOption,
    choice: Choice = NO_CHOICE,
    transactional: TransactionalOption = None,
    node: Node = NODE,
    as_json: JsonOption = False,
) -> None:
    """Send copies of messages to another queue; the messages stay."""
    choice.run("copy", name, node, as_json, target, transactional)


@app.command(epilog="Example: qmnode message delete orders --where 'label=test*'")
def delete(
    name: Name, choice: Choice = NO_CHOICE, yes: YesOption = False, node: Node = NODE, as_json: JsonOption = False
) -> None:
    """Delete messages, as a purge does: their senders learn of it if they asked for that. This cannot be undone."""
    if not choice.dry_run:
        confirm(f"Delete the chosen messages of {name}?", yes)
    choice.run("delete", name, node, as_json)


@app.command("return", epilog="Example: qmnode message return error --where 'header.NServiceBus.FailedQ=sales*'")
def return_to_source(
    name: Name,
    choice: Choice = NO_CHOICE,
    target: TargetOption = "",
    transactional: TransactionalOption = None,
    node: Node = NODE,
    as_json: JsonOption = False,
) -> None:
    """Return failed messages to where they failed: by the headers of NServiceBus and Rebus, dead letters to where they
    were sent, messages of a subqueue to its queue; or all to the queue of --to."""
    choice.run("return", name, node, as_json, target, transactional)


@app.command(epilog="Example: qmnode message replay 'orders;journal' --where after=2026-11-22T14:00")
def replay(
    name: Name,
    choice: Choice = NO_CHOICE,
    target: TargetOption = "",
    transactional: TransactionalOption = None,
    node: Node = NODE,
    as_json: JsonOption = False,
) -> None:
    """Send the messages of a journal once more, to where they were or to the queue of --to; the journal stays."""
    choice.run("replay", name, node, as_json, target, transactional)


async def _watch(manager: RemoteQueueManager, job: dict[str, Any]) -> dict[str, Any]:
    """Show how far a job is, until it ends or pauses; Ctrl-C stops only the watching."""
    number = job["job"]
    try:
        with progress(job["kind"]) as bar:
            while job["state"] == "running":
                bar(job["scanned"], max(job["total"], job["scanned"]))
                await asyncio.sleep(_POLL)
                job = await manager.operations.job(number)
    except asyncio.CancelledError:
        say(f"job {number} goes on: qmnode job show {number}, qmnode job cancel {number}")
        raise
    if job["failed"] or job["dry_run"]:
        async for entry in manager.operations.job_log(number):
            if job["dry_run"] or entry["result"] in ("failed", "gone"):
                print_entry(entry, error=True)
    return job
