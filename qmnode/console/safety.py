"""Protects the console's server from other pages in the same browser: hosts, origins, and headers of every answer."""

from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qmnode.management.audit import SAFE_METHODS
from qmnode.management.problems import http_problem

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
