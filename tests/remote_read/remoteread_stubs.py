"""The values that ``clients/scapy/stubs.py`` writes, as ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmnode.remote_read import remoteread
from qmnode.remote_read.qm2qm import ContextResponse, Status
from qmnode.remote_read.queue_format import QueueFormatValue
from qmnode.structures.guid import Guid

if TYPE_CHECKING:
    from qmnode.dcerpc.ndr import Parameters

_OCTETS = bytes(range(16))
_CONTEXT = bytes(4) + bytes(range(0x20, 0x30))
_LOOKUP_ID = 0x0102030405060708
_DIRECT = QueueFormatValue(format_type=3, identifier="OS:X\\q")
_OPENED = remoteread.OpenQueueRequest(
    queue_format=_DIRECT, access=1, share_mode=1, client_id=Guid(_OCTETS), non_routing_server=1, major=6, minor=1,
    build_number=7601, workgroup=1,
)  # fmt: skip
_READ = {
    "context": _CONTEXT, "lookup_id": _LOOKUP_ID, "cursor": 2, "action": 0x80000001, "timeout": 3, "request_id": 4,
    "max_body_size": 5, "max_compound_message_size": 6,
}  # fmt: skip
_END = remoteread.EndReceiveRequest(context=_CONTEXT, ack=2, request_id=4)
OURS: dict[str, Parameters] = {
    "R_GetServerPort_Request": remoteread.GetServerPortRequest(),
    "R_GetServerPort_Response": Status(status=2103),
    "R_OpenQueue_Request": _OPENED,
    "R_OpenQueue_Response": remoteread.OpenQueueResponse(context=_CONTEXT),
    "R_CloseQueue_Request": remoteread.ContextRequest(context=_CONTEXT),
    "R_CloseQueue_Response": ContextResponse(context=_CONTEXT, status=9),
    "R_CreateCursor_Request": remoteread.ContextRequest(context=_CONTEXT),
    "R_CreateCursor_Response": remoteread.CreateCursorResponse(cursor=8, status=9),
    "R_CloseCursor_Request": remoteread.CloseCursorRequest(context=_CONTEXT, cursor=8),
    "R_PurgeQueue_Request": remoteread.ContextRequest(context=_CONTEXT),
    "R_StartReceive_Request": remoteread.StartReceiveRequest(**_READ),
    "R_CancelReceive_Request": remoteread.CancelReceiveRequest(context=_CONTEXT, request_id=4),
    "R_EndReceive_Request": _END,
    "R_MoveMessage_Request": remoteread.MoveMessageRequest(
        context_from=_CONTEXT, context_to=7, lookup_id=_LOOKUP_ID, transaction_id=_OCTETS
    ),
    "R_OpenQueueForMove_Request": _OPENED,
    "R_OpenQueueForMove_Response": remoteread.OpenQueueForMoveResponse(move_context=7, context=_CONTEXT),
    "R_QMEnlistRemoteTransaction_Request": remoteread.EnlistRemoteTransactionRequest(
        transaction_id=_OCTETS, token=b"token", queue_format=_DIRECT
    ),
    "R_StartTransactionalReceive_Request": remoteread.StartTransactionalReceiveRequest(**_READ, transaction_id=_OCTETS),
    "R_SetUserAcknowledgementClass_Request": remoteread.SetUserAcknowledgementClassRequest(
        context=_CONTEXT, lookup_id=_LOOKUP_ID, acknowledgement_class=0xC004
    ),
    "R_EndTransactionalReceive_Request": _END,
}
VOID = {"R_OpenQueue_Response", "R_OpenQueueForMove_Response"}
"""Methods without a return value, for which scapy-rpc writes a status nevertheless."""
