"""Address blocks: the smallest set of addresses that one attacker controls and shares with no honest peer."""

import ipaddress
from functools import lru_cache
from typing import Final

_NETWORK: Final = 64


@lru_cache(maxsize=4096)
def block_of(address: str) -> str:
    """The block of an address: an IPv4 address itself, or the /64 of an IPv6 address, in which a machine chooses its
    address freely.
    """
    if ":" not in address:
        return address
    try:
        known = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    return str(ipaddress.IPv6Network((known, _NETWORK), strict=False))
