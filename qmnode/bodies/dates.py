"""Dates of .NET and OLE as :class:`datetime.datetime`, and durations."""

from datetime import UTC, datetime, timedelta
from typing import Final

from qmnode.bodies.limits import BodyError

_FIRST: Final = datetime(1, 1, 1)
_OLE_EPOCH: Final = datetime(1899, 12, 30)
MOST_TICKS: Final = 3_155_378_975_999_999_999
"""DateTime.MaxValue, the last tick of the year 9999."""
_KIND_UTC: Final = 1
_KIND_LOCAL: Final = 2


def from_ticks(ticks: int) -> datetime:
    """DateTime.Ticks: tenths of a microsecond since the year 1. Python has whole microseconds: the rest is dropped."""
    if not 0 <= ticks <= MOST_TICKS:
        raise BodyError(f"{ticks} ticks are no date: DateTime has 0 to {MOST_TICKS}")
    return _FIRST + timedelta(microseconds=ticks // 10)


def to_ticks(moment: datetime) -> int:
    """The ticks of the date and time as shown; a time zone does not change them."""
    passed = moment.replace(tzinfo=None) - _FIRST
    return (passed.days * 86_400 + passed.seconds) * 10_000_000 + passed.microseconds * 10


def from_binary(value: int) -> datetime:
    """A 64-bit number of 62 bits of ticks with a kind (MS-NRBF 2.1.1.5, MC-NBFX 2.2.3.12). UTC gets its time zone."""
    value &= (1 << 64) - 1
    kind, ticks = value >> 62, value & ((1 << 62) - 1)
    if kind not in (0, _KIND_UTC, _KIND_LOCAL):
        raise BodyError(f"the date has the kind {kind}, and there are 0 to {_KIND_LOCAL}")
    moment = from_ticks(ticks)
    return moment.replace(tzinfo=UTC) if kind == _KIND_UTC else moment


def from_nrbf(value: int) -> datetime:
    """DateTime of MS-NRBF 2.1.1.5: local times are kept as UTC by .NET, with kinds 2 and 3, and wrap around zero."""
    value &= (1 << 64) - 1
    kind, ticks = value >> 62, value & ((1 << 62) - 1)
    if kind >= _KIND_LOCAL:
        if ticks > (1 << 62) - 900_000_000_000:  # on the first day, in a zone east of Greenwich
            ticks -= 1 << 62
        return from_ticks(max(ticks, 0)).replace(tzinfo=UTC)
    return from_binary(value)


def from_ole(days: float) -> datetime:
    """OLE Automation date: days since 1899-12-30; before it the fraction still counts forward."""
    if not -657_435.0 < days < 2_958_466.0:
        raise BodyError(f"{days} is no OLE date: those are of the years 100 to 9999")
    whole = int(days)
    # .NET and OLE have milliseconds here; more digits of the fraction are rounding errors of the division.
    milliseconds = int(abs(days - whole) * 86_400_000 + 0.5)
    return _OLE_EPOCH + timedelta(days=whole, milliseconds=milliseconds)


def to_ole(moment: datetime) -> float:
    """The OLE Automation date of a date and time."""
    passed = moment.replace(tzinfo=None) - _OLE_EPOCH
    fraction = (passed.seconds + passed.microseconds / 1_000_000) / 86_400
    return passed.days + fraction if passed.days >= 0 else passed.days - fraction


def duration_text(ticks: int) -> str:
    """A TimeSpan in XML form, ``P1DT2H3M4.5S``."""
    sign, ticks = ("-", -ticks) if ticks < 0 else ("", ticks)
    seconds, rest = divmod(ticks, 10_000_000)
    days, seconds = divmod(seconds, 86_400)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    fraction = f".{rest:07}".rstrip("0") if rest else ""
    time = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
    time += f"{seconds}{fraction}S" if seconds or rest else ""
    text = (f"{days}D" if days else "") + (f"T{time}" if time else "")
    return f"{sign}P{text}" if text else "PT0S"
