"""Errors in the connection history are HRESULTs (MS-MQQB 3.1.5.2), as administrators of Windows know them."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from qmnode import Access, Message
from qmnode.management.documents import QueueDocument
from qmnode.model.queue import OutgoingQueue
from qmnode.structures.enumerations import ConnectionStatus
from qmnode.structures.error_codes import hresult_of_error, hresult_of_failure
from tests.lab.waiting import eventually
from tests.transport.conftest import Pair, loopback_address


def queue_of(pair: Pair, name: str) -> OutgoingQueue:
    queue = pair.alice.context.names.find(name)
    assert isinstance(queue, OutgoingQueue)
    return queue


async def first_failure(pair: Pair, name: str) -> int:
    async with await pair.alice.open_queue(name, Access.SEND) as queue:
        await queue.send(Message(b"", recoverable=True))
    queues = [q for q in pair.alice.queue_collection.values() if isinstance(q, OutgoingQueue) and q.pathname == name]
    await eventually(lambda: bool(queues[0].connection_history))
    return queues[0].connection_history[0].error


async def test_nobody_listens(pair: Pair) -> None:
    assert await first_failure(pair, rf"DIRECT=TCP:{loopback_address()}\private$\q") == 0x8007274D


async def test_the_name_is_unknown(pair: Pair) -> None:
    assert await first_failure(pair, r"DIRECT=OS:nobody.invalid\private$\q") in (0x80072AF9, 0x80072AFA, 0x80072AFC)


async def test_there_is_no_directory(pair: Pair) -> None:
    name = r"PRIVATE=6a7e3c1e-91a5-4b44-8a5d-7a9f3d2b1c00\0000000a"
    assert await first_failure(pair, name) == 0xC00E0013


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (r"DIRECT=TCP:127.0.0.1\private$\q", "127.0.0.1: Connection refused"),
        (r"DIRECT=OS:nobody.invalid\private$\q", "nobody.invalid"),
        (r"PRIVATE=6a7e3c1e-91a5-4b44-8a5d-7a9f3d2b1c00\0000000a", "directory"),
    ],
)
async def test_the_reason_is_in_words_beside_the_state(pair: Pair, name: str, reason: str) -> None:
    if "127" in name:
        address = loopback_address()
        name, reason = name.replace("127.0.0.1", address), reason.replace("127.0.0.1", address)
    await first_failure(pair, name)
    shown = await pair.alice.queue(name)
    assert reason in shown.reason, shown.reason
    document = QueueDocument.of(shown)
    assert document.reason == shown.reason
    await pair.alice.set_online(False)
    await eventually(lambda: "this node is disconnected" in queue_of(pair, name).information().reason)


async def test_a_queue_that_is_connected_again_has_no_reason(pair: Pair) -> None:
    name = pair.direct("BOB", r".\private$\plain")
    await pair.stop("BOB")
    await first_failure(pair, name)
    assert "Connection refused" in queue_of(pair, name).information().reason
    await pair.start("BOB")
    await eventually(lambda: not queue_of(pair, name).information().reason)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TimeoutError(), 0x8007274C),
        (OSError(errno.EHOSTUNREACH, ""), 0x80072751),
        (OSError(errno.ENOEXEC, ""), 0x80004005),
        (OSError("nothing more"), 0x80004005),
        (socket.gaierror(socket.EAI_NONAME, ""), 0x80072AF9),
        (ssl.SSLCertVerificationError(), 0x800B0109),
        (ssl.SSLError(), 0x80090326),
    ],
)
def test_what_the_system_reports(error: BaseException, expected: int) -> None:
    assert hresult_of_error(error) == expected


def test_every_failure_has_one() -> None:
    for status in ConnectionStatus:
        assert status < 0x80000000 or hresult_of_failure(status) & 0x80000000
