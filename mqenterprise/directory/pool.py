"""Connections to several servers: kept, renewed, and taken from the next server when one fails."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mqenterprise.directory.errors import BindRefused, DirectoryError, DirectoryUnavailable
from mqenterprise.directory.session import LdapSession, open_session
from mqenterprise.directory.settings import DirectorySettings


class Pool:
    """Sessions by server. Safe for threads; each session is used by one at a time.

    A server that failed is tried last for :attr:`DirectorySettings.retry_after` seconds, and never given up: a link
    that is down comes back by itself.
    """

    def __init__(
        self,
        settings: DirectorySettings,
        servers: Callable[[], Sequence[str]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        opener: Callable[[str, DirectorySettings, Callable[[], float]], LdapSession] = open_session,
    ) -> None:
        self.settings = settings
        self._servers = servers or (lambda: settings.servers)
        self._clock = clock
        self._open = opener
        self._lock = threading.Lock()
        self._idle: list[LdapSession] = []
        self._failed_at: dict[str, float] = {}
        self._closed = False

    def order(self) -> list[str]:
        """The servers, those that failed lately last."""
        now = self._clock()
        with self._lock:
            failed = {url for url, at in self._failed_at.items() if now - at < self.settings.retry_after}
        urls = list(dict.fromkeys(self._servers()))
        return [url for url in urls if url not in failed] + [url for url in urls if url in failed]

    @contextmanager
    def session(self, only: str | None = None) -> Iterator[LdapSession]:
        """A session to the first server that lets us in, or the named one. ``DirectoryUnavailable`` has each reason."""
        session = self._take(only) or self._connect(only)
        try:
            yield session
        except DirectoryError:
            self._give_back(session)
            raise
        except BaseException:
            # Nobody knows what the server will still say on this connection.
            session.close()
            raise
        else:
            self._give_back(session)

    def unbound(self, settings: DirectorySettings) -> Iterator[LdapSession]:
        """New sessions that are secured and not bound, to one server after the other, for the caller to close.

        Raises ``DirectoryUnavailable`` if a server that is left cannot be reached either.
        """
        problem: DirectoryUnavailable | None = None
        for url in self.order():
            try:
                session = self._open(url, settings, self._clock)
            except DirectoryUnavailable as error:
                self.fail(url)
                problem = error
            else:
                yield session
        if problem is not None:
            raise problem

    def fail(self, url: str) -> None:
        """Note that a server does not answer, and drop what is kept of it."""
        with self._lock:
            self._failed_at[url] = self._clock()
            dropped = [session for session in self._idle if session.url == url]
            self._idle = [session for session in self._idle if session.url != url]
        for session in dropped:
            session.close()

    def close(self) -> None:
        """Close what is kept. Sessions in use are closed when they are given back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()

    def _take(self, only: str | None) -> LdapSession | None:
        preferred = only or next(iter(self.order()), None)
        while True:
            with self._lock:
                if self._closed:
                    raise DirectoryUnavailable("this directory was closed")
                index = next((i for i, kept in enumerate(self._idle) if kept.url == preferred), None)
                session = None if index is None else self._idle.pop(index)
            if session is None or session.usable(self.settings.idle_limit):
                return session
            session.close()

    def _connect(self, only: str | None) -> LdapSession:
        problems: list[DirectoryUnavailable] = []
        for url in [only] if only else self.order():
            try:
                session = self._open(url, self.settings, self._clock)
            except BindRefused:
                # It answered: another server of this directory would say the same, and count one more wrong password.
                raise
            except DirectoryUnavailable as problem:
                self.fail(url)
                problems.append(problem)
            else:
                with self._lock:
                    self._failed_at.pop(url, None)
                return session
        if not problems:
            raise DirectoryUnavailable("no directory server is known: neither configured nor found in DNS")
        if len(problems) == 1:
            raise problems[0]
        raise DirectoryUnavailable("; ".join(problem.sentence for problem in problems))

    def _give_back(self, session: LdapSession) -> None:
        session.touch()
        with self._lock:
            if not self._closed and not session.broken and len(self._idle) < self.settings.pool_size:
                self._idle.append(session)
                return
        session.close()
