"""The event loop of a node: which one it is, and that messages go their way on both."""

import asyncio
import contextlib
import socket
import sys
from pathlib import Path

import pytest

import qmnode
from qmnode.errors import ConfigurationError
from qmnode.event_loop import LOOP_VARIABLE, loop_factory, loop_name, write_together
from tests.lab.nodes import running_node

NAME = r".\private$\orders"


async def running_loop() -> str:
    return loop_name()


@pytest.mark.parametrize(("wanted", "found"), [("", "uvloop"), ("uvloop", "uvloop"), ("asyncio", "asyncio")])
def test_the_variable_chooses_and_without_it_uvloop_is_used(
    monkeypatch: pytest.MonkeyPatch, wanted: str, found: str
) -> None:
    monkeypatch.setenv(LOOP_VARIABLE, wanted)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        assert runner.run(running_loop()) == found


def test_without_uvloop_asyncio_is_used_unless_uvloop_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    monkeypatch.delenv(LOOP_VARIABLE, raising=False)
    assert loop_factory() is None
    monkeypatch.setenv(LOOP_VARIABLE, "uvloop")
    with pytest.raises(ConfigurationError, match=r"qmnode\[uvloop\]"):
        loop_factory()


def test_a_loop_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOOP_VARIABLE, "trio")
    with pytest.raises(ConfigurationError, match="use asyncio or uvloop"):
        loop_factory()


@pytest.mark.servers
@pytest.mark.parametrize("wanted", ["asyncio", "uvloop"])
async def test_a_killed_node_has_on_either_loop_what_it_accepted(tmp_path: Path, wanted: str) -> None:
    with running_node(tmp_path, environment={LOOP_VARIABLE: wanted}) as node:
        assert wanted in node.log.read_text().rpartition("event_loop")[2]
        async with qmnode.connect(node.socket) as manager:
            await manager.create_queue(NAME)
            queue = await manager.open_queue(f"DIRECT=OS:{NAME}", qmnode.Access.SEND)
            for number in range(10):
                await queue.send(qmnode.Message(str(number).encode(), recoverable=True))
            node.process.kill()
            node.process.wait()
        node.start()
        async with qmnode.connect(node.socket) as manager:
            queue = await manager.open_queue(f"DIRECT=OS:{NAME}")
            bodies = [(await queue.receive(0)).body for _ in range(10)]
            assert (await manager.status()).event_loop == wanted
    assert bodies == [str(number).encode() for number in range(10)]


class Reader(asyncio.Protocol):
    """Keeps what came first."""

    def __init__(self) -> None:
        self.first: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.first.set_result(data)


async def test_what_is_written_to_a_lost_connection_takes_no_other_from_the_loop() -> None:
    loop = asyncio.get_running_loop()
    lost, full = socket.socketpair()
    transport, _ = await loop.create_connection(Reader, sock=lost)
    number = lost.fileno()
    with contextlib.suppress(BlockingIOError):
        while True:
            lost.send(bytes(65536))
    transport.abort()
    write_together(transport, [b"too ", b"late"])
    while lost.fileno() == number:
        await asyncio.sleep(0)
    full.close()
    pair = sorted(socket.socketpair(), key=lambda one: one.fileno() != number)
    assert pair[0].fileno() == number
    reader, protocol = await loop.create_connection(Reader, sock=pair[0])
    with pair[1] as other:
        other.send(b"read")
        assert await asyncio.wait_for(protocol.first, 10) == b"read"
    reader.close()
