"""Sessions of the people who are signed in."""

import asyncio
import hmac
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from qmnode.console.people import Person
from qmnode.console.view import View

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
