"""QUEUE_FORMAT, and identifiers of queues beside the GUID (MS-MQMQ 2.2.7): OBJECTID, DL_ID, MULTICAST_ID, LPWSTR.

These are structures of RPC interfaces. Here they are written field after field without NDR's pointers: a string follows
in place, ended by a null.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

from qmnode.structures.enumerations import QueueFormatFlag, QueueFormatType, QueueSuffixType
from qmnode.structures.fields import Flags, bits, choice, guid, text_to_null, u8, u16, u32
from qmnode.structures.guid import Guid
from qmnode.structures.layout import Structure
from qmnode.structures.names import (
    ConnectorFormatName,
    DirectFormatName,
    DistributionListFormatName,
    FormatName,
    FormatNameError,
    MachineFormatName,
    MachineQueue,
    MulticastFormatName,
    PathName,
    PrivateFormatName,
    PublicFormatName,
    QueueKind,
)


# fmt: off
class LpWStr(Structure, section="MS-DTYP 2.2.36", title="LPWSTR"):
    """A null-terminated Unicode string."""

    text: str = text_to_null(0, "LPWSTR", "UTF-16, ended by a null")


class ObjectId(Structure, section="MS-MQMQ 2.2.8", title="OBJECTID"):
    """An object within a group; for a private queue, its number at a queue manager."""

    lineage: Guid   = guid(0, "Lineage", "The group, such as the queue manager that owns the object")
    uniquifier: int = u32(16, "Uniquifier", "The object within the group")


class DlId(Structure, section="MS-MQMQ 2.2.9", title="DL_ID"):
    """The identifier of a distribution list."""

    dl_guid: Guid = guid(0, "m_DlGuid", "The group object in the directory")
    domain: str   = text_to_null(16, "m_pwzDomain", "The domain of that object, perhaps empty", default="")


class MulticastId(Structure, section="MS-MQMQ 2.2.10", title="MULTICAST_ID"):
    """A multicast address and port. The address is in network byte order: its first number is the first byte."""

    address: int = u32(0, "m_address", "IPv4 address, the bytes in network order")
    port: int    = u32(4, "m_port", "Port, 0 to 65535", allowed=range(0x10000))

    @property
    def ip_address(self) -> IPv4Address:
        """``address`` as a printable IP address."""
        return IPv4Address(self.address.to_bytes(4, "little"))

    @classmethod
    def of(cls, address: IPv4Address, port: int) -> MulticastId:
        """The identifier of an address and a port."""
        return cls(address=int.from_bytes(address.packed, "little"), port=port)
# fmt: on


# ----------------------------------------------------------------------------------------------------------------------
# QUEUE_FORMAT (MS-MQMQ 2.2.7): the union by which RPC interfaces name a queue, and its conversion to and from format
# names.
#
# Here it is written without NDR's pointers and alignment: the three fields, and the identifier directly after them;
# strings end with a null. A direct name is kept with its suffix and without ``DIRECT=``.

_PUBLIC: Final = QueueFormatType.QUEUE_FORMAT_TYPE_PUBLIC
_PRIVATE: Final = QueueFormatType.QUEUE_FORMAT_TYPE_PRIVATE
_DIRECT: Final = QueueFormatType.QUEUE_FORMAT_TYPE_DIRECT
_MACHINE: Final = QueueFormatType.QUEUE_FORMAT_TYPE_MACHINE
_CONNECTOR: Final = QueueFormatType.QUEUE_FORMAT_TYPE_CONNECTOR
_DL: Final = QueueFormatType.QUEUE_FORMAT_TYPE_DL
_MULTICAST: Final = QueueFormatType.QUEUE_FORMAT_TYPE_MULTICAST
_SUBQUEUE: Final = QueueFormatType.QUEUE_FORMAT_TYPE_SUBQUEUE

_NONE: Final = QueueSuffixType.QUEUE_SUFFIX_TYPE_NONE
_JOURNAL: Final = QueueSuffixType.QUEUE_SUFFIX_TYPE_JOURNAL
_XACTONLY: Final = QueueSuffixType.QUEUE_SUFFIX_TYPE_XACTONLY
_SUBQUEUE_SUFFIX: Final = QueueSuffixType.QUEUE_SUFFIX_TYPE_SUBQUEUE
_MACHINE_SUFFIXES: Final = {
    MachineQueue.JOURNAL: _JOURNAL,
    MachineQueue.DEADLETTER: QueueSuffixType.QUEUE_SUFFIX_TYPE_DEADLETTER,
    MachineQueue.DEADXACT: QueueSuffixType.QUEUE_SUFFIX_TYPE_DEADXACT,
}
_MACHINE_QUEUES: Final = {suffix: queue for queue, suffix in _MACHINE_SUFFIXES.items()}

_NOT_SYSTEM: Final = int(QueueFormatFlag.QUEUE_FORMAT_FLAG_NOT_SYSTEM)
_SYSTEM: Final = int(QueueFormatFlag.QUEUE_FORMAT_FLAG_SYSTEM)


# fmt: off
class SuffixAndFlags(Flags, width=8):
    """The suffix of the name, and whether the queue is a system queue."""

    SUFFIX = bits(0, 4, "Suffix type", values={item.value: item.name for item in QueueSuffixType})
    FLAGS  = bits(4, 4, "Flags", values={_NOT_SYSTEM >> 4: "QUEUE_FORMAT_FLAG_NOT_SYSTEM",
                                         _SYSTEM >> 4: "QUEUE_FORMAT_FLAG_SYSTEM"})


Identifier: TypeAlias = Guid | ObjectId | LpWStr | DlId | MulticastId | None


class QueueFormat(Structure, section="MS-MQMQ 2.2.7", title="QUEUE_FORMAT"):
    """A queue by one of its names. ``m_reserved`` is kept as it is."""

    format_type: int       = u8(0, "m_qft", "Kind of name", values={item.value: item.name for item in QueueFormatType})
    suffix_and_flags: int  = u8(1, "m_SuffixAndFlags", "What follows the name", bits=SuffixAndFlags, default=0)
    reserved: int          = u16(2, "m_reserved", "Any value, ignored", default=0)
    identifier: Identifier = choice(4, "identifier", "The queue", on="format_type", default=None, cases={
        QueueFormatType.QUEUE_FORMAT_TYPE_UNKNOWN: None,
        _PUBLIC: guid(name="m_gPublicID", meaning="The queue's identifier in the directory"),
        _PRIVATE: ObjectId,
        _DIRECT: LpWStr,
        _MACHINE: guid(name="m_gMachineID", meaning="The queue manager"),
        _CONNECTOR: guid(name="m_GConnectorID", meaning="The connected network"),
        _DL: DlId,
        _MULTICAST: MulticastId,
        _SUBQUEUE: LpWStr,
    })
# fmt: on

    @property
    def suffix(self) -> int:
        """A QueueSuffixType, or another number received on the wire."""
        return SuffixAndFlags.SUFFIX.get(self.suffix_and_flags)

    @property
    def flags(self) -> int:
        """A QueueFormatFlag, or another number received on the wire."""
        return SuffixAndFlags.FLAGS.get(self.suffix_and_flags) << 4


class _SuffixRule(NamedTuple):
    """The values of the flags (None: any) and of ``m_qft`` that a suffix requires."""

    flags: int | None
    format_types: frozenset[int]


_EVERY_TYPE: Final = frozenset(QueueFormatType)
_SUFFIX_RULES: Final[dict[int, _SuffixRule]] = {
    _NONE: _SuffixRule(_NOT_SYSTEM, _EVERY_TYPE - {_MACHINE}),
    _JOURNAL: _SuffixRule(_SYSTEM, _EVERY_TYPE - {_CONNECTOR, _DL, _MULTICAST}),
    QueueSuffixType.QUEUE_SUFFIX_TYPE_DEADLETTER: _SuffixRule(
        _SYSTEM, _EVERY_TYPE - {_PUBLIC, _PRIVATE, _CONNECTOR, _DL, _MULTICAST}
    ),
    QueueSuffixType.QUEUE_SUFFIX_TYPE_DEADXACT: _SuffixRule(_SYSTEM, frozenset({_DIRECT, _MACHINE})),
    _XACTONLY: _SuffixRule(None, frozenset({_CONNECTOR})),
    _SUBQUEUE_SUFFIX: _SuffixRule(_NOT_SYSTEM, frozenset({_SUBQUEUE})),
}
"""The table of suffixes in 2.2.7."""


def queue_format_of(name: FormatName) -> QueueFormat:
    """The QUEUE_FORMAT equivalent to a format name. Raises FormatNameError for MACHINE= without a suffix."""
    suffix, identifier = _parts_of(name)
    flags = _SYSTEM if suffix in _MACHINE_QUEUES else _NOT_SYSTEM
    return QueueFormat(format_type=name.format_type, suffix_and_flags=flags | suffix, identifier=identifier)


def _parts_of(name: FormatName) -> tuple[QueueSuffixType, Identifier]:
    match name:
        case DirectFormatName():
            return _direct_suffix(name), LpWStr(text=name.without_prefix)
        case PublicFormatName():
            return (_JOURNAL if name.journal else _NONE), name.queue
        case PrivateFormatName():
            identifier = ObjectId(lineage=name.computer, uniquifier=name.queue)
            return (_JOURNAL if name.journal else _NONE), identifier
        case MachineFormatName():
            if name.queue is None:
                raise FormatNameError(str(name), len(str(name)), ";JOURNAL, ;DEADLETTER or ;DEADXACT")
            return _MACHINE_SUFFIXES[name.queue], name.computer
        case ConnectorFormatName():
            return (_XACTONLY if name.transactional else _NONE), name.connected_network
        case DistributionListFormatName():
            return _NONE, DlId(dl_guid=name.group, domain=name.domain)
        case MulticastFormatName():
            return _NONE, MulticastId.of(name.address, name.port)


def _direct_suffix(name: DirectFormatName) -> QueueSuffixType:
    if name.path.kind is QueueKind.SYSTEM:
        return _MACHINE_SUFFIXES[MachineQueue(name.path.queue.upper())]
    if name.path.journal:
        return _JOURNAL
    return _SUBQUEUE_SUFFIX if name.path.subqueue else _NONE


def format_name_of(value: QueueFormat) -> FormatName:
    """The format name equivalent to a QUEUE_FORMAT. Raises FormatNameError if the table of 2.2.7 forbids it."""
    rule = _SUFFIX_RULES.get(value.suffix)
    if rule is None:
        _illegal(value, "one of the suffixes of QUEUE_SUFFIX_TYPE")
    if value.format_type not in rule.format_types:
        _illegal(value, f"m_qft in {sorted(rule.format_types)} with suffix {value.suffix}")
    if rule.flags is not None and value.flags != rule.flags:
        _illegal(value, f"flags 0x{rule.flags:02X} with suffix {value.suffix}")
    make = _NAME_OF_TYPE.get(value.format_type)
    if make is None:
        _illegal(value, "a kind of name that is known")
    return make(value, value.identifier)


def _illegal(value: QueueFormat, expected: str) -> NoReturn:
    shown = f"QUEUE_FORMAT m_qft={value.format_type} m_SuffixAndFlags=0x{value.suffix_and_flags:02X}"
    raise FormatNameError(shown, 0, expected)


def _direct_name(value: QueueFormat, identifier: LpWStr) -> FormatName:
    name = DirectFormatName.parse(identifier.text)
    if value.suffix == _JOURNAL and _direct_suffix(name) is _NONE:
        path = name.path
        name = DirectFormatName(name.protocol, PathName(path.computer, path.queue, path.kind, journal=True), name.port)
    if _direct_suffix(name) != value.suffix:
        _illegal(value, f"the suffix that {name.without_prefix} has, {_direct_suffix(name)}")
    return name


def _dl_name(value: QueueFormat, identifier: DlId) -> FormatName:
    return DistributionListFormatName(identifier.dl_guid, identifier.domain)


def _multicast_name(value: QueueFormat, identifier: MulticastId) -> FormatName:
    return MulticastFormatName(identifier.ip_address, identifier.port)


_NAME_OF_TYPE: Final[dict[int, Callable[[QueueFormat, Any], FormatName]]] = {
    _PUBLIC: lambda value, identifier: PublicFormatName(identifier, value.suffix == _JOURNAL),
    _PRIVATE: lambda value, identifier: PrivateFormatName(
        identifier.lineage, identifier.uniquifier, value.suffix == _JOURNAL
    ),
    _DIRECT: _direct_name,
    _MACHINE: lambda value, identifier: MachineFormatName(identifier, _MACHINE_QUEUES[QueueSuffixType(value.suffix)]),
    _CONNECTOR: lambda value, identifier: ConnectorFormatName(identifier, value.suffix == _XACTONLY),
    _DL: _dl_name,
    _MULTICAST: _multicast_name,
    _SUBQUEUE: _direct_name,
}
