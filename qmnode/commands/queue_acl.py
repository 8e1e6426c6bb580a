"""``qmnode queue acl``: the access list of a queue."""

from typing import Annotated

import typer

from qmnode.administration.access_control import (
    RIGHTS,
    TRUSTEES,
    Change,
    QueueAccessList,
    change_access,
    close_access,
    show_access,
)
from qmnode.administration.queue_names import queue_name
from qmnode.commands.node_options import NODE, JsonOption, Node, QueueName
from qmnode.commands.option_groups import Commands
from qmnode.commands.output import counted, print_json, say
from qmnode.commands.table_writer import print_table
from qmnode.management.queue_documents import AccessDocument, AccessRuleDocument
from qmnode.model.api import QueueManagerApi
from qmnode.structures.text import nearest

app = Commands(
    no_args_is_help=True,
    help="Show and change who may use a queue.",
)

User = Annotated[
    str,
    typer.Argument(
        metavar="USER",
        help=f"SID (S-1-5-21-...), user:alice, group:ops, uid:1000, gid:50, or: {', '.join(TRUSTEES)}.",
    ),
]
Rights = Annotated[list[str], typer.Argument(metavar="RIGHT", help=f"One or more of {', '.join(RIGHTS)}.")]


@app.command(epilog="Example: qmnode queue acl show orders")
def show(name: QueueName, node: Node = NODE, as_json: JsonOption = False) -> None:
    """Show the access list of a queue, in the order in which its entries count."""
    _print(node.run(lambda qm: show_access(qm, queue_name(name))), as_json)


@app.command(epilog="Example: qmnode queue acl allow orders S-1-5-21-1-2-3-1104 send-message peek-message")
def allow(name: QueueName, user: User, rights: Rights, node: Node = NODE, as_json: JsonOption = False) -> None:
    """Grant rights to an account or group, and remove entries that deny it these rights."""
    _change(Change.ALLOW, name, user, rights, node, as_json)


@app.command(epilog="Example: qmnode queue acl deny orders anonymous full-control")
def deny(name: QueueName, user: User, rights: Rights, node: Node = NODE, as_json: JsonOption = False) -> None:
    """Deny rights to an account or group, even if other entries grant them."""
    _change(Change.DENY, name, user, rights, node, as_json)
    if user.lower() == "authenticated-users":
        say("unsigned messages from other machines still come in: their senders are anonymous, not authenticated users")


@app.command(epilog="Example: qmnode queue acl remove orders everyone full-control")
def remove(name: QueueName, user: User, rights: Rights, node: Node = NODE, as_json: JsonOption = False) -> None:
    """Remove rights from all entries of an account or group. The other entries still count."""
    _change(Change.REMOVE, name, user, rights, node, as_json)


@app.command(epilog="Example: qmnode queue acl close --all")
def close(
    names: Annotated[list[str] | None, typer.Argument(metavar="[QUEUE]...", help="Queues to close.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All queues, and the queue manager itself.")] = False,
    node: Node = NODE,
    as_json: JsonOption = False,
) -> None:
    """Close queues that are open to everyone: afterwards everyone can send and look, and owners have all rights.

    A store of an earlier version lets in every application that got in before: allow those that need more, then close.
    """
    if bool(names) == everything:
        raise typer.BadParameter("name queues, or say --all")
    chosen = None if everything else [queue_name(name) for name in names or ()]
    closed = node.run(lambda qm: close_access(qm, chosen))
    rows = [(one.pathname or "(queue manager)", one.trustee, list(one.rights)) for one in closed]
    if as_json:
        print_json({"closed": [{"queue": queue, "trustee": who, "rights": rights} for queue, who, rights in rows]})
        return
    print_table(("queue", "was open to", "rights"), rows, whole=("queue", "was open to"))
    say(f"{counted(len({row[0] for row in rows}), 'queue')} closed" if rows else "none was open")


def _user(rule: AccessRuleDocument) -> str:
    if rule.known is False:
        return f"{rule.trustee} (unknown)"
    return rule.name or rule.trustee


def _change(change: Change, name: str, user: str, rights: list[str], node: Node, as_json: bool) -> None:
    unknown = [right for right in rights if right not in RIGHTS]
    if unknown:
        near = nearest(unknown[0], RIGHTS)
        hint = f"did you mean {near}?" if near else f"use {', '.join(RIGHTS)}"
        raise typer.BadParameter(f"{unknown[0]} is no right: {hint}")

    async def work(qm: QueueManagerApi) -> tuple[QueueAccessList, QueueAccessList]:
        before = await show_access(qm, queue_name(name))
        return before, await change_access(qm, queue_name(name), change, user, rights)

    before, after = node.run(work)
    _print(after, as_json)
    if change is Change.REMOVE and set(before.rules) == set(after.rules):
        say(f"nothing was removed: no entry of the list has such a right of {user}")


def _print(access: QueueAccessList, as_json: bool) -> None:
    document = AccessDocument.of(access)
    if as_json:
        print_json(document)
        return
    print_table(
        ("kind", "user", "rights"),
        [(rule.kind, _user(rule), rule.rights) for rule in document.rules],
        whole=("user",),
    )
    unknown = [rule.trustee for rule in document.rules if rule.known is False]
    if unknown:
        say(f"nobody is known as {', '.join(dict.fromkeys(unknown))}: entries for it let nobody in")
    numbers = [rule.name for rule in document.rules if rule.name and rule.name.startswith(("uid:", "gid:"))]
    if numbers:
        say(f"this machine has no account {', '.join(dict.fromkeys(numbers))}: only programs with the number match it")
    if document.unrestricted:
        say("there is no list: everybody may do everything")
    if document.other_entries:
        say(f"and {counted(document.other_entries, 'entry', 'entries')} of other kinds")
