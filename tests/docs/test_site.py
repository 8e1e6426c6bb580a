"""The site: built without a warning, whole, and with nothing of another server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

from qmnode.structures.error_codes import ErrorCode
from tests.docs.reference import console_types, errors, http, modules, properties, tables
from tests.docs.reference.commands import PROGRAMS, anchor, program
from tests.docs.site import FROM_ROOT, GENERATED, ROOT, adapted, on_page_content

QUOTES_OTHERS = {"faults.html"}
"""Pages that say what others have reported, and where."""
SPECIFICATIONS = re.compile(
    r"https://(learn\.microsoft\.com/en-us/openspecs/|docs\.oasis-open\.org/|www\.rfc-editor\.org/|semver\.org/)"
)
"""The only places outside to which a link may lead."""
LOADED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src", "object": "data"}
STYLE_ADDRESS = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])((?:https?:)?//[^'\")\s]+)")


class Page(HTMLParser):
    """What a page links to, loads, and may be linked to by."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADED and LOADED[tag] in values:
            self.loaded.append(values[LOADED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as ``make docs`` builds it."""
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert (done.returncode, said.strip()) == (0, "")
    return place


@pytest.mark.slow
def test_links_and_anchors_of_the_site_hold_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = {path: Page(path) for path in site.rglob("*.html")}
    assert len(pages) > 25
    wrong = [
        f"{place.name}: loads {one}" for place, page in pages.items() for one in page.loaded if urlsplit(one).netloc
    ]
    for place, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                is_known = SPECIFICATIONS.match(link) or (place.name in QUOTES_OTHERS and parts.scheme == "https")
                wrong += [] if is_known else [f"{place.name}: leads to {link}"]
                continue
            target = (place.parent / unquote(parts.path)).resolve() if parts.path else place
            anchors = pages[target].anchors if target in pages else None
            if not target.is_file() or (
                parts.fragment and anchors is not None and unquote(parts.fragment) not in anchors
            ):
                wrong.append(f"{place.name}: {link} is not there")
    for style in site.rglob("*.css"):
        wrong += [f"{style.name}: loads {one}" for one in STYLE_ADDRESS.findall(style.read_text("utf-8"))]
    assert wrong == []


@pytest.mark.slow
def test_lists_tables_and_roles_are_rendered(site: Path) -> None:
    raw = re.compile(r"<p>(?:[-*] |\d+\. |\| ?\w|```)|:(?:class|meth|func|attr):")
    found = [
        f"{path.name}: {line[:80]}"
        for path in site.rglob("*.html")
        for line in path.read_text("utf-8").split("\n")
        if raw.search(line)
    ]
    assert found == []


@pytest.mark.slow
def test_the_search_works_from_the_file_system(site: Path) -> None:
    index = (site / "search/search_index.js").read_text("utf-8")
    assert index.startswith("var __index")
    assert "0xC00E0003" in index
    assert "iframe-worker.js" in (site / "index.html").read_text("utf-8")


def test_every_page_is_in_the_navigation() -> None:
    named = set(re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE))
    written = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert named == written | set(GENERATED) | set(FROM_ROOT)


def test_every_code_has_a_remedy_and_every_remedy_a_code() -> None:
    assert set(errors.remedies()) == {code.name for code in ErrorCode}
    assert all(one["do"] for one in errors.remedies().values())


def test_a_code_that_the_node_returns_stands_in_the_first_table() -> None:
    first, _, second = errors.page().partition("## Codes of Windows")
    assert "`MQ_ERROR_QUEUE_NOT_FOUND`" in first
    assert "`MQ_ERROR_CANNOT_LOAD_MQAD`" in second


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_command_of_a_program_is_on_its_page(name: str) -> None:
    page = GENERATED[f"reference/{name}.md"]()
    commands = [one for one in program(name).walk() if one.path != name]
    assert len(commands) > 20
    assert [one.path for one in commands if f"{one.path} {{ #{anchor(one)} }}" not in page] == []
    assert [one.path for one in commands if not one.help] == []


def test_options_of_commands_stay_whole_in_inline_code() -> None:
    made = on_page_content("<p>--json <code>list --all -n 3 a-b</code></p><pre><code><span>x</span> --all</code></pre>")
    assert made == (
        '<p>--json <code>list <span class="option">--all</span> <span class="option">-n</span> 3 a-b</code></p>'
        "<pre><code><span>x</span> --all</code></pre>"
    )


def test_the_colours_follow_the_system_until_the_reader_chooses() -> None:
    settings = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert re.findall(r"- media: (.*)", settings) == [
        '"(prefers-color-scheme)"',
        '"(prefers-color-scheme: light)"',
        '"(prefers-color-scheme: dark)"',
    ]


def test_path_names_of_the_management_api_have_single_backslashes() -> None:
    assert r"`.\private$\orders`" in http.page()
    assert r"\\private" not in http.page()


def test_every_table_of_the_analysis_has_a_meaning() -> None:
    rows = [row.split(" | ") for row in tables.page().partition("## Gathered")[2].splitlines() if row.startswith("| `")]
    assert [row[0] for row in rows if len(row) == 3 and not row[-1].strip(" |")] == []


def test_every_setting_says_what_it_means() -> None:
    rows = [row.split(" | ") for row in GENERATED["reference/settings.md"]().splitlines() if row.startswith("| `")]
    assert len(rows) > 150
    assert [row[0] for row in rows if not row[-1].strip(" |")] == []


def test_every_module_has_its_options_and_examples() -> None:
    for name in modules.names():
        page = modules.readme(name)
        assert "## Options" in page, name
        assert yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0]), name


def test_the_readme_of_each_module_is_that_of_its_documentation() -> None:
    made = modules.readmes()
    assert set(made) == set((modules.COLLECTION / "docs/modules").glob("*.md"))
    stale = [path.name for path, text in made.items() if path.read_text("utf-8") != text]
    assert stale == [], "run python -m tests.docs.reference.modules"


def test_the_properties_of_modules_are_those_of_the_rows() -> None:
    stale = [path.name for path, text in properties.files().items() if path.read_text("utf-8") != text]
    assert stale == [], "run python -m tests.docs.reference.properties"


def test_the_types_of_the_console_are_those_of_the_documents() -> None:
    assert console_types.FILE.read_text("utf-8") == console_types.text(), (
        "run python -m tests.docs.reference.console_types"
    )


def test_each_module_with_a_twin_has_an_integration_target() -> None:
    targets = {
        path.parent.name: path.read_text().split()
        for path in (modules.COLLECTION / "tests/integration/targets").glob("*/aliases")
    }
    tested = {name for name, aliases in targets.items()} | {one for aliases in targets.values() for one in aliases}
    by_roll_outs = {"check_settings", "credentials", "release", "script"}
    assert set(modules.names()) - tested == by_roll_outs, "the roll-outs of tests/playbooks try these"


def test_a_page_of_the_repository_becomes_one_of_the_site() -> None:
    text = "See `docs/keys.md`:\n- one\n  more\n  - two\n\n1. first\n\n       code\n"
    assert adapted(text, "node.md") == (
        "See [Keys and certificates](keys.md):\n\n-   one\n    more\n    -   two\n\n1.  first\n\n        code\n"
    )
    assert "(../keys.md)" in adapted("`docs/keys.md`", "reference/python.md")


def test_a_state_diagram_becomes_a_table() -> None:
    made = adapted("```mermaid\nstateDiagram-v2\n    [*] --> A\n    A --> B: ONE, TWO / ACT\n```\n", "architecture.md")
    assert "| start |  | `A` |" in made
    assert "| `A` | `ONE`, `TWO / ACT` | `B` |" in made
