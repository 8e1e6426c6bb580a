"""XML as a tree of elements, and as dictionaries."""

import base64
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from qmnode.bodies.dates import duration_text
from qmnode.bodies.limits import BodyError

XSI: Final = "http://www.w3.org/2001/XMLSchema-instance"
DEEPEST: Final = 200
"""The deepest nesting of elements that is written."""


@dataclass(slots=True)
class Element:
    """An element. ``text`` is all its character data outside of its children."""

    name: str
    namespace: str = ""
    attributes: dict[tuple[str, str], str] = field(default_factory=dict)
    """Attributes by namespace and name, without the declarations of namespaces."""
    children: list["Element"] = field(default_factory=list)
    text: str = ""

    def child(self, name: str, namespace: str | None = None) -> "Element | None":
        for child in self.children:
            if child.name == name and namespace in (None, child.namespace):
                return child
        return None

    def walk(self) -> Iterator["Element"]:
        """The element and all below it, in the order of the document."""
        waiting = [self]
        while waiting:
            element = waiting.pop()
            yield element
            waiting += reversed(element.children)


def is_nil(element: Element) -> bool:
    """Whether the element says that it has no value, by ``xsi:nil``."""
    return element.attributes.get((XSI, "nil"), "").strip() in ("true", "1")


def content(element: Element, around: str = "") -> Any:
    """The contents of an element: text, None for ``xsi:nil``, or a dictionary.

    The dictionary has children by name (a list for a repeated name), attributes under ``@name``, and text beside them
    under ``#text``. ``@xmlns`` is present if the namespace differs from that of the enclosing element.
    """
    if is_nil(element):
        return None
    own = {} if element.namespace == around else {"@xmlns": element.namespace}
    if not element.children and not element.attributes and not own:
        return element.text
    found: dict[str, Any] = own
    for (space, name), value in element.attributes.items():
        found[f"@xsi:{name}" if space == XSI else f"@{name}"] = value
    repeated: set[str] = set()
    for child in element.children:
        value = content(child, element.namespace)
        if child.name not in found:
            found[child.name] = value
        elif child.name in repeated:
            found[child.name].append(value)
        else:
            repeated.add(child.name)
            found[child.name] = [found[child.name], value]
    if text := element.text if not element.children else element.text.strip():
        found["#text"] = text
    return found


def element_of(name: str, value: Any, namespace: str = "", depth: int = 1) -> Element:
    """The inverse: an element from the result of :func:`content`, and from plain values."""
    if not isinstance(name, str):
        raise BodyError(f"{name!r:.80} is no name of an element")
    if depth > DEEPEST:
        raise BodyError(f"the value is nested more than {DEEPEST} deep")
    if value is None:
        return Element(name, namespace, {(XSI, "nil"): "true"})
    if not isinstance(value, dict):
        return Element(name, namespace, text=text_of_value(value))
    namespace = text_of_value(value.get("@xmlns", namespace))
    element = Element(name, namespace)
    for key, held in value.items():
        if not isinstance(key, str):
            raise BodyError(f"{key!r:.80} is no name of an element or attribute")
        if key == "#text":
            element.text = text_of_value(held)
        elif key.startswith("@xsi:"):
            element.attributes[XSI, key[5:]] = text_of_value(held)
        elif key.startswith("@"):
            if key != "@xmlns":
                element.attributes["", key[1:]] = text_of_value(held)
        else:
            for one in held if isinstance(held, (list, tuple)) else (held,):
                element.children.append(element_of(key, one, namespace, depth + 1))
    return element


def text_of_value(value: Any) -> str:
    """A scalar in the notation of XML Schema."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case float():
            return {math.inf: "INF", -math.inf: "-INF"}.get(value, "NaN" if value != value else repr(value))
        case Decimal():
            return format(value, "f")
        case int():
            return str(value)
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case timedelta():
            return duration_text(value // timedelta(microseconds=1) * 10)
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case UUID():
            return str(value)
    raise BodyError(
        f"a {type(value).__name__} cannot be written as XML: use text, numbers, dates, bytes or dictionaries"
    )
