"""The console of a node alone: its own management API, asked within the process."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final
from urllib.parse import unquote

from starlette.datastructures import Headers
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qmnode.console.app import Console
from qmnode.console.port import Answer, Credential, Machine, Outline, UnavailableError
from qmnode.console.view import document_of
from qmnode.settings.node import ManagementSettings

_OK: Final = 200
_API: Final = ("/v1/", "/healthz", "/readyz", "/metrics", "/openapi.json")


class OwnNode:
    """The management API of this process, as the person with a token may use it."""

    def __init__(self, api: ASGIApp, token: str) -> None:
        self._api = api
        self._token = token

    async def ask(self, method: str, path: str, query: str = "", content: bytes = b"") -> Answer:
        """Send a request within the process."""
        headers, parts = Headers({}), []
        status = 500

        async def send(message: Message) -> None:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status, headers = message["status"], Headers(raw=message.get("headers", []))
            else:
                parts.append(message.get("body", b""))

        await self._api(self._scope(method, path, query, content), _receiver(content), send)
        return Answer(status, b"".join(parts), headers.get("content-type", ""))

    async def stream(self, path: str, query: str) -> AsyncIterator[bytes]:
        """The content of an answer, as fast as it is read."""
        waiting: asyncio.Queue[Message | None] = asyncio.Queue(1)

        async def run() -> None:
            try:
                await self._api(self._scope("GET", path, query, b""), _receiver(b""), waiting.put)
            finally:
                await waiting.put(None)

        task = asyncio.create_task(run())
        try:
            started = await waiting.get()
            status = 500 if started is None else started["status"]
            refusal, is_whole = b"", False
            while (message := await waiting.get()) is not None:
                body, is_whole = message.get("body", b""), not message.get("more_body", False)
                if status == _OK:
                    yield body
                else:
                    refusal += body
            if status != _OK:
                document_of(Answer(status, refusal))
            if not is_whole:
                raise UnavailableError("its answer was cut off")
        finally:
            task.cancel()

    def _scope(self, method: str, path: str, query: str, content: bytes) -> Scope:
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "https",
            "path": unquote(path),
            "raw_path": path.encode("latin-1"),
            "root_path": "",
            "query_string": query.encode("latin-1", "replace"),
            "headers": [
                (b"host", b"localhost"),
                (b"authorization", f"Bearer {self._token}".encode()),
                (b"content-type", b"application/json"),
                (b"content-length", str(len(content)).encode()),
            ],
            "client": ("console", 0),
            "state": {},
        }

    async def close(self) -> None:
        """Do nothing: no connection is open."""


def _receiver(content: bytes) -> Receive:
    """The request's end of an application: the content, and then silence: the caller stays until it has the answer."""
    received = False

    async def receive() -> Message:
        nonlocal received
        if received:
            await asyncio.Event().wait()
        received = True
        return {"type": "http.request", "body": content, "more_body": False}

    return receive


class OneNode:
    """An enterprise of this node alone."""

    features: tuple[str, ...] = ("audit",)
    routes: Sequence[BaseRoute] = ()

    def __init__(self, api: ASGIApp, computer_name: str) -> None:
        self.name = computer_name
        self._api = api

    async def outline(self) -> Outline:
        return Outline([Machine(self.name)])

    def crossing(self, machine: str, format_name: str) -> None:
        """No link: those are known to the directory."""

    def destination(self, format_name: str) -> str:
        """No name: the directory has them."""
        return ""

    def node(self, machine: str, credential: Credential) -> OwnNode:
        """The node, for the person whom this proves."""
        return OwnNode(self._api, credential(machine))

    async def close(self) -> None:
        """Do nothing: no connection is open."""


class WithConsole:
    """The management API over TCP with the console beside it."""

    def __init__(self, api: ASGIApp, computer_name: str, settings: ManagementSettings) -> None:
        self._api = api
        own = (settings.listen or "").rpartition(":")[0].strip("[]")
        self.console = Console(OneNode(api, computer_name), [computer_name, own, "localhost", *settings.console_hosts])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request: of a program, or of a browser."""
        path = scope.get("path", "")
        is_program = scope["type"] != "http" or path.startswith(_API)
        await (self._api if is_program else self.console)(scope, receive, send)
