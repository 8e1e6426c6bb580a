"""Errors in the connection history are HRESULTs (MS-MQQB 3.1.5.2), as administrators of Windows know them."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from qmnode import Access, Message
from qmnode.model.outgoing import OutgoingQueue
from qmnode.structures.hresults import hresult_of_error, hresult_of_status
from qmnode.structures.queue_attributes import ConnectionStatus
from tests.lab.waiting import eventually
from tests.transport.conftest import Pair, loopback_address


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
        assert bool(hresult_of_status(status) & 0x80000000) is bool(status & 0x80000000)
