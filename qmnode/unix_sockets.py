"""Unix sockets that a node listens on: permissions, what is left of a killed node, and who is at the other end."""

import os
import pwd
import socket
import struct
from pathlib import Path
from typing import Final

from qmnode.errors import MessageQueuingError
from qmnode.structures.error_codes import ErrorCode

_CREDENTIALS: Final = struct.Struct("3I")
_SO_PEERGROUPS: Final = 59
"""SO_PEERGROUPS of asm-generic/socket.h, which the module socket has no name for."""
_LONGEST_PATH: Final = 107
"""Bytes of sun_path in unix(7), without the zero at its end."""
_GROUPS_SIZE: Final = 1024
"""Bytes that Python reads of a socket option at most."""


def bind_unix_socket(path: Path, mode: int) -> socket.socket:
    """A bound socket with these permissions from its first moment; its directory is made when it is not there.

    The socket of a killed node is replaced. MQ_ERROR_SERVICE_NOT_AVAILABLE if somebody answers on it.
    """
    check_socket_path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE,
            f"the folder {path.parent} for the socket {path.name} cannot be made ({error.strerror}): set local.socket "
            "and management.socket to a folder that this user may write",
        ) from error
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


def check_socket_path(path: Path) -> None:
    """Raise MQ_ERROR_SERVICE_NOT_AVAILABLE if no socket can have this path, as it is too long."""
    if (size := len(os.fsencode(path))) > _LONGEST_PATH:
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE,
            f"{path} has {size} bytes, and the path of a socket at most {_LONGEST_PATH}: name a shorter folder",
        )


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


def peer_groups(peer: socket.socket) -> frozenset[int]:
    """All groups that the process at the other end was in when it connected, as the kernel noted them.

    Of a process in more than 256 supplementary groups, those of its account: no more fit into the answer.
    """
    _, user, group = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    try:
        listed = peer.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_SIZE)
        return frozenset((group, *(number for (number,) in struct.iter_unpack("I", listed))))
    except OSError:
        try:
            return frozenset((group, *os.getgrouplist(pwd.getpwuid(user).pw_name, group)))
        except KeyError:
            return frozenset((group,))


def peer_credentials(peer: socket.socket) -> tuple[int, int]:
    """Process and user at the other end of a Unix socket."""
    process, user, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return process, user
