"""``qmnode dead-letter``: what could not be delivered or was not received."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from qmnode.administration.dead_letters import chosen, dead_letters, retry
from qmnode.commands.node_options import NODE, JsonOption, Node, WideOption
from qmnode.commands.option_groups import Commands
from qmnode.commands.output import print_json, progress, say, write_json
from qmnode.commands.receive import (
    CountOption,
    Show,
    ShowOption,
    at_output,
    first,
    lookup,
    print_messages,
    say_part,
)
from qmnode.errors import MessageQueuingError
from qmnode.management.documents import identifier_text, lookup_text
from qmnode.management.message_documents import BodyForm, MessageDocument

if TYPE_CHECKING:
    from qmnode.local.remote import RemoteQueueManager
    from qmnode.model.message import Message

app = Commands(
    no_args_is_help=True,
    help="List, retry and export dead letters.",
)


@app.command("list", epilog="Example: qmnode dead-letter list --count 100")
def list_dead_letters(
    count: CountOption = 20,
    show: ShowOption = None,
    node: Node = NODE,
    as_json: JsonOption = False,
    wide: WideOption = False,
) -> None:
    """List dead letters of both queues; the class says why each is one."""

    async def work(manager: RemoteQueueManager) -> tuple[list[Message], int]:
        found = await first(dead_letters(manager), count)
        return found, (await manager.status()).dead_letter_count

    found_letters, total = node.run(work)
    print_messages(found_letters, show or at_output(Show.TABLE), as_json, node.body_limits(), wide=wide)
    say_part(len(found_letters), total)


@app.command("retry", epilog="Example: qmnode dead-letter retry 0x400000000000012   or: qmnode dead-letter retry --all")
def retry_dead_letters(
    lookups: Annotated[list[str] | None, typer.Argument(metavar="LOOKUP", help="Lookup identifiers.")] = None,
    retry_all: Annotated[bool, typer.Option("--all", help="All messages that are there.")] = False,
    destination: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="QUEUE", help="Queue to send to. Default: for each message the queue that it was sent to."
        ),
    ] = None,
    node: Node = NODE,
    as_json: JsonOption = False,
) -> None:
    """Send dead letters again. Messages that cannot be sent stay, and the exit code is 1."""
    if bool(lookups) == retry_all:
        raise typer.BadParameter("name dead letters, or say --all")
    wanted = None if retry_all else [lookup(text) for text in lookups or []]

    async def work(manager: RemoteQueueManager) -> int:
        letters = await chosen(manager, wanted)
        failed = 0
        with progress("sending again") as bar:
            for done, letter in enumerate(letters, 1):
                failed += not await _retry(manager, letter, destination, as_json)
                bar(done, len(letters))
        say(f"{len(letters) - failed} sent again, {failed} not")
        return failed

    if node.run(work):
        raise typer.Exit(1)


async def _retry(manager: RemoteQueueManager, letter: int, destination: str | None, as_json: bool) -> bool:
    result: dict[str, str | None] = {"lookup_identifier": lookup_text(letter), "identifier": None}
    try:
        result["identifier"] = identifier_text(await retry(manager, letter, destination))
    except MessageQueuingError as error:
        result |= {"name": error.name, "detail": error.sentence}
        say(f"{lookup_text(letter)}: {error}")
    if as_json:
        print_json(result)
    return result["identifier"] is not None


@app.command("export", epilog="Example: qmnode dead-letter export --output dead-letters.ndjson")
def export(
    output: Annotated[Path, typer.Option("--output", "-o", help="File; - is standard output.")] = Path("-"),
    node: Node = NODE,
) -> None:
    """Write all dead letters with their bodies, one JSON document a line. They stay where they are."""

    async def work(manager: RemoteQueueManager, target: TextIO) -> int:
        count = 0
        total = (await manager.status()).dead_letter_count
        with progress("writing") as bar:
            async for message in dead_letters(manager):
                write_json(MessageDocument.of(message, BodyForm.BASE64), target)
                count += 1
                bar(count, max(total, count))
        return count

    if str(output) == "-":
        count = node.run(lambda manager: work(manager, sys.stdout))
    else:
        try:
            with output.open("w", encoding="utf-8") as target:
                count = node.run(lambda manager: work(manager, target))
        except OSError as error:
            say(f"{output} cannot be written: {error.strerror or error}")
            raise typer.Exit(1) from error
    say(f"{count} written")
