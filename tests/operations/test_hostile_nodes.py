"""Answers of a node that was taken over, about its document."""

from __future__ import annotations

import gzip
import json
import ssl
import threading
import tracemalloc
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from mqenterprise.operations.errors import NodeError
from mqenterprise.operations.node_client import NodeClient
from mqenterprise.topology.export import export

if TYPE_CHECKING:
    from collections.abc import Iterator

PAYROLL = {"name": "payroll", "access": [{"to": "everyone", "allow": ["generic_all"]}]}
NODE = {
    "computer_name": "HOSTILE", "identifier": "x", "version": "1", "online": True, "queue_count": 0,
    "outgoing_queue_count": 0, "message_count": 0, "total_bytes": 0, "dead_letter_count": 0, "transaction_count": 0,
    "in_doubt_count": 0, "settings_read": 0.0,
}  # fmt: skip
BOMB = 256 * 1024 * 1024


class Hostile:
    """A server in place of a node's."""

    def __init__(self) -> None:
        self.status, self.content, self.encoding, self.name = 200, b"", "", "HOSTILE"
        node = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                about_itself = self.path == "/v1/node"
                content = json.dumps(NODE | {"computer_name": node.name}).encode() if about_itself else node.content
                self.send_response(200 if about_itself else node.status)
                self.send_header("Content-Length", str(len(content)))
                if node.encoding and not about_itself:
                    self.send_header("Content-Encoding", node.encoding)
                self.end_headers()
                self.wfile.write(content)

            do_PUT = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def says(self, document: str) -> NodeClient:
        self.content = document.encode()
        return self.client()

    def client(self) -> NodeClient:
        url, trust = f"http://127.0.0.1:{self.server.server_port}", ssl.create_default_context()
        return NodeClient("HOSTILE", url, "token", trust, connect_timeout=30, timeout=30)


@pytest.fixture
def hostile() -> Iterator[Hostile]:
    node = Hostile()
    yield node
    node.server.shutdown()
    node.server.server_close()


async def test_a_node_names_queues_of_no_other_machine_and_no_public_ones(
    hostile: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqenterprise.topology.export._refused", lambda _: set())  # its machines are not declared here
    lies = [PAYROLL | {"machine": "VICTIM"}, {"name": "orders", "machine": "VICTIM", "private": False}]
    bridges = {"out": {"machine": "VICTIM", "name": "other", "queue": "q"}}
    lying = {"queues": lies, "bridges": bridges, "addresses": []}
    async with hostile.says(json.dumps(lying)) as client:
        found = (await client.document(everything=True)).model_dump()
    for document in (found, lying):
        exported = yaml.safe_load(export((), "E", {"HOSTILE": document}))
        assert [(one["machine"], one["private"]) for one in exported["queues"]] == [("HOSTILE", True)] * 2
        assert [(one["machine"], one["name"]) for one in exported["bridges"]] == [("HOSTILE", "out")]
    assert found["queues"] == [PAYROLL, {"name": "orders"}]


@pytest.mark.parametrize(
    "queue",
    [
        '{"label": "nameless"}',
        '{"name": ["orders"]}',
        '{"name": "half \\ud800"}',
        '{"name": "orders", "\\ud800": 1}',
        '{"name": "orders", "label": {"a": 1}}',
        '{"name": "orders", "access": ' + "[" * 900 + "]" * 900 + "}",
        '{"name": "orders", "access": [{"to": "everyone", "allow": "send"}]}',
    ],
)
async def test_a_document_that_is_none_is_not_understood(hostile: Hostile, queue: str) -> None:
    async with hostile.says(f'{{"queues": [{queue}]}}') as client:
        with pytest.raises(NodeError, match="not understood"):
            await client.document(everything=True)


@pytest.mark.parametrize(
    "more",
    [
        '"addresses": ["half \\ud800"]',
        '"addresses": [1]',
        '"bridges": {"half \\ud800": {}}',
        '"bridges": {"a": {"peer": {"b": {"c": {"d": {}}}}}}',
    ],
)
async def test_addresses_and_bridges_that_are_none_are_not_understood(hostile: Hostile, more: str) -> None:
    async with hostile.says(f'{{"queues": [], {more}}}') as client:
        with pytest.raises(NodeError, match="not understood"):
            await client.document(everything=True)


@pytest.mark.parametrize(
    "change",
    ["{}", '{"from": 1}', '{"from": [1], "to": 2}', '{"from": 1, "to": "\\udc00"}', '{"from": 1, "to": [{"to": 3}]}'],
)
async def test_changes_that_are_none_are_not_understood(hostile: Hostile, change: str) -> None:
    step = f'{{"action": "change", "queue": "q", "changes": {{"label": {change}}}, "messages": 0, "reason": null}}'
    async with hostile.says(f'{{"steps": [{step}], "unchanged": 0, "dry_run": true}}') as client:
        with pytest.raises(NodeError, match="not understood"):
            await client.apply_document({"queues": []}, prune=False, with_messages=False, dry_run=True)


async def test_a_document_goes_to_no_other_machine(hostile: Hostile) -> None:
    """An address that is wrong leads to another node, which the same token may administer."""
    hostile.name = "OTHER"
    async with hostile.says('{"steps": [], "unchanged": 0, "dry_run": true}') as client:
        with pytest.raises(NodeError, match="OTHER answers there"):
            await client.apply_document({"queues": []}, prune=True, with_messages=False, dry_run=False)
        hostile.name = "Hostile"
        assert (await client.apply_document({"queues": []}, prune=True, with_messages=False, dry_run=False)).steps == []


async def test_a_small_answer_does_not_become_a_large_one(hostile: Hostile) -> None:
    """Some hundred bytes were 256 MB at once: the limit of an answer was compared with what came out."""
    hostile.content, hostile.encoding = gzip.compress(gzip.compress(bytes(BOMB))), "gzip, gzip"
    assert len(hostile.content) < 2000
    async with hostile.client() as client:
        tracemalloc.start()
        with pytest.raises(NodeError):
            await client.document(everything=True)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < BOMB / 8


async def test_a_refusal_acts_on_no_terminal(hostile: Hostile) -> None:
    """Ansible prints it as it is."""
    hostile.status = 409
    async with hostile.says(json.dumps({"name": "MQ_ERROR", "detail": "no\x1b]0;owned\x07\n ok: [all]"})) as client:
        with pytest.raises(NodeError) as refused:
            await client.document(everything=True)
    assert refused.value.sentence == r"MQ_ERROR: no\x1b]0;owned\x07\n ok: [all]"
