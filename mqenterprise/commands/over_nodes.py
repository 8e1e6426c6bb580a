"""Shared by the commands over nodes: which nodes are meant, and the report of those that do not answer."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from mqenterprise.commands.completion import complete_computer
from mqenterprise.commands.opening import FAILED, opened
from mqenterprise.operations.errors import OperationsError
from mqenterprise.operations.nodes import chosen_nodes, connected
from mqenterprise.operations.settings import ENVIRONMENT, OperationsSettings, load_settings
from qmnode.administration.where import parse_where
from qmnode.commands.complaint import complain
from qmnode.errors import MessageQueuingError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from mqenterprise.operations.errors import NodeError
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


def check_choice(machines: Sequence[str] | None, site: str | None, take_all: bool) -> None:
    """Exit with usage unless machines are meant in one way; a machine within a site is one."""
    if not (machines or site or take_all):
        raise typer.BadParameter("say which nodes are meant: --machine COMPUTER, --site SITE or --all")
    if take_all and (machines or site):
        raise typer.BadParameter("--all are all machines of the directory: leave out --machine and --site")


def with_nodes(
    machines: Sequence[str] | None,
    site: str | None,
    nodes_file: Path | None,
    directory_file: Path | None,
    work: Callable[[OperationsSettings, list[NodeClient]], Awaitable[T]],
) -> T:
    """Do something with the chosen nodes; with neither machines nor site with all of the directory."""
    with failing_with_sentence():
        settings = load_settings(nodes_file)
        nodes = chosen_nodes(settings, lambda: opened(directory_file), machines=machines or (), site=site)

        async def run() -> T:
            async with connected(settings, nodes) as clients:
                return await work(settings, clients)

        return asyncio.run(run())


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
