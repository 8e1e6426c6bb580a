"""Ways around the doors: what a denied principal leaves behind, and jobs that outlive the rights of their owners."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest

from qmnode import Access, Message, MessageQueuingError, QueueManager
from qmnode.administration.access_control import Change, change_access
from qmnode.administration.asker import Asker
from qmnode.administration.operation_rights import GuardedQueueManager
from qmnode.directory.port import DirectoryOperationError, DirectoryOperationResult, WorkgroupDirectory
from qmnode.model.positions import LANE_SHIFT
from qmnode.security.principals import ANONYMOUS_PRINCIPAL, Principals
from qmnode.settings.node import QuotaSettings, Settings
from qmnode.settings.remote_read import RemoteReadSettings
from qmnode.settings.security import SecuritySettings
from qmnode.structures.error_codes import ErrorCode
from tests.lab.waiting import holds
from tests.model.conftest import FakeClock

OWNER, STRANGER = 60_001, 60_002
ORDERS, MINE = r".\private$\orders", r".\private$\mine"


async def deny(node: QueueManager, owner: int, queue: str, denied: int) -> None:
    user = str(node.principals.of_unix_user(denied).user)
    await change_access(as_user(node, owner), queue, Change.DENY, user, ["full-control"])


def as_user(node: QueueManager, user: int) -> GuardedQueueManager:
    return GuardedQueueManager(node, node.principals.of_unix_user(user))


def asker(node: QueueManager, user: int) -> Asker:
    return Asker(f"uid:{user}", principal=node.principals.of_unix_user(user))


async def fill(node: QueueManager, queue: str, count: int) -> None:
    async with await node.open_queue(f"DIRECT=OS:{queue}", Access.SEND) as opened:
        await opened.send_many([Message(b"%d" % number, recoverable=True) for number in range(count)])


async def ended(node: QueueManager, number: int, who: Asker) -> dict[str, object]:
    job: dict[str, object] = {}

    async def is_over() -> bool:
        job.update(await node.operations.show_job(who, number))
        return job["state"] != "running"

    await holds(is_over, 30, f"job {number} ends")
    return job


async def test_changing_a_journal_is_refused_and_costs_no_queue_its_messages(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path) as node:
        await node.create_queue(ORDERS, journaling=True)
        for name in (f"{ORDERS};journal", f"DIRECT=OS:{ORDERS};JOURNAL"):
            with pytest.raises(MessageQueuingError) as refused:
                await node.set_queue(name, label="x")
            assert refused.value.code == ErrorCode.MQ_ERROR_PROPERTY_NOTALLOWED
        # What an early version stored when a journal was changed
        journal = node.names.find(f"{ORDERS};journal")
        node.store.put_queue(journal.queue_id, journal.definition())
        await asyncio.to_thread(node.store.flush)
    for number in range(2):
        async with QueueManager.open(tmp_path) as node:
            if not number:
                await node.create_queue(MINE)
                await fill(node, MINE, 3)
            assert node.names.find(MINE).queue_id % 2 == 0
            assert (await node.queue(MINE)).message_count == 3


async def test_a_denied_principal_leaves_no_queue_behind(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path) as node:
        await as_user(node, OWNER).create_queue(ORDERS)
        await deny(node, OWNER, ORDERS, STRANGER)
        before = set(node.queue_collection)
        stranger = as_user(node, STRANGER)
        nobody = GuardedQueueManager(node, ANONYMOUS_PRINCIPAL)
        for opener, name, access in (
            (stranger, f"DIRECT=OS:{ORDERS};late", Access.MOVE),
            (nobody, f"CONNECTOR={uuid.uuid4()}", Access.RECEIVE),
            (nobody, r"DIRECT=TCP:192.0.2.1\private$\x", Access.RECEIVE),
        ):
            with pytest.raises(MessageQueuingError) as refused:
                await opener.open_queue(name, access)
            assert refused.value.code == ErrorCode.MQ_ERROR_ACCESS_DENIED, name
        assert set(node.queue_collection) == before
        async with await as_user(node, OWNER).open_queue(r"DIRECT=OS:elsewhere\private$\x", Access.SEND):
            pass


class Silent(WorkgroupDirectory):
    async def read_directory(self, *_: object, **__: object) -> object:  # type: ignore[override]
        raise DirectoryOperationError(DirectoryOperationResult.DIRECTORY_NOT_CONNECTED, "it does not answer")


async def test_a_remote_user_is_nobody_in_particular_only_where_no_directory_could_say_more() -> None:
    with pytest.raises(MessageQueuingError) as refused:
        await Principals(SecuritySettings(), Silent()).of_remote_user("LAB\\mallory")
    assert refused.value.code == ErrorCode.MQ_ERROR_NO_DS
    assert await Principals(SecuritySettings(), WorkgroupDirectory()).of_remote_user("LAB\\mallory")


@pytest.mark.parametrize("restarts", [False, True], ids=["resumed", "restarted"])
async def test_a_job_ends_where_its_owner_is_denied(tmp_path: Path, restarts: bool) -> None:
    async with QueueManager.open(tmp_path) as node:
        for user, queue in ((STRANGER, MINE), (OWNER, ORDERS)):
            await as_user(node, user).create_queue(queue)
        allowed = str(node.principals.of_unix_user(STRANGER).user)
        await change_access(as_user(node, OWNER), ORDERS, Change.ALLOW, allowed, ["full-control"])
        await fill(node, ORDERS, 300)
        who = asker(node, STRANGER)
        job = await node.operations.start_job(who, "move", ["orders"], target="mine")
        await node.operations.control_job(who, job["job"], "pause")
        moved = (await node.queue(MINE)).message_count
        await change_access(as_user(node, OWNER), ORDERS, Change.DENY, allowed, ["full-control"])
        if not restarts:
            with pytest.raises(MessageQueuingError) as refused:
                await node.operations.control_job(who, job["job"], "resume")
            assert refused.value.code == ErrorCode.MQ_ERROR_ACCESS_DENIED
            assert (await node.queue(MINE)).message_count == moved
            undo = await node.operations.control_job(who, job["job"], "undo") if moved else None
            assert undo is None or (await ended(node, undo["job"], who))["done"] == 0
            return
    async with QueueManager.open(tmp_path) as node:
        who = asker(node, STRANGER)
        with pytest.raises(MessageQueuingError):
            await node.operations.control_job(who, job["job"], "resume")
        assert (await node.queue(ORDERS)).message_count == 300 - moved


async def test_a_job_takes_nothing_from_a_later_queue_that_has_the_number_of_an_old_one(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path) as node:
        for queue in (MINE, ORDERS):
            await as_user(node, STRANGER).create_queue(queue)
        who, next_one = asker(node, STRANGER), node.sequence.value + 1
        chosen = [priority << LANE_SHIFT | next_one + place for priority in range(8) for place in range(1, 1200)]
        job = await node.operations.start_job(who, "move", ["orders"], lookups=chosen, target="mine")
        await node.operations.control_job(who, job["job"], "pause")
        old = node.names.find(ORDERS).queue_id
        await as_user(node, STRANGER).delete_queue(ORDERS)
    async with QueueManager.open(tmp_path) as node:
        await as_user(node, OWNER).create_queue(ORDERS)
        assert node.names.find(ORDERS).queue_id == old
        await fill(node, ORDERS, 3)
        try:
            await node.operations.control_job(asker(node, STRANGER), job["job"], "resume")
            await ended(node, job["job"], asker(node, STRANGER))
        except MessageQueuingError as error:
            assert error.code == ErrorCode.MQ_ERROR_ACCESS_DENIED
        assert (await node.queue(ORDERS)).message_count == 3


async def test_an_asker_has_a_bounded_number_of_jobs(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path) as node:
        await as_user(node, OWNER).create_queue(ORDERS)
        with pytest.raises(MessageQueuingError, match="jobs that have not ended"):
            for _ in range(100):
                job = await node.operations.start_job(asker(node, OWNER), "delete", ["orders"], lookups=[1] * 100)
                await node.operations.control_job(asker(node, OWNER), job["job"], "pause")
        await node.operations.control_job(asker(node, OWNER), 1, "cancel")
        assert len(await node.operations.list_jobs(asker(node, OWNER))) == 20


async def test_a_queue_has_a_bounded_number_of_subqueues(tmp_path: Path) -> None:
    settings = Settings(computer_name="ALPHA", quotas=QuotaSettings(subqueues=3))
    async with QueueManager.open(tmp_path, settings) as node:
        await as_user(node, OWNER).create_queue(ORDERS)
        stranger = as_user(node, STRANGER)
        for number in range(3):
            await (await stranger.open_queue(f"DIRECT=OS:{ORDERS};s{number}", Access.MOVE)).close()
        before = set(node.queue_collection)
        for refused in (
            lambda: stranger.open_queue(f"DIRECT=OS:{ORDERS};s3", Access.MOVE),
            lambda: as_user(node, OWNER).create_queue(f"{ORDERS};s3"),
        ):
            with pytest.raises(MessageQueuingError, match=r"quotas\.subqueues"):
                await refused()
        assert set(node.queue_collection) == before
        await (await stranger.open_queue(f"DIRECT=OS:{ORDERS};S1", Access.MOVE)).close()  # one that there is


async def test_the_node_reads_elsewhere_with_its_account_for_its_readers_alone(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("Secret-1\n")
    password.chmod(0o600)
    reading = RemoteReadSettings(
        endpoint_mapper_port=0, port=1, account="CONTOSO\\node", password_file=password, mechanism="ntlm",
        readers=(f"uid:{OWNER}",),
    )  # fmt: skip
    async with QueueManager.open(tmp_path / "store", Settings(computer_name="ALPHA", remote_read=reading)) as node:
        codes = {}
        for user in (OWNER, STRANGER, 0):
            with pytest.raises(MessageQueuingError) as refused:
                await as_user(node, user).open_queue(r"DIRECT=OS:127.0.0.77\private$\orders", Access.PEEK)
            codes[user] = refused.value.code
        unreachable = ErrorCode.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE
        assert codes == {OWNER: unreachable, STRANGER: ErrorCode.MQ_ERROR_ACCESS_DENIED, 0: unreachable}


def asking(queue: str) -> Message:
    """A message whose arrival is acknowledged to a queue."""
    return Message(b"x", recoverable=True, acknowledgements_requested=1, administration_queue_format_name=queue)


async def test_acknowledgments_are_asked_for_only_where_their_sender_may_send(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path) as node:
        await as_user(node, OWNER).create_queue(ORDERS)
        await as_user(node, STRANGER).create_queue(MINE)
        await deny(node, OWNER, ORDERS, STRANGER)
        number = (await node.queue(ORDERS)).private_queue_number
        names = [f"DIRECT=OS:{ORDERS}", f"PRIVATE={uuid.UUID(bytes_le=node.identifier)}\\{number:08x}"]
        async with await as_user(node, STRANGER).open_queue(f"DIRECT=OS:{MINE}", Access.SEND) as mine:
            several = asking("").copy(administration_multi_queue_format_name=f"DIRECT=OS:{MINE},{names[0]}")
            for message in (asking(names[0]), asking(names[1]), several):
                with pytest.raises(MessageQueuingError, match=r"may not send to .*orders") as refused:
                    await mine.send_many([Message(b"plain"), message])
                assert refused.value.code == ErrorCode.MQ_ERROR_ACCESS_DENIED
            assert (await node.queue(MINE)).message_count == 0
            await mine.send(asking(f"DIRECT=OS:{MINE}"))
            await mine.send(asking(r"DIRECT=OS:.\private$\nowhere"))
        assert (await node.queue(MINE)).message_count == 3
        async with await as_user(node, OWNER).open_queue(f"DIRECT=OS:{MINE}", Access.SEND) as out:
            await out.send(asking(names[0]))
        assert (await node.queue(ORDERS)).message_count == 1


async def test_an_acknowledgment_does_not_reach_a_closed_queue_that_was_made_later(tmp_path: Path) -> None:
    clock = FakeClock()
    async with QueueManager.open(tmp_path, clock=clock) as node:
        await as_user(node, STRANGER).create_queue(MINE)
        message = asking(f"DIRECT=OS:{ORDERS}").copy(acknowledgements_requested=2)  # when it is received
        async with await as_user(node, STRANGER).open_queue(f"DIRECT=OS:{MINE}", Access.SEND) as mine:
            await mine.send_many([message, message])
        clock.advance(5)
        await as_user(node, OWNER).create_queue(ORDERS)
        async with await as_user(node, STRANGER).open_queue(f"DIRECT=OS:{MINE}") as mine:
            await mine.receive(timeout=0)  # everybody may send to the new queue
            assert (await node.queue(ORDERS)).message_count == 1
            await change_access(as_user(node, OWNER), ORDERS, Change.DENY, "everyone", ["send-message"])
            await mine.receive(timeout=0)
        assert (await node.queue(ORDERS)).message_count == 1
