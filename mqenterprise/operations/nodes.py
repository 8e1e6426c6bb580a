"""The nodes that a command means (machines by name, of a site, or all), and one question to many of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from mqenterprise.operations.errors import NodeError, OperationsError
from mqenterprise.operations.settings import OperationsSettings, split_address
from mqenterprise.topology.problems import did_you_mean

if TYPE_CHECKING:
    from mqenterprise.directory.open_directory import EnterpriseDirectory
    from mqenterprise.operations.node_client import NodeClient
    from mqenterprise.topology.declaration import Declaration

_FIELDS: Final = ("computer_name", "qualified_computer_name", "site_identifier_list", "foreign_system")


@dataclass(frozen=True, slots=True)
class Node:
    """A machine, and where its management API listens."""

    machine: str
    host: str
    port: int


def chosen_nodes(
    settings: OperationsSettings,
    directory: Callable[[], AbstractContextManager[EnterpriseDirectory]],
    *,
    machines: Collection[str],
    site: str | None,
) -> list[Node]:
    """Return the named machines, those of a site, or with neither all of the directory, by name.

    The directory is opened only if the settings lack the address of a named machine. Foreign systems are left out.
    Raises :class:`OperationsError` for an unknown name.
    """
    if machines and site is None and all(settings.of(name).address for name in machines):
        names = {name.casefold(): name for name in settings.machines}
        return [_node(settings, names[name], None) for name in dict.fromkeys(map(str.casefold, machines))]
    with directory() as opened:
        within = None if site is None else _site(opened, site)
        known = [
            one
            for one in opened.queue_managers.list(attributes=_FIELDS)
            if not one.foreign_system and (within is None or within in one.site_identifier_list)
        ]
    wanted = {name.casefold() for name in machines}
    missing = wanted - {one.computer_name.casefold() for one in known}
    if missing:
        where = "the enterprise" if site is None else f"site {site}"
        name = min(missing)
        near = did_you_mean(name, (one.computer_name for one in known))
        raise OperationsError(f"no queue manager of {where} is named {name}{near}")
    nodes = [
        _node(settings, one.computer_name, one.qualified_computer_name)
        for one in known
        if not wanted or one.computer_name.casefold() in wanted
    ]
    if not nodes:
        raise OperationsError(f"there is no queue manager in {'the directory' if site is None else f'site {site}'}")
    return sorted(nodes, key=lambda node: node.machine.casefold())


def declared_nodes(
    settings: OperationsSettings,
    directory: Callable[[], AbstractContextManager[EnterpriseDirectory]],
    declaration: Declaration,
) -> list[Node]:
    """Return the nodes of a declaration, also of machines that the directory lacks.

    The directory, if there is one, is opened only if a machine has no address in the settings and no DNS name in the
    declaration.
    """
    machines = [machine for machine in declaration.machines if not machine.foreign]
    names: dict[str, str | None] = {}
    if not declaration.is_workgroup and any(
        machine.dns_name is None and not settings.of(machine.name).address for machine in machines
    ):
        with directory() as opened:
            known = opened.queue_managers.list(attributes=_FIELDS)
            names = {one.computer_name.casefold(): one.qualified_computer_name for one in known}
    return [
        _node(
            settings,
            machine.name,
            machine.dns_name or names.get(machine.name.casefold()) or next(iter(machine.addresses), None),
        )
        for machine in machines
    ]


def _site(directory: EnterpriseDirectory, name: str) -> object:
    found = directory.sites.find(name)
    if found is None or found.identifier is None:
        sites = directory.sites.list(attributes=("name",))
        raise OperationsError(f"there is no site named {name}{did_you_mean(name, (site.name for site in sites))}")
    return found.identifier


def _node(settings: OperationsSettings, machine: str, dns_name: str | None) -> Node:
    host, port = split_address(settings.of(machine).address or dns_name or machine, settings.port)
    return Node(machine, host, port)


@asynccontextmanager
async def connected(settings: OperationsSettings, nodes: Sequence[Node]) -> AsyncIterator[list[NodeClient]]:
    """The clients of nodes; no connection is made before the first question. Raises :class:`OperationsError`."""
    from mqenterprise.operations.node_client import NodeClient  # loads the documents of the whole management API

    trust = settings.trust()
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                NodeClient(
                    node.machine,
                    f"https://{node.host}:{node.port}",
                    settings.token(node.machine),
                    trust,
                    connect_timeout=settings.connect_timeout,
                    timeout=settings.timeout,
                )
            )
            for node in nodes
        ]


T = TypeVar("T")


async def each(
    clients: Sequence[NodeClient], work: Callable[[NodeClient], Awaitable[T]], concurrency: int
) -> AsyncIterator[tuple[NodeClient, T | NodeError]]:
    """The nodes with their answers, in the order in which they answer."""
    turns = asyncio.Semaphore(concurrency)

    async def ask(client: NodeClient) -> tuple[NodeClient, T | NodeError]:
        async with turns:
            try:
                return client, await work(client)
            except NodeError as error:
                return client, error

    tasks = [asyncio.create_task(ask(client)) for client in clients]
    try:
        for answer in asyncio.as_completed(tasks):
            yield await answer
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
