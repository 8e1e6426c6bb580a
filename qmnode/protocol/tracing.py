"""Trace reports: a queue manager's reports on a message that requested tracing (1.3.6, 3.1.5.8.9, 3.1.7.1.7)."""

from datetime import UTC, datetime
from typing import Final, NamedTuple

from qmnode.protocol.acknowledgments import format_name
from qmnode.structures.base_header import BaseFlags
from qmnode.structures.guid import Guid, guid_to_text
from qmnode.structures.names import PublicFormatName
from qmnode.structures.user_header import UserFlags
from qmnode.structures.user_message import UserMessage

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class TraceReport(NamedTuple):
    """An express message of class MQMSG_CLASS_REPORT to a public queue."""

    queue: str
    label: str
    body: bytes
    """UTF-16-LE text of the report."""
    source: Guid
    """The source queue manager of the traced message."""


def received_report(message: UserMessage, time: int) -> TraceReport | None:
    """The report about a message that arrived here, 3.1.5.8.9; None if it requested none."""
    return _report(message, time, None)


def sent_report(message: UserMessage, time: int, next_hop: str) -> TraceReport | None:
    """The report about a message that was sent from here to the address ``next_hop``, 3.1.7.1.7."""
    return _report(message, time, next_hop)


def _report(message: UserMessage, time: int, next_hop: str | None) -> TraceReport | None:
    debug = message.debug_header
    if not message.base_header.flags & BaseFlags.TR.mask or debug is None or debug.queue_identifier is None:
        return None
    header = message.user_header
    hops = UserFlags.RC.get(header.flags)
    source = guid_to_text(header.source_queue_manager).upper()
    destination = format_name(header.destination_queue, UserFlags.DQ.get(header.flags), header)
    # The grammar's qm-id comes from "the source queue identifier"; a message names no source queue, so it is the first
    # four digits of the source queue manager. The same "received by" stands in both labels of the text.
    label = f"{source[:4]}:{header.message_id:08X}:{hops:02X} received by {source} at {_time_date(time)}"
    lines = [
        f"<MESSAGE ID>{header.message_id:08X}</MESSAGE ID>\r\n",
        f"<TARGET QUEUE>{destination}</TARGET QUEUE>\r\n",
    ]
    if next_hop is not None:
        lines += [f"<NEXT HOP>{next_hop}</NEXT HOP>\r\n", f"<HOP COUNT>{hops:02X} </HOP COUNT>\r\n"]
    queue = str(PublicFormatName(Guid(debug.queue_identifier)))
    return TraceReport(queue, label, "".join(lines).encode("utf-16-le", "surrogatepass"), header.source_queue_manager)


def _time_date(time: int) -> str:
    """time-date of the grammar: ``01:02:03 PM Sat, Nov 21 26``, in UTC and in any locale."""
    moment = datetime.fromtimestamp(time, UTC)
    hour = moment.strftime("%I:%M:%S")
    half = "AM" if moment.hour < 12 else "PM"
    day, month = _DAYS[moment.weekday()], _MONTHS[moment.month - 1]
    return f"{hour} {half} {day}, {month} {moment.day:02} {moment.year % 100:02}"
