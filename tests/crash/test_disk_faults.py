"""A torn log, a full disk, a read-only disk, a disk that fails: a clear error, and nothing acknowledged is lost."""

import asyncio
import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from qmnode import Access, Message, MessageQueuingError, QueueManager
from qmnode.model.administration import NodeStatus
from qmnode.storage.errors import StoreError
from qmnode.structures.error_codes import ErrorCode
from tests.crash.disk import Disk
from tests.crash.node import Daemon
from tests.lab.nodes import NodeError
from tests.lab.waiting import holds

NAME = r".\private$\orders"
FORMAT = rf"DIRECT=OS:{NAME}"
LEDGER = r".\private$\ledger"


async def bodies(path: Path) -> list[bytes]:
    """All that is in the queue of the store in this directory."""
    async with QueueManager.open(path) as qm, await qm.open_queue(FORMAT) as queue:
        return [message.body for message in await queue.receive_many(99, timeout=0)]


# A torn log


@pytest.fixture
async def torn(tmp_path: Path) -> tuple[Path, Path, int, int]:
    """A store whose node is gone, its log, and where the record of the last write begins and ends in it."""
    path = tmp_path / "store"
    copy = tmp_path / "copy"
    async with QueueManager.open(path) as qm:
        await qm.create_queue(NAME)
        async with await qm.open_queue(FORMAT, Access.SEND) as queue:
            await queue.send(Message(b"acknowledged", recoverable=True))
            log = max(path.glob("*.log"))
            begin = log.stat().st_size
            await queue.send_many([Message(b"torn" * 100, recoverable=True) for _ in range(3)])
            end = log.stat().st_size
        copy.mkdir()
        for file in path.iterdir():
            if file.name != "LOCK":
                shutil.copy(file, copy)
    return copy, copy / log.name, begin, end


@pytest.mark.parametrize("left", [0.0, 0.001, 0.01, 0.3, 0.5, 0.99, 0.9999])
async def test_a_torn_last_record_is_a_write_that_never_was(torn: tuple[Path, Path, int, int], left: float) -> None:
    path, log, begin, end = torn
    os.truncate(log, min(end - 1, begin + int((end - begin) * left)))
    assert await bodies(path) == [b"acknowledged"]


async def test_a_last_record_that_became_zeros_is_a_write_that_never_was(torn: tuple[Path, Path, int, int]) -> None:
    path, log, begin, end = torn
    os.truncate(log, begin)
    os.truncate(log, end)
    assert await bodies(path) == [b"acknowledged"]


async def test_damage_in_a_record_is_said_and_costs_nothing(torn: tuple[Path, Path, int, int]) -> None:
    path, log, begin, _ = torn
    whole = log.read_bytes()
    log.write_bytes(whole[: begin - 20] + b"damage" + whole[begin - 14 :])
    with pytest.raises(StoreError, match=r"cannot be opened.*[Cc]orrupt") as error:
        await bodies(path)
    assert error.value.code is ErrorCode.MQ_ERROR_MESSAGE_STORAGE_FAILED
    log.write_bytes(whole)
    assert len(await bodies(path)) == 4


# A disk that refuses


@pytest.fixture(params=["inline", "thread"])
def daemon(request: pytest.FixtureRequest, tmp_path: Path, shim: Path) -> Iterator[Daemon]:
    daemon = Daemon(Disk(tmp_path / "disk", shim), managed=True, storage={"sync": request.param})
    yield daemon
    daemon.kill()


FAULTS = [
    pytest.param({"writes": errno.ENOSPC}, id="full"),
    pytest.param({"writes": errno.EROFS}, id="read-only"),
    pytest.param({"writes": errno.EIO}, id="fails to write"),
    pytest.param({"syncs": errno.EIO}, id="fails to sync"),
]


async def status(daemon: Daemon) -> NodeStatus:
    async with await daemon.connect() as qm:
        return await qm.status()


async def works(daemon: Daemon) -> bool:
    """Whether it answers, and stores."""
    try:
        return not (await status(daemon)).storage_failure
    except MessageQueuingError:
        return False  # between two openings of the store nobody listens


async def says_that_it_failed(daemon: Daemon) -> None:
    """In the command, its exit code, the health check and the metrics."""
    told = await asyncio.to_thread(daemon.command, "status", "--json")
    assert told.returncode == 1
    assert "nothing acknowledged is lost" in told.stderr
    document = json.loads(told.stdout)
    assert document["storage_failure"] in told.stderr
    assert any(warning.startswith("disk: ") for warning in document["warnings"])
    transport = httpx.AsyncHTTPTransport(uds=str(daemon.management_socket))
    async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
        assert (await client.get("/healthz")).status_code == 503
        metrics = (await client.get("/metrics")).text
    assert "qmnode_store_failed 1.0" in metrics
    assert 'qmnode_trouble{what="disk"} 1.0' in metrics


async def prepare(daemon: Daemon) -> None:
    """Ten messages are acknowledged."""
    async with await daemon.connect() as qm:
        await qm.create_queue(NAME)
        await qm.create_queue(LEDGER, transactional=True)
        async with await qm.open_queue(FORMAT, Access.SEND) as queue:
            for number in range(10):
                await queue.send(Message(b"%d" % number, recoverable=True))


async def refused(daemon: Daemon) -> list[MessageQueuingError]:
    """What each operation that needs the disk answers."""
    errors = []
    async with await daemon.connect() as qm:
        sender, reader = await qm.open_queue(FORMAT, Access.SEND), await qm.open_queue(FORMAT)
        ledger = await qm.open_queue(rf"DIRECT=OS:{LEDGER}", Access.SEND)
        for call in (
            lambda: sender.send(Message(b"refused", recoverable=True)),
            lambda: sender.send_many([Message(b"refused", recoverable=True)] * 3),
            lambda: ledger.send(Message(b"refused"), transaction="single"),
            lambda: reader.receive(timeout=0),
            lambda: reader.peek(timeout=0),
            lambda: qm.create_queue(r".\private$\refused"),
        ):
            with pytest.raises(MessageQueuingError) as error:
                await call()
            errors.append(error.value)
    return errors


@pytest.mark.public_report("facebook/rocksdb#11643", "facebook/rocksdb#9762")
@pytest.mark.servers
@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_disk_that_refuses_costs_nothing_that_was_acknowledged(daemon: Daemon, fault: dict[str, int]) -> None:
    await daemon.start_again()
    await prepare(daemon)
    daemon.disk.fail(**fault)
    for error in await refused(daemon):
        assert error.code is ErrorCode.MQ_ERROR_MESSAGE_STORAGE_FAILED
        assert "goes on by itself" in error.sentence
    assert "the message store failed" in daemon.said()
    assert (await status(daemon)).storage_failure
    await says_that_it_failed(daemon)
    daemon.disk.fail()
    await holds(lambda: works(daemon), 60, "the node resumes")
    assert daemon.running
    async with await daemon.connect() as qm:
        reader = await qm.open_queue(FORMAT)
        found = [message.body for message in await reader.receive_many(99, timeout=0)]
        # What was refused may be there, whole: it was written, and only its sync failed.
        assert found[:10] == [b"%d" % number for number in range(10)]
        assert found[10:] in ([], [b"refused"])
        async with await qm.open_queue(FORMAT, Access.SEND) as sender:
            await sender.send(Message(b"again", recoverable=True))
        assert (await reader.receive(timeout=0)).body == b"again"
    assert await asyncio.to_thread(daemon.stop) == 0
    assert "Traceback" not in daemon.said()


@pytest.mark.servers
@pytest.mark.slow
async def test_a_node_whose_disk_is_full_stops_cleanly_and_has_all_at_the_next_start(daemon: Daemon) -> None:
    await daemon.start_again()
    await prepare(daemon)
    daemon.disk.fail(writes=errno.ENOSPC)
    await refused(daemon)
    assert await asyncio.to_thread(daemon.stop) == 0
    assert "Traceback" not in daemon.said()
    daemon.disk.fail()
    daemon.disk.cut()
    await daemon.start_again()
    async with await daemon.connect() as qm, await qm.open_queue(FORMAT) as reader:
        found = [message.body for message in await reader.receive_many(99, timeout=0)]
        assert found[:10] == [b"%d" % number for number in range(10)]
    assert not (await status(daemon)).lost_writes


@pytest.mark.servers
@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
async def test_a_node_that_starts_on_a_disk_that_refuses_says_so(daemon: Daemon, code: int) -> None:
    await daemon.start_again()
    await prepare(daemon)
    daemon.kill()
    daemon.disk.fail(writes=code)
    with pytest.raises(NodeError) as error:
        await daemon.start_again()
    assert "MQ_ERROR_MESSAGE_STORAGE_FAILED" in str(error.value)
    assert os.strerror(code) in str(error.value)
    assert "Traceback" not in str(error.value)
    daemon.disk.fail()
    await daemon.start_again()
    async with await daemon.connect() as qm, await qm.open_queue(FORMAT) as reader:
        assert len(await reader.receive_many(99, timeout=0)) == 10
