"""A store of an earlier version lets in every application that got in before, until one command closes it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

from typer.testing import CliRunner

from qmnode import Access, MessageQueuingError, QueueManager
from qmnode.administration.access_control import Change, change_access, close_access, show_access
from qmnode.administration.operation_rights import GuardedQueueManager
from qmnode.commands.command_table import app
from qmnode.security.principals import ANONYMOUS_PRINCIPAL, Principal
from qmnode.structures.error_codes import ErrorCode
from tests.storage.test_old_stores import ORDERS, STORE

QUEUE = r".\private$\orders"
DEAD = r"DIRECT=OS:.\SYSTEM$;DEADLETTER"


async def may(manager: QueueManager, principal: Principal, name: str, access: Access) -> bool:
    try:
        await (await GuardedQueueManager(manager, principal).open_queue(name, access)).close()
    except MessageQueuingError as error:
        assert error.code == ErrorCode.MQ_ERROR_ACCESS_DENIED, error
        return False
    return True


async def test_applications_go_on_and_one_command_closes(tmp_path: Path) -> None:
    with tarfile.open(STORE) as archive:
        archive.extractall(tmp_path, filter="data")
    store = tmp_path / "store"
    listed = json.loads(CliRunner().invoke(app, ["verify", "--data", str(store), "--json"]).stdout)
    assert any(one["queue"].lower().endswith("orders") for one in listed["open_queues"])
    async with QueueManager.open(store) as node:
        application = node.principals.of_unix_user(60_003, (60_003,))
        root = node.principals.of_unix_user(0, (0,))
        assert (await show_access(node, QUEUE)).owner == "S-1-5-32-544"
        for name, access in ((ORDERS, Access.RECEIVE), (ORDERS, Access.SEND), (DEAD, Access.PEEK)):
            assert await may(node, application, name, access)
        # Without a name nobody reads from afar any more, unless remote read was on.
        assert not await may(node, ANONYMOUS_PRINCIPAL, ORDERS, Access.RECEIVE)
        closed = await close_access(GuardedQueueManager(node, root))
        assert {"ORDERS", "DEADLETTER"} <= {
            one.pathname.upper().rpartition("\\")[2].rpartition(";")[2] for one in closed
        }
        for name, access in ((ORDERS, Access.RECEIVE), (DEAD, Access.PEEK)):
            assert not await may(node, application, name, access)
            assert await may(node, root, name, access)
        assert await may(node, application, ORDERS, Access.SEND)
        assert await close_access(GuardedQueueManager(node, root)) == []
    listed = json.loads(CliRunner().invoke(app, ["verify", "--data", str(store), "--json"]).stdout)
    assert listed["open_queues"] == []


async def test_a_new_node_is_closed_and_an_entry_for_nobody_opens_nothing(tmp_path: Path) -> None:
    async with QueueManager.open(tmp_path / "store") as node:
        owner, stranger = (node.principals.of_unix_user(number) for number in (60_001, 60_002))
        own = GuardedQueueManager(node, owner)
        await own.create_queue(QUEUE)
        assert await may(node, owner, ORDERS, Access.RECEIVE)
        assert await may(node, stranger, ORDERS, Access.SEND)
        for principal, name in ((stranger, ORDERS), (ANONYMOUS_PRINCIPAL, ORDERS), (owner, DEAD)):
            assert not await may(node, principal, name, Access.PEEK)
        assert await close_access(GuardedQueueManager(node, node.principals.of_unix_user(0))) == []
        await own.set_queue(QUEUE, label="mine")
        nobody = "S-1-5-21-1-2-3-4"
        changed = await change_access(own, QUEUE, Change.ALLOW, nobody, ["full-control"])
        assert [rule.known for rule in changed.rules if rule.trustee == nobody] == [False]
        assert not await may(node, stranger, ORDERS, Access.PEEK)
        reporting = await node.principals.of_token("reporting", nobody)  # whose file says that it is that
        assert await may(node, reporting, ORDERS, Access.PEEK)
