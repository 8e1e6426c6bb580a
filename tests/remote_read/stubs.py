"""A value for every request and response, as ours and as a function that fills impacket's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qmnode.remote_read import qm2qm, qmcomm
from qmnode.remote_read.qmcomm import CreateRemoteCursor, TransferBuffer
from qmnode.remote_read.queue_format import ObjectIdentifier, QueueFormatValue
from qmnode.structures.guid import Guid

if TYPE_CHECKING:
    from collections.abc import Callable

    from qmnode.dcerpc.ndr import Parameters

GUID = Guid(bytes(range(16)))
CONTEXT = bytes(4) + bytes(range(0x20, 0x30))
PACKET = b"a packet that is no multiple of four"


@dataclass(frozen=True)
class Stub:
    """One request or response."""

    method: str
    direction: int
    """0: the request, 1: the response."""
    case: str
    ours: Parameters
    fill: Callable[[Any], None]

    @property
    def name(self) -> str:
        """For golden files and test names."""
        return f"{self.method}.{('request', 'response')[self.direction]}{self.case and '.' + self.case}"


def _context(theirs: Any) -> None:
    theirs["pphContext"]["uuid"] = CONTEXT[4:]


def _status(theirs: Any, status: int = 0xC00E0007) -> None:
    theirs["ErrorCode"] = status


def _desc(theirs: Any, **more: Any) -> None:
    theirs["hRemoteQueue"] = theirs["dwQueue"] = 0x01020304
    theirs["hCursor"] = 5
    theirs["ulAction"] = 0x80000001
    theirs["ulTimeout"] = 0xFFFFFFFF
    theirs["dwRequestID"] = 7
    theirs["Reserved"] = 1
    theirs["dwArriveTime"] = 0x60000000
    theirs["eAckNack"] = 2
    if "buffer" in more:
        theirs["dwSize"] = len(more["buffer"])
        theirs["lpBuffer"] = [bytes((octet,)) for octet in more["buffer"]]
    else:
        theirs["lpBuffer"] = b""
        theirs.fields["lpBuffer"] = theirs.fields["lpBuffer"].__class__(isNDR64=theirs._isNDR64)
        theirs.fields["lpBuffer"].fields["ReferentID"] = 0


def desc(buffer: bytes | None = None) -> qm2qm.RemoteReadDesc:
    """The same, ours."""
    return qm2qm.RemoteReadDesc(
        remote_queue=0x01020304, queue=0x01020304, cursor=5, action=0x80000001, timeout=0xFFFFFFFF, request_id=7,
        reserved=1, arrive_time=0x60000000, ack_nack=qm2qm.RemoteReadAck.RR_ACK, buffer=buffer,
    )  # fmt: skip


def _desc2(theirs: Any, **more: Any) -> None:
    theirs["SequentialId"] = 0x01020304050607
    _desc(theirs["pRemoteReadDesc"], **more)


def desc2(buffer: bytes | None = None) -> qm2qm.RemoteReadDesc2:
    """The same, ours."""
    return qm2qm.RemoteReadDesc2(remote_read_desc=desc(buffer), sequential_id=0x01020304050607)


def _filling(*steps: Callable[[Any], None], **values: Any) -> Callable[[Any], None]:
    def fill(theirs: Any) -> None:
        for name, value in values.items():
            theirs[name] = value
        for step in steps:
            step(theirs)

    return fill


def _queue_format(number: int, member: str, value: Any) -> Callable[[Any], None]:
    def fill(theirs: Any) -> None:
        queue_format = theirs["pQueueFormat"]
        queue_format["m_qft"] = number
        queue_format["m_SuffixAndFlags"] = 0
        queue_format["union"]["tag"] = number
        if isinstance(value, dict):
            for name, part in value.items():
                queue_format["union"][member][name] = part
        else:
            queue_format["union"][member] = value

    return fill


def _open(case: str, number: int, member: str, theirs: Any, identifier: Any) -> Stub:
    value = QueueFormatValue(format_type=number, identifier=identifier)
    return Stub(
        "R_QMOpenRemoteQueue", 0, case,
        qmcomm.OpenRemoteQueueRequest(
            queue_format=value, calling_process_id=9, desired_access=1, share_mode=0, license_guid=GUID, mqs=0x100
        ),
        _filling(_queue_format(number, member, theirs), dwCallingProcessID=9, dwDesiredAccess=1, pLicGuid=GUID,
                 dwMQS=0x100),
    )  # fmt: skip


def _start(case: str, buffer: bytes | None) -> list[Stub]:
    more = {} if buffer is None else {"buffer": buffer}

    def fill(theirs: Any) -> None:
        _desc(theirs["lpRemoteReadDesc"], **more)

    def fill2(theirs: Any) -> None:
        _desc2(theirs["lpRemoteReadDesc2"], **more)

    ours, ours2 = desc(buffer), desc2(buffer)
    lookup = "RemoteQMStartReceiveByLookupId"
    return [
        Stub("RemoteQMStartReceive", 0, case, qm2qm.StartReceiveRequest(desc=ours), fill),
        Stub("RemoteQMStartReceive", 1, case, qm2qm.StartReceiveResponse(context=CONTEXT, desc=ours, status=0),
             _filling(_context, fill)),
        Stub("RemoteQMStartReceive2", 0, case, qm2qm.StartReceive2Request(desc2=ours2), fill2),
        Stub("RemoteQMStartReceive2", 1, case, qm2qm.StartReceive2Response(context=CONTEXT, desc2=ours2, status=0),
             _filling(_context, fill2)),
        Stub(lookup, 0, case, qm2qm.StartReceiveByLookupIdRequest(lookup_id=0x0403020100, desc2=ours2),
             _filling(fill2, LookupId=0x0403020100)),
        Stub(lookup, 1, case, qm2qm.StartReceive2Response(context=CONTEXT, desc2=ours2, status=0xC00E001B),
             _filling(_context, fill2, lambda theirs: _status(theirs, 0xC00E001B))),
    ]  # fmt: skip


def _cursor() -> TransferBuffer:
    transfer = CreateRemoteCursor(cursor=1, server_queue=2, client_queue=3)
    return TransferBuffer(transfer=transfer, absolute_time_to_queue=4, is_encrypted=5, is_authenticated=6)


def _transfer_buffer(theirs: Any) -> None:
    """Zeroed out, but for the cursor and a member of each size."""
    buffer = theirs["ptb1"]
    buffer["uTransferType"] = 2
    buffer["transfer"]["tag"] = 2
    for value, name in enumerate(("hCursor", "srv_hACQueue", "cli_pQMQueue"), 1):
        buffer["transfer"]["CreateCursor"][name] = value
    buffer["ulAbsoluteTimeToQueue"], buffer["bEncrypted"], buffer["bAuthenticated"] = 4, 5, 6
    theirs["hQueue"] = 0x01020304


STUBS = [
    *_start("empty", None),
    *_start("message", PACKET),
    Stub("RemoteQMEndReceive", 0, "", qm2qm.EndReceiveRequest(context=CONTEXT, ack=2), _filling(_context, dwAck=2)),
    Stub("RemoteQMEndReceive", 1, "", qm2qm.ContextResponse(status=0xC00E0007), _status),
    Stub("RemoteQMOpenQueue", 0, "",
         qm2qm.OpenQueueRequest(license_guid=GUID, mqs=16, h_queue=1, p_queue=2, context=3),
         _filling(pLicGuid=GUID, dwMQS=16, hQueue=1, pQueue=2, dwpContext=3)),
    Stub("RemoteQMOpenQueue", 1, "", qm2qm.ContextResponse(context=CONTEXT, status=0), _context),
    Stub("RemoteQMCloseQueue", 0, "", qm2qm.CloseQueueRequest(context=CONTEXT), _context),
    Stub("RemoteQMCloseQueue", 1, "", qm2qm.ContextResponse(status=0xC00E0007), _status),
    Stub("RemoteQMCloseCursor", 0, "", qm2qm.CloseCursorRequest(queue=1, cursor=2), _filling(hQueue=1, hCursor=2)),
    Stub("RemoteQMCloseCursor", 1, "", qm2qm.Status(status=0xC00E0007), _status),
    Stub("RemoteQMCancelReceive", 0, "", qm2qm.CancelReceiveRequest(h_queue=1, p_queue=2, request_id=3),
         _filling(hQueue=1, pQueue=2, dwRequestID=3)),
    Stub("RemoteQMCancelReceive", 1, "", qm2qm.Status(status=0xC00E0007), _status),
    Stub("RemoteQMPurgeQueue", 0, "", qm2qm.PurgeQueueRequest(queue=1), _filling(hQueue=1)),
    Stub("RemoteQMPurgeQueue", 1, "", qm2qm.Status(status=0xC00E0007), _status),
    Stub("RemoteQMGetQMQMServerPort", 0, "", qm2qm.ServerPortRequest(port_type=1), _filling(dwPortType=1)),
    Stub("RemoteQMGetQMQMServerPort", 1, "", qm2qm.Status(status=2105), lambda theirs: _status(theirs, 2105)),
    Stub("RemoteQmGetVersion", 0, "", qm2qm.GetVersionRequest(), _filling()),
    Stub("RemoteQmGetVersion", 1, "", qm2qm.GetVersionResponse(major=6, minor=1, build_number=7601),
         _filling(pMajor=6, pMinor=1, pBuildNumber=7601)),
    _open("direct", 3, "m_pDirectID", "OS:host\\private$\\q\0", "OS:host\\private$\\q"),
    _open("subqueue", 8, "m_pDirectSubqueueID", "OS:host\\private$\\q;s\0", "OS:host\\private$\\q;s"),
    _open("public", 1, "m_gPublicID", GUID, GUID),
    _open("machine", 4, "m_gMachineID", GUID, GUID),
    _open("private", 2, "m_oPrivateID", {"Lineage": GUID, "Uniquifier": 4},
          ObjectIdentifier(lineage=GUID, uniquifier=4)),
    Stub("R_QMOpenRemoteQueue", 1, "",
         qmcomm.OpenRemoteQueueResponse(handle=CONTEXT, context=1, p_queue=2, h_queue=3, status=0),
         _filling(_context, pdwContext=1, dwpQueue=2, phQueue=3)),
    Stub("R_QMCloseRemoteQueueContext", 0, "", qmcomm.CloseRemoteQueueContext(handle=CONTEXT), _context),
    Stub("R_QMCloseRemoteQueueContext", 1, "", qmcomm.CloseRemoteQueueContext(), _filling()),
    Stub("R_QMCreateRemoteCursor", 0, "", qmcomm.CreateRemoteCursorRequest(buffer=_cursor(), queue=0x01020304),
         _transfer_buffer),
    Stub("R_QMCreateRemoteCursor", 1, "", qmcomm.CreateRemoteCursorResponse(cursor=5, status=0), _filling(phCursor=5)),
    Stub("R_QMGetRTQMServerPort", 0, "", qmcomm.ServerPortRequest(ip=1), _filling(fIP=1)),
    Stub("R_QMGetRTQMServerPort", 1, "", qm2qm.Status(status=2103), lambda theirs: _status(theirs, 2103)),
]  # fmt: skip
