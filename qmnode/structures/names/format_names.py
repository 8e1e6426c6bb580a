"""Format names that identify by GUID or group address: MS-MQMQ 2.1.3 to 2.1.6."""

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from typing import ClassVar, Final

from qmnode.structures.guid import Guid, guid_from_text, guid_to_text
from qmnode.structures.names.direct import DOMAIN, FormatNameError, MachineQueue, NameReader, fold
from qmnode.structures.queue_format_types import QueueFormatType

_GUID_TEXT_LENGTH: Final = 36
_HEXADECIMAL: Final = re.compile(r"[0-9A-Fa-f]{1,8}", re.ASCII)
_DECIMAL: Final = re.compile(r"[0-9]{1,5}", re.ASCII)
_JOURNAL: Final = ";JOURNAL"
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
        return cls(_read_guid(reader), reader.take(_JOURNAL))

    @property
    def is_read_only(self) -> bool:
        """Whether no messages can be sent to it."""
        return self.journal

    def __str__(self) -> str:
        return f"PUBLIC={guid_to_text(self.queue)}{_JOURNAL if self.journal else ''}"


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
        return cls(computer, int(digits, 16), reader.take(_JOURNAL))

    @property
    def is_read_only(self) -> bool:
        """Whether no messages can be sent to it."""
        return self.journal

    def __str__(self) -> str:
        # Eight digits, as Windows writes the number; the grammar accepts one to eight.
        return f"PRIVATE={guid_to_text(self.computer)}\\{self.queue:08x}{_JOURNAL if self.journal else ''}"


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
            raise FormatNameError(str(self.port), 0, _PORT)

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
            reader.fail(_PORT, start)
        return cls(address, int(digits))

    def __str__(self) -> str:
        return f"MULTICAST={self.address}:{self.port}"


_MULTICAST_ADDRESS: Final = "an address from 224.0.0.0 to 239.255.255.255"
_PORT: Final = "a port from 0 to 65535"


def _read_guid(reader: NameReader) -> Guid:
    start = reader.position
    digits = reader.text[start : start + _GUID_TEXT_LENGTH]
    try:
        guid = guid_from_text(digits)
    except ValueError:
        reader.fail("a GUID of 8-4-4-4-12 hexadecimal digits")
    reader.position = start + len(digits)
    return guid
