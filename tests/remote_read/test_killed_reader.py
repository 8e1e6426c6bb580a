"""A reader is killed at every step of a receive: its message stays in its place or was received, never both."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

from tests.lab.nodes import PROJECT
from tests.lab.waiting import eventually
from tests.remote_read.step_reader import Step

if TYPE_CHECKING:
    from tests.remote_read.conftest import Remote

EITHER = (Step.ENDING,)
RECEIVED = (Step.ENDED,)


async def kill_at(remote: Remote, step: Step) -> None:
    """Start a reader, and kill it at this step."""
    command = ["-m", "tests.remote_read.step_reader", remote.address, str(remote.endpoint_mapper_port), step.value]
    pipe = asyncio.subprocess.PIPE
    reader = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=PROJECT, stdin=pipe, stdout=pipe)
    try:
        assert reader.stdout is not None
        async with asyncio.timeout(60):
            assert await reader.stdout.readline() == (b"received\n" if step is Step.ENDED else b"at\n")
    finally:
        reader.kill()
        await reader.wait()
    await eventually(lambda: not remote.server.queues, "the server closes what the reader had open")


@pytest.mark.servers
@pytest.mark.parametrize("step", Step)
async def test_a_killed_reader_leaves_its_message_or_has_received_it(remote: Remote, step: Step) -> None:
    bodies = [b"one", b"two", b"three"]
    if step is not Step.WAITING:
        await remote.send(*bodies)
    await kill_at(remote, step)
    if step is Step.WAITING:  # the message that it waited for comes too late
        await remote.send(*bodies)

    left = await remote.bodies()
    if step in EITHER:
        assert left in (bodies, bodies[1:])
    else:
        assert left == (bodies[1:] if step in RECEIVED else bodies)
    async with remote.open() as queue:  # and the next reader receives each that is left, in order
        assert [(await queue.receive(0)).body for _ in left] == left
    assert await remote.bodies() == []
