"""Signing in and out: with a token of the nodes, with a name and a password, or by an OpenID Connect provider.

The nodes decide the role: of a token by its digest, of other people by their groups.
"""

import asyncio
import hmac
import json
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import structlog
from cryptography.fernet import Fernet, InvalidToken
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from qmnode.console.port import Credential, DeniedError, Enterprise, Person, UnavailableError, Ways
from qmnode.console.view import LyingError, Seen, View, document_of
from qmnode.management.tokens import Role
from qmnode.password_attempts import Attempts
from qmnode.shares import block_of

IDLE: Final = 30 * 60.0
"""Seconds without a request after which a session ends."""
LONGEST: Final = 12 * 3600.0
"""Seconds after which every session ends."""
MOST: Final = 1000
"""Sessions at a time. For a new one, the idlest session of the person with the most sessions ends."""


@dataclass(slots=True)
class ConsoleSession:
    """A person who is signed in. The token stays here: the browser has a cookie that names the session."""

    name: str
    roles: tuple[str, ...]
    view: View
    person: Person | None = None
    """The person of a directory or a provider; None for the holder of a token, whom the nodes know."""
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    began: float = field(default_factory=time.monotonic)
    used: float = field(default_factory=time.monotonic)
    confirmed: float = field(default_factory=time.monotonic)
    """When the directory or the provider last said which groups the person has."""
    renewed: float = field(default_factory=time.monotonic)
    """When it was last asked."""
    renewal: asyncio.Task[str] | None = None
    """The question under way, or the last one; its result says why the session ends, or nothing."""

    def is_own(self, token: str) -> bool:
        """Whether a change comes from a page of this session: only such a page has this token."""
        return hmac.compare_digest(token.encode(), self.csrf.encode())


class Sessions:
    """All sessions, by random cookies."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._sessions: OrderedDict[str, ConsoleSession] = OrderedDict()
        self._reasons: OrderedDict[str, str] = OrderedDict()

    async def begin(self, session: ConsoleSession) -> str:
        """Add a session; the value of its cookie."""
        await self._end_old()
        while len(self._sessions) >= MOST:
            ((busiest, _),) = Counter(one.name for one in self._sessions.values()).most_common(1)
            oldest = next(cookie for cookie, one in self._sessions.items() if one.name == busiest)
            await self.end(oldest, f"More than {MOST} people are signed in.")
        cookie = secrets.token_urlsafe(32)
        session.began = session.used = self._now()
        self._sessions[cookie] = session
        return cookie

    def find(self, cookie: str) -> ConsoleSession | None:
        """The session of a cookie, if it has not ended."""
        session = self._sessions.get(cookie)
        if session is None or self._over(session):
            return None
        session.used = self._now()
        self._sessions.move_to_end(cookie)
        return session

    def reason(self, cookie: str) -> str:
        """Why the session of a cookie ended, in a sentence; empty if that is not known."""
        session = self._sessions.get(cookie)
        return self._reasons.get(cookie, "") if session is None else self._over(session)

    async def end(self, cookie: str, reason: str = "") -> None:
        """End the session of a cookie."""
        session = self._sessions.pop(cookie, None)
        if session is not None:
            self._reasons[cookie] = reason
            while len(self._reasons) > MOST:
                self._reasons.popitem(last=False)
            await session.view.close()

    async def end_of(self, name: str) -> None:
        """End all sessions of a person, in whatever browser."""
        for cookie in [cookie for cookie, session in self._sessions.items() if session.name == name]:
            await self.end(cookie, "You signed out in all browsers.")

    async def close(self) -> None:
        """End all sessions at once."""
        for cookie in list(self._sessions):
            await self.end(cookie)

    async def _end_old(self) -> None:
        over = [(cookie, reason) for cookie, session in self._sessions.items() if (reason := self._over(session))]
        for cookie, reason in over:
            await self.end(cookie, reason)

    def _over(self, session: ConsoleSession) -> str:
        """Why a session is over by its age; empty if it is not."""
        now = self._now()
        if now - session.began > LONGEST:
            return f"A session lasts {LONGEST / 3600:.0f} hours."
        if now - session.used > IDLE:
            return f"A session ends after {IDLE / 60:.0f} minutes without a request."
        return ""


log = structlog.get_logger(__name__)

REQUEST_SIZE: Final = 16 << 20
"""The largest request in bytes."""
ATTEMPTS: Final = 10
"""Attempts to sign in with one name or from one address block, undecided or failed within a minute."""
PROVIDER_TIME: Final = 600
"""Seconds that a person may take at the provider."""
_TIME: Final = 5.0
_PATIENCE: Final = 2.0
"""Seconds that a request waits for the present groups of its person."""
_UNCONFIRMED: Final = 15
"""A session ends when its groups are older than so many times the age at which they are read again."""
_LONGEST_SECRET: Final = 1000
_LONGEST_NAME: Final = 200
_UNAUTHORIZED: Final = 401
_ROLES: Final = {
    Role.READ: ("read",),
    Role.BODIES: ("read", "bodies"),
    Role.OPERATE: ("read", "bodies", "operate"),
    Role.ADMINISTER: ("read", "bodies", "operate", "administer"),
}


class _UnderWay(NamedTuple):
    state: str
    nonce: str
    verifier: str


class _Sealed:
    """Sign-ins at the provider, kept by the browsers that began them: in a cookie that only this console reads.

    So the console remembers nothing of browsers that never come back, and none can displace the sign-in of another.
    """

    def __init__(self) -> None:
        self._key = Fernet(Fernet.generate_key())

    def cookie(self, began: _UnderWay) -> str:
        return self._key.encrypt(json.dumps(began).encode()).decode()

    def began(self, cookie: str) -> _UnderWay | None:
        """The sign-in of a cookie; None if this console did not make it, or longer than ``PROVIDER_TIME`` ago."""
        try:
            return _UnderWay(*json.loads(self._key.decrypt(cookie.encode(), ttl=PROVIDER_TIME)))
        except InvalidToken:
            return None


class SignIn:
    """The part of the console before a session begins, and its end."""

    def __init__(self, enterprise: Enterprise, sessions: Sessions, ways: Ways | None, *, path: str, tls: bool) -> None:
        """``path`` is where the console is, with slashes around it."""
        self._enterprise = enterprise
        self._sessions = sessions
        self._ways = ways
        self._path = path
        self._tls = tls
        self.cookie = "__Host-console" if tls and path == "/" else "console"
        self._attempts = Attempts(ATTEMPTS, time.monotonic)
        self._under_way = _Sealed()

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """Routes that need no session."""
        routes = [
            Route("/session", self._show, methods=["GET"]),
            Route("/session", self._sign_in, methods=["POST"]),
        ]
        if self._ways is not None and self._ways.provider is not None:
            routes += [Route("/oidc/start", self._start), Route("/oidc/callback", self._come_back)]
        return routes

    async def session(self, request: Request) -> ConsoleSession | None:
        """The session of a request, if it has not ended, with the rights that the person has now."""
        cookie = request.cookies.get(self.cookie, "")
        session = self._sessions.find(cookie)
        if session is None or session.person is None or self._ways is None:
            return session
        now = time.monotonic()
        if now - session.renewed >= self._ways.groups_age and (session.renewal is None or session.renewal.done()):
            session.renewed = now
            session.renewal = asyncio.create_task(self._renewed(session, session.person))
        if (renewal := session.renewal) is not None and not renewal.done():
            await asyncio.wait([renewal], timeout=_PATIENCE)
        reason = renewal.result() if renewal is not None and renewal.done() else ""
        if not reason and time.monotonic() - session.confirmed > _UNCONFIRMED * self._ways.groups_age:
            reason = "nobody could say for too long which groups you are in: sign in again"
        if reason:
            await self._sessions.end(cookie, reason)
            return None
        return session

    def reason(self, request: Request) -> str:
        """Why the session of a request ended, in a sentence; empty if that is not known."""
        return self._sessions.reason(request.cookies.get(self.cookie, ""))

    async def _renewed(self, session: ConsoleSession, before: Person) -> str:
        """Give a session the groups that its person has now; why it ends, or nothing."""
        try:
            person = await before.again()
        except UnavailableError:
            return ""
        except DeniedError as error:
            return str(error)
        except Exception as error:  # each request of the session would fail with it
            log.error("the groups of a person cannot be read", person=before.name, exc_info=error)
            return ""
        if person.groups != before.groups or not session.roles:
            session.view.forget()
            session.view.credential, unknown = self._of(person)
            try:
                session.name, role = await _identify(session.view, unknown)
                session.roles = _ROLES[role]
            except HTTPException as error:
                if error.status_code == _UNAUTHORIZED:
                    return error.detail
                session.roles = ()  # no node can be asked, and the next renewal asks again
        session.person, session.confirmed = person, time.monotonic()
        return ""

    async def close(self) -> None:
        """Close the connections to a provider."""
        if self._ways is not None and self._ways.provider is not None:
            await self._ways.provider.close()

    def _document(self, session: ConsoleSession | None, reason: str = "") -> JSONResponse:
        ways = self._ways
        methods = ["token"]
        if ways is not None:
            methods += [name for name, way in (("ldap", ways.passwords), ("oidc", ways.provider)) if way is not None]
        return JSONResponse(
            {
                "signed_in": session is not None,
                "name": "" if session is None else session.name,
                "roles": [] if session is None else session.roles,
                "csrf": "" if session is None else session.csrf,
                "methods": methods,
                "reason": reason,
                "enterprise": self._enterprise.name,
                "features": self._enterprise.features,
            }
        )

    async def _show(self, request: Request) -> Response:
        session = await self.session(request)
        return self._document(session, "" if session is not None else self.reason(request))

    async def _sign_in(self, request: Request) -> Response:
        wanted = await document_of_request(request)
        counted = [f"from {block_of(request.client.host if request.client is not None else '')}"]
        if isinstance(wanted.get("user"), str):
            counted.append(f"as {wanted['user']:.200}".casefold())
        if not self._attempts.begin(*counted):
            raise HTTPException(429, "too many attempts failed: wait a minute, then sign in again")
        try:
            session = await self._proved(wanted)
        except HTTPException as error:
            if error.status_code != _UNAUTHORIZED:
                self._attempts.take_back(*counted)
            raise
        except UnavailableError:
            self._attempts.take_back(*counted)
            raise
        self._attempts.take_back(*counted)
        response = self._document(session)
        await self._begin(request, response, session)
        return response

    async def _proved(self, wanted: dict[str, Any]) -> ConsoleSession:
        """The session of a person who has proved who they are. HTTPException for others."""
        passwords = None if self._ways is None else self._ways.passwords
        match wanted:
            case {"method": "token", "token": str(token)}:
                token = token.strip()
                if not token or len(token) > _LONGEST_SECRET or not _is_word(token):
                    raise HTTPException(401, "that is no token: it is one line of ASCII letters without spaces")
                unknown = "no node knows this token: add its digest to management.tokens of the nodes"
                return await self._session(lambda _: token, unknown)
            case {"method": "ldap", "user": str(user), "password": str(password)} if passwords is not None:
                # A bind without a password is one of nobody, and succeeds (RFC 4513, 5.1.2).
                short = 0 < len(user) <= _LONGEST_NAME and 0 < len(password) <= _LONGEST_SECRET
                person = await passwords.identify(user, password) if short and user.isprintable() else None
                if person is None:
                    raise HTTPException(401, "the directory does not know this name, or the password is wrong")
                return await self._session_of(person)
        raise HTTPException(422, 'sign in with {"method": "token", "token": "..."}, or as the server offers')

    def _of(self, person: Person) -> tuple[Credential, str]:
        assert self._ways is not None
        return self._ways.credential(person), (
            f"no node gives {person.name} a role: name one of their groups in management.consoles of the nodes"
        )

    async def _session_of(self, person: Person) -> ConsoleSession:
        session = await self._session(*self._of(person))
        session.person = person
        return session

    async def _session(self, credential: Credential, unknown: str) -> ConsoleSession:
        view = View(self._enterprise, credential)
        try:
            name, role = await _identify(view, unknown)
        except BaseException:
            await view.close()
            raise
        return ConsoleSession(name, _ROLES[role], view)

    async def _begin(self, request: Request, response: Response, session: ConsoleSession) -> None:
        """Signing in makes a new session: a cookie that somebody planted is worth nothing after it."""
        await self._sessions.end(request.cookies.get(self.cookie, ""))
        cookie = await self._sessions.begin(session)
        response.set_cookie(self.cookie, cookie, path=self._path, secure=self._tls, httponly=True, samesite="strict")

    async def sign_out(self, request: Request, session: ConsoleSession) -> Response:
        """End the session of a request, or with ``everywhere=true`` all of its person, and take the cookie back."""
        if request.query_params.get("everywhere") == "true":
            await self._sessions.end_of(session.name)
        await self._sessions.end(request.cookies.get(self.cookie, ""))
        response = Response(status_code=204)
        response.delete_cookie(self.cookie, path=self._path, secure=self._tls, httponly=True, samesite="strict")
        return response

    # The way over a provider

    async def _start(self, _: Request) -> Response:
        assert self._ways is not None and self._ways.provider is not None
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        try:
            address = await self._ways.provider.address(state, nonce, verifier)
        except (UnavailableError, DeniedError) as error:
            return self._home(str(error))
        response = RedirectResponse(address, 302)
        began = self._under_way.cookie(_UnderWay(state, nonce, verifier))
        # Lax: the browser comes back from another site, and only what it began itself may end here.
        response.set_cookie(
            "console-oidc", began, path=f"{self._path}api/oidc/", secure=self._tls, httponly=True, samesite="lax",
            max_age=PROVIDER_TIME,
        )  # fmt: skip
        return response

    async def _come_back(self, request: Request) -> Response:
        assert self._ways is not None and self._ways.provider is not None
        asked = request.query_params
        began = self._under_way.began(request.cookies.get("console-oidc", ""))
        if began is None:
            return self._home("this browser has not begun to sign in, or it took too long: begin again")
        if not secrets.compare_digest(asked.get("state", "").encode(), began.state.encode()):
            return self._home("the answer is not to this browser's question: begin again")
        if "error" in asked:
            return self._home(f"the provider refused: {asked.get('error_description') or asked['error']}")
        try:
            person = await self._ways.provider.identify(asked.get("code", ""), began.nonce, began.verifier)
            session = await self._session_of(person)
        except (UnavailableError, DeniedError) as error:
            return self._home(str(error))
        except HTTPException as error:
            return self._home(error.detail)
        response = self._home()
        await self._begin(request, response, session)
        return response

    def _home(self, reason: str = "") -> Response:
        fragment = f"?{urlencode({'sign_in_error': reason[:500]})}" if reason else ""
        response = RedirectResponse(f"{self._path}#/{fragment}", 302)
        response.delete_cookie("console-oidc", path=f"{self._path}api/oidc/", secure=self._tls, httponly=True)
        return response


async def _identify(view: View, unknown: str) -> tuple[str, Role]:
    """Name and role of a person, from the first node that knows them. HTTPException if none does."""
    reasons: dict[str, str] = {}

    async def ask(seen: Seen) -> dict[str, Any] | None:
        try:
            answer = await seen.node.ask("GET", "/v1/caller")
            if answer.status == _UNAUTHORIZED:
                return None
            return document_of(answer)
        except (UnavailableError, LyingError) as error:
            reasons[seen.machine.name] = str(error)
            return None

    tasks: list[Awaitable[dict[str, Any] | None]] = [asyncio.create_task(ask(seen)) for seen in await view.nodes()]
    found: tuple[str, Role] | None = None
    try:
        async with asyncio.timeout(_TIME):
            for done in asyncio.as_completed(tasks):
                document = await done
                role, name = (document or {}).get("role"), (document or {}).get("name")
                if isinstance(name, str) and isinstance(role, str) and role in set(Role):
                    found = name[:100], Role(role)
                    break
    except TimeoutError:
        reasons.setdefault("", "the nodes did not answer in time")
    finally:
        for task in tasks:
            task.cancel()  # type: ignore[attr-defined]
    if found is not None:
        return found
    if not tasks:
        raise HTTPException(503, f"there is no node to ask: {view.outline.reason or 'the directory has none'}")
    if len(reasons) >= len(tasks):
        machine, reason = next(iter(reasons.items()))
        raise HTTPException(503, f"no node can say who you are: {machine}: {reason}" if machine else reason)
    raise HTTPException(401, unknown)


def _is_word(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


async def body_of(request: Request) -> bytes:
    """The content of a request. HTTPException if it is too large."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > REQUEST_SIZE:
            raise HTTPException(413, f"a request of more than {REQUEST_SIZE} bytes")
        parts.append(part)
    return b"".join(parts)


async def document_of_request(request: Request) -> dict[str, Any]:
    """The JSON object of a request. HTTPException if it is none."""
    try:
        document = json.loads(await body_of(request))
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise HTTPException(422, "send a JSON object")
    return document
