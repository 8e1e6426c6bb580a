"""QUEUE_FORMAT (MS-MQMQ 2.2.7) as stub data, and its conversion to and from format names.

The union without NDR is in ``qmnode.structures.queue_format``: its rules on suffixes are used here.
"""

from typing import Any, Final

from qmnode.dcerpc.ndr import GUID, U8, U16, U32, WIDE_STRING, NdrStructure, Pointer, Union, member
from qmnode.structures.enumerations import QueueFormatType
from qmnode.structures.guid import Guid
from qmnode.structures.names import FormatName
from qmnode.structures.queue_format import (
    DlId,
    LpWStr,
    MulticastId,
    ObjectId,
    QueueFormat,
    format_name_of,
    queue_format_of,
)


class ObjectIdentifier(NdrStructure):
    """The identifier of a private queue: OBJECTID, 2.2.8."""

    lineage: Guid = member(GUID, "Lineage")
    uniquifier: int = member(U32, "Uniquifier")


class DistributionList(NdrStructure):
    """The identifier of a distribution list: DL_ID, 2.2.9."""

    identifier: Guid = member(GUID, "m_DlGuid")
    domain: str | None = member(Pointer(WIDE_STRING), "m_pwzDomain", default=None)


class Multicast(NdrStructure):
    """A multicast address and port: MULTICAST_ID, 2.2.10."""

    address: int = member(U32, "m_address")
    port: int = member(U32, "m_port")


_TEXT: Final = Pointer(WIDE_STRING)
_IDENTIFIER: Final = Union(
    U8,
    {
        QueueFormatType.QUEUE_FORMAT_TYPE_UNKNOWN: None,
        QueueFormatType.QUEUE_FORMAT_TYPE_PUBLIC: GUID,
        QueueFormatType.QUEUE_FORMAT_TYPE_PRIVATE: ObjectIdentifier,
        QueueFormatType.QUEUE_FORMAT_TYPE_DIRECT: _TEXT,
        QueueFormatType.QUEUE_FORMAT_TYPE_MACHINE: GUID,
        QueueFormatType.QUEUE_FORMAT_TYPE_CONNECTOR: GUID,
        QueueFormatType.QUEUE_FORMAT_TYPE_DL: DistributionList,
        QueueFormatType.QUEUE_FORMAT_TYPE_MULTICAST: Multicast,
        QueueFormatType.QUEUE_FORMAT_TYPE_SUBQUEUE: _TEXT,
    },
)


class QueueFormatValue(NdrStructure):
    """QUEUE_FORMAT with its union."""

    format_type: int = member(U8, "m_qft")
    suffix_and_flags: int = member(U8, "m_SuffixAndFlags", default=0)
    reserved: int = member(U16, "m_reserved", default=0)
    identifier: Any = member(_IDENTIFIER, "", switch="format_type", default=None)


def to_queue_format(name: FormatName) -> QueueFormatValue:
    value = queue_format_of(name)
    identifier: Any = value.identifier
    match identifier:
        case LpWStr():
            identifier = identifier.text
        case ObjectId():
            identifier = ObjectIdentifier(lineage=identifier.lineage, uniquifier=identifier.uniquifier)
        case DlId():
            identifier = DistributionList(identifier=identifier.dl_guid, domain=identifier.domain)
        case MulticastId():
            identifier = Multicast(address=identifier.address, port=identifier.port)
    return QueueFormatValue(
        format_type=int(value.format_type), suffix_and_flags=value.suffix_and_flags, identifier=identifier
    )


def to_format_name(value: QueueFormatValue) -> FormatName:
    """The format name of a value. Raises FormatNameError, PacketError or ValueError if it has none."""
    identifier = value.identifier
    match identifier:
        case str():
            identifier = LpWStr(text=identifier)
        case ObjectIdentifier():
            identifier = ObjectId(lineage=Guid(identifier.lineage), uniquifier=identifier.uniquifier)
        case DistributionList():
            identifier = DlId(dl_guid=Guid(identifier.identifier), domain=identifier.domain or "")
        case Multicast():
            identifier = MulticastId(address=identifier.address, port=identifier.port)
        case None:
            raise ValueError("a QUEUE_FORMAT that names no queue")
    return format_name_of(
        QueueFormat(
            format_type=value.format_type, suffix_and_flags=value.suffix_and_flags, identifier=identifier, reserved=0
        )
    )
