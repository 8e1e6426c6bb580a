"""Stores that earlier versions wrote open, with every message; what is broken in one of them hides nothing else."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import subprocess
import tarfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner

from qmnode import Access, Message, QueueManager
from qmnode.administration.asker import Asker
from qmnode.administration.browsing import browse
from qmnode.administration.dead_letters import dead_letters
from qmnode.commands.command_table import app
from qmnode.directory.file import FileDirectory
from qmnode.errors import MessageQueuingError
from qmnode.management.message_documents import BodyForm, MessageDocument
from qmnode.model.positions import SystemClock
from qmnode.model.queue import OutgoingQueue
from qmnode.storage.layout import LARGE_MESSAGES, OPERATIONS
from qmnode.storage.verification import verify
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import guid_from_text
from tests.lab.nodes import COMMAND, PROJECT
from tests.lab.waiting import eventually
from tests.transport.conftest import loopback_address, settings_of

RELEASE = "338d108"
STORE = Path(__file__).parent / "stores" / f"{RELEASE}.tar.xz"
ORDERS = r"DIRECT=OS:.\private$\orders"
EXACT = r"DIRECT=OS:.\private$\exact"
MALFORMED = ["malformed: no null", "malformed: two bytes", "malformed: odd", "malformed: more", "malformed: no name"]
DAVE = "PRIVATE=00007eda-0000-0040-8000-000000000003\\00000009"
CONTENTS: dict[str, list[str]] = {
    ORDERS: [
        "received too", "priority 3", "größe ☃ 𝄞", "empty", "large", "expires late", "all headers", *MALFORMED,
        "behind them", "signed", "priority 0",
    ],
    ORDERS + ";later": ["moved"],
    ORDERS + ";JOURNAL": ["priority 7", "received"],
    EXACT: ["transactional 1", "transactional 2", "encrypted for alice", "", "", ""],
    EXACT + ";JOURNAL": ["transactional 0"],
    "DIRECT=OS:.\\SYSTEM$;JOURNAL": ["received", "received too"],
    "DIRECT=OS:.\\SYSTEM$;DEADLETTER": ["expired"],
    "DIRECT=OS:.\\SYSTEM$;DEADXACT": ["expired in a transaction"],
    r"DIRECT=OS:.\private$\undelivered": ["too late"],
    r"DIRECT=TCP:127.214.31.99\private$\nobody": ["nobody 0", "nobody 1", "nobody 2"],
    r"DIRECT=TCP:127.214.31.99\private$\nobody-exact": ["nobody-exact 0", "nobody-exact 1", "nobody-exact 2"],
    DAVE: ["passes: no null", "passes: sound"],
}  # fmt: skip


class ThatDay(SystemClock):
    """The time goes on from when the store was written: some of its messages may not wait for more than four days."""

    def __init__(self) -> None:
        with tarfile.open(STORE) as archive:
            self._offset = max(member.mtime for member in archive) - super().time()

    def time(self) -> float:
        return super().time() + self._offset


def opened(
    path: Path, name: str, address: str, directory: FileDirectory | None = None
) -> AbstractAsyncContextManager[QueueManager]:
    return QueueManager.open(path, settings_of(name, address), clock=ThatDay(), directory=directory)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tarfile.open(STORE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "store"


@pytest.fixture
async def node(folder: Path) -> AsyncIterator[QueueManager]:
    async with opened(folder, "ALICE", loopback_address()) as node:
        yield node


async def messages(node: QueueManager, name: str) -> list[Message]:
    access = Access.PEEK_ADMIN if name.startswith(("DIRECT=TCP", "PRIVATE")) else Access.PEEK
    async with await node.open_queue(name, access) as queue:
        return [message async for message in browse(queue)]


@pytest.mark.parametrize("name", CONTENTS)
async def test_every_message_is_there(node: QueueManager, name: str) -> None:
    assert [message.label for message in await messages(node, name)] == CONTENTS[name]


async def test_nothing_else_is_there(node: QueueManager) -> None:
    outgoing = sum(q.message_count for q in node.queue_collection.values() if isinstance(q, OutgoingQueue))
    listed = sum(len(labels) for name, labels in CONTENTS.items() if name.startswith(("DIRECT=TCP", "PRIVATE")))
    assert outgoing == listed
    awaiting = [q for q in node.queue_collection.values() if q.pathname.endswith("awaiting_final_ack$")]
    assert [message.message_count for message in awaiting] == [2]
    # What was prepared for a coordinator that no release can speak to was never committed: it is aborted.
    assert await node.list_transactions() == []
    assert "in doubt" not in [message.label for message in await messages(node, EXACT)]


async def test_a_message_that_cannot_be_read_whole_is_listed_with_the_reason(node: QueueManager) -> None:
    found = {message.label: message for message in await messages(node, ORDERS)}
    assert [label for label, message in found.items() if message.unreadable] == MALFORMED
    for label in MALFORMED:
        message = found[label]
        assert "ProviderInfo" in message.unreadable
        assert message.body == label.removeprefix("malformed: ").encode()
        document = json.loads(MessageDocument.of(message, BodyForm.TEXT).model_dump_json())
        assert document["unreadable"] == message.unreadable
        assert base64.b64decode(document["packet"]) == message.packet
    assert found["all headers"].soap_header == "soap header"
    assert found["all headers"].authentication_provider_name == "A provider"


async def test_it_is_received_moved_and_skipped_like_any_other(node: QueueManager) -> None:
    async with await node.open_queue(ORDERS) as queue, await node.open_queue(ORDERS + ";later", Access.MOVE) as later:
        cursor = queue.cursor()
        seen = [(await cursor.peek(0)).label]
        while True:
            try:
                seen.append((await cursor.peek_next(0)).label)
            except MessageQueuingError as error:
                assert error.code in (ErrorCode.MQ_ERROR_IO_TIMEOUT, ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND)
                break
        assert seen == CONTENTS[ORDERS]
        unreadable = [message async for message in browse(queue) if message.unreadable]
        await queue.move(unreadable[0].lookup_identifier, later)
        taken = await queue.receive_by_lookup_id(unreadable[1].lookup_identifier)
        assert taken.unreadable
        rest = await queue.receive_many(100)
        assert [message.label for message in rest] == [one for one in CONTENTS[ORDERS] if one not in MALFORMED[:2]]
    assert [message.label for message in await messages(node, ORDERS + ";later")] == ["moved", MALFORMED[0]]


async def test_restore_reads_a_back_up_of_an_older_release_and_jobs_work_on_it(folder: Path, tmp_path: Path) -> None:
    restored = CliRunner().invoke(app, ["restore", str(folder), "--data", str(tmp_path / "restored")])
    assert restored.exit_code == 0, restored.output
    assert verify(tmp_path / "restored").format_version < OPERATIONS
    async with QueueManager.open(
        tmp_path / "restored", settings_of("ALICE", loopback_address()), clock=ThatDay()
    ) as node:
        job = await node.operations.start_job(Asker("operator"), "move", ["orders"], target="orders;moved")
        async with asyncio.timeout(60):
            while (job := await node.operations.show_job(Asker("operator"), job["job"]))["state"] == "running":
                await asyncio.sleep(0.01)
        moved = [message.label for message in await messages(node, ORDERS + ";moved")]
    assert (job["state"], job["failed"], moved) == ("done", 0, CONTENTS[ORDERS])
    assert verify(tmp_path / "restored").format_version == LARGE_MESSAGES  # a large one was moved


async def test_the_older_release_itself_refuses_a_store_with_a_job(tmp_path: Path) -> None:
    """Releases that only know earlier formats refuse it when they start, and name it when they verify."""
    source = subprocess.run(["git", "archive", RELEASE, "qmnode"], cwd=PROJECT, capture_output=True, check=False)
    if source.returncode:
        pytest.skip("this copy of the project has no history")
    with tarfile.open(fileobj=io.BytesIO(source.stdout)) as archive:
        archive.extractall(tmp_path / "release", filter="data")
    async with QueueManager.open(tmp_path / "store") as node:
        await node.create_queue(r".\private$\orders")
        await node.operations.start_job(Asker("operator"), "delete", ["orders"])
    config = tmp_path / "node.yaml"
    config.write_text(json.dumps({"data": str(tmp_path / "store"), "local": {"socket": str(tmp_path / "socket")}}))

    def older(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "release")}
        return subprocess.run(
            [*COMMAND, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
        )

    started, verified = older("run", "--config", str(config)), older("verify", "--data", str(tmp_path / "store"))

    assert started.returncode == 1 and "Traceback" not in started.stderr
    assert "has format 3, and this program reads up to 2: use the program that wrote it" in started.stderr
    assert verified.returncode == 1 and "format 3 is newer than this program" in verified.stdout


async def test_dead_letters_are_all_listed(node: QueueManager) -> None:
    assert [message.label async for message in dead_letters(node)] == ["expired", "expired in a transaction"]


def test_verify_names_what_cannot_be_read_and_nothing_else(folder: Path) -> None:
    result = CliRunner().invoke(app, ["verify", "--data", str(folder), "--json"])
    findings = json.loads(result.stdout)["findings"]
    assert len(findings) == len(MALFORMED) + 1
    assert all("ProviderInfo" in finding["sentence"] for finding in findings)
    assert {finding["where"].rpartition(" in ")[2] for finding in findings} == {r"ALICE\private$\orders", DAVE}
    assert verify(folder).messages == 40


async def test_what_the_next_hop_would_refuse_holds_up_nothing_behind_it(folder: Path) -> None:
    """It goes to the dead-letter queue when a session broke over it, and the message behind it arrives."""
    identifiers = {"ALICE": "00001ca1-0000-0040-8000-000000000001", "DAVE": "00007eda-0000-0040-8000-000000000003"}
    address = loopback_address()
    managers = [
        {
            "identifier": one,
            "computer_name": name,
            "qualified_computer_name": address if name == "DAVE" else "127.9.9.9",
        }
        for name, one in identifiers.items()
    ]
    file = folder.parent / "directory.yaml"
    file.write_text(json.dumps({"queue_managers": managers}))
    async with AsyncExitStack() as stack:
        dave = await stack.enter_async_context(
            QueueManager.open(
                folder.parent / "dave", settings_of("DAVE", address), clock=ThatDay(), directory=FileDirectory(file)
            )
        )
        dave.adopt_identifier(guid_from_text(identifiers["DAVE"]))
        number = 0
        while number < 9:
            await dave.create_queue(rf".\private$\q{number}")
            number = (await dave.queue(rf".\private$\q{number}")).private_queue_number
        await dave.network.start()
        node = await stack.enter_async_context(
            QueueManager.open(
                folder, settings_of("ALICE", loopback_address()), clock=ThatDay(), directory=FileDirectory(file)
            )
        )
        before = node.queue_collection.dead_letter.message_count
        await node.network.start()
        await eventually(lambda: sum(queue.message_count for queue in dave.queue_collection.values()) == 1)
        await eventually(lambda: node.queue_collection.dead_letter.message_count == before + 1)
        letters = await messages(node, "DIRECT=OS:.\\SYSTEM$;DEADLETTER")
        assert [letter.label for letter in letters if letter.unreadable] == ["passes: no null"]


async def test_a_node_goes_on_where_the_old_one_stopped(folder: Path) -> None:
    """It delivers what waited, and what a neighbour would refuse for its form holds up nothing behind it."""
    async with AsyncExitStack() as stack:
        with structlog.testing.capture_logs():
            address = "127.214.31.99"
            other = await stack.enter_async_context(opened(folder.parent / "o", "O", address))
            await other.create_queue(r".\private$\nobody")
            await other.create_queue(r".\private$\nobody-exact", transactional=True)
            await other.network.start()
            node = await stack.enter_async_context(opened(folder, "ALICE", loopback_address()))
            await node.network.start()
            await eventually(lambda: other.names.find(r".\private$\nobody").message_count == 3)
            await eventually(lambda: other.names.find(r".\private$\nobody-exact").message_count == 3)
        for name in ("nobody", "nobody-exact"):
            found = await messages(other, rf"DIRECT=OS:.\private$\{name}")
            assert [message.label for message in found] == [f"{name} {number}" for number in range(3)]
