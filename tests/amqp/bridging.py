"""Bridges of a node, each with its peer."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from qmnode.amqp.bridges import Bridges
from qmnode.settings.bridges import BridgeSettings
from tests.lab.waiting import holds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.amqp.conftest import Door

QUICK: dict[str, Any] = {"retry": 0.1, "longest_retry": 0.5, "connect_timeout": 10}


def bridge_settings(**values: Any) -> BridgeSettings:
    return BridgeSettings(**{"queue": "orders", "address": "orders", **QUICK, **values})


@asynccontextmanager
async def bridged(node: Door, **bridges: BridgeSettings) -> AsyncIterator[Bridges]:
    """The bridges, connected."""
    found = Bridges(node.manager)
    await found.apply(bridges)
    try:
        for name in bridges:
            await connected(node, name)
        yield found
    finally:
        await found.stop()


async def connected(node: Door, name: str) -> None:
    async def is_connected() -> bool:
        return node.manager.amqp.bridges[name].connected

    await holds(is_connected, 60, f"the bridge {name} is connected: {node.manager.amqp.bridges[name]}")


async def arrived(node: Door, queue: str, count: int, seconds: float = 30) -> None:
    path = f".\\private$\\{queue}"

    async def have() -> bool:
        return (await node.manager.queue(path)).message_count >= count

    await holds(have, seconds, f"{count} messages are in {queue}")


async def emptied(source: Door, queue: str) -> None:
    """Until the source has heard that all its messages were accepted, which is after they have arrived."""

    async def is_empty() -> bool:
        return not (await source.manager.queue(f".\\private$\\{queue}")).message_count

    await holds(is_empty, 60, f"nothing is left in {queue} of the source")
