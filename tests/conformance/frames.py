"""The eight frames of MS-MQQB 4.1: "Session Initialization and Express Message Example", as the section dumps them.

Where the section's decoded text disagrees with its bytes, the bytes are the truth; ``test_frames.py`` notes each place.
Runs of one repeated pattern are written as such; all other bytes are as printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CLIENT, SERVER = "client", "server"


@dataclass(frozen=True)
class Frame:
    """One frame: who sent it, over what, from and to which port, and its bytes."""

    number: int
    title: str
    sender: Literal["client", "server"]
    transport: Literal["udp", "tcp"]
    source_port: int
    destination_port: int
    data: bytes


_FRAME_7_PRINTED = bytes.fromhex(
    "10 00 03 00 4C 49 4F 52 B0 08 00 00 00 46 05 00"
    "D1 58 73 55 50 91 95 95 49 97 B6 E6 11 EA 26 C6"
    "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
    "FF FF FF FF 4C 49 4F 52 EE 08 00 00 00 1C 28 00"
    "1A 00 4F 00 53 00 3A 00 61 00 30 00 34 00 62 00"
    "6D 00 30 00 32 00 5C 00 71 00 00 00 01 00 1C 00"
    "00 00 00 00 00 00 00 00 00 00 00 00 01 05 00 00"
    "00 00 00 05 15 00 00 00 AD 4A 9E BD 36 D9 FA 3D"
    "63 A6 56 DA E8 03 00 00 0F 0F 00 00 00 00 00 00"
    "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
    "08 00 00 00 00 00 00 00 D0 07 00 00 D0 07 00 00"
    "00 00 00 00 04 80 00 00 01 68 00 00 00 00 00 00"
    "6D 00 71 00 73 00 65 00 6E 00 64 00 65 00 72 00"
    "20 00 6C 00 61 00 62 00 65 00 6C 00 00 00"
) + bytes.fromhex("61 00") * 714  # fmt: skip

FRAME_7_PRINTED_SIZE = len(_FRAME_7_PRINTED)

FRAMES = (
    Frame(
        1, "Ping Request", "client", "udp", 4057, 3527,
        bytes.fromhex("01 7D 48 55 04 00 00 00 D1 58 73 55 50 91 95 95 49 97 B6 E6 11 EA 26 C6"),
    ),
    Frame(
        2, "Ping Response", "server", "udp", 3527, 4057,
        bytes.fromhex("95 B2 48 55 04 00 00 00 07 89 CD 43 4C 39 11 8F 44 45 90 78 90 9E A0 FC"),
    ),
    Frame(
        3, "Establish Connection Request", "client", "tcp", 49759, 1801,
        bytes.fromhex(
            "10 C0 0B 00 4C 49 4F 52 3C 02 00 00 FF FF FF FF"
            "00 00 02 00 D1 58 73 55 50 91 95 95 49 97 B6 E6"
            "11 EA 26 C6 07 89 CD 43 4C 39 11 8F 44 45 90 78"
            "90 9E A0 FC 4E CA DE 1D 10 03 00 00"
        ) + bytes.fromhex("5A") * 512,
    ),
    Frame(
        4, "Establish Connection Response", "server", "tcp", 1801, 49759,
        bytes.fromhex(
            "10 5A 0B 00 4C 49 4F 52 3C 02 00 00 FF FF FF FF"
            "00 00 02 00 05 23 74 1F 5E BE 77 41 BC 77 C4 DD"
            "77 19 E4 74 EB 6A 3A 3C 67 F5 43 41 87 D3 85 CF"
            "4D 68 CE B4 4E CA DE 1D 10 03 00 00"
        ) + bytes.fromhex("5A") * 512,
    ),
    Frame(
        5, "Connection Parameters Request", "client", "tcp", 49759, 1801,
        bytes.fromhex(
            "10 C0 0B 00 4C 49 4F 52 20 00 00 00 FF FF FF FF"
            "00 00 03 00 D8 05 00 00 C0 D4 01 00 00 00 40 00"
        ),
    ),
    Frame(
        6, "Connection Parameters Response", "server", "tcp", 1801, 49759,
        bytes.fromhex(
            "10 C0 0B 00 4C 49 4F 52 20 00 00 00 FF FF FF FF"
            "00 00 03 00 D8 05 00 00 C0 D4 01 00 00 00 40 00"
        ),
    ),
    Frame(
        7, "User Message", "client", "tcp", 49759, 1801,
        # The dump stops after 1,650 of the 2,224 bytes that PacketSize says: a body of 2,000 bytes that repeats
        # "61 00", then 2 bytes of padding, whose values nothing tells; zeros here.
        _FRAME_7_PRINTED + bytes.fromhex("61 00") * 286 + bytes(2),
    ),
    Frame(
        8, "Session Acknowledgment", "server", "tcp", 1801, 49759,
        bytes.fromhex(
            "10 CD 1B 00 4C 49 4F 52 24 00 00 00 FF FF FF FF"
            "00 00 01 00 01 00 00 00 00 00 00 00 00 00 00 00"
            "40 00 00 00"
        ),
    ),
)  # fmt: skip
