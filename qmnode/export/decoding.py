"""Converts blocks of events to the columns of a segment."""

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from qmnode.export.events import COLUMNS, EventKind
from qmnode.export.log import KINDS, Event, read_block
from qmnode.model.stored_message import (
    ADMINISTRATION_SHIFT,
    BROKEN,
    DESTINATION_SHIFT,
    HAS_TRANSACTION,
    HEAD,
    PREFIX_SIZE,
    RECOVERABLE_FLAG,
    RESPONSE_SHIFT,
    Names,
    read_properties_place,
)
from qmnode.structures import public_keys
from qmnode.structures.enumerations import MessageClass, PrivacyLevel
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import guid_to_text
from qmnode.structures.packet_view import (
    SECURITY_SIZE,
    contents_of,
    label_of,
    places_of,
    read_properties,
    read_security,
)
from qmnode.structures.security_descriptor import Sid
from qmnode.structures.user_message import UserFlags

_INFINITE: Final = 0xFFFF_FFFF
_NAMED: Final = frozenset(MessageClass) - {MessageClass.MQMSG_CLASS_NORMAL, MessageClass.MQMSG_CLASS_REPORT}
_SECURED: Final = UserFlags.SH.mask
_TRACE_LABEL: Final = re.compile(r"([0-9A-F]{4}):([0-9A-F]{8}):([0-9A-F]{2}) received by ([0-9A-F-]{36}) at ")
_NEXT_HOP: Final = re.compile(r"<NEXT HOP>(.*?)</NEXT HOP>")
_PROVIDERS: Final[dict[int, str]] = {
    PrivacyLevel.BASE: public_keys.BASE_PROVIDER,
    PrivacyLevel.ENHANCED: public_keys.ENHANCED_PROVIDER,
    PrivacyLevel.ADVANCED: public_keys.AES_PROVIDER,
}
_ZERO: Final = guid_to_text(bytes(16))

guid_text: Final = lru_cache(4096)(guid_to_text)


class Rows:
    """Columns that grow by one event at a time."""

    def __init__(self, labels: bool = True) -> None:
        self.columns: dict[str, list[Any]] = {name: [] for name in COLUMNS if name not in ("node_id", "node", "site")}
        self.count = 0
        self._labels = labels

    def add_block(self, first: int, block: bytes) -> None:
        """Add the events of a block, whose first has this sequential identifier."""
        for offset, event in enumerate(read_block(block), first):
            self._add(offset, event)

    def add_blocks(self, blocks: Iterable[tuple[int, bytes]]) -> None:
        """Add several blocks, each with its first sequential identifier."""
        for first, block in blocks:
            self.add_block(first, block)

    def _add(self, offset: int, event: Event) -> None:
        kind = KINDS[event.kind]
        peer, _, peer_id = event.peer.partition(" ")
        row: dict[str, Any] = {
            "offset": offset,
            "time": event.time,
            "kind": kind.value,
            "queue": event.queue or None,
            "peer": peer or None,
            "peer_id": peer_id if peer_id not in ("", _ZERO) else None,
        }
        row.update(self._told_of_message(kind, event) if kind in _ABOUT_MESSAGES else json.loads(event.content))
        get = row.get
        for name, column in self.columns.items():
            column.append(get(name))
        self.count += 1

    def _told_of_message(self, kind: EventKind, event: Event) -> dict[str, Any]:
        try:
            row = message_row(event.content, self._labels)
        except BROKEN:
            return {"message_class": None}  # of a damaged record, only its arrival or departure is known
        message_class = row["message_class"]
        match kind:
            case EventKind.REACHED if message_class == MessageClass.MQMSG_CLASS_REPORT:
                row |= _report(event.content)
            case EventKind.REACHED if message_class in _NAMED:
                row |= _acknowledgment(event.content, message_class)
            case EventKind.KEY_USED:
                row |= {"key_fingerprint": event.peer, "peer": None, "provider": _provider(event.content)}
            case EventKind.DEAD_LETTER:
                row |= {"reason": event.reason or None, "message_class": None}
            case EventKind.JOURNALED:
                pass
            case _ if event.reason:
                row["reason"] = event.reason
        return row


_ABOUT_MESSAGES: Final = frozenset(KINDS[: KINDS.index(EventKind.SESSION_OPENED)]) | {EventKind.KEY_USED}


def message_row(value: bytes, labels: bool = True) -> dict[str, Any]:
    """The columns that come from the headers of a stored message."""
    (
        _, _, _, _, place, _, _, _, _, base_flags, _, size, reach, source, address, lifetime, sent, number, flags,
    ) = HEAD.unpack_from(value)  # fmt: skip
    names = Names(value, source, address)
    destination = names.take(flags >> DESTINATION_SHIFT & 7)
    administration = names.take(flags >> ADMINISTRATION_SHIFT & 7)
    response = names.take(flags >> RESPONSE_SHIFT & 7, administration)
    _, label_length, message_class, _, _, _, body_size, _, _, _, _, _ = read_properties(value, place)
    return {
        "source_id": guid_text(source),
        "message_number": number,
        "destination": destination,
        "message_class": message_class,
        "priority": base_flags & 7,
        "recoverable": bool(flags & RECOVERABLE_FLAG),
        "transactional": bool(flags & HAS_TRANSACTION),
        "hop_count": UserFlags.RC.get(flags),
        "size": size,
        "body_size": body_size,
        "sent_time": sent * 1_000_000,
        "time_to_reach_queue": None if reach == _INFINITE else reach,
        "time_to_be_received": None if lifetime == _INFINITE else lifetime,
        "label": label_of(value, place) if labels and label_length else None,
        "sender": sender_of(value) if flags & _SECURED else None,
        "administration_queue": administration or None,
        "response_queue": response or None,
    }


def sender_of(value: bytes) -> str | None:
    """The SID in the SecurityHeader (MS-MQMQ 2.2.20.6) of a stored message that has one; None if it contains no SID."""
    offset = places_of(value, PREFIX_SIZE).security_header
    security_flags, size = read_security(value, offset)[:2]
    if not size or security_flags & 0x0F != 1:  # only a SID identifies a user
        return None
    start = offset + SECURITY_SIZE
    try:
        return str(Sid.parse(value[start : start + size]))
    except (PacketError, ValueError):
        return None


def _provider(value: bytes) -> str:
    """The cryptographic provider of the privacy level."""
    level = read_properties(value, read_properties_place(value)[0])[8]
    return _PROVIDERS.get(level, str(level))


def _acknowledgment(value: bytes, message_class: int) -> dict[str, Any]:
    """The message that an administration acknowledgment is about: its correlation identifier (MS-MQQB 3.1.7.15)."""
    correlation = read_properties(value, read_properties_place(value)[0])[3]
    return {
        "kind": EventKind.ACKNOWLEDGMENT.value,
        "about_source_id": guid_text(correlation[:16]),
        "about_message_number": int.from_bytes(correlation[16:], "little"),
        "reason": message_class,
    }


def _report(value: bytes) -> dict[str, Any]:
    """The message that a trace report is about, according to its text (MS-MQQB 3.1.5.8.9)."""
    place = read_properties_place(value)[0]
    _, body_at, end = contents_of(value, place)
    label, text = label_of(value, place), value[body_at:end].decode("utf-16-le", "replace")
    told: dict[str, Any] = {"kind": EventKind.REPORT.value}
    match = _TRACE_LABEL.search(label)
    if match is not None:
        told |= {
            "about_source_id": match[4].lower(),
            "about_message_number": int(match[2], 16),
            "hop_count": int(match[3], 16),
        }
    if (hop := _NEXT_HOP.search(text)) is not None:
        told["state"] = hop[1]
    return told
