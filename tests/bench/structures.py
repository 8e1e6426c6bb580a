"""Parsing and writing the headers of a user message, against the bare calls of ``struct`` over the same fields."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from qmnode.structures.guid import Guid
from qmnode.structures.user_message import (
    BaseFlags,
    BaseHeader,
    DirectQueueFormatName,
    MessagePropertiesHeader,
    SecurityFlags,
    SecurityHeader,
    TransactionFlags,
    TransactionHeader,
    UserFlags,
    UserHeader,
    UserMessage,
)
from tests.bench import Comparison, bench, medians

if TYPE_CHECKING:
    from collections.abc import Callable

BAR: Final = 4.0
"""Times the bare calls that parsing and writing may cost."""

MESSAGE: Final = UserMessage(
    base_header=BaseHeader(flags=BaseFlags.of(), time_to_reach_queue=345600),
    user_header=UserHeader(
        source_queue_manager=Guid(bytes(range(16))),
        sent_time=1141966310,
        message_id=2286,
        flags=UserFlags.of(MP=1, DM=1, JN=1),
        destination_queue=DirectQueueFormatName(direct_format_name="OS:a04bm02\\private$\\orders"),
    ),
    transaction_header=TransactionHeader(
        flags=TransactionFlags.of(FM=1, LM=1, ID=77), tx_sequence_id=9 << 32 | 1, tx_sequence_number=3,
        previous_tx_sequence_number=2,
    ),
    security_header=SecurityHeader(
        flags=SecurityFlags.of(ST=1, AI=1), security_id=bytes(28), signature=bytes(128), sender_cert=bytes(701)
    ),
    message_properties_header=MessagePropertiesHeader(
        flags=0x0F, label="mqsender label", body_type=8, message_body=b"\x5a" * 1024, allocation_body_size=1024
    ),
)  # fmt: skip

PACKET: Final = MESSAGE.write()

# One format per header, counted parts and padding included, the body left out: what hand-written code would unpack if
# it knew all the sizes beforehand.
_NAME: Final = len("OS:a04bm02\\private$\\orders") * 2 + 2
FORMATS: Final = (
    (0, "<BBHIII"),
    (16, f"<16s16sIIIIH{_NAME}s{-(_NAME + 2) % 4}s"),
    (16 + 48 + 2 + _NAME + -(_NAME + 2) % 4, "<IQII"),
)
_SECURITY: Final = FORMATS[2][0] + 20
_PROPERTIES: Final = _SECURITY + 16 + 28 + 128 + 704
ALL_FORMATS: Final = (*FORMATS, (_SECURITY, "<HHHHII28s128s701s3s"), (_PROPERTIES, "<BBH20sIIIIIIII30s"))


_FIELD_FORMATS: Final = (
    (0, "<BBHIII"),
    (16, "<16s16sIIII"),
    (64, "<H"),
    (66, f"<{_NAME}s"),
    (FORMATS[2][0], "<IQII"),
    (_SECURITY, "<HHHHII"),
    (_SECURITY + 16, "<28s"),
    (_SECURITY + 44, "<128s"),
    (_SECURITY + 172, "<701s"),
    (_PROPERTIES, "<BBH20sIIIIIIII"),
    (_PROPERTIES + 56, "<30s"),
)


def _calls(action: str, expressions: list[str]) -> Callable[[], None]:
    """A function of calls in a row, without the cost of a loop."""
    names: dict[str, object] = {"packet": PACKET, "target": bytearray(len(PACKET))}
    lines = []
    for number, ((offset, layout), expression) in enumerate(zip(ALL_FORMATS, expressions, strict=True)):
        names[f"call_{number}"] = getattr(struct.Struct(layout), action)
        lines.append(f"    call_{number}({expression.format(offset=offset)})")
        names[f"values_{number}"] = struct.unpack_from(layout, PACKET, offset)
    exec("def calls():\n" + "\n".join(lines), names)
    made: Callable[[], None] = names["calls"]  # type: ignore[assignment]
    return made


def _field_calls() -> Callable[[], None]:
    """``struct.unpack_from`` over the same fields as a parser has to call it.

    One call for each run of fixed fields, and one for each part whose size such a run gives; the body is left alone.
    """
    lines = []
    for offset, layout in _FIELD_FORMATS:
        lines.append(f"    unpack_from({layout!r}, packet, {offset})")
    names: dict[str, object] = {"packet": PACKET, "unpack_from": struct.unpack_from}
    exec("def calls():\n" + "\n".join(lines), names)
    made: Callable[[], None] = names["calls"]  # type: ignore[assignment]
    return made


bare_parse: Final = _calls("unpack_from", ["packet, {offset}"] * len(ALL_FORMATS))
"""Five calls of compiled formats that already know every size: less than any parser can do."""

bare_field_parse: Final = _field_calls()

bare_write: Final = _calls("pack_into", [f"target, {{offset}}, *values_{number}" for number in range(len(ALL_FORMATS))])
"""The bare calls, into a buffer that is there already; the body is left out."""


def parse() -> None:
    """Parse all headers, every field checked."""
    UserMessage.parse(PACKET)


def write() -> None:
    """Write the message, body included."""
    MESSAGE.write()


def compare_parse() -> Comparison:
    """Parsing, against the calls that a reader of these fields has to make."""
    parsed, by_field = medians([parse, bare_field_parse])
    return Comparison("parse", parsed, "11 struct.unpack_from", by_field, BAR)


def compare_write() -> Comparison:
    """Writing, body included, against bare calls that know all sizes and leave the body out."""
    written, bare_written = medians([write, bare_write])
    return Comparison("write", written, "5 pack_into, sizes known", bare_written, BAR)


@bench("structures")
def structures() -> list[Comparison]:
    """The two lines with a bar, and parsing against calls that know beforehand what a parser has to find out."""
    parsed, bare_read = medians([parse, bare_parse])
    return [
        compare_parse(),
        compare_write(),
        Comparison("parse, with sizes known", parsed, "5 unpack_from", bare_read),
    ]
