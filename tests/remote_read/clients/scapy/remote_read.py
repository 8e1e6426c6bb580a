"""scapy calls every method of RemoteRead, with the stubs of scapy-rpc, and prints a line of JSON for each.

``python remote_read.py LIBRARIES ADDRESS PORT NDR|NDR64 QUEUE``. It is a program of its own: scapy is under the GPL,
and the tests load nothing of it.
"""

import json
import sys
import uuid

sys.path.insert(0, sys.argv[1])

import msrpcs.ms_mqrr as mqrr
from scapy.layers.dcerpc import (
    DCERPC_Transport,
    NDRConformantArray,
    NDRContextHandle,
    NDRPointer,
    NDRUnion,
    NDRVaryingArray,
    find_dcerpc_interface,
)
from scapy.layers.msrpce.rpcclient import DCERPC_Client

RECEIVE, MOVE = 1, 4
DIRECT, SUBQUEUE = 3, 8
PEEK_CURRENT, PEEK_NEXT = 0x80000000, 0x80000001
LOOKUP_PEEK_CURRENT, LOOKUP_RECEIVE_CURRENT = 0x40000010, 0x40000020
NO_TRANSACTION = mqrr.XACTUOW(rgb=bytes(16))


class Reader:
    """One connection."""

    def __init__(self, address, port, ndr64):
        self.ndr64 = ndr64
        self.client = DCERPC_Client(DCERPC_Transport.NCACN_IP_TCP, ndr64=ndr64, verb=False)
        self.client.connect(address, port=port, timeout=20)
        self.client.bind(find_dcerpc_interface("RemoteRead"))
        self.context = None

    def call(self, name, **fields):
        """The answer of one call."""
        request = getattr(mqrr, f"{name}_Request")(ndr64=self.ndr64, **fields)
        return self.client.sr1_req(request)

    def open(self, queue, access, name="R_OpenQueue"):
        text = NDRPointer(referent_id=0x20000, value=NDRConformantArray(value=[NDRVaryingArray(value=queue)]))
        kind, suffix = (SUBQUEUE, 5) if ";" in queue else (DIRECT, 0)
        union = NDRUnion(tag=kind, value=text)
        wanted = mqrr.QUEUE_FORMAT(m_qft=kind, m_SuffixAndFlags=suffix, value=union, ndr64=self.ndr64)
        client = mqrr.GUID(Data4=bytes(8), ndr64=self.ndr64)
        opened = self.call(name, pQueueFormat=wanted, dwAccess=access, pClientId=client, fNonRoutingServer=1, Major=6)
        # The methods are void, and scapy-rpc wants a status of each: it leaves some bytes as they are.
        left = bytes(opened)
        move = int.from_bytes(left[:8], "little") if name == "R_OpenQueueForMove" else 0
        return move, NDRContextHandle(uuid=left[4:20], ndr64=self.ndr64)

    def start(self, name="R_StartReceive", **fields):
        given = {"phContext": self.context, "dwRequestId": 1, "dwMaxBodySize": 0xFFFFFFFF} | fields
        return self.call(name, **given)

    def status(self, name, **fields):
        return self.call(name, phContext=self.context, **fields).status


def sections(answer):
    """The type, the whole size and the bytes of each section. scapy 2.8 does not read more than one."""
    found = answer.valueof("ppPacketSections")
    return [
        (one.SectionBufferType, one.SectionSizeAlloc, bytes(one.valueof("pSectionBuffer")).hex()) for one in found or []
    ]


def say(name, *values):
    print(json.dumps([name, *values]), flush=True)


def main(address, port, syntax, queue):
    """Every opnum once or more."""
    reader = Reader(address, int(port), syntax == "NDR64")
    say("R_GetServerPort", reader.call("R_GetServerPort").status)
    _, reader.context = reader.open(queue, RECEIVE)
    peeked = reader.start(ulAction=PEEK_CURRENT)
    say("peek", peeked.status, sections(peeked))
    lookup = 4 << 56 | peeked.pSequenceId
    cursor = reader.call("R_CreateCursor", phContext=reader.context).phCursor
    for action in (PEEK_CURRENT, PEEK_NEXT):
        say("at the cursor", sections(reader.start(hCursor=cursor, ulAction=action)))
    say("R_CloseCursor", reader.status("R_CloseCursor", hCursor=cursor))
    say("by lookup identifier", sections(reader.start(LookupId=lookup, ulAction=LOOKUP_PEEK_CURRENT)))
    say("R_SetUserAcknowledgementClass", reader.status("R_SetUserAcknowledgementClass", LookupId=lookup, usClass=0))
    target, _ = reader.open(queue + ";later", MOVE, "R_OpenQueueForMove")
    moved = reader.call(
        "R_MoveMessage", phContextFrom=reader.context, ullContextTo=target, LookupId=lookup,
        pTransactionId=NO_TRANSACTION,
    )  # fmt: skip
    say("R_MoveMessage", moved.status)
    taken = reader.start()
    say("R_StartReceive", taken.status, sections(taken))
    say("R_EndReceive", reader.status("R_EndReceive", dwAck=2, dwRequestId=1))
    taken = reader.start("R_StartTransactionalReceive", pTransactionId=NO_TRANSACTION)
    say("R_StartTransactionalReceive", taken.status, sections(taken))
    say("R_EndTransactionalReceive", reader.status("R_EndTransactionalReceive", dwAck=1, dwRequestId=1))
    say("R_CancelReceive", reader.status("R_CancelReceive", dwRequestId=1))
    nothing = mqrr.QUEUE_FORMAT(m_qft=0, value=NDRUnion(tag=0, value=b""), ndr64=reader.ndr64)
    enlisted = reader.call(
        "R_QMEnlistRemoteTransaction", pTransactionId=mqrr.XACTUOW(rgb=uuid.uuid4().bytes), pbPropagationToken=b"token",
        pQueueFormat=nothing,
    )  # fmt: skip
    say("R_QMEnlistRemoteTransaction", enlisted.status)
    say("R_PurgeQueue", reader.status("R_PurgeQueue"))
    closed = reader.call("R_CloseQueue", pphContext=reader.context)
    say("R_CloseQueue", closed.status, bytes(closed.pphContext.uuid).hex())
    reader.client.close()


if __name__ == "__main__":
    main(*sys.argv[2:])
