"""Errors of remote procedure calls, and the status codes of faults."""

from enum import IntEnum


class RpcError(Exception):
    """A remote procedure call, or its connection, failed."""


class PduError(RpcError):
    """Bytes that are no PDU of C706 12.6, or a PDU that is not allowed now: the connection cannot continue."""


class NdrError(RpcError):
    """Stub data that do not match the method's declaration."""


class FaultStatus(IntEnum):
    """Status of a fault: C706 appendix E, and the Win32 codes that Windows sends in the same place."""

    ACCESS_DENIED = 0x00000005
    BAD_STUB_DATA = 0x000006F7
    """RPC_X_BAD_STUB_DATA, or nca_s_fault_ndr in DCE."""
    INVALID_BOUND = 0x000006C6
    """RPC_S_INVALID_BOUND: outside the range of the declaration."""
    CANCEL = 0x1C00000D
    UNSPECIFIED = 0x1C000012
    CONTEXT_MISMATCH = 0x1C00001A
    NO_MEMORY = 0x1C00001B
    OPNUM_RANGE = 0x1C010002
    UNKNOWN_INTERFACE = 0x1C010003
    PROTOCOL = 0x1C01000B
    TOO_BUSY = 0x1C010014


_NAMES = {int(status): status.name for status in FaultStatus}


class RpcFault(RpcError):
    """A call ended with a fault. ``status`` is a FaultStatus or another number, such as an HRESULT."""

    def __init__(self, status: int, sentence: str = "") -> None:
        name = _NAMES.get(status, "fault")
        super().__init__(f"{name} {status:#010x}" + (f": {sentence}" if sentence else ""))
        self.status = int(status)


class RangeError(NdrError):
    """A number outside its declared range."""
