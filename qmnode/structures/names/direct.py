r"""Direct format names: MS-MQMQ 2.1.2. ``DIRECT=OS:computer\private$\queue``: a protocol, an address, a path."""

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from ipaddress import ip_address
from typing import Final

from qmnode.structures.names.parts import FormatNameError, MachineQueue, NameReader, QueueNameError, fold
from qmnode.structures.names.path_names import PathName, QueueKind, read_local_name, read_path_name
from qmnode.structures.queue_format_types import QueueFormatType

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
    plain = _plain_ip(host)
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
    plain = _plain_ip(address)
    if plain is None or plain == path.computer:
        return path
    return replace(path, computer=plain)


@lru_cache(maxsize=1024)  # addresses of peers recur with each message
def _plain_ip(text: str) -> str | None:
    """An IP address in its shortest form, or None for other text."""
    try:
        return str(ip_address(text))
    except ValueError:
        return None


def _is_ipv6(text: str) -> bool:
    return ":" in text and _plain_ip(text) is not None


def _address_fault(protocol: DirectProtocol, address: str) -> str | None:
    """The text expected in the place of ``address``, or None if it is valid for the protocol."""
    match protocol:
        case DirectProtocol.TCP:
            plain = _plain_ip(address)
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
