r"""Direct format names (MS-MQMQ 2.1.2), path names, and the parts that all names have, with their limits and errors.
``DIRECT=OS:computer\private$\queue``: a protocol, an address, a path.

The grammar of the specification is ASCII. Windows also accepts other characters, and spaces in the names of queues, and
so does this package. Delimiters and control characters stay excluded.
"""

import re
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, NamedTuple, NoReturn

from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.queue_format_types import QueueFormatType
from qmnode.structures.text import printable

MAX_COMPUTER_LENGTH: Final = 256
MAX_QUEUE_LENGTH: Final = 124
MAX_SUBQUEUE_LENGTH: Final = 32
MAX_DOMAIN_LENGTH: Final = 255
MAX_NAME_LENGTH: Final = 512
"""Longest name of one queue, in any form: the limits above and the longest prefixes add up to less."""

NO_QUEUE: Final = "'.' stands for this computer and names no queue: give the queue a name, such as orders"

RESERVED_SUFFIXES: Final = frozenset({"JOURNAL", "DEADLETTER", "DEADXACT", "XACTONLY"})
"""Suffixes after a semicolon that have a meaning of their own, and so cannot name a subqueue."""


class QueueNameError(ValueError):
    """A name that does not parse. ``position`` counts characters of ``text``; ``expected`` describes correct text."""

    code: ErrorCode

    def __init__(self, text: str, position: int, expected: str) -> None:
        self.text = text
        self.position = position
        self.expected = expected
        super().__init__(text, position, expected)

    @property
    def sentence(self) -> str:
        """The explanation without the code."""
        shown = self.text if len(self.text) <= 80 else self.text[:77] + "..."
        return f"'{printable(shown)}' is wrong at character {self.position}: expected {self.expected}"

    def __str__(self) -> str:
        return f"{self.code.name}: {self.sentence}"


class PathNameError(QueueNameError):
    """Not a valid path name (2.1.1)."""

    code = ErrorCode.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME


class FormatNameError(QueueNameError):
    """Not a valid format name (2.1.2 to 2.1.7)."""

    code = ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME


class MachineQueue(StrEnum):
    """The system queues that every computer has: MachineQueuePath in 2.1.2, and the suffixes of 2.2.11."""

    JOURNAL = "JOURNAL"
    DEADLETTER = "DEADLETTER"
    DEADXACT = "DEADXACT"


def fold(text: str) -> str:
    """The form in which names are compared: as Windows does, character for character, without regard to case."""
    return text.upper() if text.isascii() else "".join(map(_fold_character, text))


def _fold_character(character: str) -> str:
    # Python also maps one letter to two, and a few letters into ASCII; the ordinal comparison of Windows does neither.
    upper = character.upper()
    return upper if len(upper) == 1 and upper.isascii() == character.isascii() else character


def utf16_length(text: str) -> int:
    """Length in 16-bit units, as Windows counts; characters beyond U+FFFF take two."""
    return len(text) if text.isascii() else len(text) + sum(character > "\uffff" for character in text)


def cut_utf16(text: str, most: int) -> str:
    """The beginning of a text in at most so many 16-bit units, without half of a character."""
    if utf16_length(text) <= most:
        return text
    return text.encode("utf-16-le", "surrogatepass")[: 2 * most].decode("utf-16-le", "ignore")


class Fault(NamedTuple):
    """The position of a fault in a part of a name, and the expected text."""

    position: int
    expected: str


class Part(NamedTuple):
    """One kind of part: its name, its forbidden characters, and its maximum length."""

    title: str
    excluded: re.Pattern[str]
    exclusion: str
    maximum: int

    def fault(self, text: str) -> Fault | None:
        """The fault of ``text`` as this part, or None."""
        if not text:
            return Fault(0, f"{self.title}, which must not be empty")
        if match := self.excluded.search(text):
            return Fault(match.start(), f"{self.title} without {self.exclusion}")
        if utf16_length(text) > self.maximum:
            return Fault(len(cut_utf16(text, self.maximum)), f"{self.title} of at most {self.maximum} UTF-16 units")
        return None


# Text with half a surrogate pair cannot be written as UTF-16, so it is no name.
_UNPRINTABLE: Final = r"\x00-\x1f\x80-\x9f\ud800-\udfff"

# VCHAR of 2.1.1 without delimiters: the backslash ends the computer's name, the comma an element (2.1.7).
COMPUTER: Final = Part(
    "a computer name",
    re.compile(rf"[{_UNPRINTABLE} \x7f\\,]"),
    "space, control character, backslash or comma",
    MAX_COMPUTER_LENGTH,
)
_QUEUE_EXCLUDED: Final = re.compile(rf'[{_UNPRINTABLE}\\;+,"]')
_QUEUE_EXCLUSION: Final = "control character, backslash, semicolon, plus, comma or double quote"
QUEUE: Final = Part("a queue name", _QUEUE_EXCLUDED, _QUEUE_EXCLUSION, MAX_QUEUE_LENGTH)
SUBQUEUE: Final = Part("a subqueue name", _QUEUE_EXCLUDED, _QUEUE_EXCLUSION, MAX_SUBQUEUE_LENGTH)
DOMAIN: Final = Part(
    "a domain name",
    re.compile(rf"[{_UNPRINTABLE} \x7f,]"),
    "space, control character or comma",
    MAX_DOMAIN_LENGTH,
)


class NameReader:
    """Reads a name from left to right and tracks the position for errors."""

    def __init__(self, text: str, error: type[QueueNameError], maximum: int = MAX_NAME_LENGTH) -> None:
        self.text = text
        self.position = 0
        self._error = error
        if utf16_length(text) > maximum:
            self.fail(f"a name of at most {maximum} UTF-16 units", len(cut_utf16(text, maximum)))

    def fail(self, expected: str, position: int | None = None) -> NoReturn:
        """Raise the reader's error at ``position``, or where the reader is."""
        raise self._error(self.text, self.position if position is None else position, expected)

    def take(self, word: str) -> bool:
        """Step over ``word`` if it comes next, in any case."""
        end = self.position + len(word)
        found = self.text[self.position : end]
        if found != word and fold(found) != fold(word):
            return False
        self.position = end
        return True

    def until(self, stops: str) -> str:
        """Read up to the first of the characters ``stops``, or to the end. The reader then stands at the stop."""
        start = self.position
        places = (self.text.find(stop, start) for stop in stops)
        self.position = min((place for place in places if place >= 0), default=len(self.text))
        return self.text[start : self.position]

    def part(self, kind: Part, stops: str) -> str:
        """Read a part up to one of ``stops`` and check it."""
        start = self.position
        text = self.until(stops)
        if fault := kind.fault(text):
            self.fail(fault.expected, start + fault.position)
        return text

    @property
    def at_end(self) -> bool:
        """Whether the whole name is read."""
        return self.position == len(self.text)

    def finish(self) -> None:
        """Raise unless the whole name is read."""
        if not self.at_end:
            self.fail("the end of the name")


LOCAL_COMPUTER: Final = "."
"""The notation of Windows for "this computer" in a path name."""

_PRIVATE: Final = "private$"
_SYSTEM: Final = "system$"
_JOURNAL: Final = "JOURNAL"


class QueueKind(Enum):
    """The three forms of a path name."""

    PUBLIC = "public"
    PRIVATE = "private"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True, eq=False)
class PathName:
    """The name of a queue on a computer, of one of its subqueues, or of its journal. Case does not matter.

    Raises PathNameError for invalid parts, so every value prints as a name that parses to it.
    """

    computer: str
    queue: str
    kind: QueueKind = QueueKind.PUBLIC
    subqueue: str = ""
    journal: bool = False

    def __post_init__(self) -> None:
        for text, fault in (
            (self.computer, COMPUTER.fault(self.computer)),
            (self.queue, _queue_fault(self.queue, self.kind)),
            (self.subqueue, _subqueue_fault(self.subqueue) if self.subqueue else None),
        ):
            if fault:
                raise PathNameError(text, fault.position, fault.expected)
        if (self.journal and self.subqueue) or (self.kind is QueueKind.SYSTEM and (self.journal or self.subqueue)):
            raise PathNameError(self.queue, 0, "no more than one suffix, and none on a system queue")

    @classmethod
    def parse(cls, text: str) -> "PathName":
        """The value of a path name. Raises PathNameError."""
        reader = NameReader(text, PathNameError)
        name = read_path_name(reader)
        reader.finish()
        return name

    def __str__(self) -> str:
        return f"{self.computer}\\{self.local_name}"

    @property
    def local_name(self) -> str:
        r"""The name without its computer: the part after the first backslash."""
        return self.local_name_separated_by("\\")

    def local_name_separated_by(self, separator: str) -> str:
        """The local name with another character in place of the backslash after ``private$``."""
        suffix = ";JOURNAL" if self.journal else f";{self.subqueue}" if self.subqueue else ""
        match self.kind:
            case QueueKind.PUBLIC:
                return f"{self.queue}{suffix}"
            case QueueKind.PRIVATE:
                return f"{_PRIVATE}{separator}{self.queue}{suffix}"
            case QueueKind.SYSTEM:
                return f"{_SYSTEM};{self.queue}"

    def _key(self) -> tuple[object, ...]:
        return (fold(self.computer), self.kind, fold(self.queue), fold(self.subqueue), self.journal)

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, PathName) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())


def read_path_name(reader: NameReader) -> PathName:
    """Read a whole path name and nothing after it."""
    computer = reader.part(COMPUTER, "\\")
    if not reader.take("\\"):
        reader.fail("a backslash and a queue name after the computer name")
    return read_local_name(reader, computer, "\\")


def read_local_name(reader: NameReader, computer: str, separators: str) -> PathName:
    """Read the part of a path name after the computer; any of ``separators`` may follow ``private$``."""
    if reader.take(_SYSTEM + ";"):
        return PathName(computer, reader.part(QUEUE, ""), QueueKind.SYSTEM)
    private = any(reader.take(_PRIVATE + separator) for separator in separators)
    kind = QueueKind.PRIVATE if private else QueueKind.PUBLIC
    start = reader.position
    queue = reader.until(";")
    if fault := _queue_fault(queue, kind):
        reader.fail(fault.expected, start + fault.position)
    if not reader.take(";"):
        return PathName(computer, queue, kind)
    start = reader.position
    suffix = reader.until("")
    if fold(suffix) == _JOURNAL:
        return PathName(computer, queue, kind, journal=True)
    if fault := _subqueue_fault(suffix):
        reader.fail(fault.expected, start + fault.position)
    return PathName(computer, queue, kind, subqueue=suffix)


def _queue_fault(queue: str, kind: QueueKind) -> Fault | None:
    if kind is QueueKind.PUBLIC and fold(queue) in (fold(_PRIVATE), fold(_SYSTEM)):
        return Fault(len(queue), f"a queue name after {queue}")
    return QUEUE.fault(queue)


def _subqueue_fault(subqueue: str) -> Fault | None:
    if fold(subqueue) in RESERVED_SUFFIXES:
        return Fault(0, f"JOURNAL or the name of a subqueue, which {subqueue} cannot be")
    return SUBQUEUE.fault(subqueue)


PREFIX: Final = "DIRECT="
MAX_PORT: Final = 0xFFFF

_VIRTUAL_DIRECTORY: Final = "/msmq"
_IPX_ADDRESS: Final = re.compile(r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{12}", re.ASCII)
_PORT: Final = re.compile(r"[0-9]{0,5}", re.ASCII)


class DirectProtocol(StrEnum):
    """Protocol of 2.1.2. SPX is the spelling of IPX in the order queue's name in MS-MQQB 3.1.5.8.10."""

    TCP = "TCP"
    OS = "OS"
    HTTP = "HTTP"
    HTTPS = "HTTPS"
    IPX = "IPX"
    SPX = "SPX"


_WEB: Final = (DirectProtocol.HTTP, DirectProtocol.HTTPS)


@dataclass(frozen=True, slots=True)
class DirectFormatName:
    r"""A queue reached without the directory. ``path.computer`` is the address in the notation of the protocol.

    This is the name of a computer for OS and HTTP, an IP address for TCP (also allowed for HTTP), network and node for
    IPX. An IPv6 address is kept without brackets. ``port`` is None unless an HTTP or HTTPS name states one. Raises
    FormatNameError for an address that is invalid for the protocol. Case does not matter.
    """

    protocol: DirectProtocol
    path: PathName
    port: int | None = None

    def __post_init__(self) -> None:
        if fault := _address_fault(self.protocol, self.path.computer):
            raise FormatNameError(self.path.computer, 0, fault)
        if self.path.kind is QueueKind.SYSTEM and fold(self.path.queue) not in MachineQueue.__members__:
            raise FormatNameError(self.path.queue, 0, _MACHINE_QUEUES)
        if self.protocol not in _WEB:
            if self.port is not None:
                raise FormatNameError(str(self.port), 0, f"no port with {self.protocol}")
        elif self.port is not None and not 0 <= self.port <= MAX_PORT:
            raise FormatNameError(str(self.port), 0, f"a port from 0 to {MAX_PORT}")
        elif fold(self.path.queue).startswith("PRIVATE$/") and self.path.kind is QueueKind.PUBLIC:
            raise FormatNameError(self.path.queue, 0, "the name of a public queue, without private$/")

    @classmethod
    def parse(cls, text: str) -> "DirectFormatName":
        """The value of a direct format name, with ``DIRECT=`` or without, as in packets. Raises FormatNameError."""
        reader = NameReader(text, FormatNameError)
        reader.take(PREFIX)
        return read_direct_name(reader)

    @property
    def format_type(self) -> QueueFormatType:
        """QUEUE_FORMAT_TYPE_DIRECT, or _SUBQUEUE for the name of a subqueue (2.2.6)."""
        if self.path.subqueue:
            return QueueFormatType.QUEUE_FORMAT_TYPE_SUBQUEUE
        return QueueFormatType.QUEUE_FORMAT_TYPE_DIRECT

    @property
    def is_read_only(self) -> bool:
        """Whether it names a journal or a dead-letter queue, to which no messages can be sent."""
        return self.path.journal or self.path.kind is QueueKind.SYSTEM

    @property
    def without_prefix(self) -> str:
        """The name without ``DIRECT=``: the form in packets and in QUEUE_FORMAT (2.2.7)."""
        address = self.path.computer
        if self.protocol not in _WEB:
            return f"{self.protocol}:{self.path}"
        # 2.1.2 has a backslash after /MSMQ; Windows writes a URL, with slashes throughout, and reads both.
        host = f"[{address}]" if ":" in address else address
        port = "" if self.port is None else f":{self.port}"
        return f"{self.protocol}://{host}{port}{_VIRTUAL_DIRECTORY}/{self.path.local_name_separated_by('/')}"

    def __str__(self) -> str:
        return PREFIX + self.without_prefix


_MACHINE_QUEUES: Final = "JOURNAL, DEADLETTER or DEADXACT after SYSTEM$;"


def read_direct_name(reader: NameReader) -> DirectFormatName:
    """Read the part after ``DIRECT=``, to the end."""
    start = reader.position
    try:
        protocol = DirectProtocol(fold(reader.until(":")))
    except ValueError:
        reader.fail("TCP, OS, HTTP, HTTPS or IPX, and a colon", start)
    if not reader.take(":"):
        reader.fail("a colon after the protocol")
    address_position = reader.position
    try:
        if protocol in _WEB:
            return _read_web_name(reader, protocol)
        path = read_path_name(reader)
        return DirectFormatName(protocol, _with_plain_address(protocol, path))
    except QueueNameError as error:
        if error.text is reader.text:
            raise
        part_position = max(address_position, reader.text.find(error.text, address_position))
        reader.fail(error.expected, part_position + error.position)


def _read_web_name(reader: NameReader, protocol: DirectProtocol) -> DirectFormatName:
    if not reader.take("//"):
        reader.fail(f"// after {protocol}:")
    host = _read_host(reader)
    port = _read_port(reader) if reader.take(":") else None
    if not reader.take(_VIRTUAL_DIRECTORY) or not (reader.take("/") or reader.take("\\")):
        reader.fail("/msmq/ after the host and its port")
    return DirectFormatName(protocol, read_local_name(reader, host, "\\/"), port)


def _read_host(reader: NameReader) -> str:
    if not reader.take("["):
        return reader.until(":/\\")
    start = reader.position
    host = reader.until("]")
    plain = plain_address(host)
    if not reader.take("]") or plain is None or ":" not in plain:
        reader.fail("an IPv6 address in brackets", start)
    return plain


def _read_port(reader: NameReader) -> int | None:
    start = reader.position
    digits = reader.until("/\\")
    if not _PORT.fullmatch(digits) or int(digits or 0) > MAX_PORT:
        reader.fail(f"a port from 0 to {MAX_PORT}", start)
    return int(digits) if digits else None


def _with_plain_address(protocol: DirectProtocol, path: PathName) -> PathName:
    """For TCP, the path with the address in its shortest form and without brackets, so that equal addresses compare."""
    if protocol is not DirectProtocol.TCP:
        return path
    address = path.computer
    if address.startswith("[") and address.endswith("]"):
        address = address[1:-1]
    plain = plain_address(address)
    if plain is None or plain == path.computer:
        return path
    return replace(path, computer=plain)


@lru_cache(maxsize=1024)  # addresses of peers recur with each message
def plain_address(text: str) -> str | None:
    """An IP address in its shortest form, or None for other text."""
    try:
        return str(ip_address(text))
    except ValueError:
        return None


def machine_address(text: str) -> str | None:
    """An IP address that one machine can have, in its shortest form, or None for other text."""
    plain = plain_address(text)
    if plain is None or plain == "255.255.255.255":
        return None
    found = ip_address(plain)
    return None if found.is_unspecified or found.is_multicast else plain


def _is_ipv6(text: str) -> bool:
    return ":" in text and plain_address(text) is not None


def _address_fault(protocol: DirectProtocol, address: str) -> str | None:
    """The text expected in the place of ``address``, or None if it is valid for the protocol."""
    match protocol:
        case DirectProtocol.TCP:
            plain = plain_address(address)
            if plain is None:
                return "an IP address after TCP: (a computer name goes after OS:)"
            return None if address == plain else f"the IP address as {plain}"
        case DirectProtocol.IPX | DirectProtocol.SPX:
            return None if _IPX_ADDRESS.fullmatch(address) else "a network of 8 and a node of 12 hexadecimal digits"
        case DirectProtocol.HTTP | DirectProtocol.HTTPS:
            if set("/[]") & set(address):
                return "a host name or an IP address, without [, ] and /"
            if ":" in address and not _is_ipv6(address):
                return "a host name without a colon, or an IPv6 address"
            return None
        case DirectProtocol.OS:
            return None
