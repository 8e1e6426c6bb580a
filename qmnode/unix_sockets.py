"""Unix sockets that a node listens on: permissions, what is left of a killed node, and who is at the other end."""

import os
import socket
import struct
from pathlib import Path
from typing import Final

from qmnode.errors import MessageQueuingError
from qmnode.structures.error_codes import ErrorCode

_CREDENTIALS: Final = struct.Struct("3i")


def bind_unix_socket(path: Path, mode: int) -> socket.socket:
    """A bound socket with these permissions from its first moment; its directory is made when it is not there.

    What a killed node left behind is replaced. MQ_ERROR_SERVICE_NOT_AVAILABLE if somebody answers on it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_socket():
        _clear(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    before = os.umask(0o777 & ~mode)
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE, f"{path} cannot be listened on: {error.strerror}"
        ) from error
    finally:
        os.umask(before)
    return listener


def _clear(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as caller:
        try:
            caller.connect(str(path))
        except BlockingIOError:
            pass  # somebody is there, and busy
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise MessageQueuingError(
        ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE,
        f"another node answers on {path}: stop it, or give this one a socket of its own",
    )


def peer_credentials(peer: socket.socket) -> tuple[int, int]:
    """Process and user at the other end of a Unix socket."""
    process, user, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return process, user
