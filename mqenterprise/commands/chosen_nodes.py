"""Shared by the commands over nodes: which nodes are meant, and the report of those that do not answer."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from mqenterprise.commands.directory_option import FAILED, DirectoryFile, complete_computer, opened
from mqenterprise.operations.errors import NodeError, OperationsError
from mqenterprise.operations.nodes import chosen_nodes, connected
from mqenterprise.operations.settings import ENVIRONMENT, OperationsSettings, load_settings
from qmnode.administration.where import parse_where
from qmnode.commands.error_line import complain
from qmnode.errors import MessageQueuingError

if TYPE_CHECKING:
    from mqenterprise.operations.node_client import NodeClient

T = TypeVar("T")

_PANEL = "Which nodes"
MachineOption = Annotated[
    list[str] | None,
    typer.Option(
        "--machine",
        "-m",
        metavar="COMPUTER",
        help="Machine to ask; may be given again.",
        autocompletion=complete_computer,
        rich_help_panel=_PANEL,
    ),
]
SiteOption = Annotated[str | None, typer.Option("--site", help="All machines of this site.", rich_help_panel=_PANEL)]
AllOption = Annotated[bool, typer.Option("--all", help="All machines of the directory.", rich_help_panel=_PANEL)]
NodesFile = Annotated[
    Path | None,
    typer.Option(
        "--nodes",
        help=f"YAML file: ports, authority and token of the nodes' management APIs. Default: {ENVIRONMENT}.",
        rich_help_panel=_PANEL,
    ),
]


@contextmanager
def failing_with_sentence() -> Iterator[None]:
    """Turn a command that cannot begin into its sentence and exit code 1."""
    try:
        yield
    except OperationsError as error:
        complain(error.sentence)
        raise typer.Exit(FAILED) from None


@dataclass(frozen=True, slots=True)
class Access:
    """The options that say how nodes are reached."""

    nodes_file: NodesFile = None
    directory_file: DirectoryFile = None

    def run(
        self,
        work: "Callable[[OperationsSettings, list[NodeClient]], Awaitable[T]]",
        machines: Sequence[str] = (),
        site: str | None = None,
    ) -> T:
        """Do something with these nodes; with neither machines nor site with all of the directory."""
        with failing_with_sentence():
            settings = load_settings(self.nodes_file)
            nodes = chosen_nodes(settings, lambda: opened(self.directory_file), machines=machines, site=site)

            async def run() -> T:
                async with connected(settings, nodes) as clients:
                    return await work(settings, clients)

            return asyncio.run(run())

    def at_one(self, machine: str, work: "Callable[[NodeClient], Awaitable[T]]") -> T:
        """Do something at one node; why it fails, with exit code 1."""

        async def at_it(settings: OperationsSettings, clients: "list[NodeClient]") -> T | NodeError:
            try:
                return await work(clients[0])
            except NodeError as error:
                return error

        answer = self.run(at_it, [machine])
        if isinstance(answer, NodeError):
            report_errors({machine: answer}, 1)
            raise typer.Exit(FAILED)
        return answer


@dataclass(frozen=True, slots=True)
class Nodes:
    """The options that say which nodes are meant."""

    machine: MachineOption = None
    site: SiteOption = None
    take_all: AllOption = False

    def check(self) -> None:
        """Exit with usage unless machines are meant in one way; a machine within a site is one."""
        if not (self.machine or self.site or self.take_all):
            raise typer.BadParameter("say which nodes are meant: --machine COMPUTER, --site SITE or --all")
        if self.take_all and (self.machine or self.site):
            raise typer.BadParameter("--all are all machines of the directory: leave out --machine and --site")

    def run(self, access: Access, work: "Callable[[OperationsSettings, list[NodeClient]], Awaitable[T]]") -> T:
        """Do something with them."""
        return access.run(work, self.machine or (), self.site)


NO_NODES: Final = Nodes()
DEFAULT_ACCESS: Final = Access()


def checked_where(where: Sequence[str] | None) -> list[str]:
    """The criteria, checked before any node is asked; each node reads ages from its own clock."""
    try:
        parse_where(where or (), 0.0)
    except MessageQueuingError as error:
        raise typer.BadParameter(error.sentence, param_hint="--where") from None
    return list(where or ())


def report_errors(errors: Mapping[str, NodeError], asked: int) -> bool:
    """Say which nodes failed. A node without the queue counts only if no other has it. Whether anything failed."""
    for machine in sorted(errors, key=str.casefold):
        complain(f"{machine}: {errors[machine].sentence}")
    lacking = sum(error.lacks_queue for error in errors.values())
    return len(errors) > lacking or (bool(errors) and lacking == asked)


def with_machine(machine: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON document with the machine that it comes from before all else."""
    return {"machine": machine} | dict(row)
