"""The console's server: pages, sessions, and one API over all nodes.

Each request to a node is made as the person who signed in, and the node authorises and audits it. The browser never
learns the token.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qmnode.console.port import Answer, Enterprise, RefusedError, UnavailableError, Ways
from qmnode.console.sign_in import ConsoleSession, Sessions, SignIn, body_of
from qmnode.console.view import DEAD_LETTERS, JOURNAL, PATIENCE, LyingError, Seen, document_of, link_states, timestamp
from qmnode.errors import MessageQueuingError
from qmnode.management.audit import SAFE_METHODS
from qmnode.management.problems import http_problem, problem, status_of
from qmnode.model.api import QueueType

_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_YEAR: Final = 365 * 86_400


class Safety:
    """Refuses requests for other hosts and from other pages, and adds the headers that browsers obey."""

    def __init__(self, app: ASGIApp, hosts: Collection[str], *, path: str, tls: bool) -> None:
        """``hosts``: the names and addresses by which browsers know this server; ``path``: where the console is."""
        self.app = app
        # Links to pages may be anywhere, and a provider sends the browser back: neither answers with anybody's data.
        self._open = {path, f"{path}index.html", f"{path}api/oidc/callback"}
        self.hosts = frozenset(host.casefold().strip("[]") for host in hosts)
        self.tls = tls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if self.tls:
                    headers["Strict-Transport-Security"] = f"max-age={_YEAR}"
                if "cache-control" not in headers:
                    headers["Cache-Control"] = "no-store"
            await send(message)

        refusal = self._refusal(scope["method"], scope["path"], Headers(scope=scope))
        if refusal:
            await http_problem(403, refusal)(scope, receive, answer)
            return
        await self.app(scope, receive, answer)

    def _refusal(self, method: str, path: str, headers: Headers) -> str:
        host = headers.get("host", "")
        if (_host_of(f"//{host}") or "") not in self.hosts:
            return (
                "this server is not known by that name (header Host): add it with --host, if browsers shall use it, "
                "or to management.console_hosts of a node"
            )
        follows_link = method == "GET" and path in self._open and headers.get("sec-fetch-mode") == "navigate"
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not (
            follows_link and headers.get("sec-fetch-dest") == "document"
        ):
            return "the request comes from another page"
        origin = headers.get("origin")
        if method in SAFE_METHODS and origin is None:
            return ""
        # Behind a proxy the scheme and the port may be others; the name is that of this server, or nobody's.
        if origin is None or urlsplit(origin).netloc != host:
            return "a change must come from a page of this server (header Origin)"
        return ""


def _host_of(address: str) -> str | None:
    try:
        found = urlsplit(address).hostname
    except ValueError:
        return None
    return None if found is None else found.casefold()


STATIC: Final = Path(__file__).parent / "static"
_PAGE: Final = 100
_LARGEST_PAGE: Final = 1000
_UNAUTHORIZED: Final = 401
_NOT_FOUND: Final = 404
_LONGEST_SEARCH: Final = 300
_MISTAKES: Final = (400, 404, 422)
"""Statuses of answers to what a person mistyped."""

Handler = Callable[[Request, ConsoleSession], Awaitable[Response]]

_NAME: Final = r"[^/]{1,2000}"
_PASSED: Final = re.compile(
    "|".join(
        (
            r"node(/online)?",
            r"caller|quotas|connections|transactions|keys(/reload|/rotation)?|history|journals|failures|audit",
            r"dead-letters(/retry)?",
            r"messages(/import)?",
            rf"queues(/{_NAME}(/(access|pause|resume|receive|incoming-sequences|refused-messages"
            rf"|messages(/{_NAME}(/(edit|move))?)?))?)?",
            rf"outgoing-queues(/{_NAME}(/[a-z-]{{1,40}})?)?",
            r"jobs(/[0-9]{1,16}(/log)?)?",
        )
    )
)
"""The parts of a node's management API that the console passes on."""
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_MEDIA_TYPES: Final = frozenset({"application/json", "application/problem+json", "text/plain"})
_SORTS: Final = ("pathname", "machine", "label", "message_count", "total_bytes", "age", "arrived_rate", "left_rate")


class Console:
    """An ASGI application. Close it when its server has stopped."""

    def __init__(
        self,
        enterprise: Enterprise,
        hosts: Sequence[str],
        *,
        path: str = "/",
        tls: bool = True,
        ways: Ways | None = None,
    ) -> None:
        """``path``: where a proxy shows the console; ``tls``: browsers use TLS; ``ways``: to sign in beside tokens."""
        self.enterprise = enterprise
        self.sessions = Sessions()
        self._path = f"/{path.strip('/')}/".replace("//", "/")
        self.sign_in = SignIn(enterprise, self.sessions, ways, path=self._path, tls=tls)
        self._app: ASGIApp = Safety(self._routed(), hosts, path=self._path, tls=tls)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of a browser."""
        await self._app(scope, receive, send)

    async def close(self) -> None:
        """End all sessions and close the enterprise."""
        await self.sessions.close()
        await self.sign_in.close()
        await self.enterprise.close()

    def _routed(self) -> Starlette:
        api: list[BaseRoute] = [
            *self.sign_in.routes,
            Route("/session", self.signed_in(self.sign_in.sign_out), methods=["DELETE"]),
            Route("/overview", self.signed_in(_overview)),
            Route("/queues", self.signed_in(_queues)),
            Route("/messages", self.signed_in(_messages)),
            Route("/failures", self.signed_in(_failures)),
            Route("/waiting", self.signed_in(_waiting)),
            Route("/jobs", self.signed_in(_jobs)),
            Route("/audit", self.signed_in(_audit)),
            Route("/nodes/{machine}/v1/messages/export", self.signed_in(_export)),
            Route("/nodes/{machine}/v1/{rest:path}", self.signed_in(_pass_on), methods=list(_METHODS)),
            *(
                Route(route.path, self.signed_in(route.endpoint), methods=list(route.methods or ()))
                for route in self.enterprise.routes
                if isinstance(route, Route)
            ),
        ]
        pages = GZipMiddleware(_Pages(directory=STATIC, html=True))
        app = Starlette(
            routes=[
                Mount(
                    self._path.rstrip("/"),
                    routes=[Mount("/api", routes=api), Mount("/", app=pages)],
                )
            ],
            exception_handlers={
                HTTPException: _refused,
                MessageQueuingError: _failed,
                UnavailableError: _unavailable,
                LyingError: _unavailable,
            },
        )
        app.router.redirect_slashes = False
        return app

    def signed_in(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """A route for people who are signed in; changes need the session's own token."""

        async def checked(request: Request) -> Response:
            session = await self.sign_in.session(request)
            if session is None:
                reason = self.sign_in.reason(request)
                raise HTTPException(401, f"sign in: there is no session, or it has ended. {reason}".rstrip())
            if request.method not in SAFE_METHODS and not session.is_own(request.headers.get("x-csrf-token", "")):
                raise HTTPException(403, "the page is older than your session: load it again")
            return await handler(request, session)

        return checked


class _Pages(StaticFiles):
    """The files of the console. Those under ``assets`` have a digest in their names, and never change."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        lasts = path.startswith("assets/") and response.status_code == 200
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable" if lasts else "no-cache"
        return response


async def _overview(_: Request, session: ConsoleSession) -> Response:
    nodes = await session.view.refresh()
    outline = session.view.outline
    states = [seen.state() for seen in nodes]
    return JSONResponse(
        {
            "sites": [dict(site) for site in outline.sites],
            "nodes": states,
            "links": link_states(session.view.enterprise, outline.links, nodes, states),
            "directory": {"as_of": timestamp(outline.as_of), "reason": outline.reason},
        }
    )


async def _queues(request: Request, session: ConsoleSession) -> Response:
    asked = request.query_params
    sort = asked.get("sort", "pathname")
    if sort not in _SORTS:
        raise HTTPException(422, f"sort by {', '.join(_SORTS)}")
    search, kinds = asked.get("search", "").casefold(), set(asked.getlist("type"))
    filled, descending = asked.get("filled") == "true", asked.get("descending") == "true"
    machines, site = {name.casefold() for name in asked.getlist("machine")}, asked.get("site", "").casefold()
    nodes = [
        seen
        for seen in await session.view.refresh()
        if (not machines or seen.machine.name.casefold() in machines) and site in ("", seen.machine.site.casefold())
    ]
    found: list[tuple[str, Any, Seen, int]] = []
    for seen in nodes:  # in the order of their names
        if seen.columns:
            names = seen.shown_names
            keys = [seen.machine.name.casefold()] * len(names) if sort == "machine" else seen.column(sort)
            matching = _matching(seen, search, kinds, filled=filled)
            found += [(names[number], keys[number], seen, number) for number in matching]
    # Sorting keeps the order of equals: by name, then by node, whatever the column.
    found.sort(key=itemgetter(0), reverse=sort == "pathname" and descending)
    if sort != "pathname":
        found.sort(key=itemgetter(1), reverse=descending)
    offset, limit = _integer(asked, "offset", 0), min(_integer(asked, "limit", _PAGE), _LARGEST_PAGE)
    rows = [seen.row(number) for _, _, seen, number in found[offset : offset + limit]]
    return JSONResponse({"queues": rows, "total": len(found), "stale": _stale(nodes)})


def _matching(seen: Seen, search: str, kinds: set[str], *, filled: bool) -> Iterable[int]:
    """The numbers of the queues that a person has chosen.

    Without kinds: all but system queues; of journals and dead-letter queues only what was searched, or has messages.
    """
    numbers: Iterable[int] = range(len(seen.columns["pathname"]))
    types, counts = seen.columns["queue_type"], seen.columns["message_count"]
    if kinds:
        numbers = [number for number in numbers if types[number] in kinds]
    else:
        hidden = {QueueType.SYSTEM.value} if search else {QueueType.SYSTEM.value, JOURNAL, DEAD_LETTERS}
        numbers = [
            number
            for number in numbers
            if types[number] not in hidden or (counts[number] and types[number] != QueueType.SYSTEM.value)
        ]
    if filled:
        numbers = [number for number in numbers if counts[number]]
    if search:
        texts, words = seen.searched, tuple(dict.fromkeys(search[:_LONGEST_SEARCH].split()))
        numbers = [number for number in numbers if all(word in texts[number] for word in words)]
    return numbers


def _stale(nodes: Sequence[Seen]) -> list[dict[str, Any]]:
    return [stale for seen in nodes if (stale := seen.stale()) is not None]


def _integer(asked: Mapping[str, str], name: str, otherwise: int) -> int:
    text = asked.get(name, str(otherwise))
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise HTTPException(422, f"{name} is a number, and not {text!r:.40}")
    return int(text)


async def _gather(
    session: ConsoleSession, machines: Sequence[str], path: str, query: Callable[[Seen], str | None]
) -> tuple[list[tuple[Seen, dict[str, Any]]], list[dict[str, Any]]]:
    """The documents of all nodes that answer, and why others did not. A query of None leaves a node out.

    Raises HTTPException for a mistake in the request, which the nodes that answer refuse: no node is down for it.
    """
    answers: list[tuple[Seen, dict[str, Any]]] = []
    stale: list[dict[str, Any]] = []
    refusals: list[RefusedError] = []

    async def ask(seen: Seen, asked: str) -> None:
        try:
            answers.append((seen, document_of(await _answer(seen, path, asked))))
        except (UnavailableError, LyingError) as error:
            refused = isinstance(error, RefusedError)
            if isinstance(error, RefusedError):
                refusals.append(error)
                if error.status == _NOT_FOUND:  # it answers: it has no such queue
                    return
            stale.append({"machine": seen.machine.name, "reason": str(error), "as_of": None, "refused": refused})

    nodes = [(seen, asked) for seen in await session.view.chosen(machines) if (asked := query(seen)) is not None]
    await asyncio.gather(*(ask(seen, asked) for seen, asked in nodes))
    if not answers and (wrong := [one for one in refusals if one.status in _MISTAKES]):
        raise HTTPException(wrong[0].status, str(wrong[0]))
    answers.sort(key=lambda pair: pair[0].machine.name.casefold())
    return answers, stale


async def _answer(seen: Seen, path: str, query: str) -> Answer:
    """The answer of a node, for as long as it answers others meanwhile. Raises :class:`UnavailableError`."""
    await seen.identified()
    task = asyncio.ensure_future(seen.node.ask("GET", path, query))
    try:
        while not (await asyncio.wait([task], timeout=PATIENCE))[0]:
            if not await seen.answers() and not task.done():
                raise UnavailableError(seen.fault or "it does not answer")
        return task.result()
    finally:
        task.cancel()


def _rows(answers: Sequence[tuple[Seen, dict[str, Any]]], name: str) -> list[dict[str, Any]]:
    return [{"machine": seen.machine.name} | row for seen, document in answers for row in _list_of(document, name)]


async def _messages(request: Request, session: ConsoleSession) -> Response:
    """A page of a search over nodes; its cursor has the place at each node that has more."""
    asked = request.query_params
    places: dict[str, str] = {}
    if cursor := asked.get("cursor", ""):
        for part in cursor.split(","):
            machine, separator, place = part.partition(":")
            if not separator:
                raise HTTPException(422, "that is no cursor: use the one of the page before")
            places[machine] = place
    wanted = [
        *(("queue", one) for one in asked.getlist("queue") or ["*"]),
        *(("where", one) for one in asked.getlist("where")),
        ("limit", str(min(_integer(asked, "limit", 50), _LARGEST_PAGE))),
        ("body", asked.get("body", "none")),
    ]

    def query(seen: Seen) -> str | None:
        if places and seen.machine.name not in places:
            return None
        return urlencode([*wanted, ("cursor", places.get(seen.machine.name, ""))])

    answers, stale = await _gather(session, asked.getlist("machine"), "/v1/messages", query)
    rest = [f"{seen.machine.name}:{document['next']}" for seen, document in answers if document.get("next")]
    rest += [f"{one['machine']}:{places.get(one['machine'], '')}" for one in stale if places]
    return JSONResponse(
        {
            "found": _rows(answers, "found"),
            "scanned": sum(_count(document, "scanned") for _, document in answers),
            "total": sum(_count(document, "total") for _, document in answers),
            "next": ",".join(rest) or None,
            "refused": [
                f"{seen.machine.name}: {name}" for seen, document in answers for name in document.get("refused") or []
            ],
            "stale": stale,
        }
    )


def _count(document: Mapping[str, Any], name: str) -> int:
    value = document.get(name)
    return value if type(value) is int else 0


async def _failures(request: Request, session: ConsoleSession) -> Response:
    asked = request.query_params
    queues = asked.getlist("queue") or ["*"]
    wanted = [
        *(("queue", one) for one in queues),
        *(("by", one) for one in asked.getlist("by")),
        *(("where", one) for one in asked.getlist("where")),
    ]
    answers, stale = await _gather(session, asked.getlist("machine"), "/v1/failures", lambda _: urlencode(wanted))
    return JSONResponse({"groups": _rows(answers, "groups"), "stale": stale})


async def _waiting(request: Request, session: ConsoleSession) -> Response:
    """Why messages wait: at all nodes, at some, for a machine, or at both ends of a link."""
    asked = request.query_params
    ends = asked.getlist("link")
    if len(ends) not in (0, 2):
        raise HTTPException(422, "a link has two ends: give link twice")

    def query(seen: Seen) -> str | None:
        wanted = {"machine": asked.get("machine", "")}
        if ends:
            if seen.machine.site not in ends:
                return None
            wanted["link"] = ends[seen.machine.site == ends[0]]
        return urlencode({name: value for name, value in wanted.items() if value})

    answers, stale = await _gather(session, asked.getlist("at"), "/v1/waiting", query)
    rows = [
        {"at": seen.machine.name, "destination": seen.destination(str(row.get("queue"))), **row}
        for seen, document in answers
        for row in _list_of(document, "waiting")
    ]
    rows.sort(key=lambda row: -_count(row, "messages"))
    return JSONResponse({"waiting": rows, "stale": stale})


def _list_of(document: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = document.get(name)
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


async def _jobs(request: Request, session: ConsoleSession) -> Response:
    answers, stale = await _gather(session, request.query_params.getlist("machine"), "/v1/jobs", lambda _: "")
    rows = sorted(_rows(answers, "jobs"), key=lambda row: str(row.get("created")), reverse=True)
    return JSONResponse({"jobs": rows, "stale": stale})


async def _audit(request: Request, session: ConsoleSession) -> Response:
    limit = min(_integer(request.query_params, "limit", 200), _LARGEST_PAGE)
    machines = request.query_params.getlist("machine")
    answers, stale = await _gather(session, machines, "/v1/audit", lambda _: f"limit={limit}")
    rows = sorted(_rows(answers, "entries"), key=lambda row: str(row.get("time")), reverse=True)
    return JSONResponse({"entries": rows[:limit], "stale": stale})


async def _export(request: Request, session: ConsoleSession) -> Response:
    """Messages as a file, passed on as they come: more of them than fit into memory."""
    seen = await _node_of(request, session)
    await seen.identified()
    parts = seen.node.stream("/v1/messages/export", request.url.query)
    try:
        first = await anext(parts, b"")
    except RefusedError as error:
        raise HTTPException(error.status, str(error)) from None

    async def all_parts() -> AsyncIterator[bytes]:
        yield first
        async for part in parts:
            yield part

    headers = {"Content-Disposition": 'attachment; filename="messages.jsonl"'}
    return StreamingResponse(all_parts(), media_type="application/x-ndjson", headers=headers)


async def _node_of(request: Request, session: ConsoleSession) -> Seen:
    machine = request.path_params["machine"]
    found = [seen for seen in await session.view.nodes() if seen.machine.name.casefold() == machine.casefold()]
    if not found:
        raise HTTPException(404, f"there is no node {quote(machine)[:100]}")
    return found[0]


async def _pass_on(request: Request, session: ConsoleSession) -> Response:
    """A request to one node. Only the parts of its API that the console uses, and no path that leads elsewhere."""
    whole = request.scope["raw_path"].decode("latin-1")
    raw = whole.partition("/api/nodes/")[2].partition("/v1/")[2]  # as it came: names have encoded slashes
    if not _PASSED.fullmatch(raw) or any(part in (".", "..") for part in raw.split("/")):
        raise HTTPException(404, "the console passes no such request on")
    seen = await _node_of(request, session)
    if request.method in SAFE_METHODS:
        try:
            return _passed(await _answer(seen, f"/v1/{raw}", request.url.query))
        except (UnavailableError, LyingError) as error:
            raise HTTPException(503, f"{seen.machine.name} cannot be asked: {error}") from None
    await seen.identified()
    # The outcome of a change is awaited, also of a node that hangs meanwhile.
    answer = await seen.node.ask(request.method, f"/v1/{raw}", request.url.query, await body_of(request))
    seen.asked = 0.0  # a change is shown at once
    return _passed(answer)


def _passed(answer: Answer) -> Response:
    """A node's answer as data: never as a page or a script, whatever the node calls it."""
    if answer.status == _UNAUTHORIZED:  # of the node; the session of the console goes on
        return http_problem(403, "this node does not know your token: add its digest to its management.tokens")
    media_type = answer.media_type.partition(";")[0].strip().lower()
    if answer.content and media_type not in _MEDIA_TYPES:
        return http_problem(502, "the node's answer is of a type that the console does not pass on")
    status = answer.status if 200 <= answer.status <= 599 else 502
    return Response(answer.content or None, status, media_type=media_type or None)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return http_problem(error.status_code, error.detail)


async def _failed(_: Request, error: Exception) -> Response:
    assert isinstance(error, MessageQueuingError)
    return problem(status_of(error.code), error.code, error.sentence)


async def _unavailable(_: Request, error: Exception) -> Response:
    return http_problem(503, str(error))
