"""``mqenterprise machine acl show|allow|deny|remove``: the access list of a queue manager, in the directory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from mqenterprise.commands.directory_option import AsJson, DirectoryFile, complete_computer, opened, show
from mqenterprise.directory.machine_access import RIGHTS, MachineAccess
from mqenterprise.topology.trustees import Trustees
from qmnode.administration.access_control import Change

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Queue managers in the directory.")
acl = typer.Typer(no_args_is_help=True, add_completion=False, help="Access lists of queue managers.")
app.add_typer(acl, name="acl")

COLUMNS = {"user": "user", "kind": "kind", "rights": "rights", "inherited": "inherited"}

Computer = Annotated[
    str, typer.Argument(metavar="COMPUTER", help="Computer of the queue manager.", autocompletion=complete_computer)
]
User = Annotated[str, typer.Argument(metavar="USER", help="An account or group, Everyone, Anonymous, or S-1-...")]
Rights = Annotated[list[str], typer.Argument(metavar="RIGHT", help=f"One or more of {', '.join(RIGHTS)}.")]


@acl.command("show")
def show_(computer: Computer, directory_file: DirectoryFile = None, as_json: AsJson = False) -> None:
    """Show the access list of a queue manager, in the order in which its entries count."""
    with _access(directory_file) as access:
        _print(access, computer, as_json=as_json)


@acl.command()
def allow(
    computer: Computer, user: User, rights: Rights, directory_file: DirectoryFile = None, as_json: AsJson = False
) -> None:
    """Grant rights to an account or group, and remove entries that deny it these rights."""
    _change(Change.ALLOW, computer, user, rights, directory_file, as_json=as_json)


@acl.command()
def deny(
    computer: Computer, user: User, rights: Rights, directory_file: DirectoryFile = None, as_json: AsJson = False
) -> None:
    """Deny rights to an account or group, even if other entries grant them."""
    _change(Change.DENY, computer, user, rights, directory_file, as_json=as_json)


@acl.command()
def remove(
    computer: Computer, user: User, rights: Rights, directory_file: DirectoryFile = None, as_json: AsJson = False
) -> None:
    """Remove rights from all entries of an account or group. The other entries still count."""
    _change(Change.REMOVE, computer, user, rights, directory_file, as_json=as_json)


@contextmanager
def _access(directory_file: Path | None) -> Iterator[MachineAccess]:
    with opened(directory_file) as directory:
        trustees = Trustees(directory.connection)
        yield MachineAccess(directory, trustees.name, trustees.identifier)


def _change(
    change: Change, computer: str, user: str, rights: list[str], directory_file: Path | None, *, as_json: bool
) -> None:
    with _access(directory_file) as access:
        access.change(computer, change, user, rights)
        _print(access, computer, as_json=as_json)


def _print(access: MachineAccess, computer: str, *, as_json: bool) -> None:
    rows = [
        {
            "user": rule.user,
            "kind": "allow" if rule.allows else "deny",
            "rights": list(rule.rights) if as_json else ", ".join(rule.rights),
            "inherited": rule.inherited,
        }
        for rule in access.rules(computer)
    ]
    show(rows, COLUMNS, as_json=as_json, empty="there is no list: the server's own rules count")
