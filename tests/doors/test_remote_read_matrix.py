"""The door matrix of remote read: each operation number, as users that authenticated and as nobody in particular."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from qmnode import Access, Message, MessageQueuingError, QueueManager
from qmnode.dcerpc.authentication import acceptor_authentication, initiator_authentication
from qmnode.dcerpc.interface import Interface, Method
from qmnode.dcerpc.ndr import NULL_CONTEXT_HANDLE
from qmnode.dcerpc.protection import SecurityContext
from qmnode.remote_read import qm2qm, qmcomm
from qmnode.remote_read.client_interfaces import RemoteNode, RemoteReadOptions
from qmnode.remote_read.qm2qm import QM2QM, Action, RemoteReadDesc, RemoteReadDesc2
from qmnode.remote_read.qmcomm import QMCOMM, TransferBuffer
from qmnode.remote_read.queue_format import to_queue_format
from qmnode.remote_read.remoteread import REMOTE_READ
from qmnode.remote_read.server import RemoteReadServer
from qmnode.settings.node import Settings
from qmnode.settings.remote_read import RemoteReadSettings
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import parse_single_format_name
from qmnode.structures.security_descriptor import ANONYMOUS, AUTHENTICATED_USERS, EVERYONE, NETWORK
from qmnode.structures.security_descriptor import QueueAccess as Right
from tests.doors.directory import Groups
from tests.doors.expectation import DOMAIN, MEMBER, STRANGER, Matrix, Who, allowed, described, descriptors
from tests.lab.addresses import free_alias
from tests.lab.waiting import eventually
from tests.remote_read.conftest import random_port, without_remote_read
from tests.remote_read.raw_client import RawClient

AWAY = frozenset({EVERYONE, AUTHENTICATED_USERS, NETWORK})
ACCOUNTS = {"owner": DOMAIN.owner, "member": MEMBER, "stranger": STRANGER}
PRINCIPALS = {
    "owner": Who(AWAY | {DOMAIN.owner}),
    "member": Who(AWAY | {MEMBER, DOMAIN.group}),
    "stranger": Who(AWAY | {STRANGER}),
    "unknown": Who(AWAY),  # it has a password, and no SID
    "nobody": Who(frozenset({ANONYMOUS, NETWORK})),
}
DESCRIPTORS = descriptors(DOMAIN)
NAMES = {f"q{number}": text for number, text in enumerate(DESCRIPTORS)}
OPENS: dict[str, tuple[Right, str, Access]] = {
    "receive": (Right.MQSEC_RECEIVE_MESSAGE, "", Access.RECEIVE),
    "peek": (Right.MQSEC_PEEK_MESSAGE, "", Access.PEEK),
    "receive, journal": (Right.MQSEC_RECEIVE_JOURNAL_MESSAGE, ";JOURNAL", Access.RECEIVE),
    "peek, journal": (Right.MQSEC_PEEK_MESSAGE, ";journal", Access.PEEK),
}
SYSTEM = (";deadletter", ";deadxact", ";journal")


class Opened:
    """A queue that its owner has opened, with a message locked and a waiting read: for others to use."""

    def __init__(self, node: RemoteNode) -> None:
        self.node = node
        self.number = self.fresh = self.cursor = 0
        self.handle = self.session = self.read = NULL_CONTEXT_HANDLE

    async def open(self, name: str, access: Access = Access.RECEIVE) -> qmcomm.OpenRemoteQueueResponse:
        format_name = parse_single_format_name(rf"DIRECT=OS:SERVING\private$\{name}")
        request = qmcomm.OpenRemoteQueueRequest(queue_format=to_queue_format(format_name), desired_access=int(access))
        opened = await self.node.call(QMCOMM, qmcomm.OPEN_REMOTE_QUEUE, request)
        assert isinstance(opened, qmcomm.OpenRemoteQueueResponse)
        assert not opened.status
        return opened

    async def prepare(self, name: str) -> None:
        """One queue that is being read, and one that is open and is not read yet."""
        first, second = await self.open(name), await self.open(name)
        self.number, self.fresh, self.handle = first.h_queue, second.h_queue, second.handle
        entry = await self.node.call(QM2QM, qm2qm.OPEN_QUEUE, _opening(self.number))
        self.session = entry.context
        made = await self.node.call(QMCOMM, qmcomm.CREATE_REMOTE_CURSOR, _cursor(self.number))
        self.cursor = made.cursor
        read = await self.node.call(QM2QM, qm2qm.START_RECEIVE, qm2qm.StartReceiveRequest(desc=_desc(self.number, 1)))
        assert not read.status
        self.read = read.context


def _opening(number: int) -> qm2qm.OpenQueueRequest:
    return qm2qm.OpenQueueRequest(license_guid=bytes(16), mqs=0, h_queue=number, p_queue=number, context=number)


def _cursor(number: int) -> qmcomm.CreateRemoteCursorRequest:
    return qmcomm.CreateRemoteCursorRequest(buffer=TransferBuffer(), queue=number)


def _desc(number: int, request: int, action: Action = Action.MQ_ACTION_RECEIVE) -> RemoteReadDesc:
    return RemoteReadDesc(
        remote_queue=number, queue=number, cursor=0, action=action, timeout=0, request_id=request, buffer=None
    )


def _desc2(number: int, request: int, action: Action) -> RemoteReadDesc2:
    return RemoteReadDesc2(remote_read_desc=_desc(number, request, action), sequential_id=0)


Request = Callable[[Opened], Any]
ROWS: dict[str, Request] = {
    # Each uses what the owner has opened: only the owner's own connection may. The owner comes last.
    "RemoteQMStartReceive": lambda one: qm2qm.StartReceiveRequest(desc=_desc(one.number, 2)),
    "RemoteQMStartReceive2": lambda one: qm2qm.StartReceive2Request(
        desc2=_desc2(one.number, 3, Action.MQ_ACTION_RECEIVE)
    ),
    "RemoteQMStartReceiveByLookupId": lambda one: qm2qm.StartReceiveByLookupIdRequest(
        lookup_id=0, desc2=_desc2(one.number, 4, Action.MQ_LOOKUP_PEEK_NEXT)
    ),
    "RemoteQMPurgeQueue": lambda one: qm2qm.PurgeQueueRequest(queue=one.number),
    "RemoteQMEndReceive": lambda one: qm2qm.EndReceiveRequest(context=one.read, ack=1),
    "R_QMCreateRemoteCursor": lambda one: _cursor(one.number),
    "RemoteQMCloseCursor": lambda one: qm2qm.CloseCursorRequest(queue=one.number, cursor=one.cursor),
    "RemoteQMOpenQueue": lambda one: _opening(one.fresh),
    "RemoteQMCloseQueue": lambda one: qm2qm.CloseQueueRequest(context=one.session),
}
EVERYBODY: dict[str, Request] = {
    "RemoteQMGetQMQMServerPort": lambda _: qm2qm.ServerPortRequest(port_type=1),
    "RemoteQmGetVersion": lambda _: qm2qm.GetVersionRequest(),
    "R_QMGetRTQMServerPort": lambda _: qmcomm.ServerPortRequest(ip=1),
}
OWN_TESTS = {
    "R_QMOpenRemoteQueue": "each descriptor, below",
    "RemoteQMCancelReceive": "test_nobody_cancels_the_reads_of_others",
    "R_QMCloseRemoteQueueContext": "test_nobody_closes_the_queues_of_others",
}


def without_row(*methods: Method) -> set[str]:
    return {one.name for one in methods} - {*ROWS, *EVERYBODY, *OWN_TESTS}


def served(server: RemoteReadServer) -> list[Method]:
    """The methods of qm2qm and qmcomm that have a handler; test_remoteread_matrix has those of RemoteRead."""
    return [
        found.interface.methods[opnum]
        for one in (server.server,)
        for found in one.services.values()
        if found.interface is not REMOTE_READ
        for opnum in found.handlers
    ]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RemoteReadServer]:
    users = tmp_path / "users"
    users.write_text("".join(f"CONTOSO:{name}:Secret-{name}\n" for name in PRINCIPALS if name != "nobody"))
    users.chmod(0o600)
    mapper = random_port()
    own = RemoteReadSettings(
        enabled=True, address=free_alias([mapper]), port=0, endpoint_mapper_port=mapper, users=users, open_queues=4000
    )
    security: Any = {"account_security_identifiers": {name: str(sid) for name, sid in ACCOUNTS.items()}}
    settings = Settings(computer_name="SERVING", remote_read=own, security=security)
    async with QueueManager.open(tmp_path / "serving", settings) as manager:
        for name, text in NAMES.items():
            await manager.create_queue(rf".\private$\{name}", security=described(DESCRIPTORS[text], DOMAIN.owner))
        made = RemoteReadServer(manager, own, Groups(), acceptor_authentication(own))
        await made.start()
        try:
            yield made
        finally:
            await made.stop()


def security_of(folder: Path, principal: str) -> Callable[[str], SecurityContext] | None:
    """How a principal authenticates itself; None for nobody in particular."""
    if principal == "nobody":
        return None
    password = folder / f"password of {principal}"
    password.write_text(f"Secret-{principal}\n")
    password.chmod(0o600)
    account = RemoteReadSettings(account=f"CONTOSO\\{principal}", password_file=password, mechanism="ntlm")
    return initiator_authentication(account)


async def connected(server: RemoteReadServer, folder: Path, principal: str) -> RemoteNode:
    """A connection of this principal."""
    security = security_of(folder, principal)
    options = RemoteReadOptions(endpoint_mapper_port=server.endpoint_mapper.port, security=security)
    return await RemoteNode.connect(server.settings.address, options)


@pytest.fixture
async def nodes(server: RemoteReadServer, tmp_path: Path) -> AsyncIterator[dict[str, RemoteNode]]:
    without_remote_read(server)
    async with AsyncExitStack() as stack:
        yield {name: await stack.enter_async_context(await connected(server, tmp_path, name)) for name in PRINCIPALS}


async def test_every_method_has_a_row_and_one_without_is_found(server: RemoteReadServer) -> None:
    methods = served(server)
    assert len(methods) == len(ROWS) + len(EVERYBODY) + len(OWN_TESTS)
    assert without_row(*methods) == set()
    backdoor = Method("R_QMBackdoor", 99, qm2qm.GetVersionRequest, qm2qm.Status, "")
    assert without_row(*methods, backdoor) == {"R_QMBackdoor"}


async def fill(server: RemoteReadServer, name: str) -> None:
    """Messages for the owner to read."""
    async with await server._manager.open_queue(rf"DIRECT=OS:.\private$\{name}", Access.SEND) as out:
        await out.send_many([Message(b"%d" % number) for number in range(4)])


async def is_open_to(work: Awaitable[Any]) -> bool:
    try:
        await (await work).close()
    except MessageQueuingError as error:
        assert error.code == ErrorCode.MQ_ERROR_ACCESS_DENIED, error
        return False
    return True


async def test_no_denied_principal_succeeds_and_no_allowed_one_fails(
    server: RemoteReadServer, nodes: dict[str, RemoteNode], capsys: pytest.CaptureFixture[str]
) -> None:
    matrix = Matrix("remote read")
    for (principal, node), (operation, (right, suffix, access)), (name, text) in product(
        nodes.items(), OPENS.items(), NAMES.items()
    ):
        expected = allowed(DESCRIPTORS[text], PRINCIPALS[principal], DOMAIN.owner, int(right))
        format_name = parse_single_format_name(rf"DIRECT=OS:serving\PRIVATE$\{name}{suffix}")
        found = await is_open_to(node.open_queue(format_name, access))
        matrix.count(f"{principal}, {operation}, {text}", expected, found)
    for (principal, node), suffix in product(nodes.items(), SYSTEM):
        format_name = parse_single_format_name(rf"DIRECT=OS:SERVING\SYSTEM${suffix}")
        matrix.count(f"{principal}, peek, {suffix}", False, await is_open_to(node.open_queue(format_name, Access.PEEK)))
    (mine,) = [name for name, text in NAMES.items() if text == "default"]
    await fill(server, mine)
    opened = Opened(nodes["owner"])
    await opened.prepare(mine)
    methods = {one.name: one for one in served(server)}
    for operation, request in (ROWS | EVERYBODY).items():
        method = methods[operation]
        of = QMCOMM if operation.startswith("R_") else QM2QM
        for principal in (*(name for name in nodes if name != "owner"), "owner"):
            try:
                answer = await nodes[principal].call(of, method, request(opened))
            except MessageQueuingError as error:  # a handle of another connection is a fault
                assert "CONTEXT_MISMATCH" in str(error)
                done = False
            else:
                done = operation in EVERYBODY or not answer.status
            matrix.count(f"{principal}, {operation}", principal == "owner" or operation in EVERYBODY, done)
    with capsys.disabled():
        print(matrix.report())
    assert not matrix.wrong, "\n".join(matrix.wrong[:60])
    assert matrix.cells >= 700


async def test_what_only_a_supporting_server_does_is_refused(server: RemoteReadServer) -> None:
    async with RawClient(server.settings.address, server.port) as client:
        await client.bind(Interface("qmcomm", QMCOMM.syntax))
        answers = {await client.call(opnum, b"") for opnum in sorted(qmcomm.SUPPORTING_SERVER_ONLY)}
    assert answers == {int(ErrorCode.MQ_ERROR_ILLEGAL_OPERATION)}


async def test_nobody_closes_the_queues_of_others(server: RemoteReadServer, nodes: dict[str, RemoteNode]) -> None:
    (mine,) = [name for name, text in NAMES.items() if text == "default"]
    await fill(server, mine)
    opened = Opened(nodes["owner"])
    await opened.prepare(mine)
    for principal, node in nodes.items():
        before = len(server.queues)
        request = qmcomm.CloseRemoteQueueContext(handle=opened.handle)
        with contextlib.suppress(MessageQueuingError):  # a fault
            await node.call(QMCOMM, qmcomm.CLOSE_REMOTE_QUEUE_CONTEXT, request)
        assert len(server.queues) == before - (principal == "owner"), principal
        if principal == "owner":
            opened.handle = (await opened.open(mine)).handle


async def test_nobody_cancels_the_reads_of_others(server: RemoteReadServer, nodes: dict[str, RemoteNode]) -> None:
    (mine,) = [name for name, text in NAMES.items() if text == "default"]
    queue = await nodes["owner"].open_queue(parse_single_format_name(rf"DIRECT=OS:SERVING\private$\{mine}"))
    waiting = asyncio.ensure_future(queue.receive(30))
    (there,) = server.queues._by_number.values()
    await eventually(lambda: bool(there.reads))
    (number,) = there.reads
    request = qm2qm.CancelReceiveRequest(h_queue=there.number, p_queue=there.number, request_id=number)
    for principal in (*(name for name in nodes if name != "owner"), "owner"):
        answer = await nodes[principal].call(QM2QM, qm2qm.CANCEL_RECEIVE, request)
        assert (not answer.status) == (principal == "owner"), principal
    with pytest.raises(MessageQueuingError):
        await waiting
