"""The door matrix of RemoteRead (MS-MQRR): each operation number, as users that authenticated and as nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from qmnode import Access
from qmnode.dcerpc.client import RpcClient
from qmnode.dcerpc.errors import RpcFault
from qmnode.dcerpc.interface import Method
from qmnode.remote_read import remoteread
from qmnode.remote_read.qm2qm import Action
from qmnode.remote_read.queue_format import QueueFormatValue, to_queue_format
from qmnode.remote_read.remoteread import REMOTE_READ
from qmnode.remote_read.server import RemoteReadServer
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import parse_single_format_name
from qmnode.structures.security_descriptor import QueueAccess as Right
from tests.doors.expectation import DOMAIN, Matrix, allowed
from tests.doors.test_remote_read_matrix import (
    DESCRIPTORS,
    NAMES,
    OPENS,
    PRINCIPALS,
    fill,
    security_of,
    server,  # noqa: F401  # the fixture
)

OPENINGS: dict[str, tuple[Method, Right, str, Access]] = {
    **{name: (remoteread.OPEN_QUEUE, *opened) for name, opened in OPENS.items()},
    "move": (remoteread.OPEN_QUEUE_FOR_MOVE, Right.MQSEC_WRITE_MESSAGE, ";later", Access.MOVE),
}


class Opened:
    """What the owner has opened: a queue with a locked message, a cursor, and the target of a move."""

    context = bytes(20)
    cursor = move_context = lookup_id = 0


Request = Callable[[Opened], dict[str, Any]]
ROWS: dict[Method, Request] = {
    # Each uses what the owner has opened: only the owner's own connection may. The owner comes last.
    remoteread.CREATE_CURSOR: lambda _: {},
    remoteread.CLOSE_CURSOR: lambda one: {"cursor": one.cursor},
    remoteread.START_RECEIVE: lambda _: {"request_id": 2},
    remoteread.START_TRANSACTIONAL_RECEIVE: lambda _: {"request_id": 3},
    remoteread.END_TRANSACTIONAL_RECEIVE: lambda _: {"request_id": 3, "ack": 1},
    remoteread.END_RECEIVE: lambda _: {"request_id": 1, "ack": 1},
    remoteread.MOVE_MESSAGE: lambda one: {"context_to": one.move_context, "lookup_id": one.lookup_id},
    remoteread.PURGE_QUEUE: lambda _: {},
    remoteread.CLOSE_QUEUE: lambda _: {},
}
REFUSED: dict[Method, tuple[dict[str, Any], int]] = {
    # The owner's own status: there is nothing that these could be about.
    remoteread.CANCEL_RECEIVE: ({"request_id": 99}, ErrorCode.MQ_ERROR),
    remoteread.SET_USER_ACKNOWLEDGEMENT_CLASS: (
        {"lookup_id": 1, "acknowledgement_class": 0},
        ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND,
    ),
}
OTHERS = {
    remoteread.GET_SERVER_PORT,  # open to everybody
    remoteread.ENLIST_REMOTE_TRANSACTION,  # refused to everybody
    remoteread.OPEN_QUEUE,  # each descriptor
    remoteread.OPEN_QUEUE_FOR_MOVE,  # each descriptor
}


@pytest.fixture
async def clients(server: RemoteReadServer, tmp_path: Path) -> AsyncIterator[dict[str, RpcClient]]:  # noqa: F811
    made = {}
    for principal in PRINCIPALS:
        security = security_of(tmp_path, principal)
        address = server.settings.address
        made[principal] = await RpcClient.connect(
            address, server.port, (REMOTE_READ,), security=security(address) if security else None
        )
    yield made
    for client in made.values():
        client.abort()


def opening(name: str, access: Access) -> dict[str, Any]:
    format_name = parse_single_format_name(rf"DIRECT=OS:SERVING\private$\{name}")
    return {"queue_format": to_queue_format(format_name), "access": int(access)}


async def call(client: RpcClient, method: Method, parameters: dict[str, Any]) -> Any:
    return await client.call(REMOTE_READ, method, method.request(**parameters))


def test_every_method_has_a_row() -> None:
    assert {*ROWS, *REFUSED, *OTHERS} == set(REMOTE_READ.methods.values())


async def test_queues_open_exactly_as_their_descriptors_say(
    clients: dict[str, RpcClient], capsys: pytest.CaptureFixture[str]
) -> None:
    matrix = Matrix("RemoteRead")
    for (principal, client), operation, (name, text) in product(clients.items(), OPENINGS, NAMES.items()):
        method, right, suffix, access = OPENINGS[operation]
        expected = allowed(DESCRIPTORS[text], PRINCIPALS[principal], DOMAIN.owner, int(right))
        try:
            opened = await call(client, method, opening(name + suffix, access))
            await call(client, remoteread.CLOSE_QUEUE, {"context": opened.context})
        except RpcFault as fault:
            assert fault.status == ErrorCode.MQ_ERROR_ACCESS_DENIED, fault
            found = False
        else:
            found = True
        matrix.count(f"{principal}, {operation}, {text}", expected, found)
    with capsys.disabled():
        print(matrix.report())
    assert not matrix.wrong, "\n".join(matrix.wrong[:60])


async def test_what_one_has_opened_is_of_no_use_to_others(
    server: RemoteReadServer,  # noqa: F811
    clients: dict[str, RpcClient],
) -> None:
    (mine,) = [name for name, text in NAMES.items() if text == "default"]
    await fill(server, mine)
    owner, one = clients["owner"], Opened()
    one.context = (await call(owner, remoteread.OPEN_QUEUE, opening(mine, Access.RECEIVE))).context
    target = await call(owner, remoteread.OPEN_QUEUE_FOR_MOVE, opening(mine + ";later", Access.MOVE))
    one.move_context = target.move_context
    one.cursor = (await call(owner, remoteread.CREATE_CURSOR, {"context": one.context})).cursor
    assert not (await call(owner, remoteread.START_RECEIVE, {"context": one.context, "request_id": 1})).status
    peek = {"context": one.context, "request_id": 9, "action": Action.MQ_ACTION_PEEK_CURRENT}
    one.lookup_id = 4 << 56 | (await call(owner, remoteread.START_RECEIVE, peek)).sequence_id
    rows = {method: (request(one), 0) for method, request in ROWS.items()}
    for method, (parameters, status) in (REFUSED | rows).items():
        handle = "context_from" if method is remoteread.MOVE_MESSAGE else "context"
        if method is remoteread.MOVE_MESSAGE:  # the reads before it have locked the message, and given it back
            await call(owner, remoteread.END_RECEIVE, {"context": one.context, "request_id": 2, "ack": 1})
        for principal in (*(name for name in clients if name != "owner"), "owner"):
            if principal != "owner":
                with pytest.raises(RpcFault, match="CONTEXT_MISMATCH"):
                    await call(clients[principal], method, {handle: one.context, **parameters})
                continue
            answer = await call(owner, method, {handle: one.context, **parameters})
            assert answer.status == status, method.name


async def test_what_is_the_same_for_everybody(
    server: RemoteReadServer,  # noqa: F811
    clients: dict[str, RpcClient],
) -> None:
    for client in clients.values():
        assert (await call(client, remoteread.GET_SERVER_PORT, {})).status == server.port
        token = {"transaction_id": bytes(16), "token": b"", "queue_format": QueueFormatValue(format_type=0)}
        enlisted = await call(client, remoteread.ENLIST_REMOTE_TRANSACTION, token)
        assert enlisted.status == ErrorCode.MQ_ERROR_TRANSACTION_ENLIST
