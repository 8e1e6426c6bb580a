"""Messages that cannot be read whole, in a store of an earlier version: every face lists them, and takes them out."""

from __future__ import annotations

import base64
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.commands.conftest import Command
from tests.lab.nodes import NodeProcess, running_node

STORE = Path(__file__).parents[1] / "storage" / "stores" / "338d108.tar.xz"
NUMBER = 15
UNREADABLE = 5


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(STORE) as archive:
        archive.extractall(folder, filter="data")
    with running_node(folder, managed=True) as daemon:
        yield daemon


@pytest.mark.parametrize("face", [("peek", "--count", 100), ("receive", "--all")])
def test_json_gives_the_reason_and_all_bytes(node: NodeProcess, command: Command, face: tuple[object, ...]) -> None:
    if face[0] == "receive":
        moved = command("peek", "orders", "--count", 100, "--json").documents
        names = [one["lookup_identifier"] for one in moved if one["unreadable"]]
        assert command("move", "orders", *names[:2], "--to", "orders;later").code == 0
        answer = command("receive", "orders;later", "--all", "--json")
        documents = answer.documents
        assert len(documents) == 3
        assert sum(bool(one["unreadable"]) for one in documents) == 2
    else:
        answer = command(face[0], "orders", *face[1:], "--json")
        documents = answer.documents
        assert len(documents) == NUMBER
        assert sum(bool(one["unreadable"]) for one in documents) == UNREADABLE
    assert answer.code == 0
    for one in documents:
        assert ("ProviderInfo" in (one["unreadable"] or "")) is bool(one["packet"])
        if one["packet"]:
            assert base64.b64decode(one["packet"])[4:8] == b"LIOR"


def test_a_table_names_them_and_says_what_can_be_done(node: NodeProcess, command: Command) -> None:
    answer = command("peek", "orders", "--count", 100)
    assert answer.code == 0
    assert "(unreadable) malformed: odd" in answer.out
    assert "behind them" in answer.out
    assert "can be received" in answer.err


def test_http_lists_them(node: NodeProcess) -> None:
    transport = httpx.HTTPTransport(uds=str(node.folder / "management.sock"))
    with httpx.Client(transport=transport, base_url="http://node") as client:
        answer = client.get("/v1/queues/orders/messages", params={"body": "text"})
        assert answer.status_code == 200
        messages = answer.json()["messages"]
        assert any(one["label"] == "behind them" for one in messages)
        bad = next(one for one in messages if one["unreadable"])
        one = client.get(f"/v1/queues/orders/messages/{bad['lookup_identifier']}")
        assert json.loads(one.text)["unreadable"] == bad["unreadable"]
        assert client.delete(f"/v1/queues/orders/messages/{bad['lookup_identifier']}").status_code == 204
        taken = client.post("/v1/queues/orders/receive", json={"limit": 100, "body": "text"}).json()["messages"]
        assert any(one["unreadable"] for one in taken)
        assert any(one["label"] == "behind them" for one in taken)
