"""scapy-rpc writes stub data of RemoteRead: a line for each with its name, its representation and its bytes.

``python stubs.py LIBRARIES``. A program of its own, as remote_read.py is.
"""

import sys

sys.path.insert(0, sys.argv[1])

import msrpcs.ms_mqrr as mqrr
from scapy.layers.dcerpc import (
    NDRConformantArray,
    NDRContextHandle,
    NDRPointer,
    NDRUnion,
    NDRVaryingArray,
)

OCTETS = bytes(range(16))
UOW = mqrr.XACTUOW(rgb=OCTETS)


def stubs(ndr64):
    """The name and the value of each."""
    context = NDRContextHandle(uuid=bytes(range(0x20, 0x30)), ndr64=ndr64)
    text = NDRPointer(referent_id=0x20000, value=NDRConformantArray(value=[NDRVaryingArray(value="OS:X\\q")]))
    direct = mqrr.QUEUE_FORMAT(m_qft=3, value=NDRUnion(tag=3, value=text), ndr64=ndr64)
    guid = mqrr.GUID(Data1=0x03020100, Data2=0x0504, Data3=0x0706, Data4=OCTETS[8:], ndr64=ndr64)
    opened = {
        "pQueueFormat": direct, "dwAccess": 1, "dwShareMode": 1, "pClientId": guid, "fNonRoutingServer": 1, "Major": 6,
        "Minor": 1, "BuildNumber": 7601, "fWorkgroup": 1,
    }  # fmt: skip
    read = {
        "phContext": context, "LookupId": 0x0102030405060708, "hCursor": 2, "ulAction": 0x80000001, "ulTimeout": 3,
        "dwRequestId": 4, "dwMaxBodySize": 5, "dwMaxCompoundMessageSize": 6,
    }  # fmt: skip
    end = {"phContext": context, "dwAck": 2, "dwRequestId": 4}
    values = {
        "R_GetServerPort_Request": {},
        "R_GetServerPort_Response": {"status": 2103},
        "R_OpenQueue_Request": opened,
        "R_OpenQueue_Response": {"pphContext": context},
        "R_CloseQueue_Request": {"pphContext": context},
        "R_CloseQueue_Response": {"pphContext": context, "status": 9},
        "R_CreateCursor_Request": {"phContext": context},
        "R_CreateCursor_Response": {"phCursor": 8, "status": 9},
        "R_CloseCursor_Request": {"phContext": context, "hCursor": 8},
        "R_PurgeQueue_Request": {"phContext": context},
        "R_StartReceive_Request": read,
        "R_CancelReceive_Request": {"phContext": context, "dwRequestId": 4},
        "R_EndReceive_Request": end,
        "R_MoveMessage_Request": {
            "phContextFrom": context, "ullContextTo": 7, "LookupId": 0x0102030405060708, "pTransactionId": UOW,
        },
        "R_OpenQueueForMove_Request": opened,
        "R_OpenQueueForMove_Response": {"pMoveContext": 7, "pphContext": context},
        "R_QMEnlistRemoteTransaction_Request": {
            "pTransactionId": UOW, "pbPropagationToken": b"token", "pQueueFormat": direct,
        },
        "R_StartTransactionalReceive_Request": read | {"pTransactionId": UOW},
        "R_SetUserAcknowledgementClass_Request": {
            "phContext": context, "LookupId": 0x0102030405060708, "usClass": 0xC004,
        },
        "R_EndTransactionalReceive_Request": end,
    }  # fmt: skip
    return {name: getattr(mqrr, name)(ndr64=ndr64, **fields) for name, fields in values.items()}


for syntax in ("NDR", "NDR64"):
    for name, value in stubs(syntax == "NDR64").items():
        print(name, syntax, bytes(value).hex() or "-")
