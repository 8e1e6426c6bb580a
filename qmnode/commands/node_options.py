"""The options that name the node of a command, or a store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from qmnode.commands.completion import complete_queue
from qmnode.commands.state import socket_path

if TYPE_CHECKING:
    from qmnode.bodies.limits import Limits
    from qmnode.local.remote import RemoteQueueManager
    from qmnode.model.api import DirectoryLogin

T = TypeVar("T")

_NODE_PANEL = "Which node"

SocketOption = Annotated[
    Path | None,
    typer.Option(
        "--socket",
        help="Socket on which the node takes applications; wins over --config. "
        "Without both, the environment variable QMNODE_SOCKET counts, then /run/qmnode/qmnode.sock.",
        rich_help_panel=_NODE_PANEL,
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="The node's configuration: its socket, and where its store is.",
        rich_help_panel=_NODE_PANEL,
    ),
]
DataOption = Annotated[
    Path | None, typer.Option("--data", help="Directory of the message store. Default: that of the configuration.")
]
QueueName = Annotated[
    str,
    typer.Argument(
        metavar="QUEUE",
        help=r"Path name or format name; 'orders' is .\private$\orders.",
        autocompletion=complete_queue,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON for programs; keys are added, never changed.")]
WideOption = Annotated[
    bool, typer.Option("--wide", help="All columns of the table, whatever the width of the terminal.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def data_directory(data: Path | None, config: Path | None) -> Path:
    """Where the store is: as it was said, or as the configuration says."""
    from qmnode.settings.node import read_settings

    return data if data is not None else read_settings(config).data


@dataclass(frozen=True, slots=True)
class Login:
    """The options that name a user of the directory."""

    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            metavar="ACCOUNT",
            help="User of the directory who changes a public queue there; the password is asked for. "
            "Default, and always with weakened security: the node.",
        ),
    ] = None
    password_file: Annotated[
        Path | None, typer.Option("--password-file", help="File with the password, mode 0600.")
    ] = None

    def given(self) -> DirectoryLogin | None:
        """The account with its password, if one is named."""
        from qmnode.model.api import DirectoryLogin
        from qmnode.security.errors import KeyStoreError
        from qmnode.security.private_files import read_private

        if self.user is None:
            if self.password_file is not None:
                raise typer.BadParameter("give --user as well", param_hint="--password-file")
            return None
        if self.password_file is None:
            if not at_a_terminal():
                raise typer.BadParameter("there is nobody to ask: give --password-file", param_hint="--user")
            return DirectoryLogin(self.user, typer.prompt(f"Password of {self.user}", hide_input=True, err=True))
        try:
            content = read_private(self.password_file)
            password = (content or b"").decode("utf-8-sig").rstrip("\r\n")
        except (KeyStoreError, UnicodeDecodeError) as error:
            raise typer.BadParameter(str(error), param_hint="--password-file") from None
        if not password:
            raise typer.BadParameter(f"there is no password in {self.password_file}", param_hint="--password-file")
        return DirectoryLogin(self.user, password)


NOBODY: Final = Login()


@dataclass(frozen=True, slots=True)
class Node:
    """The options that name the running node."""

    socket: SocketOption = None
    config: ConfigOption = None

    def run(self, work: Callable[[RemoteQueueManager], Awaitable[T]], login: DirectoryLogin | None = None) -> T:
        """Do something with the node. MQ_ERROR_SERVICE_NOT_AVAILABLE, exit code 3, if it does not answer."""
        import qmnode

        address = socket_path(self.socket, self.config)

        async def connected() -> T:
            async with qmnode.connect(address, login, reconnect=0) as manager:
                return await work(manager)

        return run_async(connected())

    def body_limits(self) -> Limits:
        """The limits for decoding a body, from the node's configuration."""
        from qmnode.bodies.limits import DEFAULT_LIMITS

        if self.socket is not None and self.config is None:
            return DEFAULT_LIMITS
        from qmnode.settings.node import read_settings

        return read_settings(self.config).bodies.limits()


NODE: Final = Node()
"""The node of this machine, as the environment names it."""


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; Ctrl-C cancels, so that what was begun is undone."""
    import asyncio

    return asyncio.run(work)


def at_a_terminal() -> bool:
    """Whether a person can be asked."""
    import sys

    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, yes: bool) -> None:
    """Ask on a terminal; without one ``--yes`` has to be said."""
    if yes:
        return
    if not at_a_terminal():
        raise typer.BadParameter("there is nobody to ask: give --yes to do it without a question")
    typer.confirm(question, abort=True, err=True)
