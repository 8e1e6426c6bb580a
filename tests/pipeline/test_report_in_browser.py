"""The report in a real browser: its script runs under its own policy, and tables sort, filter and unfold."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from mqenterprise.pipeline.report.page import page
from tests.pipeline.test_report import DEAD, EVIL, LATENCIES, LEVELS, figures

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed"),
]

QUEUES = 30
ASKED = """
const table = document.querySelector('table[aria-label="queues"]');
const tools = table.parentNode.previousSibling;
const seen = () => Array.from(table.tBodies[0].rows).filter((row) => !row.hidden);
const shown = () => seen().map((row) => row.cells[0].textContent);
const column = (title) => Array.from(table.querySelectorAll("th button")).find((one) => one.textContent === title);
const type = (words) => {
  tools.querySelector("input").value = words;
  tools.querySelector("input").dispatchEvent(new Event("input"));
};
const told = {begin: shown(), count: tools.querySelector("span").textContent};
column("Sent").click();
column("Sent").click();
told.few = shown();
column("Queue").click();
told.names = shown();
tools.querySelector("button").click();
told.all = shown();
told.order = column("Queue").parentNode.getAttribute("aria-sort");
type("QUEUE-1 97");
told.filtered = shown();
type("no such queue");
told.none = tools.querySelector("span").textContent;
document.title = "told:" + JSON.stringify(told);
"""


def dom(file: Path, profile: Path) -> str:
    """What a browser without a network makes of a page."""
    command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
    done = subprocess.run(
        [*command, f"--user-data-dir={profile}", "--dump-dom", file.as_uri()],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def report() -> str:
    levels = [
        LEVELS[0] | {"queue": f"shop\\queue-{number}", "messages": number + 80, "received": number}
        for number in range(QUEUES)
    ]
    return page(figures(service_levels=levels, latencies=LATENCIES, dead_letters=DEAD), title=EVIL)


def test_tables_sort_filter_and_unfold(report: str, tmp_path: Path) -> None:
    asked = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", report)
    file = tmp_path / "asked.html"
    file.write_text(asked.replace("</body>", f"<script>{ASKED}</script></body>"), encoding="utf-8")

    found = re.search(r"<title>told:(.*?)</title>", dom(file, tmp_path / "profile"))
    assert found is not None, "the script failed"
    told: dict[str, Any] = json.loads(found[1])

    names = [f"shop\\queue-{number}" for number in range(QUEUES)]
    assert told["begin"] == names[::-1][:12], "the busiest"
    assert told["count"] == "12 of 30 rows"
    assert told["few"] == names[:12], "by numbers, not by their digits: 80 to 109"
    assert told["names"] == names[:12], "as people count, queue-2 before queue-10"
    assert (told["all"], told["order"]) == (names, "ascending")
    assert told["filtered"] == ["shop\\queue-17"], "every word, in whatever cell"
    assert told["none"] == "no row matches"


def test_the_page_runs_its_own_script_and_no_name_does(report: str, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(report, encoding="utf-8")

    made = dom(file, tmp_path / "profile")

    assert 'aria-label="Filter queues"' in made
    assert made.count("<script") == 1
