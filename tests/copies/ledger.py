"""Traffic on a node whose copy is kept, and a ledger of each send and receive, with when it was acknowledged.

A restored copy is held against the ledger, queue by queue and message by message.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from qmnode import Access, Message, MessageQueuingError, QueueManager
from qmnode.copies.restoring import MISSING, restore_copy
from qmnode.management.documents import identifier_text
from qmnode.storage.verification import verify

if TYPE_CHECKING:
    from pathlib import Path

    from qmnode.copies.restoring import Restored

PLAIN, LARGE, TRANSACTIONAL = (rf".\private$\{name}" for name in ("plain", "large", "transactional"))
QUEUES = PLAIN, LARGE, TRANSACTIONAL
BATCH = 20


@dataclass
class Ledger:
    """What was acknowledged, by queue and identifier: when its call began, and when it returned."""

    sent: dict[str, dict[str, tuple[float, float]]] = field(default_factory=lambda: defaultdict(dict))
    received: dict[str, dict[str, tuple[float, float]]] = field(default_factory=lambda: defaultdict(dict))
    never: set[str] = field(default_factory=set)
    """Express messages, and those of aborted transactions: no copy has them."""

    def span(self) -> tuple[float, float]:
        """From the first acknowledgment to the last."""
        moments = [end for one in (self.sent, self.received) for part in one.values() for _, end in part.values()]
        return min(moments), max(moments)

    def compare(self, restored: Restored, listed: list[dict[str, Any]], have: dict[str, set[str]]) -> dict[str, int]:
        """Assert that a restored store, and the list of what it lacks, are as the ledger says."""
        moment = restored.moment
        states: dict[tuple[str, str], set[str]] = defaultdict(set)
        for line in listed:
            states[line["state"], line["queue"].rpartition("\\")[2]].add(line["id"])
        assert not {one for part in states.values() for one in part} & self.never, "it lists what it never had"
        assert not {one for part in have.values() for one in part} & self.never, "it has what it never had"
        counts: dict[str, int] = defaultdict(int)
        for queue in QUEUES:
            sent, received, here = self.sent[queue], self.received[queue], have[queue]
            name = queue.rpartition("\\")[2]
            missing, gone, again = (states[kind, name] for kind in ("missing", "gone", "again"))
            for one, (began, ended) in sent.items():
                left = received.get(one, (float("inf"), float("inf")))
                if ended <= moment < left[0]:
                    assert one in here, f"{one} was acknowledged before the moment, and is not there"
                if began > moment:
                    assert one not in here, f"{one} was sent after the moment"
                if left[1] <= moment:
                    assert one not in here, f"{one} was received before the moment, and comes again"
            assert here <= sent.keys()
            assert missing == sent.keys() - received.keys() - here, queue
            assert again == here & received.keys(), queue
            later = {one for one in received.keys() - here if sent[one][0] > moment}
            certain = {one for one in later if received[one][0] > sent[one][1]}
            assert certain <= gone, queue  # what came and went in one pass of the loop is in no log
            assert gone <= {one for one in received.keys() - here if received[one][1] >= moment}, queue
            for kind, found in (("here", here), ("missing", missing), ("gone", gone), ("again", again)):
                counts[kind] += len(found)
        return dict(counts)


async def create_queues(qm: Any) -> None:
    """The queues of the traffic."""
    for name in QUEUES:
        await qm.create_queue(name, transactional=name == TRANSACTIONAL)


async def traffic(qm: Any, ledger: Ledger, seed: int, rounds: int, pause: float = 0.0) -> None:
    """Some rounds of sends and receives: recoverable, express, large, transactional, committed and aborted."""
    chance = random.Random(seed)
    async with await qm.open_queue(f"DIRECT=OS:{PLAIN}", Access.SEND) as plain, \
        await qm.open_queue(f"DIRECT=OS:{LARGE}", Access.SEND) as large, \
        await qm.open_queue(f"DIRECT=OS:{TRANSACTIONAL}", Access.SEND) as transactional:  # fmt: skip
        for _ in range(rounds):
            await _send(ledger, PLAIN, plain, [_message(chance, 600) for _ in range(chance.randint(1, BATCH))])
            express = await plain.send_many([Message(b"express")])
            ledger.never |= set(map(identifier_text, express))
            if chance.random() < 0.5:
                await _send(ledger, LARGE, large, [_message(chance, 300_000) for _ in range(chance.randint(1, 2))])
            await _transaction(qm, ledger, transactional, chance)
            for queue in QUEUES:
                await receive(qm, ledger, queue, chance.randint(1, BATCH), abort=chance.random() < 0.2)
            await asyncio.sleep(pause)


def _message(chance: random.Random, size: int) -> Message:
    return Message(chance.randbytes(64) * (size // 64), recoverable=True)


async def _send(ledger: Ledger, name: str, queue: Any, messages: list[Message]) -> None:
    began = time.time()
    for one in await queue.send_many(messages):
        ledger.sent[name][identifier_text(one)] = began, time.time()


async def _transaction(qm: Any, ledger: Ledger, queue: Any, chance: random.Random) -> None:
    transaction = qm.transaction()
    aborts = chance.random() < 0.3
    messages = [_message(chance, 300_000 if chance.random() < 0.1 else 200) for _ in range(3)]
    identifiers = list(map(identifier_text, await queue.send_many(messages, transaction)))
    if aborts:
        await transaction.abort()
        ledger.never |= set(identifiers)
        return
    began = time.time()
    await transaction.commit()
    ledger.sent[TRANSACTIONAL] |= dict.fromkeys(identifiers, (began, time.time()))


async def receive(qm: Any, ledger: Ledger, name: str, count: int, *, abort: bool = False) -> None:
    """Receive messages that are there; those of transactions are received in one."""
    async with await qm.open_queue(f"DIRECT=OS:{name}") as queue:
        transaction = qm.transaction() if name == TRANSACTIONAL else None
        began = time.time()
        try:
            found = await queue.receive_many(count, timeout=0, transaction=transaction)
        except MessageQueuingError:
            found = []
        if transaction is not None:
            if abort:
                await transaction.abort()
                return
            began = time.time()
            await transaction.commit()
        ended = time.time()
        identifiers = {identifier_text(one.identifier) for one in found} - ledger.never
        ledger.received[name] |= dict.fromkeys(identifiers, (began, ended))


async def contents(data: Path) -> dict[str, set[str]]:
    """The identifiers of all messages of a store, by queue; they are received."""
    found: dict[str, set[str]] = {}
    async with QueueManager.open(data) as qm:
        for name in QUEUES:
            found[name] = set()
            async with await qm.open_queue(f"DIRECT=OS:{name}") as queue:
                with contextlib.suppress(MessageQueuingError):
                    while True:
                        messages = await queue.receive_many(1000, timeout=0)
                        found[name] |= {identifier_text(one.identifier) for one in messages}
    return found


async def hold_against(ledger: Ledger, copy: Path | str, key: Path, data: Path, at: float | None) -> dict[str, int]:
    """Restore a copy to a moment, verify the store, and hold it and its list against the ledger."""
    restored = await asyncio.to_thread(restore_copy, str(copy), key, data, at)
    assert at is None or restored.moment <= at
    assert not restored.damaged
    assert not verify(data).findings
    listed = [json.loads(line) for line in (data / MISSING).read_text().splitlines()]
    return ledger.compare(restored, listed, await contents(data))
