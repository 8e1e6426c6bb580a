"""Queues of another node, read over the network: ``--node``."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from qmnode.administration.queue_names import is_format_name, queue_name

if TYPE_CHECKING:
    from qmnode.model.api import QueueApi
    from qmnode.remote_read.client_interfaces import RemoteNode

_PANEL = "A node elsewhere"
_LARGEST_PORT = 0xFFFF

NodeOption = Annotated[
    str | None,
    typer.Option(
        "--node",
        metavar="HOST[:PORT]",
        help="Read from this computer, with remote read; PORT is its endpoint mapper's. Default port: 135.",
        rich_help_panel=_PANEL,
    ),
]
UserOption = Annotated[
    str,
    typer.Option(
        "--user",
        metavar="DOMAIN\\USER",
        help="Account that reads: DOMAIN\\USER with a password (NTLM), or USER@REALM with the tickets of kinit.",
        rich_help_panel=_PANEL,
    ),
]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option("--password-file", help="File with the password, mode 0600.", rich_help_panel=_PANEL),
]


@dataclass(frozen=True, slots=True)
class RemoteTarget:
    """The computer to read from, and the account."""

    host: str
    port: int
    user: str
    password_file: Path | None

    @classmethod
    def parse(cls, node: str, user: str, password_file: Path | None) -> RemoteTarget:
        """From the command line: ``host``, ``host:port``, ``[v6 address]:port``."""
        host, port = node, ""
        if node.startswith("["):
            host, _, port = node[1:].partition("]")
            port = port.removeprefix(":")
        elif node.count(":") == 1:
            host, _, port = node.partition(":")
        if not host or (port and not (port.isdecimal() and 0 < int(port) <= _LARGEST_PORT)):
            raise typer.BadParameter(f"{node!r} is no computer: HOST or HOST:PORT", param_hint="--node")
        if (password_file is not None and not user) or (password_file is None and user and "@" not in user):
            raise typer.BadParameter(
                "--user and --password-file go together; only USER@REALM has tickets instead", param_hint="--user"
            )
        return cls(host, int(port or 135), user, password_file)

    def format_name(self, name: str) -> str:
        """The format name of a queue of that computer; ``orders`` is its private queue."""
        full = queue_name(name)
        if is_format_name(full):
            return full
        try:
            protocol = "TCP" if ipaddress.ip_address(self.host) else ""
        except ValueError:
            protocol = "OS"
        return f"DIRECT={protocol}:{self.host}\\{full.removeprefix('.' + chr(92))}"

    async def connect(self) -> RemoteNode:
        """Connect to the computer, as the account."""
        from qmnode.dcerpc.authentication import initiator_authentication
        from qmnode.remote_read.client_interfaces import RemoteNode, RemoteReadOptions
        from qmnode.settings.remote_read import RemoteReadSettings

        mechanism: Literal["ntlm", "negotiate"] = "negotiate" if self.password_file is None else "ntlm"
        settings = RemoteReadSettings(account=self.user, password_file=self.password_file, mechanism=mechanism)
        options = RemoteReadOptions(endpoint_mapper_port=self.port, security=initiator_authentication(settings))
        return await RemoteNode.connect(self.host, options)

    @asynccontextmanager
    async def open(self, name: str) -> AsyncIterator[QueueApi]:
        """The queue, opened to be received from."""
        from qmnode.structures.names import parse_single_format_name

        async with await self.connect() as node:
            yield await node.open_queue(parse_single_format_name(self.format_name(name)))
