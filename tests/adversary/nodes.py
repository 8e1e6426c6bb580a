"""One node to be attacked, and messages that it takes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from qmnode import QueueManager
from qmnode.settings.node import QuotaSettings
from tests.adversary import wire
from tests.transport.conftest import PLAIN, loopback_address, settings_of


@asynccontextmanager
async def node_with(
    tmp_path: Path, *, quotas: QuotaSettings | None = None, **transport: object
) -> AsyncIterator[QueueManager]:
    """BOB by himself, with other limits."""
    settings = settings_of("BOB", loopback_address(), **transport)
    if quotas is not None:
        settings = settings.model_copy(update={"quotas": quotas})
    async with QueueManager.open(tmp_path / "bob", settings) as bob:
        await bob.network.start()
        await bob.create_queue(PLAIN)
        yield bob


def address_of(node: QueueManager) -> str:
    return node.network.settings.address


def letter(target: str, number: int = 1, source: bytes | None = None, **more: object) -> bytes:
    """A message that BOB's queue takes."""
    return wire.UserMessage(
        source=wire.identifier() if source is None else source,
        message_id=number,
        queue=wire.direct(rf"TCP:{target}\private$\plain"),
        delivery=wire.EXPRESS,
        **more,  # type: ignore[arg-type]
    ).packet()
