"""qmcomm (MS-MQMP): the methods that open a remote queue and its cursors. The other methods are for applications of a
supporting server, which a node is not: MS-MQMP 3.1.4 has it answer them with an error.
"""

from typing import Any, Final

from qmnode.dcerpc.interface import Interface, syntax
from qmnode.dcerpc.ndr import (
    CONTEXT_HANDLE,
    GUID,
    NULL_CONTEXT_HANDLE,
    U8,
    U16,
    U32,
    Array,
    NdrStructure,
    Parameters,
    Pointer,
    Union,
    counts,
    member,
)
from qmnode.remote_read.qm2qm import Status
from qmnode.remote_read.queue_format import ObjectIdentifier, QueueFormatValue
from qmnode.structures.guid import ZERO_GUID, Guid

_DWORD: Final = Pointer(U32)
_CHAR: Final = Pointer(U8)
_BYTES: Final = Pointer(Pointer(Array(U8)))
_COUNTED_BYTES: Final = Pointer(Pointer(Array(U8, varying=True)))
_WIDE: Final = Pointer(Pointer(Array(U16)))
_COUNTED_WIDE: Final = Pointer(Pointer(Array(U16, varying=True)))
_FORMAT_NAME: Final = range(1025)

CREATE_CURSOR: Final = 2
"""The type that creates a cursor: CACTB_CREATECURSOR, 2.2.2.1."""


class CreateRemoteCursor(NdrStructure):
    """The part for cursors: CACCreateRemoteCursor, 2.2.3.4."""

    cursor: int = member(U32, "hCursor", default=0)
    server_queue: int = member(U32, "srv_hACQueue", default=0)
    client_queue: int = member(U32, "cli_pQMQueue", default=0)


class _Send(NdrStructure):
    admin_queue: QueueFormatValue | None = member(Pointer(QueueFormatValue), "pAdminQueueFormat", default=None)
    response_queue: QueueFormatValue | None = member(Pointer(QueueFormatValue), "pResponseQueueFormat", default=None)


class _Receive(NdrStructure):
    request_timeout: int = member(U32, "RequestTimeout", default=0)
    action: int = member(U32, "Action", default=0)
    asynchronous: int = member(U32, "Asynchronous", default=0)
    cursor: int = member(U32, "Cursor", default=0)
    response_length: int = counts("response", U32, "ulResponseFormatNameLen", role="size", allowed=_FORMAT_NAME)
    response: Any = member(_WIDE, "ppResponseFormatName", default=None)
    response_property: int | None = member(_DWORD, "pulResponseFormatNameLenProp", default=None)
    admin_length: int = counts("admin", U32, "ulAdminFormatNameLen", role="size", allowed=_FORMAT_NAME)
    admin: Any = member(_WIDE, "ppAdminFormatName", default=None)
    admin_property: int | None = member(_DWORD, "pulAdminFormatNameLenProp", default=None)
    destination_length: int = counts("destination", U32, "ulDestFormatNameLen", role="size", allowed=_FORMAT_NAME)
    destination: Any = member(_WIDE, "ppDestFormatName", default=None)
    destination_property: int | None = member(_DWORD, "pulDestFormatNameLenProp", default=None)
    ordering_length: int = counts("ordering", U32, "ulOrderingFormatNameLen", role="size", allowed=_FORMAT_NAME)
    ordering: Any = member(_WIDE, "ppOrderingFormatName", default=None)
    ordering_property: int | None = member(_DWORD, "pulOrderingFormatNameLenProp", default=None)


class _UnitOfWork(NdrStructure):
    identifier: bytes = member(GUID, "rgb")


class TransferBuffer(NdrStructure):
    """CACTransferBufferV1 of all zeros, as clients send it, except for the type."""

    transfer_type: int = member(U32, "uTransferType", default=CREATE_CURSOR, allowed=range(3))
    transfer: Any = member(
        Union(U32, {0: _Send, 1: _Receive, CREATE_CURSOR: CreateRemoteCursor}),
        "",
        switch="transfer_type",
        default=CreateRemoteCursor(),
    )
    message_class: int | None = member(Pointer(U16), "pClass", default=None)
    message_id: Any = member(Pointer(Pointer(ObjectIdentifier)), "ppMessageID", default=None)
    correlation_id: Any = member(_COUNTED_BYTES, "ppCorrelationID", default=None)
    sent_time: int | None = member(_DWORD, "pSentTime", default=None)
    arrived_time: int | None = member(_DWORD, "pArrivedTime", default=None)
    priority: int | None = member(_CHAR, "pPriority", default=None)
    delivery: int | None = member(_CHAR, "pDelivery", default=None)
    acknowledge: int | None = member(_CHAR, "pAcknowledge", default=None)
    auditing: int | None = member(_CHAR, "pAuditing", default=None)
    application_tag: int | None = member(_DWORD, "pApplicationTag", default=None)
    body: Any = member(_COUNTED_BYTES, "ppBody", default=None)
    body_length: int = counts("body", U32, "ulBodyBufferSizeInBytes", role="length")
    body_allocated: int = counts("body", U32, "ulAllocBodyBufferInBytes", role="size")
    body_size: int | None = member(_DWORD, "pBodySize", default=None)
    title: Any = member(_COUNTED_WIDE, "ppTitle", default=None)
    title_length: int = counts("title", U32, "ulTitleBufferSizeInWCHARs")
    title_property: int | None = member(_DWORD, "pulTitleBufferSizeInWCHARs", default=None)
    absolute_time_to_queue: int = member(U32, "ulAbsoluteTimeToQueue", default=0)
    relative_time_to_queue: int | None = member(_DWORD, "pulRelativeTimeToQueue", default=None)
    relative_time_to_live: int = member(U32, "ulRelativeTimeToLive", default=0)
    relative_time_to_live_property: int | None = member(_DWORD, "pulRelativeTimeToLive", default=None)
    trace: int | None = member(_CHAR, "pTrace", default=None)
    sender_id_type: int | None = member(_DWORD, "pulSenderIDType", default=None)
    sender_id: Any = member(_BYTES, "ppSenderID", default=None)
    sender_id_property: int | None = member(_DWORD, "pulSenderIDLenProp", default=None)
    privacy_level: int | None = member(_DWORD, "pulPrivLevel", default=None)
    authentication_level: int = member(U32, "ulAuthLevel", default=0)
    authenticated: int | None = member(_CHAR, "pAuthenticated", default=None)
    hash_algorithm: int | None = member(_DWORD, "pulHashAlg", default=None)
    encryption_algorithm: int | None = member(_DWORD, "pulEncryptAlg", default=None)
    sender_certificate: Any = member(_BYTES, "ppSenderCert", default=None)
    sender_certificate_length: int = counts("sender_certificate", U32, "ulSenderCertLen", role="size")
    sender_certificate_property: int | None = member(_DWORD, "pulSenderCertLenProp", default=None)
    provider_name: Any = member(_WIDE, "ppwcsProvName", default=None)
    provider_name_length: int = counts("provider_name", U32, "ulProvNameLen", role="size")
    provider_name_property: int | None = member(_DWORD, "pulAuthProvNameLenProp", default=None)
    provider_type: int | None = member(_DWORD, "pulProvType", default=None)
    default_provider: int = member(U32, "fDefaultProvider", default=0)
    symmetric_keys: Any = member(_BYTES, "ppSymmKeys", default=None)
    symmetric_keys_size: int = counts("symmetric_keys", U32, "ulSymmKeysSize", role="size")
    symmetric_keys_property: int | None = member(_DWORD, "pulSymmKeysSizeProp", default=None)
    is_encrypted: int = member(U8, "bEncrypted", default=0)
    is_authenticated: int = member(U8, "bAuthenticated", default=0)
    sender_id_length: int = counts("sender_id", U16, "uSenderIDLen", role="size")
    signature: Any = member(_BYTES, "ppSignature", default=None)
    signature_size: int = counts("signature", U32, "ulSignatureSize", role="size")
    signature_property: int | None = member(_DWORD, "pulSignatureSizeProp", default=None)
    source_queue_manager: Any = member(Pointer(Pointer(GUID)), "ppSrcQMID", default=None)
    unit_of_work: Any = member(Pointer(_UnitOfWork), "pUow", default=None)
    extension: Any = member(_COUNTED_BYTES, "ppMsgExtension", default=None)
    extension_length: int = counts("extension", U32, "ulMsgExtensionBufferInBytes")
    extension_property: int | None = member(_DWORD, "pMsgExtensionSize", default=None)
    connector_type: Any = member(Pointer(Pointer(GUID)), "ppConnectorType", default=None)
    body_type: int | None = member(_DWORD, "pulBodyType", default=None)
    version: int | None = member(_DWORD, "pulVersion", default=None)


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
