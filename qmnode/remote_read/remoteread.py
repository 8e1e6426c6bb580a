"""RemoteRead: MS-MQRR, appendix A. Fifteen methods; their explicit binding handles are not transmitted.

A ``void`` method reports its failure as a fault whose status is the HRESULT.
"""

import struct
from enum import IntEnum
from typing import Final

from qmnode.dcerpc.interface import Interface, syntax
from qmnode.dcerpc.ndr import (
    CONTEXT_HANDLE,
    ENUM,
    GUID,
    NDR,
    NDR64,
    OCTETS,
    U8,
    U16,
    U32,
    U64,
    Array,
    NdrStructure,
    Parameters,
    Pointer,
    Representation,
    counts,
    member,
)
from qmnode.remote_read.qm2qm import ContextResponse, Status
from qmnode.remote_read.queue_format import QueueFormatValue
from qmnode.structures.guid import ZERO_GUID, Guid

EVERYTHING: Final = 0xFFFFFFFF
"""dwMaxBodySize of a client that wants whole messages."""
NO_TRANSACTION: Final = bytes(16)
"""pTransactionId of an operation outside a transaction."""
_TOKEN: Final = range(131073)
_ACKNOWLEDGMENT: Final = range(1, 3)


class SectionType(IntEnum):
    """The part of a message packet that a section is: 2.2.7."""

    ST_FULL_PACKET = 0
    ST_BINARY_FIRST_SECTION = 1
    ST_BINARY_SECOND_SECTION = 2
    ST_SRMP_FIRST_SECTION = 3
    ST_SRMP_SECOND_SECTION = 4


class SectionBuffer(NdrStructure):
    """A section of a message packet, 2.2.6."""

    section_type: int = member(ENUM, "SectionBufferType", default=SectionType.ST_FULL_PACKET)
    size_alloc: int = member(U32, "SectionSizeAlloc")
    size: int = counts("section", U32, "SectionSize")
    section: bytes | None = member(Pointer(Array(U8)), "pSectionBuffer")


class GetServerPortRequest(Parameters):
    """The empty request of R_GetServerPort, 3.1.4.1."""


class OpenQueueRequest(Parameters):
    """Request of R_OpenQueue, 3.1.4.2, and of R_OpenQueueForMove, 3.1.4.11."""

    queue_format: QueueFormatValue = member(QueueFormatValue, "pQueueFormat")
    access: int = member(U32, "dwAccess")
    share_mode: int = member(U32, "dwShareMode", default=0)
    client_id: Guid = member(GUID, "pClientId", default=ZERO_GUID)
    non_routing_server: int = member(U32, "fNonRoutingServer", default=1)
    major: int = member(U8, "Major", default=6)
    minor: int = member(U8, "Minor", default=1)
    build_number: int = member(U16, "BuildNumber", default=0)
    workgroup: int = member(U32, "fWorkgroup", default=0)


class OpenQueueResponse(Parameters):
    """Response of R_OpenQueue, 3.1.4.2."""

    context: bytes = member(CONTEXT_HANDLE, "pphContext")


class OpenQueueForMoveResponse(Parameters):
    """Response of R_OpenQueueForMove, 3.1.4.11."""

    move_context: int = member(U64, "pMoveContext")
    context: bytes = member(CONTEXT_HANDLE, "pphContext")


class ContextRequest(Parameters):
    """Request of R_CloseQueue, R_CreateCursor and R_PurgeQueue: an open queue."""

    context: bytes = member(CONTEXT_HANDLE, "phContext")


class CreateCursorResponse(Parameters):
    """Response of R_CreateCursor, 3.1.4.4."""

    cursor: int = member(U32, "phCursor", default=0)
    status: int = member(U32, "return value")


class CloseCursorRequest(Parameters):
    """Request of R_CloseCursor, 3.1.4.5."""

    context: bytes = member(CONTEXT_HANDLE, "phContext")
    cursor: int = member(U32, "hCursor")


class StartReceiveRequest(Parameters):
    """Request of R_StartReceive, 3.1.4.7."""

    context: bytes = member(CONTEXT_HANDLE, "phContext")
    lookup_id: int = member(U64, "LookupId", default=0)
    cursor: int = member(U32, "hCursor", default=0)
    action: int = member(U32, "ulAction", default=0)
    timeout: int = member(U32, "ulTimeout", default=0)
    request_id: int = member(U32, "dwRequestId")
    max_body_size: int = member(U32, "dwMaxBodySize", default=EVERYTHING)
    max_compound_message_size: int = member(U32, "dwMaxCompoundMessageSize", default=EVERYTHING)


class StartTransactionalReceiveRequest(StartReceiveRequest):
    """Request of R_StartTransactionalReceive, 3.1.4.13: that of R_StartReceive, and a transaction."""

    transaction_id: bytes = member(OCTETS, "pTransactionId", default=NO_TRANSACTION)


class StartReceiveResponse(Parameters):
    """Response of R_StartReceive, 3.1.4.7, and of R_StartTransactionalReceive, 3.1.4.13."""

    arrive_time: int = member(U32, "pdwArriveTime", default=0)
    sequence_id: int = member(U64, "pSequenceId", default=0)
    number_of_sections: int = counts("sections", U32, "pdwNumberOfSections", role="size")
    sections: list[SectionBuffer] | None = member(Pointer(Array(SectionBuffer)), "ppPacketSections", default=None)
    status: int = member(U32, "return value")


_ONE_SECTION: Final = {NDR: struct.Struct("<I4xQIIIH2xIIII"), NDR64: struct.Struct("<I4xQI4xQQIII4xQQ")}
"""A StartReceiveResponse with one section up to its bytes: nearly every response that has a message."""
_STATUS: Final = struct.Struct("<I")
_REFERENTS: Final = 0x20000, 0x20004


def write_one_section(arrive_time: int, sequence_id: int, section: bytes, representation: Representation) -> bytes:
    """A StartReceiveResponse with MQ_OK and a whole packet in one section, in one step."""
    size, (sections, bytes_of) = len(section), _REFERENTS
    begin = _ONE_SECTION[representation].pack(
        arrive_time, sequence_id, 1, sections, 1, SectionType.ST_FULL_PACKET, size, size, bytes_of, size
    )
    return begin + section + _AFTER[size & 3]


_AFTER: Final = [bytes(-size & 3) + _STATUS.pack(0) for size in range(4)]
"""Padding and status, by the size of the section."""


def read_one_section(stub: bytes, representation: Representation) -> tuple[int, int, bytes] | None:
    """Arrival, sequential identifier and packet of such a response; None for one of another form."""
    form = _ONE_SECTION[representation]
    begin = form.size
    if len(stub) < begin + _STATUS.size:
        return None
    arrive_time, sequence_id, count, sections, counted, kind, _, size, bytes_of, sized = form.unpack_from(stub)
    end = begin + size
    after = end + (-size & 3)
    if (
        (count, counted, kind, sized) != (1, 1, SectionType.ST_FULL_PACKET, size)
        or not (sections and bytes_of and size)
        or after + _STATUS.size > len(stub)
        or _STATUS.unpack_from(stub, after)[0]
    ):
        return None
    return arrive_time, sequence_id, stub[begin:end]


class CancelReceiveRequest(Parameters):
    """Request of R_CancelReceive, 3.1.4.8."""

    context: bytes = member(CONTEXT_HANDLE, "phContext")
    request_id: int = member(U32, "dwRequestId")


class EndReceiveRequest(Parameters):
    """Request of R_EndReceive, 3.1.4.9, and of R_EndTransactionalReceive, 3.1.4.15."""

    context: bytes = member(CONTEXT_HANDLE, "phContext")
    ack: int = member(U32, "dwAck", allowed=_ACKNOWLEDGMENT)
    request_id: int = member(U32, "dwRequestId")


class MoveMessageRequest(Parameters):
    """Request of R_MoveMessage, 3.1.4.10."""

    context_from: bytes = member(CONTEXT_HANDLE, "phContextFrom")
    context_to: int = member(U64, "ullContextTo")
    lookup_id: int = member(U64, "LookupId")
    transaction_id: bytes = member(OCTETS, "pTransactionId", default=NO_TRANSACTION)


class EnlistRemoteTransactionRequest(Parameters):
    """Request of R_QMEnlistRemoteTransaction, 3.1.4.12."""

    transaction_id: bytes = member(OCTETS, "pTransactionId")
    token_size: int = counts("token", U32, "cbPropagationToken", role="size", allowed=_TOKEN)
    token: bytes = member(Array(U8), "pbPropagationToken")
    queue_format: QueueFormatValue = member(QueueFormatValue, "pQueueFormat")


class SetUserAcknowledgementClassRequest(Parameters):
    """Request of R_SetUserAcknowledgementClass, 3.1.4.14."""

    context: bytes = member(CONTEXT_HANDLE, "phContext")
    lookup_id: int = member(U64, "LookupId")
    acknowledgement_class: int = member(U16, "usClass")


REMOTE_READ: Final = Interface("RemoteRead", syntax("1a9134dd-7b39-45ba-ad88-44d01ca47f28", 1))
GET_SERVER_PORT: Final = REMOTE_READ.method("R_GetServerPort", 0, GetServerPortRequest, Status, "3.1.4.1")
OPEN_QUEUE: Final = REMOTE_READ.method("R_OpenQueue", 2, OpenQueueRequest, OpenQueueResponse, "3.1.4.2")
CLOSE_QUEUE: Final = REMOTE_READ.method("R_CloseQueue", 3, ContextRequest, ContextResponse, "3.1.4.3")
CREATE_CURSOR: Final = REMOTE_READ.method("R_CreateCursor", 4, ContextRequest, CreateCursorResponse, "3.1.4.4")
CLOSE_CURSOR: Final = REMOTE_READ.method("R_CloseCursor", 5, CloseCursorRequest, Status, "3.1.4.5")
PURGE_QUEUE: Final = REMOTE_READ.method("R_PurgeQueue", 6, ContextRequest, Status, "3.1.4.6")
START_RECEIVE: Final = REMOTE_READ.method("R_StartReceive", 7, StartReceiveRequest, StartReceiveResponse, "3.1.4.7")
CANCEL_RECEIVE: Final = REMOTE_READ.method("R_CancelReceive", 8, CancelReceiveRequest, Status, "3.1.4.8")
END_RECEIVE: Final = REMOTE_READ.method("R_EndReceive", 9, EndReceiveRequest, Status, "3.1.4.9")
MOVE_MESSAGE: Final = REMOTE_READ.method("R_MoveMessage", 10, MoveMessageRequest, Status, "3.1.4.10")
OPEN_QUEUE_FOR_MOVE: Final = REMOTE_READ.method(
    "R_OpenQueueForMove", 11, OpenQueueRequest, OpenQueueForMoveResponse, "3.1.4.11"
)
ENLIST_REMOTE_TRANSACTION: Final = REMOTE_READ.method(
    "R_QMEnlistRemoteTransaction", 12, EnlistRemoteTransactionRequest, Status, "3.1.4.12"
)
START_TRANSACTIONAL_RECEIVE: Final = REMOTE_READ.method(
    "R_StartTransactionalReceive", 13, StartTransactionalReceiveRequest, StartReceiveResponse, "3.1.4.13"
)
SET_USER_ACKNOWLEDGEMENT_CLASS: Final = REMOTE_READ.method(
    "R_SetUserAcknowledgementClass", 14, SetUserAcknowledgementClassRequest, Status, "3.1.4.14"
)
END_TRANSACTIONAL_RECEIVE: Final = REMOTE_READ.method(
    "R_EndTransactionalReceive", 15, EndReceiveRequest, Status, "3.1.4.15"
)
