"""The errors of remote reads for applications: of statuses, faults and lost connections."""

from typing import Final

from qmnode.dcerpc.errors import FaultStatus, RpcFault
from qmnode.errors import MessageQueuingError, reason_of
from qmnode.structures.error_codes import ErrorCode

_STATUS: Final = {
    0xC000000D: ErrorCode.MQ_ERROR_INVALID_PARAMETER,
    0xC0000008: ErrorCode.MQ_ERROR_INVALID_HANDLE,
    0xC0000022: ErrorCode.MQ_ERROR_ACCESS_DENIED,
    0xC0000043: ErrorCode.MQ_ERROR_SHARING_VIOLATION,
    0x400E03E9: ErrorCode.MQ_ERROR_OPERATION_CANCELLED,
}
_CODES: Final = {int(code): code for code in ErrorCode}


def unavailable(host: str, error: Exception) -> MessageQueuingError:
    """The error for a host that does not answer, or not as a queue manager would."""
    reason = reason_of(error) or "no answer in time"
    return MessageQueuingError(
        ErrorCode.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE,
        f"{host} cannot be read from: {reason}. Remote read has to be enabled there, and its endpoint mapper reachable",
    )


def moves_unknown(host: str) -> MessageQueuingError:
    """The error for a move at a host that only has MS-MQQP."""
    return MessageQueuingError(
        ErrorCode.MQ_ERROR_ILLEGAL_OPERATION, f"{host} is too old to move messages for other computers: move them there"
    )


def rpc_error(host: str, error: Exception) -> MessageQueuingError:
    """The error of a failed call for an application."""
    if isinstance(error, RpcFault):
        if error.status in _CODES:  # Windows reports some failures as faults (note 18)
            return MessageQueuingError(_CODES[error.status], f"{host} says so")
        if error.status == FaultStatus.ACCESS_DENIED:
            return MessageQueuingError(ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{host} denies access")
        return MessageQueuingError(ErrorCode.MQ_ERROR, f"{host}: {error}")
    return unavailable(host, error)


def check_status(status: int, what: str) -> None:
    """Raise the error of a status, unless it is MQ_OK."""
    if not status:
        return
    code = _STATUS.get(status) or _CODES.get(status)
    if code is None:
        raise MessageQueuingError(ErrorCode.MQ_ERROR, f"{what}: status {status:#010x}")
    raise MessageQueuingError(code, f"{what}: {code.text}")
