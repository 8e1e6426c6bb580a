"""Link, IP, TCP and UDP headers of one captured frame.

``read_frame`` returns the segment or datagram of a frame. It returns None for a frame without TCP or UDP over IP, or
one that is too damaged. Frames of other protocols are normal in a capture, so they are no error.
"""

import struct
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

FIN, SYN, RST, ACK = 0x01, 0x02, 0x04, 0x10


class Endpoint(NamedTuple):
    """Address (4 or 16 bytes) and port."""

    address: bytes
    port: int

    def __str__(self) -> str:
        if len(self.address) == 4:
            return f"{IPv4Address(self.address)}:{self.port}"
        return f"[{IPv6Address(self.address)}]:{self.port}"


class Segment(NamedTuple):
    """A TCP segment. ``payload`` is shorter than on the wire if the capture truncated it."""

    source: Endpoint
    destination: Endpoint
    sequence: int
    flags: int
    payload: bytes


class Datagram(NamedTuple):
    """A UDP datagram with its endpoints."""

    source: Endpoint
    destination: Endpoint
    payload: bytes
    missing: int = 0
    """Bytes of the payload that the capture truncated."""


class Fragment(NamedTuple):
    """Part of a fragmented IP datagram: reported and not reassembled, as MSMQ's own traffic is not fragmented."""

    source: bytes
    destination: bytes


Found = Segment | Datagram | Fragment | None

_VLAN_TAGS = {0x8100, 0x88A8, 0x9100}
_IPV4, _IPV6 = 0x0800, 0x86DD
_MOST_HEADERS = 32
"""The most tags or extension headers of one frame; the length of the frame bounds them too."""

_TCP, _UDP, _FRAGMENT, _AUTHENTICATION = 6, 17, 44, 51
_EXTENSIONS = {0, 43, 60, 135, 139, 140}
"""IPv6 extension headers whose length is in units of 8 bytes after the first 8 (RFC 8200, 6275, 7401, 5533)."""


def read_frame(link: int, data: bytes) -> Found:
    """The segment, datagram or fragment in a frame of this LINKTYPE_."""
    reader = _LINKS.get(link)
    return reader(data) if reader else None


def knows_link(link: int) -> bool:
    """Whether frames of this LINKTYPE_ can be read."""
    return link in _LINKS


def _ethernet(data: bytes) -> Found:
    return _after_type(data, 12)


def _after_type(data: bytes, position: int) -> Found:
    for _ in range(_MOST_HEADERS):
        if len(data) < position + 2:
            return None
        kind = int.from_bytes(data[position : position + 2], "big")
        if kind not in _VLAN_TAGS:
            return _network(kind, data[position + 2 :])
        position += 4
    return None


def _network(kind: int, data: bytes) -> Found:
    if kind == _IPV4:
        return _ipv4(data)
    return _ipv6(data) if kind == _IPV6 else None


def _cooked(data: bytes) -> Found:
    return _after_type(data, 14)


def _cooked_2(data: bytes) -> Found:
    kind = int.from_bytes(data[:2], "big")
    # A VLAN tag precedes the packet here, and its type follows the tag.
    return _after_type(data, 22) if kind in _VLAN_TAGS else _network(kind, data[20:])


def _ip(data: bytes) -> Found:
    """A raw IP packet, or the data after a loopback header, by the version."""
    if not data:
        return None
    return {4: _ipv4, 6: _ipv6}.get(data[0] >> 4, _nothing)(data)


def _nothing(_data: bytes) -> Found:
    return None


def _loopback(data: bytes) -> Found:
    # The four bytes are an address family in the byte order and numbering of the capturing system.
    return _ip(data[4:])


def _ipv4(data: bytes) -> Found:
    if len(data) < 20 or data[0] >> 4 != 4:
        return None
    header = (data[0] & 15) * 4
    total, _, fragment = struct.unpack_from("!HHH", data, 2)
    source, destination = data[12:16], data[16:20]
    if fragment & 0x3FFF:  # more fragments, or an offset
        return Fragment(source, destination)
    # Zero: the network card was to split the segment (TSO) and the length was not yet known.
    body = data[header : total or None]
    return _transport(data[9], source, destination, body) if header >= 20 else None


def _ipv6(data: bytes) -> Found:
    if len(data) < 40 or data[0] >> 4 != 6:
        return None
    length, following = struct.unpack_from("!HB", data, 4)
    source, destination = data[8:24], data[24:40]
    body = data[40 : 40 + length if length else None]  # zero: a jumbogram, or TSO
    for _ in range(_MOST_HEADERS):
        if following in (_TCP, _UDP):
            return _transport(following, source, destination, body)
        if len(body) < 8:
            return None
        if following == _FRAGMENT:
            if int.from_bytes(body[2:4], "big") & 0xFFF9:
                return Fragment(source, destination)
            size = 8
        elif following == _AUTHENTICATION:
            size = (body[1] + 2) * 4
        elif following in _EXTENSIONS:
            size = (body[1] + 1) * 8
        else:
            return None
        following, body = body[0], body[size:]
    return None


def _transport(protocol: int, source: bytes, destination: bytes, data: bytes) -> Found:
    if protocol == _TCP and len(data) >= 20:
        from_port, to_port, sequence, _, offset, flags = struct.unpack_from("!HHIIBB", data)
        if (header := (offset >> 4) * 4) >= 20:
            return Segment(Endpoint(source, from_port), Endpoint(destination, to_port), sequence, flags, data[header:])
    elif protocol == _UDP and len(data) >= 8:
        from_port, to_port, length = struct.unpack_from("!HHH", data)
        payload = data[8 : length or None]
        missing = max(0, length - 8 - len(payload))
        return Datagram(Endpoint(source, from_port), Endpoint(destination, to_port), payload, missing)
    return None


_LINKS: dict[int, Callable[[bytes], Found]] = {
    0: _loopback,  # BSD loopback
    1: _ethernet,
    12: _ip,  # raw IP, as some systems number it
    14: _ip,
    101: _ip,
    108: _loopback,  # OpenBSD loopback
    113: _cooked,  # Linux SLL, "any" interface
    228: _ip,
    229: _ip,
    276: _cooked_2,  # Linux SLL2
}
