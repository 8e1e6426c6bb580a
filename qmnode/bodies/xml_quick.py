"""Reads the XML that serializers usually write in one pass: elements with text or attributes, and no more than that.

A tree of each document would cost a listing more than all the rest. The patterns match without going back, so that the
time grows with the length alone. Any other document is left to the parser, well-formed or not: no reference, no
comment, no declared document type and no prefix but ``xsi`` is read here.

Documents with the same tags as many before are read faster still: see :mod:`qmnode.bodies.xml_plans`.
"""

import re
from functools import lru_cache
from typing import Any, Final

from qmnode.bodies.limits import Budget, Limits
from qmnode.bodies.xml_plans import learn, newlines, planned
from qmnode.bodies.xml_tree import XSI

_DECLARATION: Final = re.compile(
    r"""(?:<\?xml\ version="1\.0"(?:\ encoding="[A-Za-z][\w.\-]*+")?(?:\ standalone="(?:yes|no)")?\s*+\?>)?\s*+""",
    re.ASCII | re.VERBOSE,
)
_TAG: Final = re.compile(
    r"""<([A-Za-z_][\w.\-]*+)([^<>]*+)>  # a start tag: the name and the rest
        ([^<]*+)(</\1>\s*+)?             # the text after it, and the end tag if nothing else is between
        | </([A-Za-z_][\w.\-]*+)>\s*+    # the end tag of an element with children
    """,
    re.ASCII | re.VERBOSE,
)
_ATTRIBUTE: Final = re.compile(r" ++((?:xsi:|xmlns:)?[A-Za-z_][\w.\-]*+)=", re.ASCII)
_LONGEST: Final = 2000
"""The most characters of the attributes of an element."""
_SPACE: Final = " \t\r\n"
_NO_ATTRIBUTES: Final = ("", "/", " /", " ")
_CONTROLS: Final = bytes(code for code in range(32) if code not in b"\t\n\r")
_DECLARES_XSI: Final = f' xmlns:xsi="{XSI}"'
_DECLARATIONS: Final = {"@xmlns:xsi": XSI, "@xmlns:xsd": "http://www.w3.org/2001/XMLSchema"}
_OWN_NAMESPACES: Final = "http://www.w3.org/"
"""Start of the namespaces of XML itself, which are not allowed everywhere."""


def read(text: str, budget: Budget) -> dict[str, Any] | None:
    """The document as :func:`qmnode.bodies.xml_tree.content` gives it, under the name of its root; None if the parser
    has to read it, or the budget has less than it needs. Takes nothing from the budget.
    """
    if (value := planned(text, budget)) is not None:
        return value
    if "&" in text or ("]" in text and "]]>" in text) or "\ufffe" in text or "\uffff" in text:
        return None
    content = text.encode()
    if len(content.translate(None, _CONTROLS)) != len(content):
        return None
    # Text between two tags, then the five groups of a tag, and so on. An element has two tags at most.
    parts = _TAG.split(text, 2 * budget.nodes + 1)
    if not _DECLARATION.fullmatch(parts[0]) or any(parts[6::6]):
        return None
    if (made := _elements(parts, budget)) is None:
        return None
    learn(parts, len(text), _elements_of_any_number)
    return made[0]


def _elements_of_any_number(parts: list[str]) -> tuple[dict[str, Any], int] | None:
    """The elements of a document for a plan, which every reader then holds against its own budget."""
    return _elements(parts, Budget(Limits(nodes=2 * len(parts), depth=len(parts))))


def _elements(parts: list[str], budget: Budget) -> tuple[dict[str, Any], int] | None:
    """The elements under the name of the root, and how many nodes they are; None unless one holds all others."""
    top: dict[str, Any] = {}
    found, space, nodes = top, "", 0
    above: list[tuple[str, dict[str, Any], str]] = []  # of each open element: its name, and what is around it
    has_xsi = len(parts) > 1 and _DECLARES_XSI in (parts[2] or "")
    for name, rest, text, closed, end in zip(
        parts[1::6], parts[2::6], parts[3::6], parts[4::6], parts[5::6], strict=True
    ):
        if closed and not rest:
            nodes += 1
            if "\r" in text:
                text = newlines(text)
            if name in found:
                _repeat(found, name, text)
            else:
                found[name] = text
        elif end:
            if not above or above[-1][0] != end:
                return None
            _, found, space = above.pop()
        else:
            own, is_empty = _attributes(rest, has_xsi) if rest else {}, rest.endswith("/")
            if own is None or nodes > budget.nodes or (is_empty if closed else text.strip(_SPACE)):
                return None
            inner = own.pop("@xmlns", space)
            nodes += 1 + len(own)
            value: Any = own if inner == space else {"@xmlns": inner, **own}
            if closed or is_empty:
                value = _leaf(value, newlines(text) if closed else "")
            elif "@xsi:nil" in own:
                return None
            if name in found:
                _repeat(found, name, value)
            else:
                found[name] = value
            if not (closed or is_empty):
                above.append((name, found, space))
                found, space = value, inner
                if len(above) >= budget.limits.depth:
                    return None
    is_whole = not above and len(top) == 1 and type(next(iter(top.values()))) is not list
    return (top, nodes) if is_whole and nodes <= budget.nodes else None


def _attributes(rest: str, has_xsi: bool) -> dict[str, str] | None:
    """The attributes of a start tag as they are named in the value, with ``@xmlns`` for a declared namespace."""
    if rest in _NO_ATTRIBUTES:
        return {}
    if len(rest) > _LONGEST or "\n" in rest or "\r" in rest or "\t" in rest:
        return None
    parts = rest.split('"')
    if (read := _names('"'.join(parts[::2]))) is None:
        return None
    names, has_declarations, needs_xsi = read
    if len(names) != len(parts) // 2 or (needs_xsi and not has_xsi):
        return None
    found = dict(zip(names, parts[1::2], strict=True))
    return _without_declarations(found) if has_declarations else found


@lru_cache(maxsize=256)
def _names(between: str) -> tuple[tuple[str, ...], bool, bool] | None:
    """Names of the attributes of a tag, from all that is outside of their values, and whether any declares a namespace
    or is of ``xsi``. None if they are not well-formed. Most documents of a queue have the same.
    """
    *outside, end = between.split('"')
    names = tuple(f"@{matched[1]}" for one in outside if (matched := _ATTRIBUTE.fullmatch(one)))
    if end not in _NO_ATTRIBUTES or len({*names}) != len(outside):
        return None
    return names, any(name.startswith("@xmlns") for name in names), any(name.startswith("@xsi:") for name in names)


def _without_declarations(found: dict[str, str]) -> dict[str, str] | None:
    for name, namespace in _DECLARATIONS.items():
        if found.pop(name, namespace) != namespace:
            return None
    space = found.get("@xmlns", "")
    is_other = any(name.startswith("@xmlns:") for name in found)
    return None if is_other or "}" in space or space.startswith(_OWN_NAMESPACES) else found


def _leaf(own: dict[str, str], text: str) -> Any:
    """The value of an element without children."""
    if own.get("@xsi:nil", "").strip() in ("true", "1"):
        return None
    if own and text:
        own["#text"] = text
    return own or text


def _repeat(found: dict[str, Any], name: str, value: Any) -> None:
    """Add another element of the same name."""
    before = found[name]
    if type(before) is list:
        before.append(value)
    else:
        found[name] = [before, value]
