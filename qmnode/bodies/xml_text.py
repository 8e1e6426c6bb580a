"""XML text to a tree, and back.

The parser is expat, driven without anything that reaches outside: a document type declaration is refused where it
begins, so there are no entities beyond the five of XML, and nothing is ever opened. What it may build has a budget.
Python's ElementTree and ``defusedxml`` build the whole tree before anyone can count it, and so are not used.
"""

import codecs
import re
from typing import Final, NoReturn
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from qmnode.bodies.limits import BodyError, Budget
from qmnode.bodies.tree import XSI, Element

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SEPARATOR: Final = "\x1f"
"""Between namespace and name in what expat reports: no XML has this character."""
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def looks_like_xml(body: bytes) -> bool:
    """Whether it begins as an XML document of UTF-8 or UTF-16, with or without a mark."""
    start = body[:64]
    for mark, encoding in _MARKS:
        if start.startswith(mark):
            return start[len(mark) :].decode(encoding, "replace").lstrip("\ufeff \t\r\n").startswith("<")
    return start.replace(b"\0", b"").lstrip(b" \t\r\n").startswith(b"<") and start[:1] + start[1:2] not in (b"\0\0",)


def text_of(body: bytes) -> str:
    """The document as text. BodyError if it is of neither UTF-8 nor UTF-16."""
    encoding = "utf-8"
    for mark, name in _MARKS:
        if body.startswith(mark):
            body, encoding = body[len(mark) :], name
            break
    else:
        if body[1:2] == b"\0":
            encoding = "utf-16-le"
        elif body[:1] == b"\0":
            encoding = "utf-16-be"
        elif declared := re.match(rb"""\s*<\?xml[^>]{0,100}?encoding=["']([A-Za-z0-9._-]{1,40})["']""", body):
            encoding = declared[1].decode().lower()
    if encoding not in _ENCODINGS:
        raise BodyError(f"the encoding {encoding!r} is not read: UTF-8, UTF-16 and Latin-1 are")
    try:
        return body.decode(encoding).rstrip("\0")  # some senders end their text with NUL characters
    except UnicodeDecodeError as error:
        raise BodyError(f"it is no text of {encoding}: {error.reason} at byte {error.start}") from None


_ENCODINGS: Final = frozenset(
    {"utf-8", "utf8", "utf-16-le", "utf-16-be", "utf-16", "us-ascii", "ascii", "iso-8859-1", "windows-1252"}
)


_MOST_OF: Final = {"<": 2, "=": 1, "&": 10, "\n": 20}
"""Of what costs the parser time: how many there may be for each node of the budget. Counted before it starts."""


def parse(body: bytes, budget: Budget) -> Element:
    """The tree of a document. BodyError if it is not well formed or declares a document type; BudgetError."""
    budget.spend(0, len(body))
    text = text_of(body)
    for letter, share in _MOST_OF.items():
        budget.require(text.count(letter) // share)
    return _Builder(budget).parse(text)


class _Builder:
    """Takes what expat reports."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._depth = budget.limits.depth
        self._open: list[Element] = []
        self._texts: list[str] = []
        self._root: Element | None = None

    def parse(self, text: str) -> Element:
        parser = expat.ParserCreate("utf-8", _SEPARATOR)
        parser.buffer_text = True
        parser.buffer_size = 1 << 16
        parser.ordered_attributes = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._texts.append
        parser.StartDoctypeDeclHandler = self._doctype
        try:
            parser.Parse(text.encode("utf-8", "surrogatepass"), True)
        except expat.ExpatError as error:
            raise BodyError(f"it is no well-formed XML: {error}") from None
        assert self._root is not None  # expat refuses a document without an element
        return self._root

    def _doctype(self, *_: object) -> NoReturn:
        raise BodyError("it has a document type declaration, which is never read: entities could come from it")

    def _start(self, tag: str, attributes: list[str]) -> None:
        self._budget.spend(1 + len(attributes) // 2)
        namespace, _, name = tag.rpartition(_SEPARATOR)
        element = Element(name, namespace)
        for key, value in zip(attributes[::2], attributes[1::2], strict=True):
            space, _, local = key.rpartition(_SEPARATOR)
            element.attributes[space, local] = value
        waiting = self._open
        if waiting:
            self._keep_text(waiting[-1])
            waiting[-1].children.append(element)
            if len(waiting) >= self._depth:
                self._budget.check_depth(len(waiting) + 1)
        else:
            self._root = element
        waiting.append(element)

    def _keep_text(self, element: Element) -> None:
        if self._texts:
            element.text += "".join(self._texts)
            self._texts.clear()

    def _end(self, _: str) -> None:
        element = self._open.pop()
        self._keep_text(element)
        # White space between children is layout; in an element without children it is text.
        if element.children and element.text and not element.text.strip():
            element.text = ""


def write(root: Element, *, declaration: bool = True, prefixes: dict[str, str] | None = None) -> str:
    """The document as text. Namespaces of elements become default namespaces; attributes take their prefixes."""
    known = {XSI: "xsi", **(prefixes or {})}
    parts = ['<?xml version="1.0"?>\r\n'] if declaration else []
    _write(root, "", known, parts, first=True)
    return "".join(parts)


def _write(element: Element, default: str, prefixes: dict[str, str], parts: list[str], *, first: bool = False) -> None:
    _check_name(element.name)
    parts.append(f"<{element.name}")
    if element.namespace != default:
        parts.append(f" xmlns={quoteattr(element.namespace)}")
    if first:
        used = {space for one in element.walk() for space, _ in one.attributes if space}
        for number, space in enumerate(sorted(used | ({XSI} & set(prefixes)))):
            prefixes.setdefault(space, f"n{number}")
            parts.append(f" xmlns:{prefixes[space]}={quoteattr(space)}")
    for (space, name), value in element.attributes.items():
        _check_name(name)
        parts.append(f" {prefixes[space] + ':' if space else ''}{name}={quoteattr(_checked(value), _CONTROLS)}")
    parts.append(">")
    if element.text:
        parts.append(escape(_checked(element.text), {"\r": "&#xD;"}))
    for child in element.children:
        _write(child, element.namespace, prefixes, parts)
    parts.append(f"</{element.name}>")


_CONTROLS: Final = {"\r": "&#xD;", "\n": "&#xA;", "\t": "&#x9;"}
_NAME: Final = re.compile(r"[^\W\d][\w.\-]*\Z")


def _check_name(name: str) -> None:
    if not _NAME.match(name):
        raise BodyError(f"{name!r:.80} is no name of an XML element or attribute")


def _checked(text: str) -> str:
    if found := _NOT_XML.search(text):
        raise BodyError(f"XML cannot have the character {found[0]!r}")
    return text
