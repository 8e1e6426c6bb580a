"""Markup, pages and sites that mean no good, in a real browser: at the report, at pictures, and at the console."""

from __future__ import annotations

import http.server
import json
import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
import uvicorn

from mqenterprise.pipeline.report.page import page as report_page
from mqenterprise.pipeline.sources.quarantine import Record
from mqenterprise.topology.drawing import Graph, LinkEdge, SiteNode, svg
from qmnode.console.app import Console
from qmnode.console.port import Answer
from tests.adversary.attacks import Area, attack
from tests.adversary.played_console import STATE, TOKEN, Played, PlayedNode, document, honest
from tests.console.browser import PATIENCE, browser
from tests.lab.waiting import wait_until
from tests.pipeline.test_report import DEAD, LATENCIES, LEVELS, LIFE, USE, figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = pytest.mark.servers
ELSEWHERE = "localhost"
"""Another site than 127.0.0.1, to a browser."""
REBOUND = "rebound.test"
"""A name of the attacker's, which leads to the console."""


class Elsewhere:
    """A server of the attacker, at loopback. It remembers what browsers asked of it, and serves the attacker's page."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.page = "<title>elsewhere</title>"
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                content = outer.page.encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    server = Elsewhere()
    yield server
    server.close()


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser(f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1") as started:
        yield started


@contextmanager
def tab(window: Browser) -> Iterator[BrowserContext]:
    context = window.new_context()
    context.set_default_timeout(PATIENCE)
    try:
        yield context
    finally:
        context.close()


def stays(context: BrowserContext, opened: Page, elsewhere: Elsewhere) -> None:
    """Check that a page is where it was, when the browser has followed the same refresh of an unguarded page."""
    assert not [path for path in elsewhere.asked if path != "/favicon.ico"], elsewhere.asked
    before, control = opened.url, context.new_page()
    control.set_content(f'<meta http-equiv="refresh" content="0;url={elsewhere.url}/control">')
    control.wait_for_url(f"{elsewhere.url}/control")  # Chromium forgets to close a page in the moment of its commit
    control.close()
    assert "/control" in elsewhere.asked
    assert opened.url == before
    assert [path for path in elsewhere.asked if path not in ("/control", "/favicon.ico")] == []


def markup(url: str) -> str:
    """Text that leads elsewhere in whatever place of a document it is taken for markup."""
    return (
        f'\'"></title></style></script></svg><meta http-equiv="refresh" content="0;url={url}/refresh">'
        f'<base href="{url}/"><img src="{url}/image" onerror="location=\'{url}/script\'">'
        f"<script>location='{url}/script'</script>]]>-->&lt;x\x00\x1b\u202e"
    )


@attack(
    Area.BROWSER,
    can="put markup into every name that a node exports, and into the identifiers of messages: a refresh, a script",
    promised="the report shows the names as text: a browser follows nothing, and loads nothing",
)
def test_the_report_takes_no_markup(window: Browser, elsewhere: Elsewhere, tmp_path: Path) -> None:
    evil = markup(elsewhere.url)
    sample = f"{evil}\\7"
    life = LIFE | {
        "source_id": evil, "destination": evil, "queue": evil, "origin": evil, "sender": evil,
        "hops": [hop | {"node": evil, "site": evil, "peer": evil} for hop in LIFE["hops"]],  # type: ignore[union-attr]
    }  # fmt: skip
    tables = figures(
        service_levels=[row | {"site": evil, "queue": evil} for row in LEVELS],
        latencies=[row | {"site": evil, "queue": evil} for row in LATENCIES],
        dead_letters=[row | {"sample": sample, "queue": evil, "cause": evil} for row in DEAD],
        link_use=[row | {"from_site": evil} for row in USE],
    )
    aside = (Record(evil, evil, evil),)
    report = tmp_path / "report.html"
    report.write_text(report_page(replace(tables, examples={sample: life}, aside=aside), evil), "utf-8")
    with tab(window) as context:
        opened = context.new_page()
        opened.goto(report.as_uri())
        assert evil[:20] in opened.title()
        assert opened.locator("main meta, main base, main img, main script").count() == 0
        opened.locator("#dead-letters").get_by_role("link", name=sample[:30]).first.click()
        assert opened.locator(".life:target").count() == 1
        stays(context, opened, elsewhere)


@attack(
    Area.BROWSER,
    can="get a refresh, a link or a form into the report itself, past the escaping",
    promised="the page stays: its script and its policy refuse every way to another page",
)
def test_the_report_leads_nowhere_else(window: Browser, elsewhere: Elsewhere, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    injected = (
        f'<meta http-equiv="refresh" content="0;url={elsewhere.url}/refresh"><base href="{elsewhere.url}/">'
        f'<form action="{elsewhere.url}/form"><input name="x"><button>send</button></form>'
        f'<a href="{elsewhere.url}/link">away</a><iframe src="{elsewhere.url}/frame"></iframe>'
        f"<img src='{elsewhere.url}/image'>"
    )
    report.write_text(report_page(figures(service_levels=LEVELS)).replace("<main>", f"<main>{injected}"), "utf-8")
    with tab(window) as context:
        opened = context.new_page()
        opened.goto(report.as_uri())
        opened.evaluate("document.querySelector('form').requestSubmit()")
        opened.evaluate("Array.from(document.links).find((one) => one.textContent === 'away').click()")
        stays(context, opened, elsewhere)


@attack(
    Area.BROWSER,
    can="put markup into the names of sites and machines of the directory",
    promised="the picture that mqenterprise show draws has them as text",
)
def test_a_picture_takes_no_markup(window: Browser, elsewhere: Elsewhere, tmp_path: Path) -> None:
    evil = markup(elsewhere.url)
    with tab(window) as context:
        for count in (2, 30):  # a ring and an outline
            sites = tuple(SiteNode(f"{number}{evil}", False, 1, (evil,), 1, (evil,)) for number in range(count))
            links = tuple(LinkEdge(0, number, 1, (evil,)) for number in range(1, count))
            file = tmp_path / f"{count}.svg"
            file.write_text(svg(Graph(sites, links), evil), "utf-8")
            opened = context.new_page()
            opened.goto(file.as_uri())
            assert opened.locator("text").count() > count
            assert opened.locator("script, image, meta, base, foreignObject").count() == 0
            stays(context, opened, elsewhere)
            elsewhere.asked.clear()


# The console


class Served:
    """A console over nodes that a test plays, which listens at loopback."""

    def __init__(self, node: PlayedNode) -> None:
        self.node = node
        config = uvicorn.Config(
            Console(Played({"ALPHA": node}), ["127.0.0.1"], tls=False), host="127.0.0.1", port=0, log_level="error",
            lifespan="off", ws="none",
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        wait_until(lambda: self._server.started, 60, "the console listens")

    @property
    def port(self) -> int:
        return int(self._server.servers[0].sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def changes(self) -> list[str]:
        """Requests to the node that change something."""
        return [f"{method} {path}" for method, path, _ in self.node.asked if method != "GET"]

    def sign_in(self, context: BrowserContext) -> None:
        answer = context.request.post(
            f"{self.url}/api/session",
            data=json.dumps({"method": "token", "token": TOKEN}),
            headers={"Content-Type": "application/json", "Origin": self.url},
        )
        assert answer.status == 200

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(30)


@contextmanager
def console(says: Callable[[str], Answer] = honest) -> Iterator[Served]:
    served = Served(PlayedNode(says))
    try:
        yield served
    finally:
        served.close()


def sees_queues(context: BrowserContext, served: Served) -> Page:
    """An honest person looks at the queues."""
    opened = context.new_page()
    opened.goto(f"{served.url}/#/queues")
    opened.get_by_text("orders").first.wait_for()
    return opened


ATTACKS = """
async (console) => {
  const body = JSON.stringify({kind: "delete", queues: ["orders"]});
  const tried = [];
  for (const [method, path] of [
    ["POST", "/api/nodes/ALPHA/v1/jobs"], ["DELETE", "/api/session"], ["GET", "/api/queues"],
    ["POST", "/api/nodes/ALPHA/v1/queues/orders/receive"],
  ]) {
    for (const mode of ["cors", "no-cors"]) {
      const simple = mode === "no-cors" && method === "DELETE" ? "POST" : method;
      try {
        const sent = simple === "GET" ? {} : {body, headers: {"Content-Type": "text/plain"}};
        const answer = await fetch(console + path, {method: simple, mode, credentials: "include", ...sent});
        tried.push(answer.type === "opaque" ? "opaque" : await answer.text());
      } catch (error) {
        tried.push("refused");
      }
    }
  }
  const frame = document.createElement("iframe");
  frame.src = console + "/";
  document.body.append(frame);
  await new Promise((done) => { frame.onload = done; });
  const form = document.createElement("form");
  form.method = "post";
  form.enctype = "text/plain";
  form.action = console + "/api/nodes/ALPHA/v1/jobs";
  form.target = "_blank";
  document.body.append(form);
  form.submit();
  return tried;
}
"""


@attack(
    Area.BROWSER,
    can="have the browser of a person who is signed in open the attacker's page, which sends requests and forms to the "
    "console, reads from it and shows it in a frame",
    promised="no node hears of a change, the page reads nothing, and the person goes on to work",
)
def test_the_page_of_another_site_does_nothing(window: Browser, elsewhere: Elsewhere) -> None:
    with console() as served, tab(window) as context:
        served.sign_in(context)
        sees_queues(context, served)
        hostile = context.new_page()
        hostile.goto(elsewhere.url.replace("127.0.0.1", ELSEWHERE))
        with context.expect_page() as posted:
            read = hostile.evaluate(ATTACKS, served.url)
        posted.value.wait_for_load_state()
        assert set(read) <= {"refused", "opaque"}
        assert all("orders" not in frame.content() for frame in hostile.frames)
        assert "another page" in posted.value.content()
        assert served.changes == []
        sees_queues(context, served)


@attack(
    Area.BROWSER,
    can="lead a name of the attacker's to the console, so that the attacker's page and the console are one site to the "
    "browser (DNS rebinding)",
    promised="the console serves no other name: neither its page nor its API",
)
def test_a_rebound_name_is_refused(window: Browser) -> None:
    with console() as served, tab(window) as context:
        served.sign_in(context)
        hostile = context.new_page()
        answer = hostile.goto(f"http://{REBOUND}:{served.port}/")
        assert answer is not None
        assert answer.status == 403
        read = hostile.evaluate("fetch('/api/queues').then((answer) => answer.status)")
        assert read == 403
        wrote = hostile.evaluate("fetch('/api/session', {method: 'POST', body: '{}'}).then((answer) => answer.status)")
        assert wrote == 403
        sees_queues(context, served)


@attack(
    Area.BROWSER,
    can="plant the cookie of the attacker's own session in a browser, and wait until its user signs in",
    promised="signing in makes a new session: the attacker's cookie is worth nothing afterwards",
)
def test_a_planted_session_is_not_used(window: Browser) -> None:
    with console() as served, tab(window) as attacker, tab(window) as victim:
        served.sign_in(attacker)
        (planted,) = [cookie for cookie in attacker.cookies() if cookie["name"] == "console"]
        victim.add_cookies([planted])  # type: ignore[list-item]
        served.sign_in(victim)
        (own,) = [cookie for cookie in victim.cookies() if cookie["name"] == "console"]
        assert own["value"] != planted["value"]
        sees_queues(victim, served)
        assert attacker.request.get(f"{served.url}/api/queues").status == 401


@attack(
    Area.BROWSER,
    can="as a node or a sender, put markup into the names and labels of queues, into warnings and into messages",
    promised="the console shows it as text: its page follows nothing, loads nothing, and runs nothing",
)
def test_the_console_takes_no_markup(window: Browser, elsewhere: Elsewhere) -> None:
    evil = markup(elsewhere.url)
    pathname = rf"ALPHA\private$\orders{evil}"

    def says(path: str) -> Answer:
        state = STATE | {"warnings": [evil], "version": evil}
        if path == "/v1/queue-summary":
            shown = json.loads(honest(path).content)
            return document(shown | {"pathname": [pathname], "label": [evil], "node": state})
        if path == "/v1/messages":
            found = {"queue": pathname, "lookup_identifier": "1", "label": evil, "body": evil, "sent": evil}
            return document({"found": [found], "scanned": 1, "total": 1, "next": None})
        if path == "/v1/jobs":
            return document({"jobs": [{"id": 1, "owner": evil, "kind": evil, "created": evil, "queues": [evil]}]})
        return honest(path) if path == "/v1/caller" else document(state)

    with console(says) as served, tab(window) as context:
        served.sign_in(context)
        complaints: list[str] = []
        opened = sees_queues(context, served)
        opened.on("console", lambda message: complaints.append(message.text))
        for place in (
            "",
            "queues",
            "messages",
            "failures",
            "jobs",
            "audit",
            "queues/ALPHA/" + quote(pathname, safe=""),
        ):
            opened.goto(f"{served.url}/#/{place}")
            opened.locator("main").first.wait_for()
            opened.wait_for_load_state("networkidle")
            assert opened.locator("#root meta, #root base, #root script, #root img[src='x']").count() == 0
        assert [text for text in complaints if "Content Security Policy" in text] == []
        stays(context, opened, elsewhere)
