"""A disk of 24 MB that fills again and again: nothing acknowledged is lost, and the node goes on by itself."""

import asyncio
import os
import random
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from qmnode import Access, Message, MessageQueuingError
from qmnode.model.quotas import Quotas
from qmnode.settings.node import QuotaSettings
from qmnode.structures.error_codes import ErrorCode
from tests.lab.disks import small_disk
from tests.lab.nodes import NodeProcess, running_node
from tests.lab.waiting import holds

NAME = r".\private$\orders"
_BYTES = random.Random(0).randbytes(24_000)
FORMAT = rf"DIRECT=OS:{NAME}"


def test_the_disk_limits_what_is_taken_and_the_quota_still_does() -> None:
    quotas = Quotas(QuotaSettings(queue_manager_quota=1))
    assert quotas.limit == 1024
    quotas.used = 100
    quotas.allow(50)
    assert quotas.limit == 150
    quotas.allow(1e9)
    assert quotas.limit == 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MB."""
    with small_disk(tmp_path / "disk", 24) as place:
        yield place


def body(number: int) -> bytes:
    """The body of a message, which follows from its number, and which no compression makes smaller."""
    return b"%d " % number + _BYTES[number % 89 : number % 89 + 2000 + number % 20_000]


async def fill(node: NodeProcess, number: int) -> tuple[set[int], int]:
    """Send until the node refuses; the numbers of the acknowledged messages, and the next number."""
    acknowledged: set[int] = set()
    async with await node.connect() as qm, await qm.open_queue(FORMAT, Access.SEND) as queue:
        while True:
            numbers = range(number, number + 20)
            number += 20
            try:
                await queue.send_many([Message(body(one), recoverable=True) for one in numbers])
            except MessageQueuingError as error:
                assert error.code in (
                    ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
                    ErrorCode.MQ_ERROR_MESSAGE_STORAGE_FAILED,
                )
                return acknowledged, number
            acknowledged |= set(numbers)


async def drains(node: NodeProcess, found: set[int]) -> bool:
    """Receive until the queue is empty; whether it is. The numbers are added to ``found``."""
    try:
        async with await node.connect() as qm, await qm.open_queue(FORMAT) as queue:
            while some := await queue.receive_many(20, timeout=0):
                for message in some:
                    number = int(message.body.partition(b" ")[0])
                    assert message.body == body(number)
                    found.add(number)
    except MessageQueuingError as error:
        return error.code is ErrorCode.MQ_ERROR_IO_TIMEOUT
    return True


async def works(node: NodeProcess) -> bool:
    """Whether it stores a message, and gives it back."""
    try:
        async with await node.connect() as qm, await qm.open_queue(FORMAT, Access.SEND) as queue:
            await queue.send(Message(body(0), recoverable=True))
        return True
    except MessageQueuingError:
        return False


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.servers
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
async def test_twenty_times_full(disk: Path, tmp_path: Path) -> None:
    """In turn by the node's own messages, and by another program, which takes the last byte and goes."""
    number = 1
    with running_node(tmp_path / "node", data=str(disk / "store")) as node:
        async with await node.connect() as qm:
            await qm.create_queue(NAME)
        for turn in range(20):
            if turn % 2:
                subprocess.run(["dd", "if=/dev/zero", f"of={disk}/other", "bs=64k"], check=False, capture_output=True)
            acknowledged, number = await fill(node, number)
            (disk / "other").unlink(missing_ok=True)
            found: set[int] = set()
            await holds(partial(drains, node, found), 120, "the node gives its messages")
            assert acknowledged <= found
            await holds(lambda: works(node), 120, "the node takes messages again")
            print(f"turn {turn}: {len(acknowledged)} acknowledged until it was full")
        print(f"{number} messages")
        assert await asyncio.to_thread(node.stop) == 0
