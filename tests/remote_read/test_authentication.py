"""Our own client proves who it is: NTLM, plain and inside SPNEGO, with every PDU sealed."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
import typer

from qmnode import Access, MessageQueuingError, QueueManager
from qmnode.commands.remote import RemoteTarget
from qmnode.dcerpc import client
from qmnode.dcerpc.authentication import acceptor_authentication, initiator_authentication
from qmnode.dcerpc.errors import FaultStatus
from qmnode.dcerpc.pdu import WHOLE, PduType, SecTrailer, write_pdu_to_protect
from qmnode.dcerpc.protection import AuthenticationError
from qmnode.remote_read.qm2qm import QM2QM
from qmnode.settings.node import Settings
from qmnode.settings.remote_read import RemoteReadSettings
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import parse_single_format_name
from tests.lab.sddl import parse_sddl
from tests.lab.waiting import eventually
from tests.remote_read.conftest import QUEUE, THERE, Remote, serving
from tests.remote_read.raw_client import RawClient, bind_pdu

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

ALICE = "S-1-5-21-1-2-3-1001"
NAME = parse_single_format_name(THERE)
MECHANISMS = pytest.mark.parametrize("mechanism", ["ntlm", "negotiate"])


def private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.fixture
async def remote(tmp_path: Path) -> AsyncIterator[Remote]:
    """A queue that only alice may use."""
    users = private(tmp_path / "users", "CONTOSO:alice:Secret-1\nCONTOSO:bob:Secret-2\n")
    async with serving(tmp_path, users=users) as one:
        await one.manager.set_queue(QUEUE, security=parse_sddl(f"O:{ALICE}G:{ALICE}D:(A;;0xffff;;;{ALICE})").write())
        yield one


def as_user(folder: Path, mechanism: str, account: str = "CONTOSO\\alice", password: str = "Secret-1") -> object:
    return initiator_authentication(
        RemoteReadSettings(
            account=account, password_file=private(folder / "password", password + "\n"), mechanism=mechanism
        )
    )


@MECHANISMS
async def test_alice_reads_and_bob_does_not(remote: Remote, tmp_path: Path, mechanism: str) -> None:
    body = bytes(range(256)) * 400
    await remote.send(body, b"two", b"three")
    async with await remote.connect(security=as_user(tmp_path, mechanism)) as node:
        queue = await node.open_queue(NAME)
        assert (await queue.receive(0)).body == body
        async with queue.cursor() as cursor:
            assert (await cursor.receive(0)).body == b"two"
        assert [one.body for one in await queue.receive_many(5, 0)] == [b"three"]
    async with await remote.connect(security=as_user(tmp_path, mechanism, "CONTOSO\\bob", "Secret-2")) as node:
        with pytest.raises(MessageQueuingError) as caught:
            await node.open_queue(NAME, Access.PEEK)
        assert caught.value.code is ErrorCode.MQ_ERROR_ACCESS_DENIED


@MECHANISMS
@pytest.mark.parametrize(("account", "password"), [("CONTOSO\\alice", "wrong"), ("CONTOSO\\mallory", "Secret-1")])
async def test_who_does_not_prove_it_gets_nothing(
    remote: Remote, tmp_path: Path, mechanism: str, account: str, password: str
) -> None:
    with pytest.raises(MessageQueuingError) as caught:
        node = await remote.connect(security=as_user(tmp_path, mechanism, account, password))
        await node.open_queue(NAME, Access.PEEK)
    assert caught.value.code is ErrorCode.MQ_ERROR_ACCESS_DENIED
    assert password not in str(caught.value)
    assert not remote.server.queues
    await eventually(lambda: not remote.server.server.connections)


def bind_with_token(token: bytes, auth_type: int = 10, level: int = 6, kind: PduType = PduType.BIND) -> bytes:
    trailer = SecTrailer(auth_type=auth_type, auth_level=level, context_id=7)
    parts = write_pdu_to_protect(kind, 1, bind_pdu(QM2QM.syntax)[16:], WHOLE, trailer, len(token), 4)
    return b"".join((*parts, token))


@pytest.mark.parametrize("size", [100, 6_000, 60_000])
async def test_a_token_may_be_larger_than_a_fragment(remote: Remote, size: int) -> None:
    """A ticket with many groups is: the bind is read whole, and answered."""
    async with RawClient(remote.address, remote.port) as client:
        await client.send(bind_with_token(bytes(size)))
        answer = await client.receive()
        assert answer is not None and answer.pdu_type == PduType.BIND_NAK
        assert await client.closes()


@pytest.mark.parametrize(("auth_type", "level"), [(10, 2), (10, 4), (10, 7), (10, 0), (16, 6), (68, 6), (255, 6)])
async def test_what_is_not_set_up_or_too_weak_is_refused(remote: Remote, auth_type: int, level: int) -> None:
    async with RawClient(remote.address, remote.port) as client:
        await client.send(bind_with_token(b"NTLMSSP\0", auth_type, level))
        answer = await client.receive()
        assert answer is not None and answer.pdu_type == PduType.BIND_NAK
        assert await client.closes()
    async with RawClient(remote.address, remote.port) as client:
        await client.bind(QM2QM)
        await client.send(bind_with_token(b"NTLMSSP\0", auth_type, level, PduType.ALTER_CONTEXT))
        assert await client.answer() == FaultStatus.ACCESS_DENIED
        assert await client.closes()


async def test_handshakes_that_are_begun_and_not_ended_are_not_kept(remote: Remote, tmp_path: Path) -> None:
    """A connection has so many security contexts, and not more."""
    async with RawClient(remote.address, remote.port) as client:
        await client.bind(QM2QM)
        token = as_user(tmp_path, "ntlm")("there").step(b"")
        for number in range(40):
            pdu = bytearray(bind_with_token(token, kind=PduType.ALTER_CONTEXT))
            pdu[-len(token) - 4] = number
            await client.send(bytes(pdu))
            answer = await client.receive()
            assert answer is not None
            if answer.pdu_type == PduType.FAULT:
                break
        assert number == 16
        assert await client.closes()


async def test_a_domain_controller_that_does_not_answer_holds_up_nobody(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qmnode.remote_read.client_interfaces.TICKET_TIMEOUT", 0.5)
    asked, answers = threading.Event(), threading.Event()

    def ask(host: str) -> object:
        asked.set()
        answers.wait(240)
        raise AuthenticationError("no ticket")

    waiting = asyncio.create_task(remote.connect(security=ask))
    try:
        await eventually(asked.is_set)
        async with await remote.connect():
            assert not answers.is_set()
        with pytest.raises(MessageQueuingError) as caught:
            await waiting
        assert caught.value.code is ErrorCode.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE
    finally:
        answers.set()


@MECHANISMS
async def test_a_server_where_nobody_can_authenticate_says_so(tmp_path: Path, mechanism: str) -> None:
    async with serving(tmp_path) as anonymous:
        with pytest.raises(MessageQueuingError, match=mechanism.upper()) as caught:
            await anonymous.connect(security=as_user(tmp_path, mechanism))
        assert caught.value.code is ErrorCode.MQ_ERROR_ACCESS_DENIED


async def test_a_node_authenticates_with_its_settings(remote: Remote, tmp_path: Path) -> None:
    await remote.send(b"one")
    reading = RemoteReadSettings(
        endpoint_mapper_port=remote.endpoint_mapper_port,
        account="CONTOSO\\alice",
        password_file=private(tmp_path / "password", "Secret-1"),
        mechanism="ntlm",
        authenticate_to=(remote.address,),
    )
    async with (
        QueueManager.open(tmp_path / "reading", Settings(computer_name="READING", remote_read=reading)) as manager,
        await manager.open_queue(rf"DIRECT=TCP:{remote.address}\private$\orders") as queue,
    ):
        assert (await queue.receive(0)).body == b"one"


async def test_a_handle_of_alice_is_no_handle_for_who_joins_her_association(remote: Remote, tmp_path: Path) -> None:
    from qmnode.dcerpc.client import RpcClient
    from qmnode.dcerpc.errors import RpcFault
    from qmnode.remote_read import qm2qm, remoteread
    from qmnode.remote_read.qm2qm import QM2QM
    from qmnode.remote_read.remoteread import REMOTE_READ

    await remote.send(b"one")
    async with await remote.connect(security=as_user(tmp_path, "ntlm")) as node:
        queue = await node.open_queue(NAME)
        interfaces = (QM2QM, REMOTE_READ)
        joined = await RpcClient.connect(remote.address, remote.port, interfaces, group_id=node.reader.group_id)
        context = queue.session._context
        with pytest.raises(RpcFault, match="CONTEXT_MISMATCH"):
            await joined.call(REMOTE_READ, remoteread.CLOSE_QUEUE, remoteread.ContextRequest(context=context))
        start = remoteread.StartReceiveRequest(context=context, request_id=1)
        with pytest.raises(RpcFault, match="CONTEXT_MISMATCH"):
            await joined.call(REMOTE_READ, remoteread.START_RECEIVE, start)
        (number,) = remote.server.queues._by_number
        desc = qm2qm.RemoteReadDesc(remote_queue=number, queue=number, request_id=1)
        answer = await joined.call(QM2QM, qm2qm.START_RECEIVE, qm2qm.StartReceiveRequest(desc=desc))
        assert answer.status == ErrorCode.MQ_ERROR_INVALID_PARAMETER
        joined.abort()


async def test_what_was_changed_on_its_way_ends_the_connection(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await remote.send(b"one")
    async with await remote.connect(security=as_user(tmp_path, "ntlm")) as node:
        queue = await node.open_queue(NAME)

        def damage(transport: asyncio.WriteTransport, pieces: list[bytes]) -> None:
            whole = bytearray(b"".join(pieces))
            whole[30] ^= 1
            transport.write(bytes(whole))

        monkeypatch.setattr(client, "write_together", damage)
        with pytest.raises(MessageQueuingError) as caught:
            await queue.receive(0)
        assert caught.value.code in (
            ErrorCode.MQ_ERROR_ACCESS_DENIED, ErrorCode.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE,
        )  # fmt: skip


def test_secrets_that_others_can_read_are_refused(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("CONTOSO:alice:Secret-1\n")
    users.chmod(0o644)
    with pytest.raises(MessageQueuingError, match="chmod 600"):
        acceptor_authentication(RemoteReadSettings(users=users))
    with pytest.raises(MessageQueuingError, match="is not there"):
        acceptor_authentication(RemoteReadSettings(users=tmp_path / "none"))
    initiator = initiator_authentication(RemoteReadSettings(account="A\\alice", password_file=users, mechanism="ntlm"))
    assert initiator is not None
    with pytest.raises(MessageQueuingError, match=r"remote_read\.password_file: .* chmod 600") as caught:
        initiator("host")
    assert caught.value.code is ErrorCode.MQ_ERROR_ACCESS_DENIED  # the service is there: to try again helps nothing
    assert acceptor_authentication(RemoteReadSettings()) is None
    with pytest.raises(ValueError, match="account"):
        RemoteReadSettings(password_file=users)


def test_who_asks_on_the_command_line_has_a_password_or_a_realm_that_gave_a_ticket(tmp_path: Path) -> None:
    password = tmp_path / "password"
    for user, file in (("", None), ("alice@CONTOSO.COM", None), ("alice@CONTOSO.COM", password), ("HOME\\a", password)):
        assert RemoteTarget.parse("host:1135", user, file) == RemoteTarget("host", 1135, user, file)
    for user, file in (("HOME\\alice", None), ("alice", None), ("", password)):
        with pytest.raises(typer.BadParameter, match="go together"):
            RemoteTarget.parse("host", user, file)
