"""Servers that misbehave: one never says a word, one never ends, one passes bytes on until it is told to stop."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from mqenterprise.directory.wire import element, elements, header, message, number, octets


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


class EndlessServer:
    """An LDAP server that answers a search with entries, and never comes to their end."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

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

    @staticmethod
    def _answer(taken: socket.socket) -> None:
        with taken, suppress(OSError):
            while data := taken.recv(65536):
                _, begin, end = header(data, 0)
                identifier = number(data, elements(data, begin, end)[0])
                if elements(data, begin, end)[1][0] == 0x60:  # a bind
                    taken.sendall(message(identifier, element(0x61, b"\x0a\x01\x00" + octets(b"") + octets(b""))))
                    continue
                entries = message(identifier, element(0x64, octets(b"cn=x") + element(0x30, b""))) * 500
                while True:
                    taken.sendall(entries)
