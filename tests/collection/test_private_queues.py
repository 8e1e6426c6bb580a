"""The modules for queues, about private ones: at a running node, and without any directory."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest

import qmnode
from tests.collection.conftest import ModuleFailed, Modules
from tests.operations.managed import managed_node

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.lab.nodes import NodeProcess

pytestmark = pytest.mark.servers
ORDERS = {"machine": "shop", "name": "orders", "private": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("private")


@pytest.fixture(scope="module")
def node(folder: Path) -> Iterator[NodeProcess]:
    with managed_node(folder, "SHOP", down=("gone",)) as node:
        yield node


@pytest.fixture
def modules(folder: Path, node: NodeProcess, in_process: None) -> Modules:
    """The modules with a directory that is down: private queues do not need one."""
    return Modules(
        directory={"servers": ["ldap://127.0.0.1:1"], "bind": "anonymous"}, nodes_file=str(folder / "nodes.yaml")
    )


def at_node(node: NodeProcess, work: Any) -> Any:
    async def there() -> Any:
        async with qmnode.connect(node.socket) as qm:
            return await work(qm)

    return asyncio.run(there())


def test_it_comes_changes_and_goes_at_the_node(modules: Modules, node: NodeProcess) -> None:
    access = [{"to": "everyone", "allow": ["generic_all"]}]
    made = modules.settle("queue", **ORDERS, label="Orders", transactional=True, quota="3MB", access=access)["queue"]
    modules.settle("queue", **ORDERS, journaling=True, duplicate_window=60)

    (found,) = modules.run("queue_info", private=True, machine="SHOP", name="ORDERS")["queues"]
    there = at_node(node, lambda qm: qm.queue(r".\private$\orders"))

    assert (made["quota"], made["transactional"], made["identifier"]) == (3072, True, None)
    assert (there.label, there.quota, there.journaling, there.duplicate_window) == ("Orders", 3072, True, 60)
    assert (found["label"], found["quota"], found["journaling"]) == ("Orders", 3072, True)
    assert found["access"][0]["to"] == "everyone"
    assert modules.settle("queue", **ORDERS, state="absent")["queue"] is None
    assert modules.run("queue_info", private=True, machine="shop", name="orders")["queues"] == []


def test_several_come_change_and_go_at_the_node(modules: Modules, node: NodeProcess) -> None:
    queues = [{"name": "one"}, {"name": "two", "quota": "3MB"}]
    modules.settle("queue", machine="shop", private=True, label="All", queues=queues)
    queues[0]["label"] = "One"
    changed = modules.settle("queue", machine="Shop", private=True, queues=queues)

    assert [(each["name"], each["label"], each["changed"]) for each in changed["queues"]] == [
        ("one", "One", True), ("two", "All", False),
    ]  # fmt: skip
    (difference,) = changed["diff"]
    assert difference["after_header"] == "private queue Shop - one"
    assert at_node(node, lambda qm: qm.queue(r".\private$\two")).quota == 3072
    with pytest.raises(ModuleFailed, match="ONE: it is there twice"):
        modules.run("queue", machine="shop", private=True, queues=[*queues, {"name": "ONE"}])
    with pytest.raises(ModuleFailed, match=r"shop: .*queues\[0\].quota: '9XB'"):
        modules.run("queue", machine="shop", private=True, queues=[{"name": "three", "quota": "9XB"}, {"name": "four"}])
    assert "four" not in str(modules.run("queue_info", private=True, machine="shop")["queues"])
    modules.settle("queue", machine="shop", private=True, queues=queues, state="absent")


def test_a_node_that_is_down_stops_those_of_all_nodes(modules: Modules) -> None:
    queues = [{"machine": "shop", "name": "first"}, {"machine": "gone", "name": "second"}]
    with pytest.raises(ModuleFailed, match="gone: it is unavailable"):
        modules.run("queue", private=True, queues=queues)
    assert "first" not in str(modules.run("queue_info", private=True, machine="shop")["queues"])


def test_messages_are_kept_unless_the_task_says_otherwise(modules: Modules, node: NodeProcess) -> None:
    modules.run("queue", **ORDERS | {"name": "full"})

    async def send(qm: Any) -> None:
        async with await qm.open_queue(r"DIRECT=OS:.\private$\full", qmnode.Access.SEND) as queue:
            await queue.send(qmnode.Message(b"7", recoverable=True))

    at_node(node, send)
    for check in (True, False):
        with pytest.raises(ModuleFailed, match="holds 1 message: receive the messages first, or say with_messages"):
            modules.run("queue", **ORDERS | {"name": "full"}, state="absent", check=check)
    modules.settle("queue", **ORDERS | {"name": "full"}, state="absent", with_messages=True)


def test_mistakes_are_told_before_anything_changes(modules: Modules) -> None:
    modules.run("queue", **ORDERS | {"name": "fixed"})
    for wrong, sentence in (
        ({"base_priority": 3}, "only public queues have it"),
        ({"name": "a;b"}, "name the queue alone"),
        ({"quota": "10XB"}, "no size such as 10MB"),
        ({"label": "x" * 125}, "124 UTF-16 units"),
        ({"name": "fixed", "transactional": True}, "transactional is false and cannot change"),
        ({"machine": "gone"}, "gone: it is unavailable"),
        ({"access": [{"to": "user:nobody-here", "allow": ["send"]}]}, "nobody-here"),
    ):
        for check in (True, False):
            with pytest.raises(ModuleFailed, match=re.escape(sentence)):
                modules.run("queue", **ORDERS | {"name": "wrong"} | wrong, check=check)
    names = [queue["name"] for queue in modules.run("queue_info", private=True, machine="shop")["queues"]]
    assert names == ["fixed"]
