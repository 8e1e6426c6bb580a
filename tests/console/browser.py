"""A person at the console, in Debian's Chromium: what they do, what they see, and what goes over the wire."""

from __future__ import annotations

import asyncio
import importlib.resources
import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from playwright.sync_api import expect, sync_playwright

from tests.console.conftest import TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from playwright.sync_api import Browser, BrowserContext, Locator, Page

    from tests.console.conftest import ConsoleLab

T = TypeVar("T")
PATIENCE = 30_000
"""Milliseconds that a busy machine may take to show something."""
AXE = importlib.resources.files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
AUDIT = """
async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
  .filter((one) => one.impact === "serious" || one.impact === "critical")
  .map((one) => one.id + ": " + one.nodes.slice(0, 5).map((node) => node.html.slice(0, 200)).join(" | "))
"""
_ELSEWHERE = ThreadPoolExecutor(1)
"""Playwright's own event loop runs in the thread of the test."""


def chromium() -> str:
    """Debian's browser. What is missing fails a test."""
    found = shutil.which("chromium")
    assert found, "chromium is not installed: run .ci/packages as root, which `make test` does"
    return found


@contextmanager
def browser(*arguments: str) -> Iterator[Browser]:
    """One browser for all tests."""
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", *arguments]
        )
        yield started
        started.close()


def done(work: Callable[[], T]) -> T:
    """The result of work that has an event loop of its own."""
    return _ELSEWHERE.submit(work).result()


def awaited(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The same for a coroutine."""
    return done(lambda: asyncio.run(work()))


@dataclass
class Person:
    """Somebody with a browser window, who is signed in with the token of a role."""

    lab: ConsoleLab
    context: BrowserContext
    page: Page
    complaints: list[str] = field(default_factory=list)
    """What the browser itself says: errors of scripts, breaches of the policy."""
    answers: list[tuple[str, bytes]] = field(default_factory=list)
    """What came over the wire from the API."""

    def go(self, place: str = "") -> None:
        """Open a deep link."""
        self.page.goto(f"{self.lab.url}#/{place}")

    def queue(self, name: str, rest: str = "", at: str = "ALPHA") -> None:
        """Open the page of a private queue."""
        pathname = rf"{at}\private$\{name}"
        self.go(f"queues/{at}/{quote(pathname, safe='')}{rest}")

    def sees(self, text: str | re.Pattern[str]) -> None:
        """Wait until a text is seen."""
        expect(self.page.get_by_text(text).first).to_be_visible()

    def button(self, name: str, within: Locator | None = None) -> Locator:
        """A button by its whole name."""
        return (within or self.page).get_by_role("button", name=name, exact=True)

    def click(self, name: str) -> None:
        """Press a button by its whole name."""
        self.button(name).click()

    def dialog(self) -> Locator:
        """The dialog that is open."""
        return self.page.get_by_role("dialog")

    def confirm(self, confirmation: str | re.Pattern[str]) -> None:
        """In the dialog of an operation: see what will happen, confirm it, and wait until the job is done."""
        target = self.dialog().locator("input[required]")
        if target.count():
            target.press("Enter")
        self.dialog().get_by_role("button", name=confirmation).click()
        expect(self.dialog().locator(".job-progress .state").first).to_have_text("done")
        self.button("Close", self.dialog().locator(".dialog-actions")).click()

    def select(self, *labels: str) -> None:
        """Select messages by their labels."""
        for label in labels:
            self.page.get_by_role("checkbox", name=f"Select {label}", exact=True).check()

    def serious(self) -> list[str]:
        """What axe finds on the screen that is serious."""
        self.page.evaluate(AXE)
        return list(self.page.evaluate(AUDIT))

    def wire(self) -> str:
        """Everything that the API has answered so far."""
        return "\n".join(content.decode("utf-8", "replace") for _, content in self.answers)


@contextmanager
def person(
    lab: ConsoleLab, window: Browser, role: str | None = "administer", *, width: int = 1280, scheme: str = "light"
) -> Iterator[Person]:
    """Somebody at the console; without a role still outside. Complaints of the browser fail the test at the end."""
    context = window.new_context(
        ignore_https_errors=True,
        viewport={"width": width, "height": {400: 860, 2560: 1300}.get(width, 820)},
        color_scheme=scheme,  # type: ignore[arg-type]
        timezone_id="Europe/Amsterdam",
    )
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    found = Person(lab, context, page)
    page.on("pageerror", lambda error: found.complaints.append(str(error)))
    page.on(
        "console",
        lambda message: (
            found.complaints.append(message.text)
            if message.type == "error" and "Failed to load resource" not in message.text
            else None
        ),
    )
    page.on("dialog", lambda dialog: (found.complaints.append(f"a script said {dialog.message}"), dialog.dismiss()))

    def heard(response: Any) -> None:
        if "/api/" in response.url and response.status < 300 and response.status != 204:
            try:
                found.answers.append((response.url, response.body()))
            except Exception as error:
                assert "No resource" in str(error) or "closed" in str(error), error

    page.on("requestfinished", lambda request: heard(request.response()))
    try:
        if role is not None:
            session = context.request.post(
                f"{lab.url}api/session",
                data=json.dumps({"method": "token", "token": TOKENS[role]}),
                headers={"Content-Type": "application/json", "Origin": lab.url.rstrip("/")},
            )
            assert session.status == 200, session.text()
        yield found
        assert found.complaints == []
    finally:
        context.close()
