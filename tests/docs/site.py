"""Hooks of mkdocs: pages made from the code, and what GitHub's Markdown and paths need to become a page of the site.

The pages of docs/ are written for two readers, a repository's browser and the site. Here a path such as
``docs/keys.md`` becomes a link, a list gets the indentation that Python-Markdown asks for, and a state diagram becomes
a table.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.docs.reference import commands, declaration, errors, http, metrics, modules, settings, tables  # noqa: E402

GENERATED: Final[dict[str, Callable[[], str]]] = {
    "reference/qmnode.md": lambda: commands.page("qmnode"),
    "reference/mqenterprise.md": lambda: commands.page("mqenterprise"),
    "reference/settings.md": settings.page,
    "reference/declaration.md": declaration.page,
    "reference/http.md": http.page,
    "reference/metrics.md": metrics.page,
    "reference/modules.md": modules.page,
    "reference/tables.md": tables.page,
    "reference/errors.md": errors.page,
}
"""The pages that are made from the code."""
FROM_ROOT: Final = {
    "architecture.md": "ARCHITECTURE.md",
    "contributing.md": "CONTRIBUTING.md",
    "security-policy.md": "SECURITY.md",
    "changelog.md": "CHANGELOG.md",
    "system-messaging.md": "mqrt/README.md",
}
"""The pages that are files of other folders of the repository."""
BOOSTS: Final = {"troubleshooting.md": 100, "How to": 8, "Explanations": 4, "Reference": 0.5, "Project": 0.25}
"""How much a page counts in the search, by its name or its part of the navigation: readers ask what to do."""
_PAGES: Final = [str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")]
_LINKED: Final = {f"docs/{page}": page for page in _PAGES} | {file: page for page, file in FROM_ROOT.items()}
_PATH: Final = re.compile(r"(?<![\[`])`((?:docs/)?[\w/-]+\.md)`(?![\]`])")
_DIAGRAM: Final = re.compile(r"```mermaid\nstateDiagram-v2\n(.*?)```", re.DOTALL)
_ARROW: Final = re.compile(r"^\s*(\S+) --> (\w+)(?:: (.*))?$", re.MULTILINE)
_COMMENT: Final = re.compile(r"^<!--.*?-->\n", re.MULTILINE)
_CODE: Final = re.compile(r"<code>[^<]+</code>")
_OPTION: Final = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
_ROLE: Final = re.compile(r":(?:[a-z]+:)+<code>~?([^<]*?)(?=</code>)")
_ITEM: Final = re.compile(r"^( *)([-*]|\d+\.) +(?=\S)")


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages and those of the first folder."""
    for page, make in GENERATED.items():
        files.append(File.generated(config, page, content=make()))
    for page, file in FROM_ROOT.items():
        files.append(File.generated(config, page, content=(ROOT / file).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Adapt a page of the repository to Python-Markdown. The search shows how-to before reference."""
    part = page.ancestors[-1].title if page.ancestors else ""
    page.meta["search"] = {"boost": BOOSTS.get(page.file.src_uri, BOOSTS.get(part, 1))}
    return adapted(markdown, page.file.src_uri)


def on_page_content(html: str, **_: Any) -> str:
    """Show the roles of docstrings as plain code, and keep options of commands on one line."""
    plain = _ROLE.sub(r"<code>\1", html)
    return _CODE.sub(lambda code: _OPTION.sub(r'<span class="option">\g<0></span>', code[0]), plain)


def on_post_build(config: Any) -> None:
    """Delete what only a server needs: its addresses are absolute."""
    for name in ("404.html", "sitemap.xml", "sitemap.xml.gz"):
        (Path(config.site_dir) / name).unlink(missing_ok=True)


def adapted(markdown: str, page: str) -> str:
    """The page as Python-Markdown reads it, with links in place of paths."""
    text = _DIAGRAM.sub(_table_of_states, _COMMENT.sub("", markdown))
    parts = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    up = "../" * page.count("/")

    def link(found: re.Match[str]) -> str:
        target = _LINKED.get(found[1])
        return f"[{title(target)}]({up}{target})" if target and target != page else found[0]

    return "".join(part if part.startswith("```") else _PATH.sub(link, _indented(part)) for part in parts)


def title(page: str) -> str:
    """The first heading of a page."""
    file = ROOT / FROM_ROOT.get(page, f"docs/{page}")
    return file.read_text("utf-8").split("\n", 1)[0].lstrip("# ").partition(":")[0]


def _table_of_states(found: re.Match[str]) -> str:
    """A row for each arrow of a state diagram."""
    lines = ["| state | event / action | next state |", "|---|---|---|"]
    for before, after, label in _ARROW.findall(found[1]):
        event = ", ".join(f"`{one}`" for one in re.split(r", ", label)) if label else ""
        lines.append(f"| {'start' if before == '[*]' else f'`{before}`'} | {event} | `{after}` |")
    return "\n".join(lines)


def _indented(text: str) -> str:
    """List items with four columns of indentation at each level, and an empty line before the first one."""
    lines: list[str] = []
    levels: list[int] = []
    """The columns at which the texts of the open items begin."""
    for line in text.split("\n"):
        width = len(line) - len(line.lstrip())
        item = _ITEM.match(line)
        if item and width >= 4 and not levels:
            item = None  # a block of code
        if line.strip():
            while levels and width < levels[-1] and (item or width < levels[0]):
                levels.pop()
        if item:
            if (
                not levels
                and lines
                and lines[-1].strip()
                and not _ITEM.match(lines[-1])
                and not lines[-1].startswith("    ")
            ):
                lines.append("")
            rest = line[item.end() :]
            lines.append(" " * 4 * len(levels) + item[2].ljust(4) + rest)
            levels.append(item.end())
        elif levels and line.strip():
            lines.append(" " * 4 * len(levels) + " " * max(width - levels[-1], 0) + line.lstrip())
        else:
            lines.append(line)
    return "\n".join(lines)
