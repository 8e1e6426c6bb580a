"""qm2qm and qmcomm as impacket declares interfaces: NDR that is not ours, for tests only."""

from __future__ import annotations

import enum

from impacket.dcerpc.v5.dtypes import GUID, LPWSTR, ULONG, ULONGLONG
from impacket.dcerpc.v5.ndr import (
    NDRCALL,
    NDRENUM,
    NDRPOINTER,
    NDRPOINTERNULL,
    NDRSTRUCT,
    NDRULONG,
    NDRUNION,
    NDRUSMALL,
    NDRUniConformantVaryingArray,
)
from impacket.uuid import uuidtup_to_bin

QM2QM = uuidtup_to_bin(("1088a980-eae5-11d0-8d9b-00a02453c337", "1.0"))
REMOTE_READ = uuidtup_to_bin(("1a9134dd-7b39-45ba-ad88-44d01ca47f28", "1.0"))
QMCOMM = uuidtup_to_bin(("fdb3a030-065f-11d1-bb9b-00a024ea5525", "1.0"))
NDR = ("8a885d04-1ceb-11c9-9fe8-08002b104860", "2.0")
NDR64 = ("71710533-BEBA-4937-8319-B5DBEF9CCC36", "1.0")
DWORD = "<L=0"


class ContextHandle(NDRSTRUCT):
    structure = (("attributes", ULONG), ("uuid", GUID))


class RemoteReadAck(NDRENUM):
    class enumItems(enum.Enum):
        RR_UNKNOWN = 0
        RR_NACK = 1
        RR_ACK = 2


class Octets(NDRUniConformantVaryingArray):
    item = "c"


class PointerToOctets(NDRPOINTER):
    referent = (("Data", Octets),)


class REMOTEREADDESC(NDRSTRUCT):
    structure = (
        ("hRemoteQueue", DWORD),
        ("hCursor", DWORD),
        ("ulAction", DWORD),
        ("ulTimeout", DWORD),
        ("dwSize", DWORD),
        ("dwQueue", DWORD),
        ("dwRequestID", DWORD),
        ("Reserved", DWORD),
        ("dwArriveTime", DWORD),
        ("eAckNack", RemoteReadAck),
        ("lpBuffer", PointerToOctets),
    )


class PointerToDesc(NDRPOINTER):
    referent = (("Data", REMOTEREADDESC),)


class REMOTEREADDESC2(NDRSTRUCT):
    structure = (("pRemoteReadDesc", PointerToDesc), ("SequentialId", ULONGLONG))


class ObjectIdentifier(NDRSTRUCT):
    structure = (("Lineage", GUID), ("Uniquifier", DWORD))


class QueueFormatUnion(NDRUNION):
    commonHdr = (("tag", NDRUSMALL),)
    commonHdr64 = (("tag", NDRUSMALL),)
    union = {  # noqa: RUF012
        1: ("m_gPublicID", GUID),
        2: ("m_oPrivateID", ObjectIdentifier),
        3: ("m_pDirectID", LPWSTR),
        4: ("m_gMachineID", GUID),
        8: ("m_pDirectSubqueueID", LPWSTR),
    }


class QueueFormat(NDRSTRUCT):
    structure = (("m_qft", "<B=0"), ("m_SuffixAndFlags", "<B=0"), ("m_reserved", "<H=0"), ("union", QueueFormatUnion))


class PointerToQueueFormat(NDRPOINTER):
    referent = (("Data", QueueFormat),)


class CreateCursor(NDRSTRUCT):
    structure = (("hCursor", DWORD), ("srv_hACQueue", DWORD), ("cli_pQMQueue", DWORD))


class TransferUnion(NDRUNION):
    """Of its three members this one alone travels with R_QMCreateRemoteCursor."""

    commonHdr = (("tag", NDRULONG),)
    commonHdr64 = (("tag", NDRULONG),)
    union = {2: ("CreateCursor", CreateCursor)}  # noqa: RUF012


def _transfer_buffer():
    """The members of CACTransferBufferV1 in their order: p a pointer, d a DWORD, b an octet, w a WORD."""
    kinds = {"p": NDRPOINTERNULL, "d": DWORD, "b": "<B=0", "w": "<H=0"}
    order = (
        "p:pClass p:ppMessageID p:ppCorrelationID p:pSentTime p:pArrivedTime p:pPriority p:pDelivery p:pAcknowledge "
        "p:pAuditing p:pApplicationTag p:ppBody d:ulBodyBufferSizeInBytes d:ulAllocBodyBufferInBytes p:pBodySize "
        "p:ppTitle d:ulTitleBufferSizeInWCHARs p:pulTitleBufferSizeInWCHARs d:ulAbsoluteTimeToQueue "
        "p:pulRelativeTimeToQueue d:ulRelativeTimeToLive p:pulRelativeTimeToLive p:pTrace p:pulSenderIDType "
        "p:ppSenderID p:pulSenderIDLenProp p:pulPrivLevel d:ulAuthLevel p:pAuthenticated p:pulHashAlg p:pulEncryptAlg "
        "p:ppSenderCert d:ulSenderCertLen p:pulSenderCertLenProp p:ppwcsProvName d:ulProvNameLen "
        "p:pulAuthProvNameLenProp p:pulProvType d:fDefaultProvider p:ppSymmKeys d:ulSymmKeysSize "
        "p:pulSymmKeysSizeProp b:bEncrypted b:bAuthenticated w:uSenderIDLen p:ppSignature d:ulSignatureSize "
        "p:pulSignatureSizeProp p:ppSrcQMID p:pUow p:ppMsgExtension d:ulMsgExtensionBufferInBytes p:pMsgExtensionSize "
        "p:ppConnectorType p:pulBodyType p:pulVersion"
    )
    return tuple((name, kinds[kind]) for kind, name in (item.split(":") for item in order.split()))


class CACTransferBufferV1(NDRSTRUCT):
    structure = (("uTransferType", DWORD), ("transfer", TransferUnion), *_transfer_buffer())


def call(opnum: int, *fields):
    """A request: opnum and parameters."""
    return type(f"Request{opnum}", (NDRCALL,), {"opnum": opnum, "structure": fields})


def answer(*fields):
    """A response."""
    return type("Response", (NDRCALL,), {"structure": fields})


STATUS = ("ErrorCode", DWORD)
CONTEXT = ("pphContext", ContextHandle)
QM2QM_CALLS = {
    "RemoteQMStartReceive": (
        call(0, ("lpRemoteReadDesc", REMOTEREADDESC)),
        answer(CONTEXT, ("lpRemoteReadDesc", REMOTEREADDESC), STATUS),
    ),
    "RemoteQMEndReceive": (call(1, CONTEXT, ("dwAck", DWORD)), answer(CONTEXT, STATUS)),
    "RemoteQMOpenQueue": (
        call(2, ("pLicGuid", GUID), ("dwMQS", DWORD), ("hQueue", DWORD), ("pQueue", DWORD), ("dwpContext", DWORD)),
        answer(CONTEXT, STATUS),
    ),
    "RemoteQMCloseQueue": (call(3, CONTEXT), answer(CONTEXT, STATUS)),
    "RemoteQMCloseCursor": (call(4, ("hQueue", DWORD), ("hCursor", DWORD)), answer(STATUS)),
    "RemoteQMCancelReceive": (
        call(5, ("hQueue", DWORD), ("pQueue", DWORD), ("dwRequestID", DWORD)),
        answer(STATUS),
    ),
    "RemoteQMPurgeQueue": (call(6, ("hQueue", DWORD)), answer(STATUS)),
    "RemoteQMGetQMQMServerPort": (call(7, ("dwPortType", DWORD)), answer(STATUS)),
    "RemoteQmGetVersion": (
        call(8),
        answer(("pMajor", "<B=0"), ("pMinor", "<B=0"), ("pBuildNumber", "<H=0")),
    ),
    "RemoteQMStartReceive2": (
        call(9, ("lpRemoteReadDesc2", REMOTEREADDESC2)),
        answer(CONTEXT, ("lpRemoteReadDesc2", REMOTEREADDESC2), STATUS),
    ),
    "RemoteQMStartReceiveByLookupId": (
        call(10, ("LookupId", ULONGLONG), ("lpRemoteReadDesc2", REMOTEREADDESC2)),
        answer(CONTEXT, ("lpRemoteReadDesc2", REMOTEREADDESC2), STATUS),
    ),
}
QMCOMM_CALLS = {
    "R_QMOpenRemoteQueue": (
        call(
            2,
            ("pQueueFormat", PointerToQueueFormat),
            ("dwCallingProcessID", DWORD),
            ("dwDesiredAccess", DWORD),
            ("dwShareMode", DWORD),
            ("pLicGuid", GUID),
            ("dwMQS", DWORD),
        ),
        answer(CONTEXT, ("pdwContext", DWORD), ("dwpQueue", DWORD), ("phQueue", DWORD), STATUS),
    ),
    "R_QMCloseRemoteQueueContext": (call(3, CONTEXT), answer(CONTEXT)),
    "R_QMCreateRemoteCursor": (
        call(4, ("ptb1", CACTransferBufferV1), ("hQueue", DWORD)),
        answer(("phCursor", DWORD), STATUS),
    ),
    "R_QMGetRTQMServerPort": (call(31, ("fIP", DWORD)), answer(STATUS)),
}
CALLS = QM2QM_CALLS | QMCOMM_CALLS
