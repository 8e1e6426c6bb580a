"""A console whose nodes say what a test wants, and a browser of it."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httpx

from qmnode.console.app import Console
from qmnode.console.port import Answer, Credential, Machine, Outline

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from starlette.routing import BaseRoute


URL = "https://console.test"
TOKEN = "the-token"
SCRIPT = "<img src=x onerror=alert(1)>"
STATE = {"computer_name": "ALPHA", "version": "1", "message_count": 1, "warnings": [], "online": True}


def honest(path: str) -> Answer:
    """What a node says that means well."""
    if path == "/v1/caller":
        return document({"name": "alice", "role": "operate", "machine": "ALPHA"})
    if path == "/v1/queue-summary":
        return document(
            {
                "names": "1", "node": STATE,
                "pathname": [r"ALPHA\private$\orders"], "queue_type": ["private"], "label": [SCRIPT],
                "transactional": [False], "message_count": [1], "total_bytes": [100], "arrived": [1], "left": [0],
                "state": [None],
            }
        )  # fmt: skip
    return document(STATE)


def document(content: object) -> Answer:
    return Answer(200, json.dumps(content).encode())


def summary(**changes: object) -> Answer:
    """The honest list of queues, with other values."""
    return document(json.loads(honest("/v1/queue-summary").content) | changes)


@dataclass
class PlayedNode:
    """A node that says what its author wants, and remembers what it was asked."""

    says: Callable[[str], Answer] = honest
    asked: list[tuple[str, str, bytes]] = field(default_factory=list)
    delay: float = 0.0

    async def ask(self, method: str, path: str, query: str = "", content: bytes = b"") -> Answer:
        self.asked.append((method, f"{path}?{query}", content))
        if self.delay and path != "/v1/caller":
            await asyncio.sleep(self.delay)
        return self.says(path)

    async def stream(self, path: str, query: str) -> AsyncIterator[bytes]:
        yield (await self.ask("GET", path, query)).content

    async def close(self) -> None:
        pass


@dataclass
class Played:
    """An enterprise of such nodes."""

    nodes: dict[str, PlayedNode]
    name: str = "ACME"
    features: tuple[str, ...] = ()
    identifiers: dict[str, str] = field(default_factory=dict)
    """Of queue managers, as the directory has them."""
    routes: Sequence[BaseRoute] = ()

    async def outline(self) -> Outline:
        found = self.identifiers
        return Outline(
            [Machine(name, "Berlin", identifier=found.get(name, "")) for name in self.nodes], as_of=time.time()
        )

    def crossing(self, machine: str, format_name: str) -> None:
        pass

    def destination(self, format_name: str) -> str:
        return ""

    def node(self, machine: str, credential: Credential) -> PlayedNode:
        if credential(machine) != TOKEN:
            return PlayedNode(lambda _: Answer(401, b"{}"))
        return self.nodes[machine]

    async def close(self) -> None:
        pass


def console(**nodes: PlayedNode) -> Console:
    return Console(Played(nodes or {"ALPHA": PlayedNode()}), ["console.test"])


def browser(served: Console, **headers: str) -> httpx.AsyncClient:
    """A browser on a page of the console."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(served), base_url=URL, headers={"Origin": URL, **headers})


async def sign_in(client: httpx.AsyncClient, token: str = TOKEN) -> httpx.Response:
    answer = await client.post("/api/session", json={"method": "token", "token": token})
    if answer.status_code == 200:
        client.headers["X-CSRF-Token"] = answer.json()["csrf"]
    return answer


JOB = {"kind": "delete", "queues": ["orders"]}
