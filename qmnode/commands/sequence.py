"""``qmnode sequence``: how far the transactional messages of other queue managers are, and who brings them."""

from typing import Annotated

import typer

from qmnode.administration.queue_names import queue_name
from qmnode.commands.completion import complete_queue
from qmnode.commands.node_options import NODE, JsonOption, Node, WideOption, YesOption, confirm
from qmnode.commands.option_groups import Commands
from qmnode.commands.output import print_json, say
from qmnode.commands.queue import waiting_text
from qmnode.commands.table_writer import print_table
from qmnode.management.queue_documents import IncomingSequenceDocument

app = Commands(no_args_is_help=True, help="List and reset sequences.")

QueueOption = Annotated[
    str,
    typer.Option("--queue", "-q", help="Only sequences to this queue.", autocompletion=complete_queue),
]


@app.callback()
def sequence() -> None:
    """List and reset sequences of transactional messages."""


@app.command("list", epilog="Example: qmnode sequence list --queue orders")
def list_sequences(
    queue: QueueOption = "", node: Node = NODE, as_json: JsonOption = False, wide: WideOption = False
) -> None:
    """List the sequences that come in, used last first: from whom, who brought them, what was not taken, and why.

    A source may have several. One is of neighbours that are known to speak for it: itself, at an address that the
    directory gives it, and routing servers. Each other address has one of its own.
    """
    name = queue_name(queue) if queue else ""
    found = node.run(lambda qm: qm.incoming_sequences(name))
    sequences = [IncomingSequenceDocument.of(one) for one in found]
    if as_json:
        print_json({"incoming_sequences": [one.model_dump(mode="json") for one in sequences]})
        return
    print_table(
        ("source", "brought by", "known", "to", "sequence", "number", "not taken", "why", "last access"),
        [
            (
                one.source, one.address, one.is_known, one.destination, one.sequence, one.number, one.refused_count,
                waiting_text(one.waiting), one.last_access_time,
            )
            for one in sequences
        ],
        right=("number", "not taken"),
        whole=("source", "brought by", "to"),
        drop=("sequence", "last access", "known", "number", "to"),
        wide=wide,
    )  # fmt: skip


@app.command(epilog="Example: qmnode sequence reset 4d36e96e-e325-11ce-bfc1-08002be10318 --queue orders")
def reset(
    source: Annotated[str, typer.Argument(help="Identifier of the queue manager that sends them.")],
    queue: QueueOption = "",
    address: Annotated[
        str,
        typer.Option(
            "--address",
            help="Only the sequence that this address brought: one that `sequence list` shows as not known.",
        ),
    ] = "",
    yes: YesOption = False,
    node: Node = NODE,
) -> None:
    """Forget how far the sequences of a source are, so that its next sequence is taken whatever came before.

    After an older backup was restored, a sequence that waits for messages which its source does not send again goes on
    behind them: they are lost here. The source sends the others when it tries again.

    For a source whose messages are refused as old or too early: its store was lost, or another spoke in its name.
    Messages that it sends again because their acknowledgment was lost will be delivered twice.
    """
    from ipaddress import ip_address

    from qmnode.structures.guid import guid_from_text

    try:
        identifier = guid_from_text(source)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="SOURCE") from None
    try:
        address = str(ip_address(address)) if address else ""
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--address") from None
    name = queue_name(queue) if queue else ""
    confirm(f"Forget how far the sequences of {source} are? Messages under way may be delivered twice.", yes)
    count = node.run(lambda qm: qm.reset_incoming_sequences(identifier, name, address))
    if not count:
        say("there is no such sequence: see `qmnode sequence list`")
        raise typer.Exit(1)
    print(f"{count} sequences forgotten" if count != 1 else "1 sequence forgotten")
