"""Servers that misbehave: one never says a word, one lies, one passes bytes on until it is told to stop."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Self

from mqenterprise.directory.connection import PAGED_RESULTS
from mqenterprise.directory.ldap_messages import (
    BIND,
    DONE,
    ENTRY,
    SEARCH,
    SEQUENCE,
    SET,
    Control,
    WireError,
    controls_of,
    element,
    elements,
    header,
    integer,
    message,
    number,
    octets,
)

Operation = tuple[bytes, Sequence[Control]]
"""An operation of an answer, with its controls."""


class SilentServer:
    """Accepts, reads what comes, answers nothing."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._taken: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"ldap://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def accepted(self) -> int:
        return len(self._taken)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(timeout=5)
        for taken in self._taken:
            taken.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                self._taken.append(self._listener.accept()[0])


class Relay:
    """Passes bytes between clients and one server. Cut, it breaks every connection and takes no new ones until mended.

    ``swallow_answers`` lets requests through and no answers back, then breaks: a write is done and nobody is told.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._is_cut = False
        self.swallowed = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def cut(self) -> None:
        """Break everything."""
        with self._lock:
            self._is_cut = True
            broken, self._open = self._open, []
        for one in broken:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def mend(self) -> None:
        """Take connections again."""
        self._is_cut = False
        self.swallowed.clear()
        self._swallow = False

    _swallow = False

    def swallow_next_answer(self) -> None:
        """Break the connections instead of passing on the next answer; the request before it has arrived."""
        self._swallow = True

    def close(self) -> None:
        self.cut()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._is_cut:
                    client.close()
                    continue
                server = socket.create_connection(self._target)
                with self._lock:
                    self._open += [client, server]
                threading.Thread(target=self._pass, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if answers and self._swallow:
                    self._swallow = False
                    self.swallowed.set()
                    break
                sink.sendall(data)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class LyingDirectory:
    """An LDAP server that takes every bind, and answers a search with whatever its author wants.

    ``says`` gets the base and the filter of a search, and the cookie of its page, and yields the operations of the
    answer: those of :func:`entry` and :func:`done`. ``binds`` gets a BindRequest and returns the result.
    """

    def __init__(
        self,
        says: Callable[[str, bytes, bytes], Iterable[Operation]],
        binds: Callable[[bytes], bytes] = lambda request: result(0),
    ) -> None:
        self._says, self._binds = says, binds
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        return f"ldap://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(timeout=5)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                taken = self._listener.accept()[0]
                threading.Thread(target=self._answer, args=(taken,), daemon=True).start()

    def _answer(self, taken: socket.socket) -> None:
        with taken, suppress(OSError, WireError):
            while data := taken.recv(65536):
                _, begin, end = header(data, 0)
                places = elements(data, begin, end)
                identifier, (kind, begin, end) = number(data, places[0]), places[1]
                if kind == BIND:
                    taken.sendall(message(identifier, element(0x61, self._binds(data[begin:end]))))
                elif kind == SEARCH:
                    parts = elements(data, begin, end)
                    base, wanted = data[parts[0][1] : parts[0][2]].decode(), data[parts[6][1] : parts[6][2]]
                    page = controls_of(data, places[2:]).get(PAGED_RESULTS, b"")
                    cookie = page[elements(page, *header(page, 0)[1:])[1][1] :] if page else b""
                    written = b""
                    for operation, controls in self._says(base, wanted, cookie):
                        written += message(identifier, operation, controls)
                        if len(written) > 65536:
                            taken.sendall(written)
                            written = b""
                    taken.sendall(written)


def entry(dn: str, **attributes: Iterable[bytes]) -> Operation:
    """A SearchResultEntry."""
    pairs = b"".join(
        element(SEQUENCE, octets(name) + element(SET, b"".join(octets(value) for value in values)))
        for name, values in attributes.items()
    )
    return element(ENTRY, octets(dn) + element(SEQUENCE, pairs)), ()


def result(code: int, referral: str = "") -> bytes:
    """The content of an LDAPResult."""
    more = element(0xA3, octets(referral)) if referral else b""
    return bytes((0x0A, 1, code)) + octets(b"") + octets(b"") + more


def done(cookie: bytes = b"", code: int = 0, referral: str = "") -> Operation:
    """A SearchResultDone, with the cookie of the page that follows."""
    page = element(SEQUENCE, integer(0) + octets(cookie))
    return element(DONE, result(code, referral)), [(PAGED_RESULTS, False, page)]
