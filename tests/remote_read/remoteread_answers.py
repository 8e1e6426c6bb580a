"""The answers that foreign clients print when they call every method of RemoteRead on a queue of three messages."""

from __future__ import annotations

import json
from typing import Any

from qmnode.model.stored_message import message_from_packet
from qmnode.structures.error_codes import ErrorCode


def body(packet: bytes) -> bytes:
    """The body of a message packet."""
    return message_from_packet(packet[: int.from_bytes(packet[8:12], "little")]).body


def bodies(sections: list[Any]) -> list[bytes]:
    """The bodies in sections: kind, whole size and octets of each."""
    found = []
    for kind, size, digits in sections:
        packet = bytes.fromhex(digits)
        assert (kind, size) == (0, len(packet))
        found.append(body(packet))
    return found


def answers_of(output: str) -> list[tuple[Any, ...]]:
    """The lines of JSON that a client prints, with bodies in place of sections."""
    return [
        (name, *values[:-1], bodies(values[-1])) if isinstance(values[-1], list) else (name, *values)
        for name, *values in map(json.loads, output.splitlines())
    ]


def every_answer(port: int) -> list[tuple[Any, ...]]:
    """What a node answers that has the messages one, two and three in the queue."""
    return [
        ("R_GetServerPort", port),
        ("peek", 0, [b"one"]),
        ("at the cursor", [b"one"]),
        ("at the cursor", [b"two"]),
        ("R_CloseCursor", 0),
        ("by lookup identifier", [b"one"]),
        ("R_SetUserAcknowledgementClass", ErrorCode.MQ_ERROR_TRANSACTION_USAGE),
        ("R_MoveMessage", 0),
        ("R_StartReceive", 0, [b"two"]),
        ("R_EndReceive", 0),
        ("R_StartTransactionalReceive", 0, [b"three"]),
        ("R_EndTransactionalReceive", 0),
        ("R_CancelReceive", ErrorCode.MQ_ERROR),
        ("R_QMEnlistRemoteTransaction", ErrorCode.MQ_ERROR_TRANSACTION_ENLIST),
        ("R_PurgeQueue", 0),
        ("R_CloseQueue", 0, bytes(16).hex()),
    ]
