"""Nodes that mean no good to the console: what one says hides no other, and is data."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from mqenterprise.console.enterprise import RemoteNode
from mqenterprise.operations.node_client import NodeClient
from qmnode.console.app import Console
from qmnode.console.port import Answer, UnavailableError
from tests.adversary.attacks import Area, attack
from tests.adversary.played_console import (
    SCRIPT,
    STATE,
    TOKEN,
    Played,
    PlayedNode,
    browser,
    console,
    honest,
    sign_in,
    summary,
)

if TYPE_CHECKING:
    pass


@attack(
    Area.CONSOLE,
    can="as a node, return lists with values of wrong types",
    promised="the console shows this node as stale, and the other nodes as they are",
)
@pytest.mark.parametrize(
    "lie",
    [
        b"", b"[]", b"null", b"{", b'"x"', b'{"pathname": 7}', b'{"pathname": [{}]}', b'{"pathname": ["a"]}',
        summary(message_count=["many"]).content, summary(pathname=["a", "b"]).content, summary(names="&\r\n").content,
        summary(names=7).content, summary(node=SCRIPT).content, b"[" * 100_000,
        summary(journals=[{"queue": 7}]).content, summary(journals=SCRIPT).content,
    ],
    ids=range(16),
)  # fmt: skip
async def test_a_lying_node_hides_no_other(lie: bytes) -> None:
    liar = PlayedNode(lambda path: Answer(200, lie) if path == "/v1/queue-summary" else honest(path))
    async with browser(console(ALPHA=PlayedNode(), BETA=liar)) as client:
        await sign_in(client)
        page = (await client.get("/api/queues")).json()
        assert [row["machine"] for row in page["queues"]] == ["ALPHA"]
        assert [one["machine"] for one in page["stale"]] == ["BETA"]
        states = {node["machine"]: node["state"] for node in (await client.get("/api/overview")).json()["nodes"]}
        assert states == {"ALPHA": "up", "BETA": "down"}


@attack(
    Area.CONSOLE,
    can="as a node of the enterprise, answer at the address of another",
    promised="nothing of it is shown under the other's name, and no change for the other reaches it",
)
async def test_a_node_is_believed_as_the_machine_of_the_directory_only() -> None:
    other = PlayedNode(lambda path: summary(identifier="bbbb") if path == "/v1/queue-summary" else honest(path))
    enterprise = Played({"BETA": other}, identifiers={"BETA": "aaaa"})
    async with browser(Console(enterprise, ["console.test"], tls=True)) as client:
        await sign_in(client)
        page = (await client.get("/api/queues")).json()
        assert page["queues"] == []
        assert "ALPHA (bbbb) answers at its address" in page["stale"][0]["reason"]
        other.asked.clear()
        for answer in (
            await client.get("/api/nodes/BETA/v1/queues/orders"),
            await client.delete("/api/nodes/BETA/v1/queues/orders/messages"),
            await client.post("/api/nodes/BETA/v1/jobs", json={"kind": "delete", "queues": ["orders"]}),
        ):
            assert answer.status_code == 503
            assert "correct its address" in answer.json()["detail"]
        assert (await client.get("/api/messages")).json()["found"] == []
        assert {path.partition("?")[0] for _, path, _ in other.asked} <= {"/v1/queue-summary"}


@attack(
    Area.CONSOLE,
    can="as a node, return a state with values of wrong types",
    promised="the console leaves these values out",
)
async def test_a_lying_state_is_not_shown() -> None:
    lie = {"version": {"x": SCRIPT}, "message_count": "many", "warnings": 7, "queue_count": [1], "online": "no"}
    liar = PlayedNode(lambda path: summary(node=lie) if path == "/v1/queue-summary" else honest(path))
    async with browser(console(ALPHA=liar)) as client:
        await sign_in(client)
        (node,) = (await client.get("/api/overview")).json()["nodes"]
        assert (node["version"], node["message_count"], node["queue_count"], node["warnings"]) == (None, None, None, [])


async def test_that_messages_wait_for_long_is_trouble() -> None:
    words = {"messages": 48, "machine": "BRE-1", "sentence": "no address: BRE-1"}
    long = time.time() - 300
    rows = [
        words | {"reason": "no_name", "since": long},
        words | {"reason": "paused", "since": long},  # which somebody wanted
        words | {"reason": "host_down", "since": time.time()},  # it may be over at the next try
        words | {"reason": ["host_down"], "machine": {}, "sentence": {}, "since": long},
        words | {"reason": "host_down", "since": "long"}, words | {"sentence": 7, "since": long}, 7,
    ]  # fmt: skip
    for waiting, expected in ((rows, "48 messages wait for BRE-1: no address: BRE-1"), (rows[1:], ""), (7, "")):
        node = PlayedNode(
            lambda path, waiting=waiting: (  # type: ignore[misc]
                summary(node=STATE | {"waiting": waiting}) if path == "/v1/queue-summary" else honest(path)
            )
        )
        async with browser(console(ALPHA=node)) as client:
            await sign_in(client)
            (found,) = (await client.get("/api/overview")).json()["nodes"]
            assert (found["state"], found["reason"]) == ("trouble" if expected else "up", expected)


@attack(
    Area.CONSOLE,
    can="as a node, answer with a web page or a script",
    promised="the console does not pass such an answer on",
)
async def test_a_page_of_a_node_is_never_one_of_the_console() -> None:
    for media_type in ("text/html", "text/html; charset=utf-8", "image/svg+xml", "application/javascript", "", "x"):
        liar = PlayedNode(
            lambda path, kind=media_type: (
                honest(path)  # type: ignore[misc]
                if path != "/v1/quotas"
                else Answer(200, f"<script>{SCRIPT}</script>".encode(), kind)
            )
        )
        async with browser(console(ALPHA=liar)) as client:
            await sign_in(client)
            answer = await client.get("/api/nodes/ALPHA/v1/quotas")
            assert answer.status_code == 502, media_type
            assert SCRIPT not in answer.text


@attack(
    Area.CONSOLE,
    can="as a node, redirect the console, or set cookies",
    promised="the console follows no redirect, and passes on none of the node's headers",
)
async def test_a_node_neither_redirects_nor_sets_cookies() -> None:
    hits: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hits.append(await reader.readuntil(b"\r\n\r\n"))
        place = writer.get_extra_info("sockname")[1]
        writer.write(
            b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:%d/elsewhere\r\nSet-Cookie: __Host-console=x\r\n"
            b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}" % place
        )
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        node = remote_node(port)
        found = await node.ask("GET", "/v1/quotas")
        await node.close()
    assert (found.status, len(hits)) == (302, 1)
    liar = PlayedNode(lambda path: found if path == "/v1/quotas" else honest(path))
    async with browser(console(ALPHA=liar)) as client:
        await sign_in(client)
        passed = await client.get("/api/nodes/ALPHA/v1/quotas")
        assert not {"location", "set-cookie"} & set(passed.headers)


def remote_node(port: int) -> RemoteNode:
    """A node of the enterprise, over plain HTTP to a server of the test."""
    client = NodeClient("ALPHA", f"http://127.0.0.1:{port}", TOKEN, True, connect_timeout=60, timeout=60)  # type: ignore[arg-type]
    return RemoteNode(client)


@attack(
    Area.CONSOLE,
    can="as a node, send an answer without end",
    promised="the console stops reading at 32 MiB",
)
async def test_an_endless_answer_ends() -> None:
    sent = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        try:
            while sent < 1 << 30:
                writer.write(b" " * (1 << 20))
                await writer.drain()
                sent += 1 << 20
        except ConnectionError:
            pass

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        node = remote_node(server.sockets[0].getsockname()[1])
        with pytest.raises(UnavailableError, match="larger"):
            await node.ask("GET", "/v1/node")
        await node.close()
    assert sent < 64 << 20


@attack(
    Area.CONSOLE,
    can="as a node, never answer",
    promised="the console shows all other nodes meanwhile",
)
async def test_a_node_that_hangs_holds_nobody_up() -> None:
    async with browser(console(ALPHA=PlayedNode(), BETA=PlayedNode(delay=3000))) as client:
        await sign_in(client)
        overview = (await client.get("/api/overview")).json()
        assert {node["machine"]: node["state"] for node in overview["nodes"]} == {"ALPHA": "up", "BETA": "unknown"}
