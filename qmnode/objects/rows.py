"""The fields of a row, and the forms of values."""

import enum
import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from qmnode.structures.guid import ZERO_GUID, guid_from_text, guid_to_text
from qmnode.structures.names import utf16_length

NO_QUOTA: Final = 0xFFFFFFFF
"""The value of a quota that is never reached, in a queue manager and in the directory; ``none`` and null elsewhere."""
NONE: Final = "none"


def is_none(written: object) -> bool:
    """Return whether a written value of a nullable form is none: null, an empty value of YAML, or the word."""
    return written is None or (isinstance(written, str) and written.strip().lower() == NONE)


class Kind(enum.StrEnum):
    """The kinds of objects. Those of the directory come in the order of creation, by dependency."""

    ENTERPRISE = "enterprise"
    SITE = "site"
    USER = "user"
    MACHINE = "machine"
    ROUTING_LINK = "routing link"
    QUEUE = "queue"
    QUEUE_ALIAS = "queue alias"
    DISTRIBUTION_LIST = "distribution list"
    MESSAGE = "message"


class Changes(enum.Enum):
    """When a property may change."""

    ALWAYS = "at any time"
    ONCE = "when the object is created"
    NEVER = "never: the queue manager or the directory assigns it"


class Door(enum.Flag):
    """Where people and programs meet a property."""

    NODE = enum.auto()
    """The queue manager: Python, the management API and ``qmnode``."""
    DECLARATION = enum.auto()
    """The declared enterprise, ``mqenterprise`` and the Ansible modules."""
    DIRECTORY = enum.auto()


_Names = type[enum.StrEnum]


@dataclass(frozen=True, slots=True)
class Form:
    """The values that a property may have.

    ``words`` completes "expected ...". A queue manager, and the directory's objects, have *values* (a GUID is 16 bytes,
    a level a number); declarations, documents and options have *written* ones (texts, numbers, truth values, null).
    """

    words: str
    holds: Callable[[Any], bool]
    """Whether this is a value."""
    type: type
    """Of a written one that is not null."""
    write: Callable[[Any], Any] = field(default=lambda value: value)
    read: Callable[[Any], Any] = field(default=lambda written: written)
    """From a written form; raises ValueError."""
    least: int | None = None
    most: int | None = None
    """Of a number; of a text or a list, its length. Texts count UTF-16 units."""
    unit: str = ""
    choices: Mapping[str, int] = field(default_factory=dict)
    """The written choices and their values."""
    names: _Names | None = None
    """The written choices as an enumeration."""
    nullable: bool = False
    """Whether null may be written: no quota, no type, no address."""


def _is_text(value: str) -> bool:
    """Half of a surrogate pair can be written to no terminal and in no JSON: it would break every list."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


FLAG: Final = Form("true or false", lambda value: isinstance(value, bool), bool)


def number(least: int, most: int, words: str = "", unit: str = "") -> Form:
    """Whole numbers of a range; ``words`` names them better than the range does."""
    return Form(
        words or f"from {least} to {most}",
        lambda value: isinstance(value, int) and least <= value <= most and value is not True and value is not False,
        int,
        least=least,
        most=most,
        unit=unit,
    )


def seconds(most: int = 0x7FFFFFFF, none: str = "") -> Form:
    """A time; ``none`` is what 0 means, if it is a special value."""
    return number(0, most, f"seconds, from 0{f' ({none})' if none else ''} to {most}", "seconds")


QUOTA: Final = Form(
    "KB, from 0 to 0xFFFFFFFF, which is none",
    lambda value: _whole(value) and 0 <= value <= NO_QUOTA,
    int,
    lambda value: None if value == NO_QUOTA else value,
    lambda written: NO_QUOTA if is_none(written) else written,
    least=0,
    most=NO_QUOTA - 1,
    unit="KB",
    nullable=True,
)


def text(units: int) -> Form:
    """A text of at most so many UTF-16 units."""
    return Form(
        f"text of at most {units} UTF-16 units (an emoji has two)",
        lambda value: isinstance(value, str) and utf16_length(value) <= units and _is_text(value),
        str,
        most=units,
        unit="UTF-16 units",
    )


def choice(kind: type[IntEnum], title: str = "") -> Form:
    """One of the members of an enumeration, written by its name in lower case; ``title`` names it in schemas."""
    written = {member.name.lower(): int(member) for member in kind}
    names: Any = enum.StrEnum(title or kind.__name__, [(member.name, member.name.lower()) for member in kind])  # type: ignore[misc]
    listed = [f"{number} ({name})" for name, number in written.items()]
    return Form(
        f"{', '.join(listed[:-1])} or {listed[-1]}",
        lambda value: _whole(value) and value in written.values(),
        str,
        lambda value: kind(value).name.lower(),
        lambda name: kind(written[name]),
        choices=written,
        names=names,
    )


GUID: Final = Form(
    "a GUID of 16 bytes",
    lambda value: isinstance(value, bytes) and len(value) == 16,
    str,
    lambda value: None if value in (None, ZERO_GUID) else guid_to_text(value),
    lambda written: ZERO_GUID if is_none(written) else guid_from_text(written),
    nullable=True,
)


def multicast_address(written: str | None) -> str:
    """Return ``ADDRESS:PORT`` as it is stored; empty for none. Raises ValueError."""
    if not written or is_none(written):
        return ""
    match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,3}){3}):(\d{1,5})", written, re.ASCII)
    try:
        address = ipaddress.IPv4Address(match[1]) if match else None
    except ipaddress.AddressValueError:
        address = None
    if match is None or address is None or not address.is_multicast or int(match[2]) > 65535:
        raise ValueError("a multicast address is ADDRESS:PORT with an address from 224.0.0.0 to 239.255.255.255")
    return f"{address}:{int(match[2])}"


def _is_multicast(value: Any) -> bool:
    try:
        return isinstance(value, str) and multicast_address(value) == value
    except ValueError:
        return False


MULTICAST: Final = Form(
    "ADDRESS:PORT with an address from 224.0.0.0 to 239.255.255.255, or '' for none",
    _is_multicast,
    str,
    lambda value: value or None,
    multicast_address,
    nullable=True,
)


def names(of: Kind, most: int | None = None) -> Form:
    """Names of other objects, which the directory compares without regard to case."""
    words = f"{'names' if most is None else f'at most {most} names'}, each of a {of}"
    return Form(words, lambda value: isinstance(value, tuple), tuple, most=most, unit="names")


def recipients() -> Form:
    """Names of public queues (``machine\\queue``), queue aliases and distribution lists, compared without case."""
    words = "names of public queues, queue aliases and distribution lists"
    return Form(words, lambda value: isinstance(value, tuple), tuple, unit="names")


def octets(count: int | None = None) -> Form:
    """Bytes: so many, or any number."""
    return Form(
        "bytes" if count is None else f"{count} bytes",
        lambda value: isinstance(value, bytes) and count in (None, len(value)),
        bytes,
        most=count,
        unit="bytes",
    )


def of_list(words: str) -> Form:
    """A list that the room which reads it checks: an access list, certificates."""
    return Form(words, lambda value: isinstance(value, tuple), tuple, nullable=True)


ACCESS: Final = of_list("a list of entries")


@dataclass(frozen=True, slots=True)
class Property:
    """One property of one kind of object: the specification's name in snake_case, and what is known of it."""

    name: str
    form: Form
    default: Any
    """The value of a new object."""
    sentence: str
    """For people: what it does. A noun phrase or a sentence without a full stop."""
    section: str
    """Of the specification that defines it, such as ``MS-MQMQ 2.3.1.8``."""
    attribute: str = ""
    """LDAP attribute (MS-MQDSSM); empty if the directory does not hold it."""
    attribute_section: str = ""
    """Of MS-MQDSSM, where the attribute is in a table."""
    field: str = ""
    """Field of the directory's object (:mod:`qmnode.directory.port`), where the specification's name is another."""
    key: str = ""
    """Key in the documents of messages, where the specification's name is too long for one."""
    doors: Door = Door.NODE | Door.DECLARATION | Door.DIRECTORY
    changes: Changes = Changes.ALWAYS
    public: bool = False
    """Whether only a public queue may have another value than the default."""
    added: bool = False
    """Whether the first release did not have it: its documents and answers lack it."""
    aliases: tuple[str, ...] = ()
    """Names of earlier releases. Doors take them for one more, and say the new name."""
    obeyed_by: str = ""
    """The module that makes it hold."""
    unobeyed: str = ""
    """Why nothing makes it hold, which ``mqenterprise validate`` says to those who declare it."""

    @property
    def option(self) -> str:
        """Its name at a command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def in_directory(self) -> str:
        """Its field of the directory's object."""
        return self.field or self.name

    @property
    def description(self) -> str:
        """The sentence for a field of a document, with the unit of its numbers and what is none."""
        unit = f", in {self.form.unit}" if self.form.unit == "KB" else ""
        none = "; empty: none" if self.default == "" else "; null: none"
        return f"{self.sentence}{unit}{none if self.form.nullable else ''}"

    @property
    def is_written(self) -> bool:
        """Whether documents and options have it. An access list has documents and commands of its own."""
        return self.form.type in (bool, int, str)

    def fault(self, value: object, public: bool = True) -> str | None:
        """The sentence with what is allowed, if the property of a public or another queue cannot have the value."""
        words = self.form.words
        if self.public and not public and value != self.default:
            words = f"{self.default!r}, since only a public queue has another"
        elif self.form.holds(value):
            return None
        return f"{self.name}={value!r:.80}: expected {words}"


class Rows(Mapping[str, Property]):
    """The properties of one kind by name, in their order for people. Aliases are found by :meth:`called`."""

    def __init__(self, kind: Kind, rows: Iterable[Property]) -> None:
        self.kind = kind
        self._rows = {row.name: row for row in rows}
        self._aliases = {alias: row for row in self._rows.values() for alias in row.aliases}

    def __getitem__(self, name: str) -> Property:
        return self._rows[name]

    def __iter__(self) -> Any:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def called(self, name: str) -> Property | None:
        """The property of this name or alias."""
        return self._rows.get(name) or self._aliases.get(name)

    def at(self, door: Door) -> tuple[Property, ...]:
        """The properties that a door has."""
        return tuple(row for row in self._rows.values() if door in row.doors)

    def defaults(self, door: Door) -> dict[str, Any]:
        """The values of a new object by name."""
        return {row.name: row.default for row in self.at(door)}
