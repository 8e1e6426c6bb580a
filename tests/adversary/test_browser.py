"""Markup, pages and sites that mean no good, in a real browser: at the report, at pictures, and at the console."""

from __future__ import annotations

import http.server
import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mqenterprise.pipeline.report.page import page as report_page
from mqenterprise.pipeline.sources.quarantine import Record
from mqenterprise.topology.drawing import Graph, LinkEdge, SiteNode, svg
from tests.adversary.attacks import Area, attack
from tests.console.browser import PATIENCE, browser
from tests.lab.waiting import wait_until
from tests.pipeline.test_report import DEAD, LATENCIES, LEVELS, LIFE, USE, figures

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, BrowserContext, Page


pytestmark = pytest.mark.servers


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
    with browser() as started:
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
    wait_until(lambda: "/control" in elsewhere.asked, 30, "the refresh is followed")
    control.close()
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
        opened.get_by_role("link", name=sample[:30]).first.click()
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
