"""Names of queues: MS-MQMQ 2.1. Each form is a frozen type that parses from text and prints as text.

Parsing raises a QueueNameError with the error code, the position, and the expected text.
"""

import re
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, ip_address
from typing import ClassVar, Final, NamedTuple, NoReturn, TypeAlias
from urllib.parse import unquote

from qmnode.structures.enumerations import QueueFormatType
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid, guid_from_text, guid_to_text
from qmnode.structures.text import printable

# ----------------------------------------------------------------------------------------------------------------------
# Direct format names (MS-MQMQ 2.1.2), path names, and the parts that all names have, with their limits and errors.
# ``DIRECT=OS:computer\private$\queue``: a protocol, an address, a path.
#
# The grammar of the specification is ASCII. Windows also accepts other characters, and spaces in the names of queues,
# and so does this package. Delimiters and control characters stay excluded.


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


DIRECT_PREFIX: Final = "DIRECT="
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
        reader.take(DIRECT_PREFIX)
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
        return DIRECT_PREFIX + self.without_prefix


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


# ----------------------------------------------------------------------------------------------------------------------
# Format names that identify by GUID or group address: MS-MQMQ 2.1.3 to 2.1.6.


_GUID_TEXT_LENGTH: Final = 36
_HEXADECIMAL: Final = re.compile(r"[0-9A-Fa-f]{1,8}", re.ASCII)
_DECIMAL: Final = re.compile(r"[0-9]{1,5}", re.ASCII)
_JOURNAL_SUFFIX: Final = ";JOURNAL"
_XACTONLY: Final = ";XACTONLY"


@dataclass(frozen=True, slots=True)
class PublicFormatName:
    """PUBLIC=guid, 2.1.3: a queue in the directory, or its journal (the suffix is in 2.2.7, not in the grammar)."""

    prefix: ClassVar[str] = "PUBLIC="
    format_type: ClassVar = QueueFormatType.QUEUE_FORMAT_TYPE_PUBLIC

    queue: Guid
    journal: bool = False

    @classmethod
    def read(cls, reader: NameReader) -> "PublicFormatName":
        """Read the text after the prefix."""
        return cls(_read_guid(reader), reader.take(_JOURNAL_SUFFIX))

    @property
    def is_read_only(self) -> bool:
        """Whether no messages can be sent to it."""
        return self.journal

    def __str__(self) -> str:
        return f"PUBLIC={guid_to_text(self.queue)}{_JOURNAL_SUFFIX if self.journal else ''}"


@dataclass(frozen=True, slots=True)
class PrivateFormatName:
    r"""PRIVATE=guid\number, 2.1.4: a queue by its computer and its number there, or its journal."""

    prefix: ClassVar[str] = "PRIVATE="
    format_type: ClassVar = QueueFormatType.QUEUE_FORMAT_TYPE_PRIVATE

    computer: Guid
    queue: int
    journal: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.queue <= 0xFFFFFFFF:
            raise FormatNameError(str(self.queue), 0, "a queue number of 32 bits")

    @classmethod
    def read(cls, reader: NameReader) -> "PrivateFormatName":
        """Read the text after the prefix."""
        computer = _read_guid(reader)
        if not reader.take("\\"):
            reader.fail("a backslash and the number of the queue")
        start = reader.position
        digits = reader.until(";")
        if not _HEXADECIMAL.fullmatch(digits):
            reader.fail("the number of the queue, of 1 to 8 hexadecimal digits", start)
        return cls(computer, int(digits, 16), reader.take(_JOURNAL_SUFFIX))

    @property
    def is_read_only(self) -> bool:
        """Whether no messages can be sent to it."""
        return self.journal

    def __str__(self) -> str:
        # Eight digits, as Windows writes the number; the grammar accepts one to eight.
        return f"PRIVATE={guid_to_text(self.computer)}\\{self.queue:08x}{_JOURNAL_SUFFIX if self.journal else ''}"


@dataclass(frozen=True, slots=True, eq=False)
class DistributionListFormatName:
    """DL=guid[@domain], 2.1.5: the queues that a group object in the directory lists. Case does not matter."""

    prefix: ClassVar[str] = "DL="
    format_type: ClassVar = QueueFormatType.QUEUE_FORMAT_TYPE_DL
    is_read_only: ClassVar[bool] = False

    group: Guid
    domain: str = ""

    def __post_init__(self) -> None:
        if self.domain and (fault := DOMAIN.fault(self.domain)):
            raise FormatNameError(self.domain, fault.position, fault.expected)

    @classmethod
    def read(cls, reader: NameReader) -> "DistributionListFormatName":
        """Read the text after the prefix."""
        group = _read_guid(reader)
        return cls(group, reader.part(DOMAIN, "") if reader.take("@") else "")

    def __str__(self) -> str:
        return f"DL={guid_to_text(self.group)}{'@' if self.domain else ''}{self.domain}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DistributionListFormatName):
            return NotImplemented
        return self.group == other.group and fold(self.domain) == fold(other.domain)

    def __hash__(self) -> int:
        return hash((self.group, fold(self.domain)))


@dataclass(frozen=True, slots=True)
class MachineFormatName:
    """MACHINE=guid[;suffix], 2.1.6: a computer's own journal or dead-letter queue.

    The grammar has no suffix, but Windows writes one and QUEUE_FORMAT (2.2.7) requires it; without one, ``queue`` is
    None.
    """

    prefix: ClassVar[str] = "MACHINE="
    format_type: ClassVar = QueueFormatType.QUEUE_FORMAT_TYPE_MACHINE
    is_read_only: ClassVar[bool] = True

    computer: Guid
    queue: MachineQueue | None = None

    @classmethod
    def read(cls, reader: NameReader) -> "MachineFormatName":
        """Read the text after the prefix."""
        computer = _read_guid(reader)
        if reader.at_end:
            return cls(computer)
        for queue in MachineQueue:
            if reader.take(f";{queue}"):
                return cls(computer, queue)
        reader.fail(";JOURNAL, ;DEADLETTER or ;DEADXACT")

    def __str__(self) -> str:
        return f"MACHINE={guid_to_text(self.computer)}{f';{self.queue}' if self.queue else ''}"


@dataclass(frozen=True, slots=True)
class ConnectorFormatName:
    """CONNECTOR=guid[;XACTONLY], 2.1.6: the connector queue of a foreign site, or its transactional one (2.2.11)."""

    prefix: ClassVar[str] = "CONNECTOR="
    format_type: ClassVar = QueueFormatType.QUEUE_FORMAT_TYPE_CONNECTOR
    is_read_only: ClassVar[bool] = False

    connected_network: Guid
    transactional: bool = False

    @classmethod
    def read(cls, reader: NameReader) -> "ConnectorFormatName":
        """Read the text after the prefix."""
        return cls(_read_guid(reader), reader.take(_XACTONLY))

    def __str__(self) -> str:
        return f"CONNECTOR={guid_to_text(self.connected_network)}{_XACTONLY if self.transactional else ''}"


@dataclass(frozen=True, slots=True)
class MulticastFormatName:
    """MULTICAST=address:port, 2.1.6: every queue that listens to a multicast address, 224.0.0.0 to 239.255.255.255.

    The grammar's rule for ports allows only 10 to 19 where it means 10 to 99; every number of 16 bits is accepted here.
    """

    prefix: ClassVar[str] = "MULTICAST="
    format_type: ClassVar = QueueFormatType.QUEUE_FORMAT_TYPE_MULTICAST
    is_read_only: ClassVar[bool] = False

    address: IPv4Address
    port: int

    def __post_init__(self) -> None:
        if not self.address.is_multicast:
            raise FormatNameError(str(self.address), 0, _MULTICAST_ADDRESS)
        if not 0 <= self.port <= 0xFFFF:
            raise FormatNameError(str(self.port), 0, _A_PORT)

    @classmethod
    def read(cls, reader: NameReader) -> "MulticastFormatName":
        """Read the text after the prefix."""
        start = reader.position
        try:
            address = IPv4Address(reader.until(":"))
        except AddressValueError:
            reader.fail(_MULTICAST_ADDRESS, start)
        if not address.is_multicast:
            reader.fail(_MULTICAST_ADDRESS, start)
        if not reader.take(":"):
            reader.fail("a colon and a port after the address")
        start = reader.position
        digits = reader.until("")
        if not _DECIMAL.fullmatch(digits) or int(digits) > 0xFFFF:
            reader.fail(_A_PORT, start)
        return cls(address, int(digits))

    def __str__(self) -> str:
        return f"MULTICAST={self.address}:{self.port}"


_MULTICAST_ADDRESS: Final = "an address from 224.0.0.0 to 239.255.255.255"
_A_PORT: Final = "a port from 0 to 65535"


def _read_guid(reader: NameReader) -> Guid:
    start = reader.position
    digits = reader.text[start : start + _GUID_TEXT_LENGTH]
    try:
        guid = guid_from_text(digits)
    except ValueError:
        reader.fail("a GUID of 8-4-4-4-12 hexadecimal digits")
    reader.position = start + len(digits)
    return guid


# ----------------------------------------------------------------------------------------------------------------------
# Addresses that other systems write for queues, as format names.
#
# System.Messaging puts ``FormatName:`` before a format name, WCF writes ``net.msmq://host/private/orders`` and
# ``msmq.formatname:DIRECT=OS:...``, and adapters ``msmq://host/orders``.


_PREFIX: Final = re.compile(r"(?:formatname|msmq\.formatname):\s*(?=[^/\s])", re.IGNORECASE)
_ADDRESS: Final = re.compile(
    r"(?P<scheme>net\.msmq|msmq)://(?P<host>\[[0-9A-Fa-f:.]+\]|[^/\\:\s]+)(?P<port>:[0-9]+)?"
    r"/(?P<private>private(?:\$|%24)?/)?(?P<queue>[^/\\]+)/?",
    re.IGNORECASE,
)
_WEB_ADDRESS: Final = re.compile(r"https?://[^/]+/msmq/.+", re.IGNORECASE)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PATH: Final = re.compile(r"msmq:/?(?=[^/\\=]+/[^\\=]+$)", re.IGNORECASE)
_SHORT: Final = re.compile(r"msmq:(?=[^/])", re.IGNORECASE)
_UNPREFIXED: Final = re.compile(r"(?:os|tcp):[^\\=]+\\", re.IGNORECASE)
_MULTICAST: Final = re.compile(r"2(?:2[4-9]|3[0-9])(?:\.[0-9]{1,3}){3}:[0-9]+")
_WITH_PORT: Final = re.compile(r"(direct=os:[^\\:=]+):[0-9]+(\\.+)", re.IGNORECASE)


def from_address(text: str) -> str | None:
    """The format name of such an address, or the path name that follows its scheme; None for other text.

    Raises FormatNameError, with the name to use if there is one, for an address that says more than a name can, or is
    none of Message Queuing.
    """
    text = text.strip()
    if found := _WITH_PORT.match(text):
        raise FormatNameError(text, len(found[1]), f"no port: use {found[1]}{found[2]}")
    if found := _PATH.match(text):
        return from_address(f"msmq://{text[found.end() :]}")
    if found := _PREFIX.match(text) or _SHORT.match(text):
        rest = text[found.end() :]
        return from_address(rest) or rest
    if _UNPREFIXED.match(text):
        return f"DIRECT={text}"
    if _MULTICAST.fullmatch(text):
        return f"MULTICAST={text}"
    if _WEB_ADDRESS.fullmatch(text):
        return f"DIRECT={text}"
    if (found := _ADDRESS.fullmatch(text)) is None:
        if scheme := _SCHEME.match(text):
            raise FormatNameError(
                text,
                0,
                rf"a name such as orders or DIRECT=OS:host\private$\orders, and no address with {scheme[0]}; "
                r"an own queue of this name is .\private$\NAME",
            )
        return None
    host = found["host"]
    kind = f"TCP:{host[1:-1]}" if host.startswith("[") else f"OS:{'.' if host.lower() == 'localhost' else host}"
    is_public = found["scheme"].lower() == "net.msmq" and not found["private"]
    name = f"DIRECT={kind}\\{'' if is_public else 'private$' + chr(92)}{unquote(found['queue'])}"
    if found["port"]:
        raise FormatNameError(text, found.start("port"), f"no port: use {name}")
    return name


# ----------------------------------------------------------------------------------------------------------------------
# Any format name, and several as one: MS-MQMQ 2.1.7.


FormatName: TypeAlias = (
    DirectFormatName
    | PublicFormatName
    | PrivateFormatName
    | DistributionListFormatName
    | MachineFormatName
    | ConnectorFormatName
    | MulticastFormatName
)
"""One element of a format name."""

MAX_ELEMENTS: Final = 1000
"""Elements in a multiple-element format name. The specification has no limit; this one bounds the work."""

SEPARATOR: Final = ","

_BY_GUID_OR_GROUP: Final = (
    PublicFormatName,
    PrivateFormatName,
    DistributionListFormatName,
    MachineFormatName,
    ConnectorFormatName,
    MulticastFormatName,
)


@dataclass(frozen=True, slots=True)
class MultipleElementFormatName:
    """Several destinations in one name. None of them may be read-only: a journal or a dead-letter queue."""

    elements: tuple[FormatName, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.elements) <= MAX_ELEMENTS:
            raise FormatNameError("", 0, f"1 to {MAX_ELEMENTS} format names")
        for element in self.elements:
            if element.is_read_only:
                raise FormatNameError(str(element), 0, _WRITABLE)

    @classmethod
    def parse(cls, text: str) -> "MultipleElementFormatName":
        """The value of one or more format names with commas between. Raises FormatNameError."""
        if len(text) > MAX_ELEMENTS * (MAX_NAME_LENGTH + len(SEPARATOR)) or text.count(SEPARATOR) >= MAX_ELEMENTS:
            raise FormatNameError(text, 0, f"at most {MAX_ELEMENTS} format names of {MAX_NAME_LENGTH} UTF-16 units")
        elements: list[FormatName] = []
        position = 0
        for part in text.split(SEPARATOR):
            try:
                element = parse_single_format_name(part)
            except FormatNameError as error:
                raise FormatNameError(text, position + error.position, error.expected) from None
            if element.is_read_only:
                raise FormatNameError(text, position, _WRITABLE)
            elements.append(element)
            position += len(part) + len(SEPARATOR)
        return cls(tuple(elements))

    def __str__(self) -> str:
        return SEPARATOR.join(map(str, self.elements))


_WRITABLE: Final = "a queue that can be sent to, not a journal or a dead-letter queue"


def parse_single_format_name(text: str) -> FormatName:
    """The value of a format name of one element, by its prefix in any case. Raises FormatNameError."""
    reader = NameReader(text, FormatNameError)
    if reader.take(DIRECT_PREFIX):
        return read_direct_name(reader)
    for kind in _BY_GUID_OR_GROUP:
        if reader.take(kind.prefix):
            name = kind.read(reader)
            reader.finish()
            return name
    if (meant := from_address(text)) is not None:
        reader.fail(f"{meant}, for which this address of another system stands", 0)
    reader.fail(
        "DIRECT=, PUBLIC=, PRIVATE=, MACHINE=, CONNECTOR=, DL= or MULTICAST=; "
        r"the path name .\private$\orders is opened as DIRECT=OS:.\private$\orders"
    )


def parse_format_name(text: str) -> FormatName | MultipleElementFormatName:
    """The value of any format name: of one element, or of several when there is a comma. Raises FormatNameError."""
    if SEPARATOR in text:
        return MultipleElementFormatName.parse(text)
    return parse_single_format_name(text)
