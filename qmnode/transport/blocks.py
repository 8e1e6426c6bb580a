"""Address blocks: what one attacker has at least, and shares with nobody that is honest."""

import ipaddress
from functools import lru_cache
from typing import Final

_NETWORK: Final = 64


@lru_cache(maxsize=4096)
def block_of(address: str) -> str:
    """An IPv4 address itself; of an IPv6 address its /64, in which a machine changes its address as it likes."""
    if ":" not in address:
        return address
    try:
        known = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    return str(ipaddress.IPv6Network((known, _NETWORK), strict=False))
