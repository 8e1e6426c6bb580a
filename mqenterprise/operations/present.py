"""The present state of a way: what messages wait for at each machine on it, asked of the nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mqenterprise.operations.errors import NodeError
from mqenterprise.operations.many import each
from mqenterprise.operations.tracing import ANSWER_SECONDS

if TYPE_CHECKING:
    from mqenterprise.operations.node_client import NodeClient
    from qmnode.management.documents import WaitingDocument


@dataclass(frozen=True, slots=True)
class Present:
    """The reasons of one machine, or why it gives none."""

    waiting: tuple[WaitingDocument, ...] = ()
    unknown: str = ""


async def present(
    clients: Sequence[NodeClient], path: Sequence[str], concurrency: int, seconds: float = ANSWER_SECONDS
) -> dict[str, Present]:
    """Ask the nodes of a way why messages to the next and to the last machine of the ``path`` wait. By machine."""
    names = [name.casefold() for name in path]
    after = dict(zip(names, path[1:], strict=False))

    async def ask(client: NodeClient) -> Present:
        itself = client.machine.casefold()
        others = {after[itself], path[-1]} if itself in after else set()
        try:
            async with asyncio.timeout(seconds):
                own, *of_others = await asyncio.gather(*map(client.waiting, (client.machine, *sorted(others))))
        except TimeoutError:
            raise NodeError(f"no answer within {seconds:g} s", unavailable=True) from None
        # Of its own reasons, those of the whole node stop every message; those of its queues, the messages to it.
        whole = [one for one in own.waiting if not one.queue or (not others and one.machine.casefold() == itself)]
        found = {one.queue: one for one in (*whole, *(one for answer in of_others for one in answer.waiting))}
        return Present(tuple(found.values()))

    answers = {
        client.machine.casefold(): Present(unknown=answer.sentence) if isinstance(answer, NodeError) else answer
        async for client, answer in each(clients, ask, concurrency)
    }
    return {name: answers[name.casefold()] for name in path if name.casefold() in answers}
