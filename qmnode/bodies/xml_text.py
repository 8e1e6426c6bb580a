"""XML text to a tree, and back.

The parser is Python's own (expat), and it reaches nothing outside: a document type declaration is refused where it
begins, so there are no entities beyond the five of XML, and no file is ever opened. Text that could create many nodes
is counted before the parser starts. ``defusedxml`` refuses the same declarations, but limits neither nodes nor depth,
and its parser is written in Python.
"""

import codecs
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NoReturn
from xml.etree import ElementTree
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from qmnode.bodies.limits import BodyError, Budget
from qmnode.bodies.text_encodings import codec_of
from qmnode.bodies.xml_tree import XSI, Element

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before the mark of UTF-16, with which it begins
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_DECLARED: Final = re.compile(rb"""\s*<\?xml[^>]{0,100}?encoding=["']([A-Za-z0-9._-]{1,40})["']""")
_NEVER: Final = re.compile("[\ud800-\udfff\ufffe\uffff]")
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def looks_like_xml(body: bytes) -> bool:
    """Whether it begins like an XML document of UTF-8 or UTF-16, with or without a byte-order mark."""
    if body[:1] == b"<" and body[1:2] != b"\0":  # as most begin
        return True
    start = body[:64]
    for mark, encoding in _MARKS:
        if start.startswith(mark):
            return start[len(mark) :].decode(encoding, "replace").lstrip("\ufeff \t\r\n").startswith("<")
    return start.replace(b"\0", b"").lstrip(b" \t\r\n").startswith(b"<") and start[:1] + start[1:2] not in (b"\0\0",)


def text_of(body: bytes, errors: str = "strict") -> str:
    """The document as text. Raises BodyError if it has an encoding that is not read, or is no text of its own; with
    ``replace`` for ``errors``, what is no text becomes U+FFFD.
    """
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
        elif declared := _DECLARED.match(body):
            # A StringWriter of .NET declares UTF-16, whatever encoding its text is sent in.
            encoding = declared[1].decode().lower()
            encoding = "utf-8" if encoding.startswith(("utf-16", "utf-32", "unicode")) else encoding
    encoding = codec_of(encoding)
    try:
        return body.decode(encoding, errors).rstrip("\0")  # some senders end their text with NUL characters
    except UnicodeDecodeError as error:
        raise BodyError(f"it is no text of {encoding}: {error.reason} at byte {error.start}") from None


_MOST_OF: Final = {"<": 2, "=": 1, "&": 10, "\n": 20}
"""Characters that cost the parser time: the most of each per node of the budget. Counted before it starts."""


def parse_tree(text: str, budget: Budget) -> ElementTree.Element:
    """The tree as Python's own parser builds it, in C. Raises BodyError if it is malformed or declares a document type.

    The elements are not charged yet: the code that walks them does that. Their number has been checked.
    """
    for letter, share in _MOST_OF.items():
        budget.require(text.count(letter) // share)
    text, controls = _with_stand_ins(text) if "&#" in text else (text, {})
    content = text.encode("utf-8", "surrogatepass")
    try:
        if "<!DOCTYPE" in text:
            _refuse_document_type(content)
        # The declared encoding was that of the body, and no longer applies.
        parser = ElementTree.XMLParser(encoding="utf-8")  # noqa: S314 -- without a declared document type
        parser.feed(content)
        tree = parser.close()
        if controls:
            _put_back(tree, controls)
        return tree
    except (expat.ExpatError, ElementTree.ParseError) as error:
        raise BodyError(f"it is no well-formed XML: {error}") from None


_REFERENCE: Final = re.compile("<!\\[CDATA\\[|<!--|<\\?|&#(?:x0{0,16}([0-9A-Fa-f]{1,6})|0{0,16}([0-9]{1,7}));")
_ENDS: Final = {"<![CDATA[": "]]>", "<!--": "-->", "<?": "?>"}
_STAND_INS: Final = range(0xE000, 0xF8FF)
"""Characters for private use: those that a document has not stand for its forbidden references while it is parsed."""


def _with_stand_ins(text: str) -> tuple[str, dict[int, str]]:
    """The text without references that XML and its parser forbid, such as ``&#x1C;``, and what their stand-ins mean.
    .NET writes and reads them.
    """
    parts: list[str] = []
    meant: dict[str, str] = {}
    free: Iterator[str] | None = None
    start = place = 0
    while (found := _REFERENCE.search(text, place)) is not None:
        place = found.end()
        if (end := _ENDS.get(found[0])) is not None:  # no references are in there
            if (place := text.find(end, place)) < 0:
                break
            continue
        number = int(found[1], 16) if found[1] else int(found[2])
        letter = chr(number) if number <= sys.maxunicode else ""
        if not letter or not _NOT_XML.match(letter):
            continue
        if letter not in meant:
            if free is None:
                used = set(text)
                free = (one for one in map(chr, _STAND_INS) if one not in used)
            meant[letter] = next(free, "")
            if not meant[letter]:
                raise BodyError("too many different references to characters that XML forbids")
        parts += (text[start : found.start()], meant[letter])
        start = place
    parts.append(text[start:])
    return "".join(parts), {ord(stand_in): letter for letter, stand_in in meant.items()}


def _put_back(tree: ElementTree.Element, meant: dict[int, str]) -> None:
    for one in tree.iter():
        one.text = one.text and one.text.translate(meant)
        one.tail = one.tail and one.tail.translate(meant)
        for name, value in one.attrib.items():
            one.attrib[name] = value.translate(meant)


def _refuse_document_type(content: bytes) -> None:
    """Refuse a document type declaration. Without one the only entities are the five of XML, and nothing is opened."""

    def found(*_: object) -> NoReturn:
        raise BodyError("it has a document type declaration, which is never read: entities could come from it")

    parser = expat.ParserCreate("utf-8")
    parser.StartDoctypeDeclHandler = found
    parser.Parse(content, True)


def parse(body: bytes, budget: Budget) -> Element:
    """The tree of a document as elements."""
    budget.spend(0, len(body))
    return element_of_tree(parse_tree(text_of(body), budget), budget)


def element_of_tree(source: ElementTree.Element, budget: Budget, depth: int = 1) -> Element:
    """Convert an element of the parser, charging the budget."""
    budget.spend(1 + len(source.attrib))
    budget.check_depth(depth)
    namespace, name = split_tag(source.tag)
    element = Element(name, namespace, text=text_within(source))
    for tag, value in source.attrib.items():
        element.attributes[split_tag(tag)] = value
    element.children = [element_of_tree(child, budget, depth + 1) for child in source]
    return element


def split_tag(tag: str) -> tuple[str, str]:
    """Namespace and name of ``{namespace}name``."""
    if tag[0] != "{":
        return "", tag
    space, _, name = tag[1:].rpartition("}")
    return space, name


def text_within(source: ElementTree.Element) -> str:
    """All text of an element outside of its children. White space between children is layout, and left out."""
    text = source.text or ""
    if len(source):
        text += "".join(child.tail or "" for child in source)
        return text if text.strip() else ""
    return text


def write(root: Element, *, declaration: bool = True, prefixes: dict[str, str] | None = None) -> str:
    """The document as text. Namespaces of elements become default namespaces; attributes take their prefixes."""
    known = {XSI: "xsi", _XML_NAMESPACE: "xml", **(prefixes or {})}
    parts = ['<?xml version="1.0"?>\r\n'] if declaration else []
    _write(root, "", known, parts, first=True)
    return "".join(parts)


def _write(element: Element, default: str, prefixes: dict[str, str], parts: list[str], *, first: bool = False) -> None:
    check_name(element.name)
    parts.append(f"<{element.name}")
    if element.namespace != default:
        parts.append(f" xmlns={quoteattr(_namespace(element.namespace), _CONTROLS)}")
    if first:
        used = {space for one in element.walk() for space, _ in one.attributes if space}
        for number, space in enumerate(sorted((used | {XSI}) - {_XML_NAMESPACE})):
            prefixes.setdefault(space, f"n{number}")
            parts.append(f" xmlns:{prefixes[space]}={quoteattr(_namespace(space), _CONTROLS)}")
    for (space, name), value in element.attributes.items():
        check_name(name)
        parts.append(f" {prefixes[space] + ':' if space else ''}{name}={quoteattr(_writable(value), _ALL_CONTROLS)}")
    parts.append(">")
    if element.text:
        parts.append(escape(_writable(element.text), _IN_TEXT))
    for child in element.children:
        _write(child, element.namespace, prefixes, parts)
    parts.append(f"</{element.name}>")


_CONTROLS: Final = {"\r": "&#xD;", "\n": "&#xA;", "\t": "&#x9;"}
_FORBIDDEN: Final = {chr(code): f"&#x{code:X};" for code in range(32) if chr(code) not in "\t\n\r"}
"""Control characters, which .NET writes as references that XML forbids, and reads."""
_ALL_CONTROLS: Final = _CONTROLS | _FORBIDDEN
_IN_TEXT: Final = {"\r": "&#xD;"} | _FORBIDDEN
_NAME: Final = re.compile(r"[^\W\d][\w.\-]*\Z")
_XML_NAMESPACE: Final = "http://www.w3.org/XML/1998/namespace"
_RESERVED: Final = frozenset({_XML_NAMESPACE, "http://www.w3.org/2000/xmlns/"})


def check_name(name: str) -> None:
    """Raise BodyError for names that no element or attribute can have."""
    if not _NAME.match(name) or not (name.isascii() or _parser_takes(name)):
        raise BodyError(f"{name!r:.80} is no name of an XML element or attribute")


@lru_cache(maxsize=256)
def _parser_takes(name: str) -> bool:
    """Whether the parser accepts the name; not all letters and digits of Unicode are letters and digits of XML."""
    try:
        expat.ParserCreate("utf-8").Parse(f"<{name}/>".encode("utf-8", "surrogatepass"), True)
    except expat.ExpatError:
        return False
    return True


def _namespace(name: str) -> str:
    if name in _RESERVED:
        raise BodyError(f"the namespace {name!r} is XML's own: no element can be in it")
    return _checked(name)


def _writable(text: str) -> str:
    if found := _NEVER.search(text):
        raise BodyError(f"XML cannot have the character {found[0]!r}")
    return text


def _checked(text: str) -> str:
    if found := _NOT_XML.search(text):
        raise BodyError(f"XML cannot have the character {found[0]!r}")
    return text
