"""What must hold of bodies and headers for any bytes: a value that JSON can have, or the reason; and XML comes back."""

from __future__ import annotations

import json
from functools import cache, partial
from typing import TYPE_CHECKING

from qmnode.bodies import xml_formatter, xml_quick
from qmnode.bodies.activex import VECTOR, Vt
from qmnode.bodies.choice import FORMATS, HEADER_FORMATS, decode, encode, read_headers, write_headers
from qmnode.bodies.limits import DEFAULT_LIMITS, BodyError, Budget, Limits
from qmnode.bodies.values_as_json import plain
from qmnode.bodies.xml_text import parse, text_of
from qmnode.bodies.xml_tree import content
from tests.bodies.test_vectors import recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMITS = Limits(nodes=500, depth=50, octets=1 << 16)
BODY_TYPES = tuple(int(kind) | vector for vector in (0, VECTOR) for kind in Vt)


def check_body(name: str | None, data: bytes) -> None:
    """The format that is named, or the one that is recognised; decoding never raises."""
    decoded = decode(data, format=name, limits=LIMITS)
    assert decoded.value is None or not decoded.reason
    json.loads(json.dumps(plain(decoded.value)).encode())
    json.dumps(plain(decoded.value), ensure_ascii=False).encode("utf-8")
    if decoded.format == "xml" and not decoded.reason:
        _comes_back(decoded.value)
        _is_what_the_parser_reads(data)


def _comes_back(value: object) -> None:
    """What was read of XML can be written, and is then read as the same."""
    try:
        again = xml_formatter.encode(value)
    except BodyError:
        return  # names with colons, and what only other writers can write
    other = decode(again, format="xml", limits=Limits())
    assert other.reason or plain(other.value) == plain(value)


def _is_what_the_parser_reads(data: bytes) -> None:
    """What is read in one pass is well-formed, and the parser reads the same."""
    found = xml_quick.read(text_of(data), Budget(LIMITS))
    if found is not None:
        tree = parse(data, Budget(DEFAULT_LIMITS))
        assert found == {tree.name: content(tree)}
    assert [xml_quick.read(text_of(data), Budget(LIMITS)) for _ in range(20)] == [found] * 20, "by its plan"


def check_body_type(data: bytes) -> None:
    """The first byte chooses the body type. A value of a scalar is written as it was read, or not at all."""
    if data:
        kind, body = BODY_TYPES[data[0] % len(BODY_TYPES)], data[1:]
        decoded = decode(body, kind, limits=LIMITS)
        json.dumps(plain(decoded.value), ensure_ascii=False).encode("utf-8")
        if kind in (Vt.VT_I4, Vt.VT_R8, Vt.VT_CY, Vt.VT_BSTR, Vt.VT_CLSID) and not decoded.reason:
            written = encode(decoded.value, decoded.format).body
            assert written == body or decoded.value != decoded.value


def check_headers(data: bytes) -> None:
    """Headers that were read can be written, and are then read as the same."""
    found = read_headers(data, limits=LIMITS)
    if found.format and not found.reason:
        extension = write_headers(found.values, found.format)
        assert plain(dict(read_headers(extension).values)) == plain(dict(found.values))


BODY_TARGETS: dict[str, Callable[[bytes], None]] = {
    "body": partial(check_body, None),
    **{f"body.{name}": partial(check_body, name) for name in FORMATS if name != "activex"},
    "body_type": check_body_type,
    "headers": check_headers,
}


@cache
def _vectors() -> list[dict[str, bytes]]:
    return [vector for vector in recorded() if len(vector["body"]) < 2000]


def body_seeds() -> Iterator[tuple[str, bytes]]:
    """The recorded vectors."""
    for vector in _vectors():
        name, body = str(vector["format"]), vector["body"]
        if name in HEADER_FORMATS:
            yield "headers", vector["extension"]
        elif name.startswith("VT_"):
            yield "body_type", bytes([BODY_TYPES.index(int(vector["body_type"]))]) + body
        else:
            yield "body", body
            yield f"body.{name}", body
    yield "body.json", b'{"a": [1, 2.5, null, "text"]}'
    yield "body.text", b"text"
