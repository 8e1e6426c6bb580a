"""Address blocks: the smallest set of addresses that one attacker controls and shares with no honest peer; and the
networks around them, which one attacker may also control."""

import ipaddress
from functools import lru_cache
from typing import Final

_NETWORK: Final = 64
_WIDER: Final = (32, 48)
"""Lengths of the prefixes of a provider and of a customer."""


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


@lru_cache(maxsize=4096)
def networks_of(address: str) -> tuple[str, ...]:
    """The networks of an address, the widest first, the last one its block: for IPv4 the block alone."""
    block = block_of(address)
    if ":" not in block:
        return (block,)
    known = ipaddress.IPv6Network(block)
    return (*(str(known.supernet(new_prefix=length)) for length in _WIDER), block)
