"""Links of the pages and of the README hold as a repository shows them; pages have the lengths that readers bear."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.adversary.listing import PAGE as ATTACKS
from tests.docs.operations_table import PAGE as PROMISES
from tests.docs.shares_table import PAGE as SHARES
from tests.docs.site import FROM_ROOT, GENERATED, ROOT
from tests.lab.cases import cases

if TYPE_CHECKING:
    from pathlib import Path

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
FIRST = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "SECURITY.md")]
WRITTEN = [page for page in PAGES if page not in (ATTACKS, PROMISES, SHARES)]
"""The pages that somebody writes; the others are tables made from the code."""
LINK = re.compile(r"\]\(([^)\s]+)\)")
SOURCE = re.compile(r'(?:src|srcset)="([^"]+)"')
NAMED = re.compile(r"\bdocs/([\w/-]+\.md)(#[\w-]+)?")
"""A page as programs and tests name it."""


def _prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def _anchors(page: Path) -> set[str]:
    """The anchors of headings, as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.*)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def _problem(target: Path, anchor: str) -> str:
    """What is wrong with a link to the target, or nothing. Pages made while the site is built are not in the tree."""
    page = str(target.relative_to(DOCS)) if target.is_relative_to(DOCS) else ""
    if page in GENERATED:
        return ""
    target = ROOT / FROM_ROOT[page] if page in FROM_ROOT else target
    if not target.exists():
        return "is not there"
    if anchor and target.suffix == ".md" and anchor.lstrip("#") not in _anchors(target):
        return "has no such heading"
    return ""


@cases("page", [*FIRST, *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    wrong = []
    for link in LINK.findall(_prose(page)) + SOURCE.findall(_prose(page)):
        if re.match(r"https?://|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        if path.endswith(".png"):
            anchor = ""  # for light or dark colours only
        target = (page.parent / path).resolve() if path else page
        if problem := _problem(target, anchor):
            wrong.append(f"{link} {problem}")
    assert wrong == []


def test_every_page_that_a_program_or_a_page_names_is_there() -> None:
    places = [*FIRST, *PAGES, *(ROOT / "man").glob("*.1")]
    for folder in ("qmnode", "mqenterprise", "playbooks", "tests"):
        places += [path for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".yml", ".toml", ".md"}]
    wrong = []
    for place in places:
        text = place.read_text("utf-8").replace("\\-", "-") if place.suffix == ".1" else place.read_text("utf-8")
        for name, anchor in NAMED.findall(text):
            if problem := _problem(DOCS / name, anchor):
                wrong.append(f"{place.relative_to(ROOT)}: docs/{name}{anchor} {problem}")
    assert len(places) > 100
    assert wrong == []


def test_the_pages_stay_short() -> None:
    words = {str(page.relative_to(DOCS)): len(page.read_text("utf-8").split()) for page in WRITTEN}

    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 650
    assert {page: count for page, count in words.items() if count > 4000} == {}
    assert sum(words.values()) <= 47_800


def test_long_pages_have_headings_for_a_contents_list() -> None:
    for page in (page for page in WRITTEN if len(page.read_text("utf-8").split()) > 1500):
        titles = re.findall(r"^##+ ", _prose(page), re.MULTILINE)
        assert 3 <= len(titles) <= 35, f"{page.name}: {len(titles)} headings"


def test_the_pages_of_the_first_folder_are_those_of_the_site() -> None:
    assert {path.name for path in FIRST} - {"README.md"} <= set(FROM_ROOT.values())
