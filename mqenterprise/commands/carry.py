"""``mqenterprise carry``: the messages of a queue of Windows go to a node."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from mqenterprise.commands.chosen_nodes import DEFAULT_ACCESS, Access, failing_with_sentence
from mqenterprise.commands.directory_option import FAILED, AsJson
from mqenterprise.operations.carrying import Carrier, CarryOptions, Summary
from mqenterprise.operations.errors import OperationsError
from mqenterprise.operations.node_client import NodeClient
from qmnode.commands.error_line import complain
from qmnode.commands.option_groups import Commands
from qmnode.commands.output import counted, print_json, progress, say, size_text, write_json
from qmnode.commands.remote import PasswordFileOption, RemoteTarget, UserOption

app = Commands(help="Carry the messages of a queue to a node.")

Queue = Annotated[
    str,
    typer.Argument(
        metavar="QUEUE",
        help="Queue at the source: 'orders' is private, '.\\orders' public; 'orders;journal' and "
        "'system$;deadletter' too.",
    ),
]
From = Annotated[
    str, typer.Option("--from", metavar="HOST[:PORT]", help="Computer to carry from; PORT is its endpoint mapper's.")
]
To = Annotated[str, typer.Option("--to", "-m", metavar="COMPUTER", help="Machine of the node to carry to.")]
Into = Annotated[str, typer.Option("--into", metavar="QUEUE", help="Queue of the node. Default: the same name.")]


@dataclass(frozen=True, slots=True)
class How:
    """The options that say how to carry."""

    rate: Annotated[float, typer.Option(min=0, help="Messages a second at most. Default: no limit.")] = 0.0
    follow: Annotated[
        float,
        typer.Option(
            min=0, metavar="SECONDS", show_default="0; of a switch 5", help="End when no message has come for so long."
        ),
    ] = 0.0
    patience: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Wait so long for a side that does not answer.")
    ] = 60.0
    sole_reader: Annotated[
        bool,
        typer.Option(
            "--sole-reader",
            help="Nobody else receives from the queue: a message that an interrupted carry left, and that is gone "
            "there, was carried.",
        ),
    ] = False
    drop: Annotated[
        list[str] | None,
        typer.Option(
            "--drop", metavar="KEY", help="Undecided message that somebody else received; may be given again."
        ),
    ] = None


AS_USUAL: Final = How()


@app.command(epilog="Example: mqenterprise carry orders --from winshop --to ams-shop --user 'SHOP\\carrier'")
def carry(
    queue: Queue,
    source: From,
    target: To,
    into: Into = "",
    rehearse: Annotated[bool, typer.Option("--rehearse", help="Only read and count; nothing changes.")] = False,
    how: How = AS_USUAL,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", help="Write the ledger of the carry to this file, as JSON lines.")
    ] = None,
    forget: Annotated[
        bool, typer.Option("--forget", help="Delete the carry and its ledger at the node, when the move is finished.")
    ] = False,
    user: UserOption = "",
    password_file: PasswordFileOption = None,
    access: Access = DEFAULT_ACCESS,
    as_json: AsJson = False,
) -> None:
    """Carry messages from Windows to a node with all their properties, in order and each once, as long as nobody else
    receives from the source. Run it again after any interruption: it goes on where it was.

    Exit code 1: it could not go on, or there are messages that only you can decide about.
    """
    at = RemoteTarget.parse(source, user, password_file)
    options = CarryOptions(how.rate, how.follow, how.patience, how.sole_reader, frozenset(how.drop or ()))

    async def work(client: NodeClient) -> Summary:
        carrier = Carrier(client, at, queue, into or queue, options)
        with progress("reading" if rehearse else "carrying") as bar:
            carrier.report = lambda count: bar(count, None)
            summary = await (carrier.rehearse() if rehearse else carrier.carry())
        if ledger is not None:
            await _write_ledger(client, summary.carry, ledger)
        return summary

    async def forgotten(client: NodeClient) -> int:
        name = at.format_name(queue)
        found = [one for one in await client.carries() if one.source == name]
        if not found:
            raise OperationsError(f"{client.machine} has no carry from {name}: name the source as it was carried from")
        for one in found:
            await client.delete_carry(one.carry)
        return len(found)

    with failing_with_sentence():
        if ledger is not None:
            _check_writable(ledger)
        if forget:
            say(f"{counted(access.at_one(target, forgotten), 'carry', 'carries')} deleted at {target}, with the ledger")
            return
        summary = access.at_one(target, work)
    if as_json:
        print_json(asdict(summary))
    done = "read; nothing is changed" if rehearse else f"carried to {summary.target}"
    say(f"{counted(summary.messages, 'message')}, {size_text(summary.bytes)}, {done}")
    if summary.undecided and not rehearse:
        for key in summary.undecided if not as_json else ():
            typer.echo(key)
        complain(
            f"{counted(len(summary.undecided), 'message')} held at {target} and gone from {summary.source}: say "
            "--sole-reader if nobody else has received there, and --drop KEY for each that somebody has"
        )
        raise typer.Exit(FAILED)


def _check_writable(path: Path) -> None:
    """Find out before the carry whether its ledger can be written."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise OperationsError(f"{folder} does not exist: make that folder for the ledger, and carry then")
    if path.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise OperationsError(f"{path} cannot be written: name another file for the ledger")


async def _write_ledger(client: NodeClient, number: int, path: Path) -> None:
    try:
        with path.open("w", encoding="utf-8") as file:
            after = ""
            while True:
                page = await client.carry_ledger(number, after)
                for entry in page.entries:
                    write_json(entry.model_dump(), file)
                if not (after := page.next):
                    return
    except OSError as error:
        raise OperationsError(f"{path} cannot be written: {error.strerror or error}") from None
