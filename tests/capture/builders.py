"""Captures made by hand, for the tests: dpkt makes the packets, so that what reads them is not what wrote them."""

from __future__ import annotations

import struct
from io import BytesIO

from dpkt import ethernet, ip, tcp, udp

from qmnode.capture.read_files import Captured, Item, Notice, SourceOptions, read_packets

CLIENT, SERVER = b"\x0a\x00\x00\x01", b"\x0a\x00\x00\x02"
CLIENT_PORT, SERVER_PORT = 49759, 1801
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
TIME = 1141966310 * 10**9


def packet(size: int = 32, fill: int = 0x61, flags: int = 3) -> bytes:
    """A packet as far as its BaseHeader goes: ``size`` is its PacketSize."""
    return struct.pack("<BBH4sII", 0x10, 0, flags, b"LIOR", size, 0xFFFFFFFF) + bytes([fill]) * (size - 16)


def tcp_segment(
    payload: bytes,
    sequence: int,
    *,
    flags: int = ACK,
    reverse: bool = False,
    ports: tuple[int, int] = (CLIENT_PORT, SERVER_PORT),
) -> bytes:
    """An IPv4 packet with a TCP segment from the client, or in reverse from the server."""
    ends = ((CLIENT, ports[0]), (SERVER, ports[1]))
    (source, from_port), (destination, to_port) = ends[::-1] if reverse else ends
    segment = tcp.TCP(
        sport=from_port, dport=to_port, seq=sequence & 0xFFFFFFFF, ack=1, flags=flags, data=payload, opts=b"\1\1\1\0"
    )
    segment.off = 6
    packet = ip.IP(src=source, dst=destination, p=6, data=segment)
    packet.len = len(packet)
    return bytes(packet)


def udp_datagram(payload: bytes, *, reverse: bool = False, port: int = 3527) -> bytes:
    """An IPv4 packet with a datagram to the ping port, or in reverse from it."""
    ends = ((CLIENT, 4057), (SERVER, port))
    (source, from_port), (destination, to_port) = ends[::-1] if reverse else ends
    datagram = udp.UDP(sport=from_port, dport=to_port, data=payload, ulen=8 + len(payload))
    packet = ip.IP(src=source, dst=destination, p=17, data=datagram)
    packet.len = len(packet)
    return bytes(packet)


def ipv6(payload: bytes, following: int, *, extensions: bytes = b"") -> bytes:
    """An IPv6 packet; ``following`` is the type of the first header in ``extensions + payload``."""
    body = extensions + payload
    return struct.pack("!IHBB", 6 << 28, len(body), following, 64) + bytes(32) + body


def on_ethernet(packet: bytes, *, tags: tuple[int, ...] = (), kind: int = 0x0800) -> bytes:
    """An Ethernet frame around an IP packet; each tag is the type of a VLAN tag before it."""
    head = bytes(ethernet.Ethernet(src=b"\x02" * 6, dst=b"\x04" * 6, data=b""))[:12]
    return head + b"".join(struct.pack("!HH", tag, 7) for tag in tags) + struct.pack("!H", kind) + packet


def pcap(frames: list[bytes], *, link: int = 101, order: str = "<", nano: bool = False, start: int = TIME) -> bytes:
    """A pcap file; frames are a millisecond apart."""
    tick = 1 if nano else 1000
    data = struct.pack(order + "IHHIIII", 0xA1B23C4D if nano else 0xA1B2C3D4, 2, 4, 0, 0, 262144, link)
    for index, frame in enumerate(frames):
        seconds, rest = divmod(start + index * 10**6, 10**9)
        data += struct.pack(order + "IIII", seconds, rest // tick, len(frame), len(frame)) + frame
    return data


def block(order: str, kind: int, body: bytes) -> bytes:
    """A pcapng block."""
    body += bytes(-len(body) % 4)
    length = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + length + body + length


def section(order: str) -> bytes:
    """A pcapng section header."""
    return block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))


def interface(order: str, link: int, options: bytes = b"") -> bytes:
    """A pcapng interface description."""
    return block(order, 1, struct.pack(order + "HHI", link, 0, 0) + options)


def enhanced(order: str, interface_number: int, ticks: int, frame: bytes) -> bytes:
    """A pcapng enhanced packet block."""
    head = struct.pack(order + "IIIII", interface_number, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame))
    return block(order, 6, head + frame)


def read(data: bytes, options: SourceOptions | None = None) -> list[Item]:
    """All items of a file."""
    return list(read_packets(BytesIO(data), options))


def packets_of(items: list[Item]) -> list[Captured]:
    """The captured packets among the items."""
    return [item for item in items if isinstance(item, Captured)]


def notices_of(items: list[Item]) -> list[Notice]:
    """The notices among the items."""
    return [item for item in items if isinstance(item, Notice)]


def follow(*segments: bytes, options: SourceOptions | None = None) -> list[Captured]:
    """The packets in a capture of these raw IP packets."""
    return packets_of(read(pcap(list(segments)), options))
