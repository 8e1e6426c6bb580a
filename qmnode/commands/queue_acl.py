"""``qmnode queue acl``: who may do what with a queue."""

from __future__ import annotations

from typing import Annotated

import typer

from qmnode.administration.access_control import RIGHTS, TRUSTEES, Change, QueueAccessList, change_access, show_access
from qmnode.administration.names import queue_name
from qmnode.commands.output import counted, print_json, print_table, say
from qmnode.commands.target import ConfigOption, JsonOption, QueueName, SocketOption, with_node
from qmnode.management.access_documents import AccessDocument

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Show and change who may use a queue.",
)

User = Annotated[str, typer.Argument(metavar="USER", help=f"SID (S-1-5-21-...), or: {', '.join(TRUSTEES)}.")]
Rights = Annotated[list[str], typer.Argument(metavar="RIGHT", help=f"Of: {', '.join(RIGHTS)}.")]


@app.command(epilog="Example: qmnode queue acl show orders")
def show(
    name: QueueName, socket: SocketOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Show who may do what with a queue, in the order in which entries count."""
    _print(with_node(socket, config, lambda qm: show_access(qm, queue_name(name))), as_json)


@app.command(epilog="Example: qmnode queue acl allow orders S-1-5-21-1-2-3-1104 send-message peek-message")
def allow(
    name: QueueName,
    user: User,
    rights: Rights,
    socket: SocketOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Allow rights to somebody; what was denied to him of them no longer is."""
    _change(Change.ALLOW, name, user, rights, socket, config, as_json)


@app.command(epilog="Example: qmnode queue acl deny orders anonymous full-control")
def deny(
    name: QueueName,
    user: User,
    rights: Rights,
    socket: SocketOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Deny rights to somebody, whatever other entries allow."""
    _change(Change.DENY, name, user, rights, socket, config, as_json)


@app.command(epilog="Example: qmnode queue acl remove orders everyone full-control")
def remove(
    name: QueueName,
    user: User,
    rights: Rights,
    socket: SocketOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Neither allow nor deny rights to somebody any more: what other entries say counts."""
    _change(Change.REMOVE, name, user, rights, socket, config, as_json)


def _change(
    change: Change,
    name: str,
    user: str,
    rights: list[str],
    socket: SocketOption,
    config: ConfigOption,
    as_json: bool,
) -> None:
    unknown = [right for right in rights if right not in RIGHTS]
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)}: use {', '.join(RIGHTS)}")
    _print(with_node(socket, config, lambda qm: change_access(qm, queue_name(name), change, user, rights)), as_json)


def _print(access: QueueAccessList, as_json: bool) -> None:
    document = AccessDocument.of(access)
    if as_json:
        print_json(document)
        return
    print_table(
        ("kind", "user", "rights"),
        [(rule.kind, rule.name or rule.trustee, rule.rights) for rule in document.rules],
    )
    if document.unrestricted:
        say("there is no list: everybody may do everything")
    if document.other_entries:
        say(f"and {counted(document.other_entries, 'entry', 'entries')} of other kinds")
