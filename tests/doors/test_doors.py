"""The doors themselves: whatever listens in the product has a matrix, or a reason why it asks no descriptor."""

from __future__ import annotations

import ast
from pathlib import Path

import qmnode

PACKAGE = Path(qmnode.__file__).parent
LISTENING = {
    "bind_unix_socket", "create_datagram_endpoint", "create_server", "create_unix_server", "listen",
    "listening_sockets", "start_server", "start_unix_server",
}  # fmt: skip
DOORS = {
    "local/server.py": "test_matrix.py",
    "management/server.py": "test_http_matrix.py",
    "amqp/door.py": "test_amqp_matrix.py",
    "dcerpc/server.py": "test_remote_read_matrix.py",
    "transport/listener.py": "test_wire_matrix.py",
}
NO_DOOR = {"transport/ping.py": "answers one number, and knows no queue (MC-MQSRM)"}


def listening(source: str) -> bool:
    """Whether a module calls anything that listens."""
    return any(
        isinstance(node, ast.Call)
        and (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")) in LISTENING
        for node in ast.walk(ast.parse(source))
    )


def modules() -> set[str]:
    """The modules of the node that listen."""
    return {
        str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if listening(path.read_text(encoding="utf-8"))
    }


def test_everything_that_listens_is_a_door_with_a_matrix() -> None:
    assert modules() == {*DOORS, *NO_DOOR}
    for matrix in DOORS.values():
        assert (Path(__file__).parent / matrix).exists()


def test_a_door_without_a_matrix_is_found() -> None:
    assert listening("async def start(loop):\n    await loop.create_server(object, port=1)\n")
    assert not listening("async def start(loop):\n    await loop.create_connection(object)\n")
