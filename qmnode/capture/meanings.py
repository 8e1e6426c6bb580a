"""Meanings of values for people: GUIDs, times, durations, message classes, body types, format names, SIDs.

``explain_values`` walks a decode tree and adds the meanings to its values, by a table of fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from qmnode.structures.enumerations import CUSTOM_CLASS_MASK, MessageClass, VariantType
from qmnode.structures.guid import guid_to_text
from qmnode.structures.names import FormatNameError, PrivateFormatName, PublicFormatName, parse_format_name
from qmnode.structures.user_message import UserFlags

if TYPE_CHECKING:
    from qmnode.structures.layout import Annotation

_FOR_EVER = 0xFFFFFFFF
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_MORE_BODY_TYPES = {8: "VT_BSTR"}
"""Types that applications use although 2.2.12 does not list them: frame 7 of MS-MQQB 4.1.7 has one."""


def guid(value: bytes) -> str:
    """The text form in braces, as Windows prints it."""
    return f"{{{guid_to_text(value)}}}"


def duration(seconds: int) -> str:
    """A duration such as "4 d" or "1 h 30 min", or "for ever"."""
    if seconds == _FOR_EVER:
        return "for ever"
    parts = []
    rest = seconds
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts) or "0 s"


def moment(seconds: int) -> str:
    """Seconds since 1970 as a time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def nanoseconds(value: int) -> str:
    """Nanoseconds since 1970 as a time in UTC, to the nanosecond."""
    seconds, rest = divmod(value, 10**9)
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{rest:09d}Z"
    except (ValueError, OverflowError, OSError):  # a year beyond 9999: clocks of captures are sometimes wild
        return f"{seconds}.{rest:09d} s since 1970"


def message_class(value: int) -> str:
    try:
        return MessageClass(value).name
    except ValueError:
        return "a class of the application" if not value & ~CUSTOM_CLASS_MASK else "no class"


def body_type(value: int) -> str:
    """The name of a variant type."""
    try:
        return VariantType(value).name
    except ValueError:
        return _MORE_BODY_TYPES.get(value, "not in 2.2.12")


def sid(value: bytes) -> str:
    """S-1-5-21-..., or empty for bytes that are no SID (MS-DTYP 2.4.2.2)."""
    if len(value) < 8 or len(value) != 8 + 4 * value[1]:
        return ""
    authority = int.from_bytes(value[2:8], "big")
    parts = [int.from_bytes(value[at : at + 4], "little") for at in range(8, len(value), 4)]
    return "-".join(["S", str(value[0]), str(authority), *map(str, parts)])


def sender(value: Any) -> str:
    """A SecurityID: a SID, or the GUID of a queue manager."""
    data = bytes(value)
    return sid(data) or (guid(data) if len(data) == 16 else "")


def milliseconds(value: int) -> str:
    return f"{value / 1000:g} s"


def tx_sequence_id(value: int) -> str:
    """The two parts of a TxSequenceID (MS-MQMQ 2.2.18.1.2)."""
    return f"TimeStamp {value >> 32}, Ordinal {value & 0xFFFFFFFF}"


MEANINGS: Final[Mapping[tuple[str, str], Callable[[Any], str]]] = {
    ("BaseHeader", "TimeToReachQueue"): duration,
    ("UserHeader", "TimeToBeReceived"): duration,
    ("UserHeader", "SentTime"): moment,
    ("MessagePropertiesHeader", "MessageClass"): message_class,
    ("MessagePropertiesHeader", "BodyType"): body_type,
    ("SecurityHeader", "SecurityID"): sender,
    ("TransactionHeader", "TxSequenceID"): tx_sequence_id,
    ("OrderAck Body", "TxSequenceID"): tx_sequence_id,
    ("FinalAck Body", "TxSequenceID"): tx_sequence_id,
    ("ConnectionParametersHeader", "RecoverableAckTimeout"): milliseconds,
    ("ConnectionParametersHeader", "AckTimeout"): milliseconds,
}
_QUEUES = {"DestinationQueue": "DQ", "AdminQueue": "AQ", "ResponseQueue": "RQ"}
_GUID_SIZE = 16
_SINGLE_DIGIT = 9
_HEXADECIMAL = {"Signature", "VersionNumber", "MessageClass", "HeaderSectionID", "BodySectionID", "HeaderID", "ID"}
"""Fields whose numbers are shown in hexadecimal."""


def explain_values(tree: Annotation, packet: Any) -> None:
    """Add the meanings of values to the ``text`` of the tree's lines."""
    user = getattr(packet, "user_header", None)
    for line in tree.walk():
        if isinstance(line.value, bytes) and len(line.value) == _GUID_SIZE and _is_guid(line):
            line.text = guid(line.value)
        if (
            isinstance(line.value, int)
            and line.value > _SINGLE_DIGIT
            and line.text == f"0x{line.value:0{2 * line.width}X}"
        ):
            line.text = line.text if line.bits or line.name in _HEXADECIMAL else f"{line.value} ({line.text})"
        meaning = MEANINGS.get((line.structure, line.name))
        said = meaning(line.value) if meaning and line.value is not None else ""
        if said and said not in line.text:
            line.text = f"{line.text} {said}".strip()
        elif line.name in _QUEUES and line.value is None and user is not None and not line.text:
            line.text = queue_name(user, line.name)


def _is_guid(line: Annotation) -> bool:
    return line.name.lower().endswith(("guid", "queuemanager", "manageraddress", "identifier", "type"))


def queue_name(user: Any, name: str) -> str:
    """The format name of a UserHeader's DestinationQueue, AdminQueue or ResponseQueue (2.2.19.2), if it has one."""
    kind = UserFlags.FIELDS[_QUEUES[name]].get(user.flags)
    queue = {"DestinationQueue": user.destination_queue, "AdminQueue": user.admin_queue}.get(name, user.response_queue)
    match kind:
        case 2:
            return str(PrivateFormatName(user.source_queue_manager, queue.private_queue_identifier))
        case 3:
            return str(PrivateFormatName(user.queue_manager_address, queue.private_queue_identifier))
        case 5:
            return str(PublicFormatName(queue.public_queue_identifier))
        case 6:
            return str(PrivateFormatName(queue.source_queue_manager, queue.private_queue_identifier))
        case 7:
            return _direct(queue.direct_format_name)
        case _:
            return ""


def _direct(name: str) -> str:
    try:
        return str(parse_format_name(f"DIRECT={name}"))
    except FormatNameError as error:
        return f"DIRECT={name} (no format name: {error})"
