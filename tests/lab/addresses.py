"""Loopback addresses and ports that nobody uses, so that labs of several test runs do not meet."""

from __future__ import annotations

import os
import random
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

HOST = "127.0.0.1"
NO_CLIENTS = 15_000, 32_000
"""Ports below those that Linux gives to the ends of connections by itself."""


def free_alias(ports: Sequence[int], taken: Collection[str] = ()) -> str:
    """An address of 127.0.0.0/8 on which all of these ports can be bound, and none of those taken before."""
    start = os.getpid() * 7919
    for attempt in range(500):
        number = (start + attempt * 104_729) % (120 * 254 * 254)
        address = f"127.{100 + number // (254 * 254)}.{1 + number // 254 % 254}.{1 + number % 254}"
        if address in taken:
            continue
        with ExitStack() as stack:
            try:
                for port in ports:
                    probe = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
                    probe.bind((address, port))
            except PermissionError:
                raise RuntimeError(f"ports {ports} need root: run the tests of marker 'servers' as root") from None
            except OSError:
                continue
            return address
    raise RuntimeError("no free loopback address found")


def free_port() -> int:
    """A port of loopback that nobody listens on now, and that no connection gets for its own end meanwhile."""
    while True:
        port = random.SystemRandom().randrange(*NO_CLIENTS)
        try:
            socket.create_server((HOST, port)).close()
        except OSError:
            continue
        return port
