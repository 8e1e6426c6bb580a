"""HTML and SVG as elements. Text and attributes are escaped where a document is written, and nowhere else.

So a name from a node or a directory is never markup, wherever it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element as Element

Content = Element | str | None

_UNFIT: Final = re.compile(
    "[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufdcf\ufdf0-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]"
)
"""Characters that XML does not allow, not even escaped, and those that turn the direction of the text around them."""
_EMPTY: Final = frozenset({"meta"})
"""Elements that HTML writes without an end."""
_RAW: Final = frozenset({"script", "style"})
"""Elements whose text HTML does not escape."""


def element(tag: str, *content: Content, **attributes: str | float | None) -> Element:
    """Return an element. ``aria_label`` stands for the attribute ``aria-label``, ``class_`` for ``class``.

    None is no content, and no attribute. ValueError for a reference out of the document, and for the end of a script or
    a style within its text.
    """
    made = ElementTree.Element(tag)
    for name, value in attributes.items():
        if value is not None:
            made.set(name.rstrip("_").replace("_", "-"), fit(str(value)))
    if not made.get("href", "#").startswith("#"):
        raise ValueError(f"a document refers only to itself, and not to {made.get('href')!r}")
    append(made, *content)
    return made


def append(parent: Element, *content: Content) -> None:
    """Append elements and texts to an element. ValueError, as in :func:`element`."""
    for one in content:
        if isinstance(one, str):
            _append_text(parent, fit(one))
        elif one is not None:
            parent.append(one)


def _append_text(parent: Element, text: str) -> None:
    if parent.tag in _RAW and "</" in text:
        raise ValueError(f"the text of a {parent.tag} must not contain its end")
    if len(parent):
        parent[-1].tail = (parent[-1].tail or "") + text
    else:
        parent.text = (parent.text or "") + text


def fit(text: str) -> str:
    """Return the text with a replacement character for each one that a document cannot have."""
    return _UNFIT.sub("\ufffd", text)


def html(root: Element) -> str:
    """Return a whole HTML document."""
    return f"<!doctype html>\n{''.join(_written(root))}\n"


def _written(one: Element) -> Iterator[str]:
    attributes = "".join(f' {name}="{escape(value)}"' for name, value in one.items())
    yield f"<{one.tag}{attributes}>"
    if one.tag not in _EMPTY:
        yield (one.text or "") if one.tag in _RAW else escape(one.text or "")
        for part in one:
            yield from _written(part)
            yield escape(part.tail or "")
        yield f"</{one.tag}>"


def svg_document(root: Element) -> str:
    """Return a whole SVG document."""
    return f"{ElementTree.tostring(root, encoding='unicode')}\n"


def embedded(document: str) -> Element:
    """Return an SVG document that was drawn here as an element of an HTML page, without namespaces and metadata."""
    root = ElementTree.fromstring(document)  # noqa: S314  # no document of others
    for one in root.iter():
        one.tag = one.tag.rpartition("}")[2]
        for name in [name for name in one.attrib if name.startswith("{")]:
            one.set(name.rpartition("}")[2], one.attrib.pop(name))
    for one in root.findall("metadata"):
        root.remove(one)
    return root
