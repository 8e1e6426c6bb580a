"""The eight frames of MS-MQQB 4.1 as a capture: ``python -m tests.conformance.session`` writes ``session.pcap`` again.

Each frame of the section is one frame of the capture, so that the numbers agree; there is no handshake. Addresses are
those kept for documentation (RFC 5737), and the time is the section's date: the section gives neither.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from pathlib import Path

from dpkt import ethernet, ip, tcp, udp

from tests.conformance.frames import FRAMES, SERVER, Frame

PATH = Path(__file__).with_name("session.pcap")
ADDRESSES = {"client": b"\xc0\x00\x02\x01", "server": b"\xc0\x00\x02\x02"}
HARDWARE = {"client": b"\x02\x00\x00\x00\x00\x01", "server": b"\x02\x00\x00\x00\x00\x02"}
START = int(datetime(2016, 7, 14, tzinfo=UTC).timestamp())
ETHERNET, SNAP_LENGTH = 1, 262144
PUSH_AND_ACKNOWLEDGE = tcp.TH_PUSH | tcp.TH_ACK


def capture() -> bytes:
    """The capture file."""
    data = struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, SNAP_LENGTH, ETHERNET)
    sent = {"client": 1, "server": 1}
    for case in FRAMES:
        frame = _frame(case, sent)
        data += struct.pack("<IIII", START, case.number * 1000, len(frame), len(frame)) + frame
    return data


def _frame(case: Frame, sent: dict[str, int]) -> bytes:
    receiver = "client" if case.sender == SERVER else "server"
    ports = {"sport": case.source_port, "dport": case.destination_port}
    if case.transport == "udp":
        body, protocol = udp.UDP(**ports, ulen=8 + len(case.data), data=case.data), ip.IP_PROTO_UDP
    else:
        numbers = {"seq": sent[case.sender], "ack": sent[receiver]}
        body, protocol = tcp.TCP(**ports, **numbers, flags=PUSH_AND_ACKNOWLEDGE, data=case.data), ip.IP_PROTO_TCP
        sent[case.sender] += len(case.data)
    packet = ip.IP(src=ADDRESSES[case.sender], dst=ADDRESSES[receiver], p=protocol, id=case.number, data=body)
    packet.len = len(packet)
    return bytes(ethernet.Ethernet(src=HARDWARE[case.sender], dst=HARDWARE[receiver], data=packet))


if __name__ == "__main__":
    PATH.write_bytes(capture())
