"""A message that cannot be read whole reaches a reader elsewhere as that, and those behind it are not hidden."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from qmnode import Access
from qmnode.model.positions import LANE_SHIFT
from qmnode.model.stored_message import value_of_any_packet
from tests.capture import test_rules as rules
from tests.remote_read.conftest import QUEUE

if TYPE_CHECKING:
    from tests.remote_read.conftest import Remote

WITHOUT_NULL = rules.secured({"DE": 0}, provider_info=b"\1\0\0\0p\0").write()
BROKEN = {"ProviderInfo": WITHOUT_NULL, "cut": WITHOUT_NULL[:-7], "shorter than its headers": WITHOUT_NULL[:40]}


@pytest.mark.parametrize("packet", BROKEN.values(), ids=BROKEN)
async def test_it_comes_with_the_reason_and_all_bytes(remote: Remote, packet: bytes) -> None:
    await remote.send(b"before")
    manager = remote.manager
    value = value_of_any_packet(packet, time.time())
    manager.names.find(QUEUE).insert(4 << LANE_SHIFT | manager.sequence.next(), value)
    await manager.store.durable()
    await remote.send(b"behind")
    async with remote.open(Access.PEEK) as queue, queue.cursor() as cursor:
        peeked = [await cursor.peek(0), await cursor.peek_next(0), await cursor.peek_next(0)]
    async with remote.open() as queue:
        received = [await queue.receive(0) for _ in range(3)]
    for before, unreadable, behind in (peeked, received):
        assert (before.body, before.unreadable) == (b"before", "")
        assert unreadable.unreadable
        assert unreadable.packet == packet
        assert (behind.body, behind.unreadable) == (b"behind", "")
    assert await remote.bodies() == []
