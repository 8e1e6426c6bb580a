"""AMQP 1.0 by hand over a socket: what no client library would send."""

from __future__ import annotations

import socket
import struct
from typing import Any

from qmnode.amqp.codec import Decoder, Described, Symbol, UInt, ULong, encode
from qmnode.amqp.principals import AMQP_HEADER, SASL_HEADER

OPEN = b"\x00" + encode(ULong(0x10)) + encode(["raw"])


def frame(body: bytes, channel: int = 0, kind: int = 0) -> bytes:
    return struct.pack(">IBBH", len(body) + 8, 2, kind, channel) + body


def performative(descriptor: int, fields: list[Any]) -> bytes:
    return encode(Described(ULong(descriptor), [UInt(one) if type(one) is int else one for one in fields]))


def read_until(connection: socket.socket, marker: bytes) -> bytes:
    """What comes up to a marker, such as the descriptor of a performative."""
    data = b""
    while marker not in data:
        chunk = connection.recv(65536)
        assert chunk, data
        data += chunk
    return data


def read_frames(connection: socket.socket, marker: bytes, data: bytes = b"") -> bytes:
    """Whole frames, until one has the marker: after those that came before, since one read may bring several."""
    while marker not in data or not _whole(data):
        chunk = connection.recv(65536)
        assert chunk, data
        data += chunk
    return data


def _whole(data: bytes) -> bool:
    while data:
        if data[:4] == b"AMQP":
            data = data[8:]
            continue
        size = int.from_bytes(data[:4], "big")
        if size > len(data):
            return False
        data = data[size:]
    return True


def init(mechanism: str, response: bytes | None = None) -> bytes:
    return frame(performative(0x41, [Symbol(mechanism), response]), kind=1)


def plain(user: str, password: str) -> bytes:
    return init("PLAIN", f"\0{user}\0{password}".encode())


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def read_all(connection: socket.socket) -> bytes:
    """Until the door closes."""
    data = b""
    try:
        while chunk := connection.recv(65536):
            data += chunk
    except ConnectionResetError:
        pass
    return data


def values(data: bytes) -> list[Any]:
    """The performatives of the frames in what was read; None for an empty frame."""
    found: list[Any] = []
    while data:
        if data[:4] == b"AMQP":
            data = data[8:]
            continue
        size = struct.unpack(">I", data[:4])[0]
        body = data[8:size]
        found.append(Decoder(body).value() if body else None)
        data = data[size:]
    return found


def opened(port: int, *frames: bytes) -> socket.socket:
    """A connection that came in as nobody, with an open and these frames sent."""
    connection = connect(port)
    connection.sendall(SASL_HEADER + init("ANONYMOUS") + AMQP_HEADER + frame(OPEN) + b"".join(frames))
    return connection


BEGIN = frame(performative(0x11, [None, 0, 1000, 1000]))
CLOSE = frame(performative(0x18, []))
