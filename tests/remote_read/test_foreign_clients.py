"""impacket reads our queues: other NDR, other PDUs, other fragments, other NTLM than ours."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from impacket.dcerpc.v5.rpcrt import RPC_C_AUTHN_LEVEL_CONNECT, RPC_C_AUTHN_LEVEL_PKT_INTEGRITY, DCERPCException

from qmnode.model.stored_message import message_from_packet
from tests.lab.sddl import parse_sddl
from tests.lab.waiting import eventually
from tests.remote_read.conftest import QUEUE, serving
from tests.remote_read.foreign import QM2QM, QMCOMM, REMOTE_READ
from tests.remote_read.foreign_client import PEEK, Foreign, mapped_port, packet_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.remote_read.conftest import Remote

NAME = r"OS:SERVING\private$\orders"
INVALID_HANDLE, IO_TIMEOUT, ACCESS_DENIED = 0xC00E0007, 0xC00E001B, 0xC00E0025


async def in_thread(work: Callable[[], object]) -> object:
    return await asyncio.wait_for(asyncio.to_thread(work), 60)


@pytest.mark.parametrize("ndr64", [False, True], ids=["NDR", "NDR64"])
async def test_the_whole_sequence(remote: Remote, ndr64: bool) -> None:
    await remote.send(b"one", b"two", b"three")

    def work() -> None:
        foreign = Foreign(remote.address, remote.port, ndr64=ndr64)
        assert foreign.call("R_QMGetRTQMServerPort", fIP=0)["ErrorCode"] == remote.port
        assert foreign.call("R_QMGetRTQMServerPort", fIP=2)["ErrorCode"] == 0
        assert foreign.call("RemoteQMGetQMQMServerPort", dwPortType=1)["ErrorCode"] == remote.port
        assert foreign.call("RemoteQMGetQMQMServerPort", dwPortType=7)["ErrorCode"] == 0
        version = foreign.call("RemoteQmGetVersion")
        assert (version["pMajor"], version["pMinor"]) == (6, 1)
        assert foreign.open(NAME) == 0
        peeked = foreign.start(action=0x80000000)
        assert peeked["pphContext"]["uuid"] == bytes(16)
        assert message_from_packet(packet_of(peeked)).body == b"one"
        started = foreign.start()
        assert message_from_packet(packet_of(started)).body == b"one"
        assert foreign.end(started) == 0
        assert foreign.end(foreign.start(), acknowledge=False) == 0
        assert foreign.call("RemoteQMPurgeQueue", hQueue=foreign.handle + 1)["ErrorCode"] == INVALID_HANDLE
        assert foreign.call("RemoteQMCloseCursor", hQueue=foreign.handle, hCursor=9)["ErrorCode"] == INVALID_HANDLE
        closed = foreign.call("RemoteQMCloseQueue", pphContext__uuid=foreign.session)
        assert closed["ErrorCode"] == 0 and closed["pphContext"]["uuid"] == bytes(16)
        foreign.close()

    await in_thread(work)
    assert await remote.bodies() == [b"two", b"three"]


@pytest.mark.parametrize("fragment", [1, 7, 24, 100, 1000])
async def test_fragments_of_any_size(remote: Remote, fragment: int) -> None:
    body = bytes(range(256)) * 20
    await remote.send(body)

    def work() -> None:
        foreign = Foreign(remote.address, remote.port, fragment=fragment)
        assert foreign.open(NAME) == 0
        started = foreign.start()
        assert message_from_packet(packet_of(started)).body == body
        assert foreign.end(started) == 0
        foreign.close()

    await in_thread(work)


async def test_many_clients_share_a_queue(remote: Remote) -> None:
    bodies = [b"%d" % number for number in range(120)]
    await remote.send(*bodies)

    def take() -> list[bytes]:
        foreign = Foreign(remote.address, remote.port)
        assert foreign.open(NAME) == 0
        taken = []
        while True:
            started = foreign.start()
            if started["ErrorCode"]:
                assert started["ErrorCode"] == IO_TIMEOUT
                foreign.close()
                return taken
            taken.append(message_from_packet(packet_of(started)).body)
            assert foreign.end(started) == 0

    with ThreadPoolExecutor(12) as pool:
        loop = asyncio.get_running_loop()
        results = await asyncio.gather(*(loop.run_in_executor(pool, take) for _ in range(12)))
    assert sorted(body for taken in results for body in taken) == sorted(bodies)
    assert all(taken == sorted(taken, key=int) for taken in results)


async def test_a_waiting_receive_holds_up_nobody(remote: Remote) -> None:
    def wait() -> bytes:
        foreign = Foreign(remote.address, remote.port)
        assert foreign.open(NAME) == 0
        return message_from_packet(packet_of(foreign.start(timeout=30_000))).body

    def look() -> int:
        foreign = Foreign(remote.address, remote.port)
        assert foreign.open(NAME, PEEK) == 0
        return int(foreign.start(action=0x80000000)["ErrorCode"])

    waiting = asyncio.ensure_future(in_thread(wait))
    await eventually(lambda: any(one.reads for one in remote.server.queues._by_number.values()))
    assert await in_thread(look) == IO_TIMEOUT
    await remote.send(b"late")
    assert await waiting == b"late"


async def test_a_waiting_receive_is_cancelled_over_another_connection(remote: Remote) -> None:
    """impacket makes one call at a time on a connection, and an association of each."""
    foreign = await in_thread(lambda: Foreign(remote.address, remote.port))
    assert await in_thread(lambda: foreign.open(NAME)) == 0
    waiting = asyncio.ensure_future(in_thread(lambda: foreign.start(timeout=0xFFFFFFFF, request=7)))
    await eventually(lambda: any(one.reads for one in remote.server.queues._by_number.values()))

    def cancel(request: int) -> int:
        other = Foreign(remote.address, remote.port)
        cancelled = other.call(
            "RemoteQMCancelReceive", hQueue=foreign.handle, pQueue=foreign.handle, dwRequestID=request
        )
        other.close()
        return int(cancelled["ErrorCode"])

    assert await in_thread(lambda: cancel(8)) == 0xC00E0001
    assert await in_thread(lambda: cancel(7)) == 0
    started = await waiting
    assert (started["ErrorCode"], started["pphContext"]["uuid"]) == (0x400E03E9, bytes(16))
    await remote.send(b"one")
    assert message_from_packet(packet_of(await in_thread(foreign.start))).body == b"one"


async def test_the_endpoint_mapper_knows_its_interfaces_and_no_other(remote: Remote) -> None:
    mapper = remote.endpoint_mapper_port
    assert await in_thread(lambda: mapped_port(remote.address, mapper, QM2QM)) == remote.port
    assert await in_thread(lambda: mapped_port(remote.address, mapper, QMCOMM)) == remote.port
    assert await in_thread(lambda: mapped_port(remote.address, mapper, REMOTE_READ)) == remote.port
    with pytest.raises(DCERPCException, match="16c9a0d6"):
        await in_thread(lambda: mapped_port(remote.address, mapper, bytes(16) + QM2QM[16:]))


# Authentication


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.write_text("CONTOSO:alice:Secret-1\nCONTOSO:bob:Secret-2\n")
    path.chmod(0o600)
    return path


async def only_for(remote: Remote, sid: str) -> None:
    """Receiving is for one; all others are nobody."""
    await remote.manager.set_queue(QUEUE, security=parse_sddl(f"O:{sid}G:{sid}D:(A;;0xffff;;;{sid})").write())


ALICE = "S-1-5-21-1-2-3-1001"


@pytest.mark.parametrize("fragment", [0, 16], ids=["whole", "fragments"])
@pytest.mark.parametrize("ndr64", [False, True], ids=["NDR", "NDR64"])
async def test_ntlm_with_privacy_is_who_it_says(tmp_path: Path, users: Path, ndr64: bool, fragment: int) -> None:
    async with serving(tmp_path, users=users) as remote:
        await remote.manager.set_queue(QUEUE)
        await only_for(remote, ALICE)
        await remote.send(b"secret" * 1000, b"two")

        def work(user: str, password: str) -> list[int]:
            foreign = Foreign(
                remote.address, remote.port, user=user, password=password, domain="CONTOSO", ndr64=ndr64,
                fragment=fragment,
            )  # fmt: skip
            status = foreign.open(NAME)
            if status:
                return [status]
            started = foreign.start()
            assert message_from_packet(packet_of(started)).body == b"secret" * 1000
            return [status, foreign.end(started)]

        assert await in_thread(lambda: work("alice", "Secret-1")) == [0, 0]
        assert await in_thread(lambda: work("bob", "Secret-2")) == [ACCESS_DENIED]
        assert await in_thread(lambda: Foreign(remote.address, remote.port).open(NAME)) == ACCESS_DENIED
    """The messages that left are gone: alice acknowledged the first."""


async def test_nobody_cancels_what_somebody_waits_for(tmp_path: Path, users: Path) -> None:
    async with serving(tmp_path, users=users) as remote:

        def connect(user: str, password: str) -> Foreign:
            return Foreign(remote.address, remote.port, user=user, password=password, domain="CONTOSO")

        alice = await in_thread(lambda: connect("alice", "Secret-1"))
        assert await in_thread(lambda: alice.open(NAME)) == 0
        waiting = asyncio.ensure_future(in_thread(lambda: alice.start(timeout=60_000, request=7)))
        await eventually(lambda: any(one.reads for one in remote.server.queues._by_number.values()))
        for other in (lambda: connect("", ""), lambda: connect("bob", "Secret-2")):
            cancelled = await in_thread(
                lambda other=other: other().call(
                    "RemoteQMCancelReceive", hQueue=alice.handle, pQueue=alice.handle, dwRequestID=7
                )
            )
            assert cancelled["ErrorCode"] == INVALID_HANDLE
        await remote.send(b"one")
        assert message_from_packet(packet_of(await waiting)).body == b"one"


async def test_ntlm_with_integrity_is_taken_and_less_is_refused(tmp_path: Path, users: Path) -> None:
    async with serving(tmp_path, users=users) as remote:

        def work(level: int) -> int:
            return Foreign(
                remote.address, remote.port, user="alice", password="Secret-1", domain="CONTOSO", level=level
            ).open(NAME)

        assert await in_thread(lambda: work(RPC_C_AUTHN_LEVEL_PKT_INTEGRITY)) == 0
        with pytest.raises(DCERPCException):
            await in_thread(lambda: work(RPC_C_AUTHN_LEVEL_CONNECT))


async def test_a_wrong_password_is_nobody(tmp_path: Path, users: Path) -> None:
    async with serving(tmp_path, users=users) as remote:

        def work() -> int:
            return Foreign(remote.address, remote.port, user="alice", password="wrong", domain="CONTOSO").open(NAME)

        with pytest.raises((DCERPCException, OSError)):
            await in_thread(work)
        assert not remote.server.queues


@pytest.mark.parametrize("user", ["", "alice"], ids=["nobody", "alice"])
@pytest.mark.parametrize("ndr64", [False, True], ids=["NDR", "NDR64"])
async def test_one_connection_for_both_interfaces(tmp_path: Path, users: Path, user: str, ndr64: bool) -> None:
    """What alter_context adds comes with a security context of its own; both are alice's."""
    async with serving(tmp_path, users=users) as remote:
        if user:
            await only_for(remote, ALICE)
        await remote.send(b"one", b"two")

        def work() -> None:
            foreign = Foreign(
                remote.address, remote.port, user=user, password="Secret-1", domain="CONTOSO", one_connection=True,
                ndr64=ndr64,
            )  # fmt: skip
            assert len(remote.server.server.connections) == 1
            assert foreign.open(NAME) == 0
            for body in (b"one", b"two"):
                started = foreign.start()
                assert message_from_packet(packet_of(started)).body == body
                assert foreign.end(started) == 0
            assert foreign.call("R_QMGetRTQMServerPort", fIP=0)["ErrorCode"] == remote.port
            foreign.close()

        await in_thread(work)
    assert not remote.server.queues


async def test_nobody_in_particular_gets_what_anonymous_gets_and_not_what_everyone_does(remote: Remote) -> None:
    await remote.send(b"one")
    everyone = parse_sddl(f"O:{ALICE}G:{ALICE}D:(A;;0xffff;;;{ALICE})(A;;0x2;;;WD)").write()  # MQSEC_PEEK_MESSAGE
    await remote.manager.set_queue(QUEUE, security=everyone)
    assert await in_thread(lambda: Foreign(remote.address, remote.port).open(NAME, PEEK)) == ACCESS_DENIED
    anonymous = parse_sddl(f"O:{ALICE}G:{ALICE}D:(A;;0xffff;;;{ALICE})(A;;0x2;;;AN)").write()
    await remote.manager.set_queue(QUEUE, security=anonymous)
    assert await in_thread(lambda: Foreign(remote.address, remote.port).open(NAME, PEEK)) == 0
    assert await in_thread(lambda: Foreign(remote.address, remote.port).open(NAME)) == ACCESS_DENIED
