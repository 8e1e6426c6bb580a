"""qmcomm (MS-MQMP): the methods that open a remote queue and its cursors. The other methods are for applications of a
supporting server, which a node is not: MS-MQMP 3.1.4 has it answer them with an error.
"""

from typing import Final

from qmnode.dcerpc.interface import Interface, syntax
from qmnode.dcerpc.ndr import CONTEXT_HANDLE, GUID, NULL_CONTEXT_HANDLE, U32, Parameters, Pointer, member
from qmnode.remote_read.qm2qm import Status
from qmnode.remote_read.queue_format import QueueFormatValue
from qmnode.remote_read.transfer_buffer import TransferBuffer
from qmnode.structures.guid import ZERO_GUID, Guid


class OpenRemoteQueueRequest(Parameters):
    """Request of R_QMOpenRemoteQueue, 3.1.4.2."""

    queue_format: QueueFormatValue | None = member(Pointer(QueueFormatValue), "pQueueFormat")
    calling_process_id: int = member(U32, "dwCallingProcessID", default=0)
    desired_access: int = member(U32, "dwDesiredAccess")
    share_mode: int = member(U32, "dwShareMode", default=0)
    license_guid: Guid = member(GUID, "pLicGuid", default=ZERO_GUID)
    mqs: int = member(U32, "dwMQS", default=0)


class OpenRemoteQueueResponse(Parameters):
    """Response of R_QMOpenRemoteQueue, 3.1.4.2."""

    handle: bytes = member(CONTEXT_HANDLE, "pphContext", default=NULL_CONTEXT_HANDLE)
    context: int = member(U32, "pdwContext", default=0)
    p_queue: int = member(U32, "dwpQueue", default=0)
    h_queue: int = member(U32, "phQueue", default=0)
    status: int = member(U32, "return value")


class CloseRemoteQueueContext(Parameters):
    """R_QMCloseRemoteQueueContext, 3.1.4.3: the same both ways, and no status."""

    handle: bytes = member(CONTEXT_HANDLE, "pphContext", default=NULL_CONTEXT_HANDLE)


class CreateRemoteCursorRequest(Parameters):
    """Request of R_QMCreateRemoteCursor, 3.1.4.4."""

    buffer: TransferBuffer = member(TransferBuffer, "ptb1")
    queue: int = member(U32, "hQueue")


class CreateRemoteCursorResponse(Parameters):
    """Response of R_QMCreateRemoteCursor, 3.1.4.4."""

    cursor: int = member(U32, "phCursor", default=0)
    status: int = member(U32, "return value")


class ServerPortRequest(Parameters):
    """Request of R_QMGetRTQMServerPort, 3.1.4.24."""

    ip: int = member(U32, "fIP")


QMCOMM: Final = Interface("qmcomm", syntax("fdb3a030-065f-11d1-bb9b-00a024ea5525", 1))
OPEN_REMOTE_QUEUE: Final = QMCOMM.method(
    "R_QMOpenRemoteQueue", 2, OpenRemoteQueueRequest, OpenRemoteQueueResponse, "3.1.4.2"
)
CLOSE_REMOTE_QUEUE_CONTEXT: Final = QMCOMM.method(
    "R_QMCloseRemoteQueueContext", 3, CloseRemoteQueueContext, CloseRemoteQueueContext, "3.1.4.3"
)
CREATE_REMOTE_CURSOR: Final = QMCOMM.method(
    "R_QMCreateRemoteCursor", 4, CreateRemoteCursorRequest, CreateRemoteCursorResponse, "3.1.4.4"
)
GET_SERVER_PORT: Final = QMCOMM.method("R_QMGetRTQMServerPort", 31, ServerPortRequest, Status, "3.1.4.24")

SUPPORTING_SERVER_ONLY: Final = frozenset({1, *range(6, 13), *range(14, 21), 22, 23, 26, 27, 28})
"""Opnums that a server which is not a supporting server answers with an error (3.1.4); 1 is also obsolete (3.1.4.1)."""
