"""No request of administrators holds the node's event loop, however many messages there are: applications go on.

Each route of the management API is asked at a node in a process of its own; the watch of ``tests/lab/loop_watch.py``
notes the longest turn of the loop under each. With 20,000 messages in ``make soak``, and a part in every run.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import qmnode
from qmnode.administration.carry_exchange import CarryExchange, key_from_text
from qmnode.management.app import build_app
from qmnode.model.stored_message import TransferredMessage
from tests.adversary.test_amqp_crowds import GREEDY
from tests.doors.test_command_matrix import LATER, MACHINE, ROWS
from tests.lab.addresses import free_port
from tests.lab.loop_watch import Turn, too_long
from tests.lab.nodes import NodeProcess, watched_node
from tests.management.conftest import digest, write_certificate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

MESSAGES = 1_000
MANY = 20_000
_AT_ONCE = 500
_LINES = b"".join(b"<Line><No>%d</No><Text>abc</Text></Line>" % number for number in range(20))
XML = b'<?xml version="1.0"?><Order><Id>7</Id><Lines>' + _LINES + b"</Lines></Order>"
COUNTS = [MESSAGES, pytest.param(MANY, marks=pytest.mark.soak)]
"""How many messages are in each queue."""


async def fill(node: NodeProcess, queue: str, count: int, body: bytes = XML) -> None:
    async with await node.connect() as manager, await manager.open_queue(name_of(queue), qmnode.Access.SEND) as out:
        for first in range(0, count, _AT_ONCE):
            await out.send_many([
                qmnode.Message(body, label=f"l{number}", recoverable=True, negative_journaling_requested=True)
                for number in range(first, min(first + _AT_ONCE, count))
            ])  # fmt: skip


def name_of(queue: str) -> str:
    return rf"DIRECT=OS:.\private$\{queue}"


class Watched:
    """A node with messages, and the longest turn of its loop under each thing that was asked of it."""

    def __init__(self, node: NodeProcess, client: httpx.AsyncClient) -> None:
        self.node, self.client = node, client
        self.longest: dict[str, Turn | None] = {}
        self.long: list[str] = []

    def note(self, what: str) -> None:
        turns = self.node.turns.fresh()
        self.longest[what] = max(turns, key=lambda turn: turn.processor, default=None)
        self.long += [f"{what}: {sentence}" for sentence in too_long(turns)]

    async def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        answer = await self.client.request(method, path, timeout=600, **more)
        assert answer.status_code < 500, (method, path, answer.text)
        self.note(f"{method} {path}"[:120])
        return answer

    async def job(self, **wanted: Any) -> int:
        """A job to its end."""
        number = int((await self.ask("POST", "/v1/jobs", json=wanted)).json()["job"])
        async with asyncio.timeout(600):
            while (await self.client.get(f"/v1/jobs/{number}")).json()["state"] == "running":
                await asyncio.sleep(0.02)
        self.note(f"the job {wanted['kind']}")
        return number

    def report(self) -> str:
        lines = [
            f"{0.0 if turn is None else turn.processor * 1000:7.1f} ms {what} {'' if turn is None else turn.what}"
            for what, turn in sorted(self.longest.items(), key=lambda pair: -(pair[1].processor if pair[1] else 0))
        ]
        return "\n".join(["the longest turn of the loop, in processor time (0.0: under 25)", *lines[:30]])

    def check(self) -> None:
        print(self.report())
        assert not self.long, "\n".join(self.long)


@asynccontextmanager
async def filled(folder: Path, count: int, listens: int = 0, **settings: object) -> AsyncIterator[Watched]:
    certificate, key = write_certificate(folder)
    tokens = folder / "tokens.yaml"
    tokens.write_text(json.dumps([{"name": "alice", "role": "administer", "sha256": digest("secret")}]))
    tokens.chmod(0o600)
    management = {
        "socket": str(folder / "api.sock"), "listen": f"127.0.0.1:{listens}", "tokens": str(tokens), "console": True,
        "certificate": str(certificate), "private_key": str(key), "audit_log": str(folder / "audit.log"),
    }  # fmt: skip
    with watched_node(folder / "node", management=management, **settings) as node:
        async with await node.connect() as manager:
            for queue in ("orders", "later", "sold"):
                await manager.create_queue(rf".\private$\{queue}")
        for queue in ("orders", "sold"):
            await fill(node, queue, count)
        transport = httpx.AsyncHTTPTransport(uds=str(folder / "api.sock"))
        async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
            watched = Watched(node, client)
            await watched.ask("DELETE", "/v1/queues/sold/messages")  # which makes dead letters of its messages
            yield watched


async def every_route(node: Watched, count: int) -> set[tuple[str, str]]:
    """Ask all; return the routes that were asked."""
    asked: set[tuple[str, str]] = set()

    async def ask(method: str, route: str, query: str = "", **more: Any) -> httpx.Response:
        asked.add((method.lower(), route))
        parts = {"{lookup}": lookup, "{number}": "1", "{name}": "orders"}
        path = route
        for name, value in parts.items():
            path = path.replace(name, value)
        return await node.ask(method, path + query, **more)

    first = (await node.client.get("/v1/queues/orders/messages?limit=2")).json()["messages"]
    lookup = first[0]["lookup_identifier"]
    node.note("the first messages")
    await ask("GET", "/healthz")
    await ask("GET", "/openapi.json")
    for route in (
        "/healthz", "/readyz", "/metrics", "/v1/node", "/v1/queues", "/v1/queue-summary", "/v1/connections",
        "/v1/waiting",
        "/v1/transactions", "/v1/journals", "/v1/outgoing-queues", "/v1/quotas", "/v1/keys", "/v1/keys/rotation",
        "/v1/history", "/v1/jobs", "/v1/caller", "/v1/queues/{name}", "/v1/queues/{name}/incoming-sequences",
        "/v1/queues/{name}/refused-messages", "/v1/queues/{name}/access", "/v1/queues/{name}/messages/{lookup}",
        "/v1/outgoing-queues/{name}/connection-history", "/v1/outgoing-queues/{name}/transfer",
    ):  # fmt: skip
        await ask("GET", route)
    for body in ("none", "base64", "text", "decoded"):
        await ask("GET", "/v1/queues/{name}/messages", f"?limit=1000&body={body}")
    for query in ("limit=1000&body=decoded", "where=body=zzz", "where=label=zzz"):
        await ask("GET", "/v1/messages", f"?queue=*&{query}")
    exported = await ask("GET", "/v1/messages/export", "?queue=orders")
    await ask("GET", "/v1/trace", "?label=zzz")
    await ask("GET", "/v1/failures", "?queue=*&queue=system$;deadletter")
    await ask("GET", "/v1/dead-letters", "?limit=1000&body=decoded")
    await ask("GET", "/v1/dead-letters/export")
    await ask("GET", "/v1/audit", "?limit=1000")
    await ask("POST", "/v1/queues", json={"name": "new"})
    await ask("PATCH", "/v1/queues/{name}", json={"label": "all"})
    await ask("POST", "/v1/queues/{name}/access", json={"action": "reset"})
    await ask("GET", "/v1/document", "?all=true")
    endpoints = [
        {"name": f"endpoint-{number}", "access": [{"to": "everyone", "allow": ["send"]}]} for number in range(300)
    ]
    await ask("PUT", "/v1/document", json={"queues": endpoints})
    await ask("PUT", "/v1/document", "?prune=true", json={"queues": []})
    await ask("POST", "/v1/keys/reload")
    await ask("POST", "/v1/keys/rotation", json={"action": "start"})
    await ask("PUT", "/v1/node/online", json={"online": True})
    for action in ("pause", "resume"):
        for kind in ("queues", "outgoing-queues"):
            await ask("POST", f"/v1/{kind}/{{name}}/{action}")
    texts = [{"text": "x" * 200, "label": "a"}] * 1000
    await ask("POST", "/v1/queues/{name}/messages", json={"messages": texts})
    values = [{"value": {"Order": {"Id": 7, "Lines": ["a"] * 50}}, "format": "xml"}] * 1000
    await ask("POST", "/v1/queues/{name}/messages", json={"messages": values})
    packets = [json.loads(line)["packet"] for line in exported.text.splitlines()[:500]]
    await ask("POST", "/v1/messages/import", json={"messages": [{"packet": one, "target": "later"} for one in packets]})
    begun = await ask("POST", "/v1/carries", json={"source": r"DIRECT=OS:old\private$\orders", "target": "later"})
    held = [TransferredMessage(number, 1, 0, 0, b64decode(one)) for number, one in enumerate(packets, 1)]
    exchange = CarryExchange(begun.json()["epoch"], hold=held)
    await ask("PUT", "/v1/carries/{number}/messages", content=exchange.write())
    ledger = await ask("GET", "/v1/carries/{number}/ledger")
    keys = [key_from_text(one["key"]) for one in ledger.json()["entries"]]
    assert keys
    await ask("PUT", "/v1/carries/{number}/messages", content=exchange._replace(confirm=keys, hold=()).write())
    await ask("GET", "/v1/carries")
    await ask("DELETE", "/v1/carries/{number}")
    await ask("POST", "/v1/queues/{name}/messages/{lookup}/move", json={"target": "orders;aside"})
    lookup = first[1]["lookup_identifier"]
    await ask("POST", "/v1/queues/{name}/messages/{lookup}/edit", json={"label": "other", "keep": True})
    await ask("DELETE", "/v1/queues/{name}/messages/{lookup}")
    await ask("POST", "/v1/queues/{name}/receive", json={"limit": 1000, "body": "decoded"})
    for kind in ("copy", "replay", "move", "delete"):
        target = {} if kind == "delete" else {"target": "later"}
        number = await node.job(kind=kind, queues=["later" if kind == "delete" else "orders"], **target)
        asked.add(("post", "/v1/jobs"))
        await node.ask("GET", f"/v1/jobs/{number}/log")
    asked |= {("get", "/v1/jobs/{number}/log")}
    await ask("GET", "/v1/jobs/{number}")
    await ask("POST", "/v1/jobs/{number}", json={"action": "undo"})
    letters = (await node.client.get("/v1/dead-letters?limit=100")).json()["messages"]
    some = [one["lookup_identifier"] for one in letters] if count < MANY else None  # each takes two syncs of the disk
    await ask("POST", "/v1/dead-letters/retry", json={"destination": "later", "messages": some})
    await ask("DELETE", "/v1/queues/{name}/messages")
    await ask("DELETE", "/v1/queues/{name}")
    return asked - {("get", "/openapi.json")}


@pytest.mark.slow
@pytest.mark.parametrize("count", COUNTS)
async def test_no_route_of_the_management_api_holds_the_loop(tmp_path: Path, count: int) -> None:
    async with filled(tmp_path, count) as node:
        asked = await every_route(node, count)
        node.check()
    document = build_app(None).openapi()  # type: ignore[arg-type]
    assert asked == {(method, path) for path, methods in document["paths"].items() for method in methods}


LAST = ("message delete", "queue purge", "queue delete", "backup")
"""Commands that come after those that need messages."""
MORE = (
    "message copy orders --to copied --all", "message move copied --to moved --all",
    "message export orders", "message failures *", "message find * --where body=zzz", "peek orders",
    "message delete moved --all --yes", "send orders x", "verify", "job list", "status --json", "queue list --json",
)  # fmt: skip
"""What the matrix of the doors does not do in earnest."""


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [MESSAGES, MANY])
async def test_no_command_holds_the_loop(tmp_path: Path, count: int) -> None:
    async with filled(tmp_path, count) as node:

        async def run(line: str) -> str:
            answer = await asyncio.to_thread(node.node.command, *line.split(), limit=600)
            assert "Traceback" not in answer.stderr, (line, answer.stderr)
            assert answer.returncode != 2, (line, answer.stderr)
            node.note(f"qmnode {line}")
            return answer.stdout

        for queue in ("copied", "moved"):
            await run(f"queue create {queue}")
        job = json.loads(await run("message delete orders --all --dry-run --yes --json"))["job"]
        await run(f"send {LATER} x")
        rows = {name: line.format(q="orders") for name, (_, line) in ROWS.items()}
        rows |= {name: line.format(who="root", job=job, folder=tmp_path) for name, (_, line) in MACHINE.items()}
        for name in sorted(rows, key=lambda name: (name in LAST, LAST.index(name) if name in LAST else 0)):
            if name == LAST[0]:
                for line in MORE:
                    await run(line)
            await run(f"{name} {rows[name]}")
        node.check()


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_no_action_of_the_console_holds_the_loop(tmp_path: Path) -> None:
    port = free_port()
    async with filled(tmp_path, MANY, port) as node:
        async with httpx.AsyncClient(base_url=f"https://127.0.0.1:{port}", verify=False, timeout=600) as client:
            origin = {"Origin": f"https://127.0.0.1:{port}"}
            signed_in = await client.post("/api/session", json={"method": "token", "token": "secret"}, headers=origin)
            assert signed_in.status_code == 200, signed_in.text
            client.headers.update(origin | {"x-csrf-token": signed_in.json()["csrf"]})
            node.client = client
            for place in ("overview", "queues", "messages?where=body%3Dzzz", "failures", "jobs", "audit", "session"):
                answer = await node.ask("GET", f"/api/{place}")
                assert answer.status_code == 200, (place, answer.text)
            first = await node.ask("GET", "/api/nodes/ALPHA/v1/queues/orders/messages?limit=1000&body=decoded")
            assert first.status_code == 200, first.text
            for kind in ("copy", "delete"):
                wanted = {"kind": kind, "queues": ["orders" if kind == "copy" else "later"]}
                wanted |= {"target": "later"} if kind == "copy" else {}
                answer = await client.post("/api/nodes/ALPHA/v1/jobs", json=wanted)
                number = answer.json()["job"]
                async with asyncio.timeout(600):
                    while (await client.get(f"/api/nodes/ALPHA/v1/jobs/{number}")).json()["state"] == "running":
                        await asyncio.sleep(0.05)
                node.note(f"the console's {kind}")
        node.check()


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_readers_over_amqp_that_do_not_read_do_not_hold_the_loop(tmp_path: Path) -> None:
    port = free_port()
    amqp = {"enabled": True, "address": "127.0.0.1", "port": port, "anonymous": True}
    async with filled(tmp_path, MANY, amqp=amqp) as node:
        for name in ("orders", "later"):
            await asyncio.to_thread(node.node.command, "queue", "acl", "allow", name, "anonymous", "receive-message")
        slow = []
        for _ in range(200):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(GREEDY.replace(b"large", b"later"))
            slow.append((reader, writer))
        node.note("200 receivers attach")
        await fill(node.node, "later", MANY)
        node.note("200 receivers with credit do not read, and 20,000 messages come")
        for _, writer in slow:
            writer.transport.abort()
        await fill(node.node, "later", 1)
        node.note("200 receivers end, and the messages return")
        node.check()
