"""Connections that do nothing: their memory, and that they stay open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.adversary.test_amqp_crowds import Door, resident
from tests.amqp.conftest import in_thread, open_door
from tests.amqp.raw import (
    AMQP_HEADER,
    BEGIN,
    SASL_HEADER,
    connect,
    frame,
    init,
    opened,
    performative,
    read_all,
    read_until,
)
from tests.lab.waiting import wait_until

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from tests.amqp.conftest import Door as AmqpDoor

pytestmark = pytest.mark.servers

MOST = 60 * 1024
MANY = 400
BEGUN = b"\x53\x11"
EMPTY_FRAME = b"\0\0\0\x08\x02\0\0\0"


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


def idling(port: int, milliseconds: int) -> socket.socket:
    """A connection that is to be closed when the door sends nothing for so long."""
    connection = connect(port)
    open_frame = frame(performative(0x10, ["raw", None, None, None, milliseconds]))
    connection.sendall(SASL_HEADER + init("ANONYMOUS") + AMQP_HEADER)
    read_until(connection, AMQP_HEADER)
    connection.sendall(open_frame)
    return connection


async def test_the_door_sends_empty_frames_within_the_time_out_of_its_client(tmp_path: Path) -> None:
    async with open_door(tmp_path, anonymous=True, idle_timeout=3600) as door:  # none comes by its own time-out

        def empty_frames() -> None:
            with idling(door.door.port, 600) as connection:
                for _ in range(4):
                    read_until(connection, EMPTY_FRAME)

        await in_thread(empty_frames)


async def test_a_time_out_that_cannot_be_kept_is_refused(door: AmqpDoor) -> None:
    def answer() -> bytes:
        with idling(door.door.port, 20) as connection:
            return read_all(connection)

    assert b"an idle time-out of 20 ms: the least is 100 ms" in await in_thread(answer)
