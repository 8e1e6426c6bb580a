"""One question to many nodes, a bounded number at a time: each answer as it comes, or why there is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from mqenterprise.operations.errors import NodeError

if TYPE_CHECKING:
    from mqenterprise.operations.node_client import NodeClient

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
