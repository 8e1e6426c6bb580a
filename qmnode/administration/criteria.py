"""The criteria of a search: properties of a message, text in its body, parts of its value, its headers."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final, NoReturn, Self

from qmnode.bodies.choice import read_headers
from qmnode.bodies.limits import Limits
from qmnode.bodies.values_as_json import plain
from qmnode.errors import MessageQueuingError
from qmnode.model.message import Message
from qmnode.structures.enumerations import MessageClass
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import guid_from_text
from qmnode.structures.security_descriptor import Sid

_LONGEST: Final = 4096
"""Characters of one criterion."""
_MOST: Final = 20
"""Values or headers that are asked for at once."""
LIMITS: Final = Limits(nodes=5_000, depth=50, octets=64 * 1024)
"""The most that decoding one message may cost a search: larger bodies are not found by their values."""

Check = Callable[[Message], bool]


@dataclass(frozen=True, slots=True)
class Criteria:
    """All that is set must be true of a message. Texts are patterns with ``*`` and ``?``; without them, parts."""

    label: str = ""
    body: str = ""
    """Text that the body contains, in UTF-8 or UTF-16; case counts."""
    values: tuple[str, ...] = ()
    """``Order.Id=7``: parts of the decoded body, by their names; without ``=`` the part has to be there."""
    headers: tuple[str, ...] = ()
    """``NServiceBus.FailedQ=sales*``: headers of NServiceBus or Rebus, in the same way."""
    identifier: str = ""
    correlation: str = ""
    r"""``GUID\number`` or 40 hexadecimal digits."""
    message_class: str = ""
    """A name of MS-MQMQ 2.2.18.1.6 with or without ``MQMSG_CLASS_``, or a number; a pattern of names does as well."""
    sender: str = ""
    """SID that is proved to be the sender's, or that the message claims; or the GUID of the source machine."""
    larger: int = 0
    """Bytes of the body, at least."""
    smaller: int | None = None
    """Bytes of the body, at the most."""
    arrived_after: float = 0.0
    """Seconds since 1970 (UTC)."""
    arrived_before: float | None = None
    priority: int | None = None
    response_queue: str = ""
    administration_queue: str = ""
    destination: str = ""
    first: int = 0
    """Lookup identifier, at least."""
    last: int | None = None
    """Lookup identifier, at the most."""

    @classmethod
    def from_plain(cls, given: Mapping[str, Any]) -> Self:
        """From JSON. MQ_ERROR_INVALID_PARAMETER for a name or a value that no criterion has."""
        known = {field.name: field.default for field in fields(cls)}
        checked: dict[str, Any] = {}
        for name, value in given.items():
            if name not in known:
                _refuse(f"there is no criterion {name!r:.80}: use {', '.join(known)}")
            checked[name] = _checked(name, value, known[name])
        criteria = cls(**checked)
        criteria.checks()  # a mistake is reported before anything is searched
        return criteria

    def to_plain(self) -> dict[str, Any]:
        """As JSON, with only the criteria that are set."""
        empty = type(self)()
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if value != getattr(empty, name)
        }

    @property
    def reads_bodies(self) -> bool:
        """Whether bodies or headers decide: only those who may read them may ask."""
        return bool(self.body or self.values or self.headers)

    def checks(self) -> tuple[Check, ...]:
        """The criteria as functions, the cheap ones first."""
        found: list[Check] = []
        if self.label:
            found.append(partial(_has_text, "label", _pattern(self.label)))
        if self.message_class:
            found.append(_class_check(self.message_class))
        if self.correlation:
            wanted = _identifier(self.correlation)
            found.append(lambda message: message.correlation_identifier == wanted)
        if self.larger or self.smaller is not None:
            least, most = self.larger, self.smaller
            found.append(lambda message: len(message.body) >= least and (most is None or len(message.body) <= most))
        if self.identifier:
            known = _identifier(self.identifier)
            found.append(lambda message: message.identifier == known)
        if self.arrived_after or self.arrived_before is not None:
            after, before = self.arrived_after, self.arrived_before
            found.append(
                lambda message: message.arrival_time >= after and (before is None or message.arrival_time <= before)
            )
        if self.priority is not None:
            priority = self.priority
            found.append(lambda message: message.priority == priority)
        found += [
            partial(_has_text, name, _pattern(text))
            for criterion, name in _FORMAT_NAMES.items()
            if (text := getattr(self, criterion))
        ]
        if self.sender:
            found.append(_sender_check(self.sender))
        if self.body:
            parts = (self.body.encode("utf-8", "surrogatepass"), self.body.encode("utf-16-le", "surrogatepass"))
            found.append(lambda message: any(part in message.body for part in parts))
        found += [partial(_has_header, *_split(text)) for text in self.headers]
        if self.values:
            found.append(partial(_has_values, [_split(text) for text in self.values]))
        return tuple(found)


_FORMAT_NAMES: Final = {
    "response_queue": "response_queue_format_name",
    "administration_queue": "administration_queue_format_name",
    "destination": "destination_queue_format_name",
}


def _refuse(sentence: str) -> NoReturn:
    raise MessageQueuingError(ErrorCode.MQ_ERROR_INVALID_PARAMETER, sentence)


_NUMBERS: Final = {"larger": 1 << 32, "smaller": 1 << 32, "priority": 7, "first": (1 << 64) - 1, "last": (1 << 64) - 1}
_TIMES: Final = ("arrived_after", "arrived_before")


def _checked(name: str, value: Any, default: Any) -> Any:
    if value is None:
        return default
    if name in _NUMBERS:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _NUMBERS[name]:
            _refuse(f"{name} is a number from 0 to {_NUMBERS[name]}, and not {value!r:.80}")
        return value
    if name in _TIMES:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
            _refuse(f"{name} is a time in seconds since 1970, and not {value!r:.80}")
        return float(value)
    if isinstance(default, tuple):
        if not isinstance(value, list | tuple) or len(value) > _MOST:
            _refuse(f"{name} is a list of at most {_MOST} texts")
        return tuple(_text(name, one) for one in value)
    return _text(name, value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST:
        _refuse(f"{name} is a text of at most {_LONGEST} characters, and not {value!r:.80}")
    return value


def _pattern(text: str) -> str:
    """A pattern of its own, or one that finds the text anywhere; case does not count."""
    return compiled(text if "*" in text or "?" in text else f"*{text}*")


def compiled(text: str) -> str:
    """A pattern for :func:`matches`: only ``*`` and ``?`` have a meaning, ``[`` stands for itself."""
    return text.casefold().replace("[", "[[]")


def matches(text: str, pattern: str) -> bool:
    """Whether a whole text is as a compiled pattern says."""
    return fnmatchcase(text.casefold(), pattern)


def _has_text(name: str, pattern: str, message: Message) -> bool:
    return matches(getattr(message, name), pattern)


def _split(text: str) -> tuple[str, str | None]:
    """A name, and the pattern of its value; None if it only has to be there."""
    name, separator, pattern = text.partition("=")
    if not name:
        _refuse(f"{text!r:.80} names no part: write NAME=PATTERN or NAME")
    return name, compiled(pattern) if separator else None


def _has_header(name: str, pattern: str | None, message: Message) -> bool:
    extension = message.extension
    # Most messages are passed over without reading their headers as XML or JSON.
    if not extension or name.encode("utf-8", "surrogatepass") not in extension:
        return False
    headers = read_headers(extension, limits=LIMITS).values
    return name in headers and (pattern is None or matches(headers[name] or "", pattern))


def _has_values(wanted: Iterable[tuple[str, str | None]], message: Message) -> bool:
    if len(message.body) > LIMITS.octets:
        return False
    decoded = message.decoded(limits=LIMITS)
    return not decoded.reason and all(_has_value(decoded.value, path, pattern) for path, pattern in wanted)


def _has_value(value: Any, path: str, pattern: str | None) -> bool:
    found = list(_parts(value, path.split("."))) if path != "." else [value]
    return any(pattern is None or matches(str(plain(one)), pattern) for one in found)


def _parts(value: Any, names: list[str]) -> Iterable[Any]:
    """The parts of a value that a path names. Of a list, those of each entry; the outermost name may be left out."""
    if not names:
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _parts(one, names)
    elif isinstance(value, dict):
        if names[0] in value:
            yield from _parts(value[names[0]], names[1:])
        elif len(value) == 1:
            yield from _parts(next(iter(value.values())), names)


_PREFIX: Final = "MQMSG_CLASS_"


def _class_check(text: str) -> Check:
    try:
        number = int(text, 0)
    except ValueError:
        wanted = compiled(text.upper().removeprefix(_PREFIX))
        chosen = {one.value for one in MessageClass if matches(one.name.removeprefix(_PREFIX), wanted)}
        if not chosen:
            _refuse(f"{text!r:.80} is no message class: use a name such as NACK_RECEIVE_TIMEOUT, or a number")
        return lambda message: message.message_class in chosen
    return lambda message: message.message_class == number


def _sender_check(text: str) -> Check:
    try:
        encoded = Sid.from_text(text).write()
    except (ValueError, PacketError):
        try:
            machine = guid_from_text(text)
        except ValueError:
            _refuse(f"{text!r:.80} is no SID (S-1-5-21-...) and no GUID of a machine")
        return lambda message: message.source_machine_identifier == machine
    return lambda message: encoded in (message.sender_identifier, message.claimed_sender)


def _identifier(text: str) -> bytes:
    guid, separator, number = text.partition("\\")
    try:
        found = guid_from_text(guid) + int(number).to_bytes(4, "little") if separator else bytes.fromhex(text)
    except (ValueError, OverflowError):
        found = b""
    if len(found) != 20:
        _refuse(rf"{text!r:.80} is no message identifier: write GUID\number, or 40 hexadecimal digits")
    return found
