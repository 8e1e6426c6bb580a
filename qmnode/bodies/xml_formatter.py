"""XmlMessageFormatter: the output of ``XmlSerializer``, in a body of the type VT_EMPTY.

A document whose root is one of XML Schema's simple types (``<string>``, ``<int>``, ``<dateTime>``), or an array of them
(``<ArrayOfInt>``), is read as that value. Any other is a dictionary with the root's name as its key.
"""

import base64
import math
import re
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID
from xml.etree import ElementTree

from qmnode.bodies import xml_quick
from qmnode.bodies.limits import BodyError, Budget
from qmnode.bodies.xml_text import element_of_tree, parse_tree, split_tag, text_of, text_within, write
from qmnode.bodies.xml_tree import XSI, Element, content, element_of

_FLOATS: Final = {"INF": math.inf, "-INF": -math.inf, "NaN": math.nan}
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}


_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)")
_DOUBLE: Final = re.compile(rf"{_DECIMAL.pattern}(?:[Ee][+-]?[0-9]+)?")


def _number(form: re.Pattern[str], text: str) -> str:
    """A number of XML Schema, without space. Python's readers take more, such as 1_000. Raises ValueError."""
    text = text.strip()
    if not form.fullmatch(text):
        raise ValueError(f"{text!r:.40} is no number of XML Schema")
    return text


def _integer(text: str) -> int:
    return int(_number(_INTEGER, text))


def _float(text: str) -> float:
    text = text.strip()
    return _FLOATS[text] if text in _FLOATS else float(_number(_DOUBLE, text))


_READERS: Final[dict[str, Callable[[str], Any]]] = {
    "string": str,
    "boolean": lambda text: _BOOLEANS[text.strip()],
    **dict.fromkeys(
        ("byte", "short", "int", "long", "unsignedByte", "unsignedShort", "unsignedInt", "unsignedLong"), _integer
    ),
    "float": _float,
    "double": _float,
    "decimal": lambda text: Decimal(_number(_DECIMAL, text)),
    "dateTime": lambda text: datetime.fromisoformat(text.strip()),
    "guid": UUID,
    "char": lambda text: chr(_integer(text)),
    "base64Binary": lambda text: base64.b64decode(text, validate=False),
}
_ARRAY: Final = re.compile(r"ArrayOf([A-Z]\w*)\Z")


def decode(body: bytes, budget: Budget) -> Any:
    """Decode a document to its value, or to a dictionary of the root."""
    budget.spend(0, len(body))
    text = text_of(body)
    if (found := xml_quick.read(text, budget)) is not None and not _may_be_simple(found):
        return found
    root = parse_tree(text, budget)
    if root.tag in _READERS or _ARRAY.match(root.tag):
        return value_of(element_of_tree(root, budget))
    return {split_tag(root.tag)[1]: _content(root, budget, "", 1)}


def _may_be_simple(found: dict[str, Any]) -> bool:
    ((name, held),) = found.items()
    return name in _READERS or (
        isinstance(held, dict) and bool(_ARRAY.match(name)) and not _READERS.keys().isdisjoint(held)
    )


def _content(source: ElementTree.Element, budget: Budget, around: str, depth: int) -> Any:
    """:func:`qmnode.bodies.xml_tree.content` of the element, without creating one: listings have thousands."""
    tag = source.tag
    if tag[0] == "{" or around or source.attrib:
        return _content_in_namespace(source, budget, around, depth)
    budget.nodes -= 1
    if not len(source):
        return source.text or ""
    budget.check_depth(depth)
    found: dict[str, Any] = {}
    _add_children(source, found, budget, "", depth)
    return found


def _content_in_namespace(source: ElementTree.Element, budget: Budget, around: str, depth: int) -> Any:
    budget.spend(1 + len(source.attrib))
    budget.check_depth(depth)
    if source.attrib.get(f"{{{XSI}}}nil", "").strip() in ("true", "1"):
        return None
    space, _ = split_tag(source.tag)
    found: dict[str, Any] = {} if space == around else {"@xmlns": space}
    for tag, value in source.attrib.items():
        owner, name = split_tag(tag)
        found[f"@xsi:{name}" if owner == XSI else f"@{name}"] = value
    if not len(source) and not found:
        return source.text or ""
    if len(source):
        _add_children(source, found, budget, space, depth)
    elif source.text:
        found["#text"] = source.text
    return found


def _add_children(source: ElementTree.Element, found: dict[str, Any], budget: Budget, space: str, depth: int) -> None:
    """Add what the children hold, and the text between them. Most children of most documents have text alone."""
    repeated: set[str] = set()
    leaves, has_text = 0, bool(source.text and not source.text.isspace())
    for child in source:
        name, tail = child.tag, child.tail
        if tail and not tail.isspace():
            has_text = True
        if space or name[0] == "{" or len(child) or child.items():
            value, name = _content(child, budget, space, depth + 1), split_tag(name)[1]
        else:
            value, leaves = child.text or "", leaves + 1
        if name not in found:
            found[name] = value
        elif name in repeated:
            found[name].append(value)
        else:
            repeated.add(name)
            found[name] = [found[name], value]
    budget.spend(leaves)
    if has_text and (text := text_within(source).strip()):
        found["#text"] = text


def value_of(root: Element) -> Any:
    if root.namespace == "" and all(space == XSI for space, _ in root.attributes):
        if not root.attributes and (found := _array(root)) is not None:
            return found
        if root.name in _READERS and not root.children and (XSI, "nil") not in root.attributes:
            try:
                return _READERS[root.name](root.text)
            except (ValueError, ArithmeticError, KeyError):
                pass  # not XmlSerializer's content for that name
    return {root.name: content(root)}


def _array(root: Element) -> list[Any] | None:
    matched = _ARRAY.match(root.name)
    if not matched:
        return None
    kinds = {child.name for child in root.children}
    if len(kinds) != 1 or not kinds <= _READERS.keys() or kinds.pop().lower() != matched[1].lower():
        return None
    read = _READERS[root.children[0].name]
    try:
        return [None if (XSI, "nil") in child.attributes else read(child.text) for child in root.children]
    except (ValueError, ArithmeticError, KeyError):
        return None


def encode(value: Any) -> bytes:
    """UTF-8 without a byte-order mark, as XmlMessageFormatter writes it. A dictionary has one key: the root's name."""
    return write(tree_of(value)).encode("utf-8")


def tree_of(value: Any) -> Element:
    match value:
        case Element():
            return value
        case None:
            raise BodyError("XmlMessageFormatter writes no null: give a value, or a dictionary {'Name': None}")
        case dict():
            if len(value) != 1:
                raise BodyError(f"a document has one root: give a dictionary of one key, not of {len(value)}")
            ((name, held),) = value.items()
            if isinstance(held, (list, tuple)):
                raise BodyError(f"a document has one root, and {name!r} is a list: put it under a name of its own")
            return element_of(name, held)
        case list() | tuple():
            return _array_of(value)
    return element_of(_type_of(value), value)


def _array_of(values: list[Any] | tuple[Any, ...]) -> Element:
    kinds = {_type_of(value) for value in values if value is not None}
    kinds = {"long"} if kinds == {"int", "long"} else kinds
    if len(kinds) != 1:
        raise BodyError("XmlSerializer has a name for lists of one type only: use {'ArrayOfName': {'Name': [...]}}")
    kind = kinds.pop()
    root = Element(f"ArrayOf{kind[0].upper()}{kind[1:]}")
    root.children = [element_of(kind, value) for value in values]
    return root


def _type_of(value: Any) -> str:
    match value:
        case str():
            return "string"
        case bool():
            return "boolean"
        case int():
            if not -(1 << 63) <= value < 1 << 64:
                raise BodyError(f"{value} has more than 64 bits")
            return "int" if -(1 << 31) <= value < 1 << 31 else "long" if value < 1 << 63 else "unsignedLong"
        case float():
            return "double"
        case Decimal():
            return "decimal"
        case datetime():
            return "dateTime"
        case UUID():
            return "guid"
        case bytes() | bytearray():
            return "base64Binary"
    raise BodyError(f"XmlSerializer has no name for a {type(value).__name__}: use a dictionary {{'Name': ...}}")
