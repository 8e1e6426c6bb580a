"""A small authoritative name server on loopback, whose records and silence the test decides."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

import dns.flags
import dns.message
import dns.rcode
import dns.rrset


class NameServer:
    """Answers UDP questions from a table; counts them."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.records: dict[tuple[str, str], tuple[int, list[str]]] = {}
        self.questions: list[str] = []
        self.silent = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._socket.getsockname()[1]}"

    def add(self, name: str, kind: str, *values: str, ttl: int = 300) -> None:
        self.records[name.lower() + ".", kind] = (ttl, list(values))

    def close(self) -> None:
        port = self._socket.getsockname()[1]
        self._closing = True
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as knock:
            knock.sendto(b"", ("127.0.0.1", port))
        self._thread.join(timeout=5)
        self._socket.close()

    _closing = False

    def _serve(self) -> None:
        while True:
            data, peer = self._socket.recvfrom(4096)
            if self._closing:
                return
            with suppress(Exception):
                self._answer(data, peer)

    def _answer(self, data: bytes, peer: tuple[str, int]) -> None:
        query = dns.message.from_wire(data)
        question = query.question[0]
        name, kind = question.name.to_text().lower(), dns.rdatatype.to_text(question.rdtype)
        self.questions.append(f"{kind} {name}")
        if self.silent:
            return
        response = dns.message.make_response(query)
        response.flags |= dns.flags.AA | dns.flags.RA
        known = self.records.get((name, kind))
        if known is not None:
            response.answer.append(dns.rrset.from_text(question.name, known[0], "IN", kind, *known[1]))
        elif not any(other == name for other, _ in self.records):
            response.set_rcode(dns.rcode.NXDOMAIN)
        self._socket.sendto(response.to_wire(), peer)
