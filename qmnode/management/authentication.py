"""Identify the caller before anything else: by a token over TCP, by the peer's user on the Unix socket.

Reading is for all roles; what changes something, which is every method but GET and HEAD, is for ``operate``.
"""

import asyncio
from typing import Final

import structlog
from fastapi import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qmnode.management.audit import SAFE_METHODS
from qmnode.management.problems import http_problem
from qmnode.management.request_context import OPEN_PATHS
from qmnode.management.tokens import Caller, Consoles, Role, Tokens

log = structlog.get_logger(__name__)

BODY_TIME: Final = 60.0
"""Seconds that a request has to be whole."""
_BEARER: Final = "bearer "
_LOOKED_AT: Final = frozenset({b"authorization", b"content-length", b"content-encoding"})


class Doorway:
    """Lets callers in, and says to the application who they are (``request.state.caller``)."""

    def __init__(
        self, app: ASGIApp, tokens: Tokens | None, request_size: int, consoles: Consoles | None = None
    ) -> None:
        """Without tokens this is the door of the Unix socket: the kernel names the user."""
        self.app = app
        self.tokens = tokens
        self.consoles = consoles
        self.request_size = request_size

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        headers = {name: value for name, value in scope["headers"] if name in _LOOKED_AT}
        caller = self._caller(scope, headers.get(b"authorization", b"").decode("latin-1"))
        if caller is not None:
            state["caller"] = caller
        refusal = self._refusal(scope, caller, headers)
        if refusal is not None:
            # Its body is not awaited: an unknown caller cannot keep the connection open by sending it byte by byte.
            refusal.headers["Connection"] = "close"
            await refusal(scope, receive, send)
            return
        try:
            # HEAD is answered as GET (RFC 9110 9.3.2); the server, which has the scope as it was, sends no content.
            asked = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
            await self.app(asked, _limited(receive, self.request_size), _closing(send))
        except Exception:
            # Answered and logged already (problems.py): the framework raises it once more for servers that log.
            log.debug("a request failed", path=scope["path"], exc_info=True)

    def _caller(self, scope: Scope, authorization: str) -> Caller | None:
        if self.tokens is None:
            user_id, groups = scope["state"]["user"]
            return Caller(f"uid:{user_id}", Role.ADMINISTER, "unix", user=(user_id, groups))
        if authorization[: len(_BEARER)].lower() != _BEARER:
            return None
        token = authorization[len(_BEARER) :].strip()
        caller = self.tokens.caller(token)
        return caller if caller is not None or self.consoles is None else self.consoles.caller(token)

    def _refusal(self, scope: Scope, caller: Caller | None, headers: dict[bytes, bytes]) -> Response | None:
        if caller is None and scope["path"] not in OPEN_PATHS:
            answer = http_problem(401, "send a token: 'Authorization: Bearer ...', one of those in management.tokens")
            answer.headers["WWW-Authenticate"] = 'Bearer realm="qmnode"'
            return answer
        if scope["method"] not in SAFE_METHODS and caller is not None and not caller.role.changes:
            return http_problem(403, f"the role of {caller.name} is {caller.role}, and this needs {Role.OPERATE}")
        encoding = headers.get(b"content-encoding", b"identity")
        if encoding.strip().lower() != b"identity":
            return http_problem(415, f"the body is encoded as {encoding.decode('latin-1')!r:.80}: send it as it is")
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > self.request_size:
            return http_problem(413, f"a request of {int(length)} bytes: at most {self.request_size} are taken")
        return None


def _limited(receive: Receive, limit: int) -> Receive:
    size = 0
    whole = False
    until = asyncio.get_running_loop().time() + BODY_TIME

    async def counted() -> Message:
        nonlocal size, whole
        try:
            # Once the body is whole, what is waited for is that the caller goes.
            async with asyncio.timeout_at(None if whole else until):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408, f"the request was not whole after {BODY_TIME:g} seconds") from None
        whole = not message.get("more_body", False)
        size += len(message.get("body", b""))
        if size > limit:
            raise HTTPException(413, f"the request goes on and on: at most {limit} bytes are taken")
        return message

    return counted


def _closing(send: Send) -> Send:
    """Closes the connection after an answer to a request whose body did not come, or was too large."""

    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] in (408, 413):
            message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
        await send(message)

    return answer
