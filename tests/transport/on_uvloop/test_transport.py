"""Nodes in one process, on uvloop: what the same tests show on asyncio's loop in their own modules."""

import asyncio
import gc
import os

import pytest

from qmnode.event_loop import loop_name
from qmnode.transport.connection import dial
from tests.transport import test_tls_modes
from tests.transport.test_lent_memory import (  # noqa: F401
    door,
    test_an_application_that_does_not_read_leaves_memory_to_others,
    test_the_latest_messages_of_many_strangers_leave_memory_to_others,
)
from tests.transport.test_tls_modes import Nodes, nodes  # noqa: F401
from tests.transport.test_transfer import (  # noqa: F401
    test_messages_wait_for_a_target_that_is_away,
    test_transactions_arrive_whole_and_in_order,
)


async def test_the_loop_is_uvloops() -> None:
    assert loop_name() == "uvloop"


class Closing(asyncio.Protocol):
    """Closes its connection at once. Then files are opened, of which one gets the number of the connection."""

    def __init__(self) -> None:
        self.files: list[int] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
        asyncio.get_running_loop().call_soon(self._open)

    def _open(self) -> None:
        self.files += [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]


async def test_a_connection_that_ends_at_once_closes_its_own_descriptor_alone() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        made = await dial(Closing, "127.0.0.1", server.sockets[0].getsockname()[1], "")
        for _ in range(5):  # turns in which the loop lets go of the connection
            await asyncio.sleep(0)
        gc.collect()
        for file in made.files:
            os.close(file)  # OSError: somebody else closed it


@pytest.mark.parametrize(("here", "there", "is_tls"), [("prefer", "require", True), ("prefer", "", False)])
async def test_a_mode_meets_another(nodes: Nodes, here: str, there: str, is_tls: bool) -> None:  # noqa: F811
    await test_tls_modes.test_a_mode_meets_another(nodes, here, there, is_tls)
