"""Selects the format of a message: by its body type, its headers and its content, or by a given name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from qmnode.bodies import activex
from qmnode.bodies.limits import CARRIED, DEFAULT_LIMITS, BodyError, Budget, Limits

ACTIVEX: Final = "activex"
XML: Final = "xml"
BINARY: Final = "binary"
WCF: Final = "wcf"
JSON: Final = "json"
TEXT: Final = "text"
NSERVICEBUS: Final = "nservicebus"
REBUS: Final = "rebus"
FORMATS: Final = (ACTIVEX, XML, BINARY, WCF, JSON, TEXT)
"""Formats of bodies, beside the names of body types such as VT_BSTR."""
HEADER_FORMATS: Final = (NSERVICEBUS, REBUS)

_WRITTEN: Final = f"{', '.join((XML, ACTIVEX, WCF, JSON, TEXT, *HEADER_FORMATS))} or a body type such as VT_BSTR"

_NRBF_TYPE: Final = 768


@dataclass(frozen=True, slots=True)
class Decoded:
    """A body as a value, or the reason why there is none."""

    format: str
    """``xml``, ``binary``, ``wcf``, ``json``, ``text``, or the body type's name (``VT_BSTR``); empty if unknown."""
    value: Any = None
    """None, bool, int, float, Decimal, str, bytes, datetime, timedelta, UUID, and lists and dictionaries of them."""
    reason: str = ""
    """Why there is no value; empty if there is one."""


class Headers(NamedTuple):
    """Headers of a message, decoded."""

    format: str
    """``nservicebus``, ``rebus``, or empty for none or unknown ones."""
    values: Mapping[str, str | None]
    """By name; None for one without a value, which is another thing than an empty one."""
    reason: str = ""
    """Why some could not be read: what is damaged, and where. Those that could are in ``values`` all the same."""


class Encoded(NamedTuple):
    """The properties of a message that carry a value."""

    body: bytes
    body_type: int = 0
    extension: bytes = b""


def decode(
    body: bytes,
    body_type: int = 0,
    *,
    format: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    code_page: str = activex.DEFAULT_CODE_PAGE,
    headers: Mapping[str, str | None] | None = None,
) -> Decoded:
    """The value of a body, in the recognised or the given format. Never raises. ``headers`` are those of NServiceBus or
    Rebus, which may say how the body is compressed and encoded.
    """
    name = format or ""
    try:
        if headers:
            from qmnode.bodies.content_encoding import plain_content

            body = plain_content(body, headers, limits)
        name = name or recognise(body, body_type)
        chosen = named_type(name)
        if name and chosen is None and name not in FORMATS:
            raise BodyError(f"{name!r:.80} is no format: use {', '.join(FORMATS)} or a body type such as VT_BSTR")
        if chosen is not None:
            return Decoded(name, activex.decode(body, chosen, Budget(limits), code_page))
        if name == ACTIVEX:
            return Decoded(activex.type_name(body_type), activex.decode(body, body_type, Budget(limits), code_page))
        return _read(name, body, Budget(limits))
    except BodyError as error:
        return Decoded(name, reason=str(error))
    except RecursionError:  # the caller's own stack is nearly full
        return Decoded(name, reason=f"nested more than {limits.depth} deep")


def named_type(name: str) -> int | None:
    """The body type of a format's name such as ``VT_BSTR``; None for other formats."""
    return activex.type_of_name(name) if name[:3].upper() == "VT_" else None


def recognise(body: bytes, body_type: int) -> str:
    """Name of the recognised format of a body; empty for none."""
    if activex.recognise(body, body_type):
        return activex.type_name(body_type)
    if not body:
        return TEXT if body_type == 0 else ""
    from qmnode.bodies import json_text, nrbf, wcf, xml_text
    from qmnode.bodies.byte_reader import utf16_as_utf8

    if body_type == _NRBF_TYPE or nrbf.recognise(body):
        return BINARY
    if wcf.recognise(body):
        return WCF
    if xml_text.looks_like_xml(body):
        return XML
    plain = utf16_as_utf8(body)
    if json_text.looks_like_json(plain):
        return JSON
    return TEXT if _is_text(plain) else ""


_CONTROLS: Final = bytes(code for code in range(32) if code not in b"\t\n\f\r\x1b")


def _is_text(body: bytes) -> bool:
    if len(body.translate(None, _CONTROLS)) != len(body):
        return False
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _read(name: str, body: bytes, budget: Budget) -> Decoded:
    match name:
        case "xml":
            from qmnode.bodies import xml_formatter

            return Decoded(name, xml_formatter.decode(body, budget))
        case "binary":
            from qmnode.bodies import nrbf

            return Decoded(name, nrbf.decode(body, budget))
        case "wcf":
            from qmnode.bodies import wcf

            return Decoded(name, wcf.decode(body, budget))
        case "json":
            from qmnode.bodies import json_text
            from qmnode.bodies.byte_reader import utf16_as_utf8

            budget.spend(0, len(body))
            return Decoded(name, json_text.decode(utf16_as_utf8(body), budget))
        case "text":
            from qmnode.bodies.byte_reader import utf8, utf16_as_utf8

            budget.spend(1, len(body))
            return Decoded(name, utf8(utf16_as_utf8(body)))
    return Decoded("", reason="the bytes are of no known format")


def read_headers(extension: bytes, *, limits: Limits = DEFAULT_LIMITS) -> Headers:
    """Headers of NServiceBus or Rebus in the property Extension. Never raises."""
    if not extension:
        return Headers("", {})
    from qmnode.bodies import nservicebus, rebus

    for name, form in ((NSERVICEBUS, nservicebus), (REBUS, rebus)):
        if form.recognise(extension):
            try:
                return Headers(name, *form.decode(extension, Budget(limits)))
            except BodyError as error:
                return Headers(name, {}, str(error))
    return Headers("", {})


def undecoded(body: Decoded, headers: Headers) -> str:
    """Return the reasons why a body has no value and why headers are missing; empty if nothing is."""
    return "; ".join(filter(None, (body.reason, headers.reason and f"headers: {headers.reason}")))


def write_headers(headers: Mapping[str, str | None], format: str) -> bytes:
    """Extension for such headers. Raises BodyError for another format."""
    from qmnode.bodies import nservicebus, rebus

    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, (str, type(None))):
            raise BodyError(f"headers are text, and {name!r:.80} is {value!r:.80}")
    if format == NSERVICEBUS:
        return nservicebus.encode(dict(headers))
    if format == REBUS:
        return rebus.encode(dict(headers))
    raise BodyError(f"{format!r:.80} is no format of headers: use {' or '.join(HEADER_FORMATS)}")


def add_headers(extension: bytes, headers: Mapping[str, str]) -> bytes:
    """Extension with more headers, in the format of those that it has, else of Rebus. BodyError if it has other bytes,
    or headers that are damaged.
    """
    found = read_headers(extension, limits=CARRIED) if extension else Headers(REBUS, {})
    if not found.format or found.reason:
        raise BodyError(f"Extension has no headers to add to: {found.reason or 'its bytes are something else'}")
    return write_headers({**found.values, **headers}, found.format)


def encode(
    value: Any,
    format: str,
    *,
    headers: Mapping[str, str | None] | None = None,
    code_page: str = activex.DEFAULT_CODE_PAGE,
) -> Encoded:
    """Body, body type and Extension for a value. Raises BodyError if the format cannot represent it.

    ``nservicebus`` and ``rebus`` are JSON with headers; bytes and text are used as the body unchanged.
    """
    try:
        body, body_type = _encode_body(value, format, code_page)
    except RecursionError:
        raise BodyError(f"the value is nested too deep for the format {format:.80}") from None
    if format not in HEADER_FORMATS:
        if headers:
            raise BodyError(f"the format {format} has no headers: use {' or '.join(HEADER_FORMATS)}")
        return Encoded(body, body_type)
    return Encoded(body, body_type, write_headers(headers or {}, format))


def _encode_body(value: Any, format: str, code_page: str) -> tuple[bytes, int]:
    if (body_type := named_type(format)) is not None:
        return activex.encode(value, body_type, code_page)
    match format:
        case "activex":
            return activex.encode(value, code_page=code_page)
        case "VT_DATE_OLE":
            return activex.encode_ole_date(value)
        case "xml":
            from qmnode.bodies import xml_formatter

            return xml_formatter.encode(value), 0
        case "wcf":
            from qmnode.bodies import wcf

            return wcf.encode(value), 0
        case "text" | "nservicebus" | "rebus" if isinstance(value, (str, bytes)):
            return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value, 0
        case "json" | "nservicebus" | "rebus":
            from qmnode.bodies import json_text

            return json_text.encode(value), 0
        case "binary":
            raise BodyError("BinaryMessageFormatter is only read: .NET deprecates its reader; write xml instead")
        case "text":
            raise BodyError(f"the format text has text or bytes, and not {value!r:.80}")
    raise BodyError(f"{format!r:.80} is no format: use {_WRITTEN}")
