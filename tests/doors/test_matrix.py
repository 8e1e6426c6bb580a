"""The door matrix: each operation, as each principal, on queues with each descriptor, through doors that really listen.

The expected outcome of a cell comes from the entries that the queue was given, by :func:`allowed`, and from no code of
the product. Operations are those that there are: one without a row fails the test.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from qmnode import Access, MessageQueuingError, QueueManager
from qmnode.administration.operation_rights import NEEDED
from qmnode.directory.file import FileDirectory
from qmnode.directory.port import Queue
from qmnode.local import values
from qmnode.local.connection import Connection, Line
from qmnode.local.frames import GREETING, FrameKind
from qmnode.local.remote import RemoteQueueManager
from qmnode.local.server import LocalServer
from qmnode.model.api import QueueManagerApi
from qmnode.model.public_queues import PublishedQueues
from qmnode.security.principals import unix_group, unix_user
from qmnode.settings.node import LocalSettings, Settings
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.security_descriptor import (
    BUILTIN_ADMINISTRATORS,
    EVERYONE,
    LOCAL,
    Acl,
    SecurityDescriptor,
    Sid,
    allow,
    deny,
)
from qmnode.structures.security_descriptor import QueueAccess as Right
from tests.doors.unix import connected_as

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users")

ALL = int(Right.MQSEC_QUEUE_GENERIC_ALL)
OWNER, MEMBER, STRANGER, NOBODY_ELSE = 60_001, 60_002, 60_003, 60_004
GROUP, OTHER_GROUP = 60_100, 60_101
DECLARED = Sid.from_text("S-1-5-21-7-8-9-1001")
UNKNOWN = Sid.from_text("S-1-5-21-9-9-9-500")
PRINCIPALS: dict[str, tuple[int, tuple[int, ...], frozenset[Sid]]] = {
    "owner": (OWNER, (OWNER,), frozenset({unix_user(OWNER)})),
    "member": (MEMBER, (MEMBER, GROUP), frozenset({unix_user(MEMBER), unix_group(GROUP)})),
    "stranger": (STRANGER, (STRANGER, OTHER_GROUP), frozenset({unix_user(STRANGER), unix_group(OTHER_GROUP)})),
    "declared": (NOBODY_ELSE, (NOBODY_ELSE,), frozenset({unix_user(NOBODY_ELSE), DECLARED})),
    "root": (0, (0,), frozenset({unix_user(0), BUILTIN_ADMINISTRATORS})),
}
Entries = list[tuple[bool, Sid, int]]
SEE_AND_SEND = int(Right.MQSEC_GET_QUEUE_PROPERTIES | Right.MQSEC_GET_QUEUE_PERMISSIONS | Right.MQSEC_WRITE_MESSAGE)
DESCRIPTORS: dict[str, Entries] = {
    "default": [(True, EVERYONE, SEE_AND_SEND), (True, unix_user(OWNER), ALL)],
    "nobody": [],
    "denied": [(False, EVERYONE, ALL), (True, EVERYONE, ALL), (True, unix_user(OWNER), ALL)],
    "open": [(True, EVERYONE, ALL)],
    "applications": [(True, LOCAL, ALL)],
    "group": [(True, unix_group(GROUP), ALL)],
    "all but a group": [(False, unix_group(GROUP), ALL), (True, EVERYONE, ALL)],
    "declared": [(True, DECLARED, ALL)],
    "all but a declared one": [(False, DECLARED, ALL), (True, EVERYONE, ALL)],
    "unknown": [(True, UNKNOWN, ALL)],
    "administrators": [(True, BUILTIN_ADMINISTRATORS, ALL)],
    **{
        f"{'only' if allows else 'all but'} {right.name}": (
            [(True, EVERYONE, int(right))] if allows else [(False, EVERYONE, int(right)), (True, EVERYONE, ALL)]
        )
        for right in Right
        for allows in (True, False)
    },
}
REPAIR = int(
    Right.MQSEC_GET_QUEUE_PROPERTIES
    | Right.MQSEC_GET_QUEUE_PERMISSIONS
    | Right.MQSEC_CHANGE_QUEUE_PERMISSIONS
    | Right.MQSEC_TAKE_QUEUE_OWNERSHIP
)


def allowed(entries: Entries, principal: str, rights: int, *, repairs: bool) -> bool:
    """Whether the entries give the rights: each right as the first entry says that is about the principal."""
    sids = PRINCIPALS[principal][2] | {EVERYONE, LOCAL}
    if repairs and principal == "root" and not rights & ~REPAIR:
        return True
    implicit = int(Right.MQSEC_GET_QUEUE_PERMISSIONS | Right.MQSEC_CHANGE_QUEUE_PERMISSIONS)
    missing = rights & ~(implicit if principal == "owner" else 0)
    for bit in (1 << number for number in range(20)):
        if missing & bit:
            verdict = next((allows for allows, sid, mask in entries if sid in sids and mask & bit), False)
            if not verdict:
                return False
    return True


@dataclass(frozen=True)
class Operation:
    """A row: the rights that it needs, and how to do it."""

    rights: int
    work: Callable[[QueueManagerApi, str, str], Awaitable[object]]
    repairs: bool = True


async def opened(manager: QueueManagerApi, name: str, access: Access, suffix: str = "") -> None:
    await (await manager.open_queue(f"DIRECT=OS:{name}{suffix}", access)).close()


async def purge(manager: QueueManagerApi, name: str, _: str) -> None:
    async with await manager.open_queue(f"DIRECT=OS:{name}", Access.RECEIVE) as queue:
        await queue.purge()


async def listed(manager: QueueManagerApi, name: str, _: str) -> None:
    found = {one.pathname.rpartition("\\")[2] for one in await manager.queues()}
    if name.rpartition("\\")[2] not in found:
        raise MessageQueuingError(ErrorCode.MQ_ERROR_ACCESS_DENIED)


async def found(manager: QueueManagerApi, name: str, _: str) -> None:
    """In the directory, by a label of its own."""
    if not await manager.find_queues(label=name):
        raise MessageQueuingError(ErrorCode.MQ_ERROR_ACCESS_DENIED)


async def give(manager: QueueManagerApi, name: str, principal: str) -> None:
    """Change the descriptor: the same list, and the same owner."""
    await manager.set_queue(name, security=SecurityDescriptor(dacl=Acl.of(*written(name))).write())


async def take(manager: QueueManagerApi, name: str, principal: str) -> None:
    await manager.set_queue(name, security=described(name, unix_user(PRINCIPALS[principal][0])))


QUEUE_OPERATIONS: dict[str, Operation] = {
    "open to send": Operation(int(Right.MQSEC_WRITE_MESSAGE), lambda m, q, _: opened(m, q, Access.SEND), False),
    "open to receive": Operation(int(Right.MQSEC_RECEIVE_MESSAGE), lambda m, q, _: opened(m, q, Access.RECEIVE), False),
    "open to peek": Operation(int(Right.MQSEC_PEEK_MESSAGE), lambda m, q, _: opened(m, q, Access.PEEK), False),
    "open a subqueue to move": Operation(
        int(Right.MQSEC_WRITE_MESSAGE), lambda m, q, _: opened(m, q, Access.MOVE, ";later"), False
    ),
    "receive from the journal": Operation(
        int(Right.MQSEC_RECEIVE_JOURNAL_MESSAGE), lambda m, q, _: opened(m, q, Access.RECEIVE, ";journal"), False
    ),
    "peek at the journal": Operation(
        int(Right.MQSEC_PEEK_MESSAGE), lambda m, q, _: opened(m, q, Access.PEEK, ";journal"), False
    ),
    "purge": Operation(int(Right.MQSEC_RECEIVE_MESSAGE), purge, False),
    "queue": Operation(int(Right.MQSEC_GET_QUEUE_PROPERTIES), lambda m, q, _: m.queue(q)),
    "queues": Operation(int(Right.MQSEC_GET_QUEUE_PROPERTIES), listed),
    "find_queues": Operation(int(Right.MQSEC_GET_QUEUE_PROPERTIES), found),
    "refused_messages": Operation(int(Right.MQSEC_GET_QUEUE_PROPERTIES), lambda m, q, _: m.refused_messages(q)),
    "incoming_sequences": Operation(int(Right.MQSEC_GET_QUEUE_PROPERTIES), lambda m, q, _: m.incoming_sequences(q)),
    "queue_security": Operation(int(Right.MQSEC_GET_QUEUE_PERMISSIONS), lambda m, q, _: m.queue_security(q)),
    "set_queue": Operation(int(Right.MQSEC_SET_QUEUE_PROPERTIES), lambda m, q, _: m.set_queue(q, label="x"), False),
    "set_queue, descriptor": Operation(int(Right.MQSEC_CHANGE_QUEUE_PERMISSIONS), give),
    "set_queue, owner": Operation(int(Right.MQSEC_CHANGE_QUEUE_PERMISSIONS | Right.MQSEC_TAKE_QUEUE_OWNERSHIP), take),
    "delete_queue": Operation(int(Right.MQSEC_DELETE_QUEUE), lambda m, q, _: m.delete_queue(q)),
}
QUEUE_OPERATIONS["delete_queue"] = Operation(
    int(Right.MQSEC_DELETE_QUEUE), QUEUE_OPERATIONS["delete_queue"].work, repairs=False
)


async def create(manager: QueueManagerApi) -> object:
    return await manager.create_queue(rf".\private$\made{time.monotonic_ns()}")


MACHINE_OPERATIONS: dict[str, tuple[bool, Callable[[QueueManagerApi], Awaitable[object]]]] = {
    # Whether they are for administrators only.
    "account_names": (False, lambda m: m.account_names([str(UNKNOWN)])),
    "backup": (True, lambda m: m.backup(Path(tempfile.mkdtemp()) / "backup")),
    "create_queue": (False, create),
    "list_transactions": (False, lambda m: m.list_transactions()),
    "pause_queue": (True, lambda m: m.pause_queue(ELSEWHERE)),
    "queue_manager_security": (False, lambda m: m.queue_manager_security()),
    "reset_incoming_sequences": (True, lambda m: m.reset_incoming_sequences(bytes(16))),
    "resume_queue": (True, lambda m: m.resume_queue(ELSEWHERE)),
    "set_online": (True, lambda m: m.set_online(True)),
    "set_queue_manager_security": (
        True, lambda m: _same_security(m),
    ),
    "status": (False, lambda m: m.status()),
    "waiting": (False, lambda m: m.waiting()),
    "open a dead-letter queue": (True, lambda m: opened(m, r".\system$;deadletter", Access.PEEK)),
    "open the transactional one": (True, lambda m: opened(m, r".\system$;deadxact", Access.RECEIVE)),
    "open the machine's journal": (True, lambda m: opened(m, r".\system$;journal", Access.PEEK)),
    "open an outgoing queue to send": (False, lambda m: _outgoing(m, Access.SEND)),
    "open an outgoing queue to peek": (True, lambda m: _outgoing(m, Access.PEEK_ADMIN)),
}  # fmt: skip
ELSEWHERE = r"DIRECT=OS:elsewhere\private$\orders"


async def _outgoing(manager: QueueManagerApi, access: Access) -> None:
    await (await manager.open_queue(ELSEWHERE, access)).close()


async def _same_security(manager: QueueManagerApi) -> None:
    await manager.set_queue_manager_security(await manager.queue_manager_security())


NAMES = {rf".\private$\q{number}": text for number, text in enumerate(DESCRIPTORS)}


def written(name: str) -> list[object]:
    return [(allow if allows else deny)(sid, mask) for allows, sid, mask in DESCRIPTORS[NAMES[name]]]


def described(name: str, owner: Sid | None = None) -> bytes:
    owner = owner or unix_user(OWNER)
    return SecurityDescriptor(owner=owner, group=owner, dacl=Acl.of(*written(name))).write()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[QueueManager]:
    settings = Settings(computer_name="ALPHA", security={"principals": {f"uid:{NOBODY_ELSE}": str(DECLARED)}})
    async with QueueManager.open(tmp_path / "store", settings) as manager:
        for name in NAMES:
            await manager.create_queue(name, security=described(name))
        await manager.open_queue(ELSEWHERE, Access.SEND)
        (tmp_path / "directory.yaml").touch()
        directory = FileDirectory(tmp_path / "directory.yaml")
        manager.published = PublishedQueues(manager.context, directory)
        for number, name in enumerate(NAMES):
            queue = Queue(pathname=rf"beta\q{number}", label=name, security=described(name))
            await directory.create_directory_object(queue)
        yield manager


@pytest.fixture
async def callers(node: QueueManager) -> AsyncIterator[dict[str, RemoteQueueManager]]:
    """Applications of each principal on the local socket."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        path = folder / "node.sock"
        server = LocalServer(node, LocalSettings(socket=path, mode=0o666), principals=node.principals)
        await server.start()
        stack.push_async_callback(server.stop)
        found = {}
        for name, (user, groups, _) in PRINCIPALS.items():
            door = connected_as(path, user, groups)
            door.setblocking(False)
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_unix_connection(lambda: Connection(path), sock=door)
            hello = values.decode((await connection.call(FrameKind.HELLO, values.encode(GREETING))).body)
            line = Line([path], 0)
            line.connection, line.hello = connection, hello
            found[name] = RemoteQueueManager(line)
            stack.push_async_callback(connection.close)
        yield found


def test_every_operation_has_a_row() -> None:
    there = {
        name
        for name, _ in inspect.getmembers(QueueManagerApi, inspect.iscoroutinefunction)
        if not name.startswith("_") and name not in ("close", "open_queue")
    }
    rows = {name.partition(",")[0] for name in (*QUEUE_OPERATIONS, *MACHINE_OPERATIONS)}
    assert there == set(NEEDED)
    assert there <= rows


async def outcome(work: Awaitable[object]) -> bool:
    try:
        await work
    except MessageQueuingError as error:
        assert error.code == ErrorCode.MQ_ERROR_ACCESS_DENIED, error
        return False
    return True


async def test_no_denied_principal_succeeds_and_no_allowed_one_fails(
    node: QueueManager, callers: dict[str, RemoteQueueManager], capsys: pytest.CaptureFixture[str]
) -> None:
    wrong: list[str] = []
    counts: Counter[str] = Counter()
    started = time.monotonic()

    def count(cell: str, expected: bool, found: bool) -> None:
        counts["allowed" if expected else "denied"] += 1
        if found is not expected:
            wrong.append(f"{cell}: {'allowed' if found else 'denied'}")

    for name, text in NAMES.items():
        for operation, row in QUEUE_OPERATIONS.items():
            for principal, manager in callers.items():
                expected = allowed(DESCRIPTORS[text], principal, row.rights, repairs=row.repairs)
                if operation == "set_queue, owner" and principal == "owner":  # it is the owner already
                    expected = allowed(
                        DESCRIPTORS[text], principal, int(Right.MQSEC_CHANGE_QUEUE_PERMISSIONS), repairs=True
                    )
                found = await outcome(row.work(manager, name, principal))
                count(f"{principal}, {operation}, {text}", expected, found)
                if found and operation == "delete_queue":
                    await node.create_queue(name, security=described(name))
                if found and operation == "set_queue, owner":
                    await node.set_queue(name, security=described(name))
    for operation, (administrators_only, work) in MACHINE_OPERATIONS.items():
        for principal, manager in callers.items():
            expected = principal == "root" or not administrators_only
            count(f"{principal}, {operation}", expected, await outcome(work(manager)))
    cells = sum(counts.values())
    with capsys.disabled():
        print(f"\ndoor matrix: {cells} cells, {dict(counts)}, {time.monotonic() - started:.1f} s")
    assert not wrong, "\n".join(wrong[:40])
    assert cells >= 2000
