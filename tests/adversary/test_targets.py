"""Where a bridge connects is said by its settings alone, whatever its peer answers."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from qmnode.amqp.bridges import Bridges
from qmnode.amqp.codec import Described, Symbol, UByte, UInt, ULong, UShort
from qmnode.amqp.principals import AMQP_HEADER, SASL_HEADER
from tests.adversary.attacks import Area, attack
from tests.amqp.bridging import bridge_settings
from tests.amqp.conftest import open_door
from tests.amqp.raw import OPEN, frame, performative, values
from tests.lab.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

MECHANISMS = SASL_HEADER + frame(performative(0x40, [Symbol("ANONYMOUS")]), kind=1)
OUTCOME = frame(performative(0x44, [UByte(0)]), kind=1)
BEGIN = frame(performative(0x11, [UShort(0), 0, 1000, 1000]))
ATTACH = 0x12


def redirect(condition: str, port: int) -> Described:
    """An error that names another place (AMQP 1.0, 2.8.16 and 2.8.17)."""
    where = {Symbol("hostname"): "metadata", Symbol("network-host"): "127.0.0.1", Symbol("port"): UInt(port)}
    return Described(ULong(0x1D), [Symbol(condition), "go there", where])


class Luring:
    """A broker that sends each client to another place, when it opens its connection or its link."""

    def __init__(self, condition: str, port: int) -> None:
        self.condition, self.port = condition, port
        self.lured = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readexactly(8)
            writer.write(MECHANISMS)
            await self._frame(reader)
            writer.write(OUTCOME)
            await reader.readexactly(8)
            writer.write(AMQP_HEADER + frame(OPEN))
            error = redirect(self.condition, self.port)
            if "link" not in self.condition:
                writer.write(frame(performative(0x18, [error])))
                self.lured += 1
                await reader.read()
            while True:
                found = values(await self._frame(reader))[0]
                if found is not None and found.descriptor == 0x11:
                    writer.write(BEGIN)
                if found is not None and found.descriptor == ATTACH:
                    name, handle, receives = found.value[:3]
                    writer.write(frame(performative(ATTACH, [name, int(handle), not receives, *[None] * 6, 0])))
                    writer.write(frame(performative(0x16, [int(handle), True, error])))
                    self.lured += 1
        writer.close()

    async def _frame(self, reader: asyncio.StreamReader) -> bytes:
        head = await reader.readexactly(4)
        return head + await reader.readexactly(int.from_bytes(head, "big") - 4)


@attack(
    Area.AMQP,
    can="as the peer of a bridge, send the node to another address, such as one of its own machine (AMQP redirects)",
    promised="the node connects to no address but that of the bridge's settings, and names the refusal",
)
@pytest.mark.parametrize("direction", ["in", "out"])
@pytest.mark.parametrize("condition", ["amqp:connection:redirect", "amqp:link:redirect"])
async def test_a_bridge_is_led_nowhere(tmp_path: Path, condition: str, direction: str) -> None:
    heard: list[Any] = []
    elsewhere = await asyncio.start_server(lambda _, writer: heard.append(writer), "127.0.0.1", 0)
    luring = Luring(condition, elsewhere.sockets[0].getsockname()[1])
    broker = await asyncio.start_server(luring.serve, "127.0.0.1", 0)
    async with elsewhere, broker, open_door(tmp_path) as node:
        await node.send("orders", b"1")
        bridges = Bridges(node.manager)
        peer = f"amqp://127.0.0.1:{broker.sockets[0].getsockname()[1]}"
        await bridges.apply({"one": bridge_settings(direction=direction, peer=peer)})
        state = node.manager.amqp.bridges["one"]
        await eventually(lambda: luring.lured >= 2 and state.failures >= 2, "the bridge was sent elsewhere twice")
        assert "redirect" in state.reason
        assert heard == []
        assert len(await node.bodies("orders")) == 1
        await bridges.stop()
