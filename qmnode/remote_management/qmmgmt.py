"""The interface qmmgmt: MS-MQMR, section 6. Its explicit binding handles are not transmitted.

The IDL there declares ``lpwszAction`` without ``[string]``, which would be a single character; 3.1.4.2 calls it a
null-terminated string, so it is transmitted as one.
"""

from enum import IntEnum
from typing import Any, Final

from qmnode.dcerpc.interface import NDR_SYNTAX, Interface, syntax
from qmnode.dcerpc.ndr import (
    ENUM,
    U32,
    WIDE_STRING,
    Array,
    NdrStructure,
    Parameters,
    Pointer,
    Union,
    counts,
    member,
)
from qmnode.remote_management.variants import FlatVariant, Variant
from qmnode.remote_read.queue_format import QueueFormatValue

_PROPERTIES: Final = range(1, 129)


class ManagementObjectType(IntEnum):
    """MgmtObjectType, 2.2.2.1: the kind of object that a call is about."""

    MGMT_MACHINE = 1
    MGMT_QUEUE = 2
    MGMT_SESSION = 3


class ManagementObject(NdrStructure):
    """MGMT_OBJECT, 2.2.1.2: the machine, a queue, or a session."""

    type: int = member(ENUM, "type")
    identifier: Any = member(
        Union(
            ENUM,
            {
                ManagementObjectType.MGMT_MACHINE: U32,
                ManagementObjectType.MGMT_QUEUE: Pointer(QueueFormatValue),
                ManagementObjectType.MGMT_SESSION: U32,
            },
        ),
        "",
        switch="type",
        default=0,
    )


class GetInfoRequest(Parameters):
    """Request of R_QMMgmtGetInfo, 3.1.4.1."""

    object: ManagementObject = member(ManagementObject, "pObjectFormat")
    count: int = counts("properties", U32, "cp", role="size", allowed=_PROPERTIES)
    properties: list[int] = member(Array(U32), "aProp")
    values: list[FlatVariant] = member(Array(FlatVariant), "apVar")


class GetInfoResponse(Parameters):
    """Response of R_QMMgmtGetInfo, 3.1.4.1."""

    values: list[Variant] = member(Array(Variant), "apVar")
    status: int = member(U32, "return value", default=0)


class ActionRequest(Parameters):
    """Request of R_QMMgmtAction, 3.1.4.2."""

    object: ManagementObject = member(ManagementObject, "pObjectFormat")
    action: str = member(WIDE_STRING, "lpwszAction")


class ActionResponse(Parameters):
    """Response of R_QMMgmtAction, 3.1.4.2."""

    status: int = member(U32, "return value", default=0)


QMMGMT: Final = Interface(
    "qmmgmt",
    syntax("41208ee0-e970-11d1-9b9e-00e02c064c39", 1),
    (NDR_SYNTAX,),  # NDR only: 2.2
)
GET_INFO: Final = QMMGMT.method("R_QMMgmtGetInfo", 0, GetInfoRequest, GetInfoResponse, "3.1.4.1")
ACTION: Final = QMMGMT.method("R_QMMgmtAction", 1, ActionRequest, ActionResponse, "3.1.4.2")

ANNOTATION: Final = "Message Queuing - QMMgmt V1"
