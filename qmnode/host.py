"""The names and addresses of this machine, as its operating system knows them."""

import ipaddress
import re
import socket
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

_PATIENCE: Final = 2.0
"""Seconds that a start waits for the resolver: without its DNS server it would take much longer."""
_LOCAL_PART: Final = re.compile(r"^localhost([0-9]|\b)", re.IGNORECASE)
_LEAF: Final = re.compile(r"\|-- ([0-9.]+)\n\s+/32 host LOCAL")


class HostNames(NamedTuple):
    """The names of a machine, without dots at their ends."""

    qualified: str
    """The full DNS name; empty if the machine has none, or nobody knows it."""
    all: frozenset[str]
    """All names: the host's own, the full DNS name and aliases."""


@cache
def host_names() -> HostNames:
    """The names of this machine, in ``/etc/hosts`` and in DNS, as they were when they were first asked for."""
    own = socket.gethostname()
    found: list[str] = []

    def ask() -> None:
        with suppress(OSError, UnicodeError):  # a machine that no resolver knows
            name, aliases, _ = socket.gethostbyname_ex(own)
            found.extend((name, *aliases))

    asking = threading.Thread(target=ask, daemon=True, name="own-names")
    asking.start()
    asking.join(_PATIENCE)
    names = [own, *found] if not asking.is_alive() else [own]
    names = [name.removesuffix(".") for name in names if name and not _LOCAL_PART.match(name)]
    short = own.partition(".")[0].casefold()
    qualified = next((name for name in names if "." in name and name.partition(".")[0].casefold() == short), "")
    return HostNames(qualified, frozenset(names))


def host_addresses() -> frozenset[str]:
    """The IP addresses of the interfaces of this machine, beside the loopback ones."""
    found: set[str] = set()
    with suppress(OSError):
        found.update(_LEAF.findall(Path("/proc/net/fib_trie").read_text(encoding="ascii")))
    with suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines():
            found.add(str(ipaddress.IPv6Address(bytes.fromhex(line.partition(" ")[0]))))
    return frozenset(one for one in found if not ipaddress.ip_address(one).is_loopback)
