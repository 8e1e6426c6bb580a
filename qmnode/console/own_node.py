"""The console of a node alone: its own management API, asked within the process."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

from starlette.datastructures import Headers
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qmnode.console.app import Console
from qmnode.console.port import Answer, Credential, Machine, Outline
from qmnode.settings.node import ManagementSettings

_API: Final = ("/v1/", "/healthz", "/readyz", "/metrics", "/openapi.json")


class OwnNode:
    """The management API of this process, as the person with a token may use it."""

    def __init__(self, api: ASGIApp, token: str) -> None:
        self._api = api
        self._token = token

    async def ask(self, method: str, path: str, query: str = "", content: bytes = b"") -> Answer:
        """Send a request within the process."""
        scope: Scope = {
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
        status, headers, parts = 500, Headers({}), []
        received = False

        async def receive() -> Message:
            nonlocal received
            if received:
                return {"type": "http.disconnect"}
            received = True
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status, headers = message["status"], Headers(raw=message.get("headers", []))
            else:
                parts.append(message.get("body", b""))

        await self._api(scope, receive, send)
        return Answer(status, b"".join(parts), headers.get("content-type", ""))

    async def close(self) -> None:
        """Do nothing: no connection is open."""


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
