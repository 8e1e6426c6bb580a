"""The memory of connections that do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.adversary.test_amqp_crowds import Door, resident
from tests.amqp.raw import BEGIN, opened, read_until
from tests.lab.waiting import wait_until

if TYPE_CHECKING:
    import socket
    from pathlib import Path

pytestmark = pytest.mark.servers

MOST = 60 * 1024
MANY = 400
BEGUN = b"\x53\x11"


def test_an_idle_connection_takes_less_than_60_kilobytes(tmp_path: Path) -> None:
    door = Door(tmp_path, connections_per_peer=2 * MANY)
    door.start()
    connections: list[socket.socket] = []

    def more(count: int) -> None:
        for _ in range(count):
            connections.append(opened(door.port, BEGIN))
            read_until(connections[-1], BEGUN)
        wait_until(lambda: door.connections() == len(connections), 60, "all are open")

    try:
        more(50)  # what the first connections bring into memory is not theirs alone
        before = resident(door.node)
        more(MANY)
        each = (resident(door.node) - before) * 1024 / MANY
        print(f"\nan idle connection with a session: {each / 1024:.1f} KB")
        assert each < MOST
    finally:
        for one in connections:
            one.close()
        door.node.stop()
