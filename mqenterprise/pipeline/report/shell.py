"""The frame of a page: one HTML file with its style and script in it, and nothing to load from anywhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from mqenterprise.markup import Content, Element, element, html

_HERE: Final = Path(__file__).parent
_STYLE: Final = (_HERE / "report.css").read_text(encoding="utf-8")
_SCRIPT: Final = (_HERE / "report.js").read_text(encoding="utf-8")


def framed(
    title: str,
    heading: str,
    introduction: str,
    tiles: Element,
    sections: Sequence[tuple[str, str, Sequence[Element]]],
    first: Sequence[Element] = (),
) -> str:
    """Return a page. A section has its identifier, its short name and its content; ``first`` is before all of them."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy()),
        element("meta", name="viewport", content="width=device-width,initial-scale=1"),
        element("title", title),
        element("style", _STYLE),
    )
    main = element(
        "main",
        element("header", element("h1", heading), element("p", introduction)),
        *first,
        element("nav", *(element("a", short, href=f"#{name}") for name, short, _ in sections), aria_label="Sections"),
        tiles,
        *(part for _, _, content in sections for part in content),
    )
    return html(element("html", head, element("body", main, element("script", _SCRIPT)), lang="en"))


def _policy() -> str:
    """Return the content security policy: nothing is loaded or sent, and only the page's own script runs.

    A policy cannot forbid a refresh to another page. The script refuses it.
    """
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    only = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return f"{only}; base-uri 'none'; form-action 'none'"


def tiled(tiles: Iterable[tuple[str, str, bool]]) -> Element:
    """Return large figures side by side: the figure, what it counts, and whether it is alarming."""
    parts = (
        element("div", element("b", value), element("span", what), class_="tile alarm" if alarm else "tile")
        for value, what, alarm in tiles
    )
    return element("div", *parts, class_="tiles")


def section(name: str, title: str, explanation: str, *content: Content) -> list[Element]:
    """Return a section with its title and a sentence on what it shows."""
    return [element("section", element("h2", title), element("p", explanation), *content, id=name)]
