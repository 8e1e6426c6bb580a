"""Errors of the operating system as HRESULTs, for ConnectionHistory (MS-MQQB 3.1.5.2, MS-ERREF 2.1).

Administrators of Message Queuing know the codes of Windows Sockets, so this system's numbers are translated to those.
"""

import errno
import socket
import ssl
from typing import Final

from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.queue_attributes import ConnectionStatus

_FACILITY_WIN32: Final = 0x8007_0000
_FAILURE: Final = 0x8000_0000
E_FAIL: Final = 0x8000_4005
CERT_E_UNTRUSTEDROOT: Final = 0x800B_0109
SEC_E_ILLEGAL_MESSAGE: Final = 0x8009_0326

_WINSOCK: Final = {
    errno.EACCES: 10013,
    errno.EMFILE: 10024,
    errno.EADDRINUSE: 10048,
    errno.EADDRNOTAVAIL: 10049,
    errno.ENETDOWN: 10050,
    errno.ENETUNREACH: 10051,
    errno.ECONNABORTED: 10053,
    errno.ECONNRESET: 10054,
    errno.ENOBUFS: 10055,
    errno.ETIMEDOUT: 10060,
    errno.ECONNREFUSED: 10061,
    errno.EHOSTDOWN: 10064,
    errno.EHOSTUNREACH: 10065,
}
_WINSOCK_OF_NAMES: Final[dict[int | None, int]] = {
    socket.EAI_NONAME: 11001,
    socket.EAI_AGAIN: 11002,
    socket.EAI_FAIL: 11003,
    socket.EAI_NODATA: 11004,
}
"""getaddrinfo has numbers of its own, which are negative here."""


def _of_winsock(number: int) -> int:
    return _FACILITY_WIN32 | number


_OF_STATUS: Final[dict[ConnectionStatus, int]] = {
    ConnectionStatus.PING_FAILURE: _of_winsock(10060),
    ConnectionStatus.SOCKET_CONNECT_FAILURE: _of_winsock(10060),
    ConnectionStatus.SOCKET_BIND_FAILURE: _of_winsock(10049),
    ConnectionStatus.SOCKET_SEND_FAILURE: _of_winsock(10054),
    ConnectionStatus.DNS_FAILURE: _of_winsock(11001),
    ConnectionStatus.CONNECTION_REFUSED: _of_winsock(10061),
    ConnectionStatus.CERTIFICATE_VALIDATION_FAILURE: CERT_E_UNTRUSTEDROOT,
    ConnectionStatus.ROUTING_DATA_NOT_AVAILABLE: ErrorCode.MQ_ERROR_NO_DS.value,
    ConnectionStatus.LOW_RESOURCE: ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES.value,
}


def hresult_of_error(error: BaseException) -> int:
    """The HRESULT of an error of the operating system, its resolver or TLS."""
    match error:
        case ssl.SSLCertVerificationError():
            return CERT_E_UNTRUSTEDROOT
        case ssl.SSLError():
            return SEC_E_ILLEGAL_MESSAGE
        case TimeoutError():
            return _of_winsock(10060)
        case socket.gaierror():
            return _of_winsock(_WINSOCK_OF_NAMES.get(error.errno, 11001))
        case OSError() if error.errno in _WINSOCK:
            return _of_winsock(_WINSOCK[error.errno])
        case _:
            return E_FAIL


def hresult_of_status(status: ConnectionStatus) -> int:
    """The HRESULT of a failure with a known status only; 0 for a status that is no failure."""
    return _OF_STATUS.get(status, E_FAIL) if status & _FAILURE else 0
