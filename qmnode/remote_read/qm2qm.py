"""qm2qm: MS-MQQP, appendix A. Eleven methods; their explicit binding handles are not transmitted."""

from enum import IntEnum
from typing import Final

from qmnode.dcerpc.interface import Interface, syntax
from qmnode.dcerpc.ndr import (
    CONTEXT_HANDLE,
    ENUM,
    GUID,
    NULL_CONTEXT_HANDLE,
    U8,
    U16,
    U32,
    U64,
    Array,
    NdrStructure,
    Parameters,
    Pointer,
    counts,
    member,
)
from qmnode.structures.guid import ZERO_GUID, Guid

INFINITE: Final = 0xFFFFFFFF
"""ulTimeout: wait for ever."""
MAXIMUM_BUFFER: Final = 0x00420000
"""The largest UserMessage packet in bytes (2.2.2.1)."""


class RemoteReadAck(IntEnum):
    """REMOTEREADACK, 2.2.1.3. The first is 0, as in every C enumeration."""

    RR_UNKNOWN = 0
    RR_NACK = 1
    RR_ACK = 2


class Action(IntEnum):
    """The action of a read: ulAction, 2.2.2.1."""

    MQ_ACTION_RECEIVE = 0x00000000
    MQ_ACTION_PEEK_CURRENT = 0x80000000
    MQ_ACTION_PEEK_NEXT = 0x80000001
    MQ_LOOKUP_PEEK_CURRENT = 0x40000010
    MQ_LOOKUP_PEEK_NEXT = 0x40000011
    MQ_LOOKUP_PEEK_PREV = 0x40000012
    MQ_LOOKUP_RECEIVE_CURRENT = 0x40000020
    MQ_LOOKUP_RECEIVE_NEXT = 0x40000021
    MQ_LOOKUP_RECEIVE_PREV = 0x40000022


class PortType(IntEnum):
    """dwPortType, 3.1.4.8, and fIP of qmcomm (MS-MQMP 3.1.4.24)."""

    IP_HANDSHAKE = 0
    IP_READ = 1
    IPX_HANDSHAKE = 2
    IPX_READ = 3


class RemoteReadDesc(NdrStructure):
    """The description of a read: REMOTEREADDESC, 2.2.2.1."""

    remote_queue: int = member(U32, "hRemoteQueue", default=0)
    cursor: int = member(U32, "hCursor", default=0)
    action: int = member(U32, "ulAction", default=Action.MQ_ACTION_RECEIVE)
    timeout: int = member(U32, "ulTimeout", default=0)
    size: int = counts("buffer", U32, "dwSize", allowed=range(MAXIMUM_BUFFER + 1))
    queue: int = member(U32, "dwQueue", default=0)
    request_id: int = member(U32, "dwRequestID", default=0)
    reserved: int = member(U32, "Reserved", default=0)
    arrive_time: int = member(U32, "dwArriveTime", default=0)
    ack_nack: int = member(ENUM, "eAckNack", default=RemoteReadAck.RR_UNKNOWN)
    buffer: bytes | None = member(Pointer(Array(U8, varying=True)), "lpBuffer", default=None)


class RemoteReadDesc2(NdrStructure):
    """The description with a sequential id: REMOTEREADDESC2, 2.2.2.2."""

    remote_read_desc: RemoteReadDesc | None = member(Pointer(RemoteReadDesc), "pRemoteReadDesc")
    sequential_id: int = member(U64, "SequentialId", default=0)


class Status(Parameters):
    """A response that contains only a status."""

    status: int = member(U32, "return value")


class StartReceiveRequest(Parameters):
    """Request of RemoteQMStartReceive, 3.1.4.1."""

    desc: RemoteReadDesc = member(RemoteReadDesc, "lpRemoteReadDesc")


class StartReceiveResponse(Parameters):
    """Response of RemoteQMStartReceive, 3.1.4.1."""

    context: bytes = member(CONTEXT_HANDLE, "pphContext", default=NULL_CONTEXT_HANDLE)
    desc: RemoteReadDesc = member(RemoteReadDesc, "lpRemoteReadDesc")
    status: int = member(U32, "return value")


class EndReceiveRequest(Parameters):
    """Request of RemoteQMEndReceive, 3.1.4.2."""

    context: bytes = member(CONTEXT_HANDLE, "pphContext")
    ack: int = member(U32, "dwAck", allowed=range(1, 3))


class ContextResponse(Parameters):
    """A context handle, which is null from now on, and a status."""

    context: bytes = member(CONTEXT_HANDLE, "pphContext", default=NULL_CONTEXT_HANDLE)
    status: int = member(U32, "return value")


class OpenQueueRequest(Parameters):
    """Request of RemoteQMOpenQueue, 3.1.4.3."""

    license_guid: Guid = member(GUID, "pLicGuid", default=ZERO_GUID)
    mqs: int = member(U32, "dwMQS", default=0, allowed=range(17))
    h_queue: int = member(U32, "hQueue")
    p_queue: int = member(U32, "pQueue")
    context: int = member(U32, "dwpContext")


class CloseQueueRequest(Parameters):
    """Request of RemoteQMCloseQueue, 3.1.4.4."""

    context: bytes = member(CONTEXT_HANDLE, "pphContext")


class CloseCursorRequest(Parameters):
    """Request of RemoteQMCloseCursor, 3.1.4.5."""

    queue: int = member(U32, "hQueue")
    cursor: int = member(U32, "hCursor")


class CancelReceiveRequest(Parameters):
    """Request of RemoteQMCancelReceive, 3.1.4.6."""

    h_queue: int = member(U32, "hQueue")
    p_queue: int = member(U32, "pQueue")
    request_id: int = member(U32, "dwRequestID")


class PurgeQueueRequest(Parameters):
    """Request of RemoteQMPurgeQueue, 3.1.4.7."""

    queue: int = member(U32, "hQueue")


class ServerPortRequest(Parameters):
    """Request of RemoteQMGetQMQMServerPort, 3.1.4.8: 0 for a wrong value, where the IDL's range would mean a fault."""

    port_type: int = member(U32, "dwPortType")


class GetVersionRequest(Parameters):
    """The empty request of RemoteQmGetVersion, 3.1.4.9."""


class GetVersionResponse(Parameters):
    """Response of RemoteQmGetVersion, 3.1.4.9: the one method that returns no status."""

    major: int = member(U8, "pMajor")
    minor: int = member(U8, "pMinor")
    build_number: int = member(U16, "pBuildNumber")


class StartReceive2Request(Parameters):
    """Request of RemoteQMStartReceive2, 3.1.4.10."""

    desc2: RemoteReadDesc2 = member(RemoteReadDesc2, "lpRemoteReadDesc2")


class StartReceive2Response(Parameters):
    """Response of RemoteQMStartReceive2, 3.1.4.10, and of RemoteQMStartReceiveByLookupId, 3.1.4.11."""

    context: bytes = member(CONTEXT_HANDLE, "pphContext", default=NULL_CONTEXT_HANDLE)
    desc2: RemoteReadDesc2 = member(RemoteReadDesc2, "lpRemoteReadDesc2")
    status: int = member(U32, "return value")


class StartReceiveByLookupIdRequest(Parameters):
    """Request of RemoteQMStartReceiveByLookupId, 3.1.4.11."""

    lookup_id: int = member(U64, "LookupId")
    desc2: RemoteReadDesc2 = member(RemoteReadDesc2, "lpRemoteReadDesc2")


QM2QM: Final = Interface("qm2qm", syntax("1088a980-eae5-11d0-8d9b-00a02453c337", 1))
START_RECEIVE: Final = QM2QM.method("RemoteQMStartReceive", 0, StartReceiveRequest, StartReceiveResponse, "3.1.4.1")
END_RECEIVE: Final = QM2QM.method("RemoteQMEndReceive", 1, EndReceiveRequest, ContextResponse, "3.1.4.2")
OPEN_QUEUE: Final = QM2QM.method("RemoteQMOpenQueue", 2, OpenQueueRequest, ContextResponse, "3.1.4.3")
CLOSE_QUEUE: Final = QM2QM.method("RemoteQMCloseQueue", 3, CloseQueueRequest, ContextResponse, "3.1.4.4")
CLOSE_CURSOR: Final = QM2QM.method("RemoteQMCloseCursor", 4, CloseCursorRequest, Status, "3.1.4.5")
CANCEL_RECEIVE: Final = QM2QM.method("RemoteQMCancelReceive", 5, CancelReceiveRequest, Status, "3.1.4.6")
PURGE_QUEUE: Final = QM2QM.method("RemoteQMPurgeQueue", 6, PurgeQueueRequest, Status, "3.1.4.7")
GET_SERVER_PORT: Final = QM2QM.method("RemoteQMGetQMQMServerPort", 7, ServerPortRequest, Status, "3.1.4.8")
GET_VERSION: Final = QM2QM.method("RemoteQmGetVersion", 8, GetVersionRequest, GetVersionResponse, "3.1.4.9")
START_RECEIVE2: Final = QM2QM.method(
    "RemoteQMStartReceive2", 9, StartReceive2Request, StartReceive2Response, "3.1.4.10"
)
START_RECEIVE_BY_LOOKUP_ID: Final = QM2QM.method(
    "RemoteQMStartReceiveByLookupId", 10, StartReceiveByLookupIdRequest, StartReceive2Response, "3.1.4.11"
)
