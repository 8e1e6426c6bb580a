"""Four processes that do nothing but hand large blocks on, as the parties of a message's way do: the second writes and
syncs each block before it says that it has it, over bytes that were written before. Python in its fastest form, without
a protocol: what this machine allows.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
from time import perf_counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

OUTSTANDING: Final = 4
PLACES: Final = 4
_FORK: Final = multiprocessing.get_context("fork")


def bare_way(place: Path, size: int, count: int) -> list[float]:
    """Seconds of each of so many blocks of so many bytes, from the first process to the last, on average."""
    out, application = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = socket.create_connection(listener.getsockname())
        there, _ = listener.accept()
    node, receiver = socket.socketpair()
    start, end = _FORK.Event(), _FORK.Event()
    parties = [
        _FORK.Process(target=_send, args=(out, size, count, start)),
        _FORK.Process(target=_store, args=(application, here, size, count, place / "blocks")),
        _FORK.Process(target=_hand_on, args=(there, node, size, count)),
        _FORK.Process(target=_receive, args=(receiver, size, count, end)),
    ]
    for party in parties:
        party.start()
    _FORK.Event().wait(0.1)  # until they wait
    begun = perf_counter()
    start.set()
    end.wait()
    taken = perf_counter() - begun
    for party in parties:
        party.join()
    for one in (out, application, here, there, node, receiver):
        one.close()
    return [taken / count]


def _read(source: socket.socket, buffer: bytearray) -> None:
    with memoryview(buffer) as view:
        place = 0
        while place < len(buffer):
            if not (count := source.recv_into(view[place:])):
                raise EOFError("a party of the bare way ended early")
            place += count


def _send(out: socket.socket, size: int, count: int, start: multiprocessing.synchronize.Event) -> None:
    body, waiting = os.urandom(size), 0
    start.wait()
    for _ in range(count):
        if waiting == OUTSTANDING:
            waiting -= len(out.recv(OUTSTANDING))
        out.sendall(body)
        waiting += 1
    while waiting:
        waiting -= len(out.recv(OUTSTANDING))


def _store(source: socket.socket, out: socket.socket, size: int, count: int, path: Path) -> None:
    buffer = bytearray(size)
    with path.open("wb", buffering=0) as file:
        file.write(bytes(PLACES * size))
        os.fsync(file.fileno())
        for number in range(count):
            _read(source, buffer)
            os.pwrite(file.fileno(), buffer, number % PLACES * size)
            os.fdatasync(file.fileno())
            source.sendall(b"\0")
            out.sendall(buffer)


def _hand_on(source: socket.socket, out: socket.socket, size: int, count: int) -> None:
    buffer = bytearray(size)
    for _ in range(count):
        _read(source, buffer)
        out.sendall(buffer)


def _receive(source: socket.socket, size: int, count: int, end: multiprocessing.synchronize.Event) -> None:
    buffer = bytearray(size)
    for _ in range(count):
        _read(source, buffer)
    end.set()
