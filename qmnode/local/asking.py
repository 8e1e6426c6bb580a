"""One question to the node, without an event loop: all that ``qmnode status`` needs, loaded in a few milliseconds."""

import json
import os
import socket
import time
from pathlib import Path
from typing import Any, Final

from qmnode.errors import MessageQueuingError
from qmnode.local.frames import GREETING, Frame, FrameError, FrameKind, FrameReader, frame
from qmnode.structures.error_codes import ErrorCode

_UNREACHABLE: Final = ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE
_TIMEOUT: Final = 30.0
_PAUSE: Final = 0.05
_CHUNK: Final = 65536


def unreachable(path: Path, error: OSError) -> MessageQueuingError:
    """No connection to the socket."""
    return MessageQueuingError(_UNREACHABLE, _reason(path, error))


def _reason(path: Path, error: OSError) -> str:
    if not isinstance(error, PermissionError):
        return (
            f"no node answers on {path} ({error.strerror or error}): start it with 'qmnode run', "
            "or name its socket with --socket or QMNODE_SOCKET"
        )
    import getpass

    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # of an identifier without a name, as in containers
        user = str(os.getuid())
    try:
        group = path.group()
    except (OSError, KeyError):  # of a folder that hides it, or of a group without a name
        group = "qmnode"
    return (
        f"user {user} may not use the node's socket {path}: join the group {group} "
        f"(sudo usermod --append --groups {group} {user}) and log in again"
    )


def ask(path: Path, method: str, wait: float = 0.0) -> Any:
    """The answer of the queue manager to a method without arguments, as plain values.

    For ``wait`` seconds a node is asked again that does not answer yet, or says of its status that it is not ready.
    MQ_ERROR_SERVICE_NOT_AVAILABLE after that.
    """
    deadline = time.monotonic() + wait
    while True:
        try:
            answer = _ask(path, method)
            if not wait or not isinstance(answer, dict) or answer.get("ready", True):
                return answer
            if time.monotonic() >= deadline:
                raise MessageQueuingError(
                    _UNREACHABLE,
                    f"the node on {path} still starts after {wait:g} s: its log says what it waits for",
                )
        except MessageQueuingError as error:
            if error.code is not _UNREACHABLE or time.monotonic() >= deadline:
                raise
        time.sleep(_PAUSE)


def _ask(path: Path, method: str) -> Any:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as node:
        node.settimeout(_TIMEOUT)
        try:
            node.connect(str(path))
            _call(node, FrameKind.HELLO, GREETING)
            return _call(node, FrameKind.CALL, ["manager", 0, method, [], {}])
        except TimeoutError as error:
            raise MessageQueuingError(_UNREACHABLE, f"the node on {path} says nothing for {_TIMEOUT:g} s") from error
        except OSError as error:
            raise unreachable(path, error) from error
        except (FrameError, ValueError) as error:
            raise MessageQueuingError(
                _UNREACHABLE, f"the program that answers on {path} is no node: {error}"
            ) from error


def _call(node: socket.socket, kind: FrameKind, value: object) -> Any:
    node.sendall(frame(kind, 1, json.dumps(value).encode()))
    answer = _answer(node)
    result = json.loads(answer.body, object_hook=_plain)
    if answer.kind == FrameKind.FAILED:
        code, sentence = result
        raise MessageQueuingError(ErrorCode(code), sentence)
    return result


def _answer(node: socket.socket) -> Frame:
    reader = FrameReader()
    while True:
        data = node.recv(_CHUNK)
        if not data:
            raise ConnectionResetError("the connection was closed")
        for answer in reader.feed(data):
            return answer


def _plain(value: dict[str, Any]) -> Any:
    """Tagged values (:mod:`qmnode.local.values`) as what is in them."""
    if len(value) == 1:
        ((tag, content),) = value.items()
        if tag == "$bytes":
            return bytes.fromhex(content)
        if tag.startswith("$"):
            return content
    return value
