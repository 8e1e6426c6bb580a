"""Damaged headers: each is reported with its reason, and hides no other."""

from __future__ import annotations

import codecs
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmnode import Message
from qmnode.bodies.choice import HEADER_FORMATS, read_headers, write_headers
from qmnode.management.message_documents import BodyForm, MessageDocument, exported
from tests.lab.cases import cases

_XML = write_headers({"a": "1", "b": "2"}, "nservicebus")
_CUT = _XML[: _XML.index(b"<Value>2")]

DAMAGED = {
    "cut in a value": (b'{"a":"1","b":"un', {"a": "1"}, ("Unterminated string", "column 14", "after the header 'a'")),
    "cut in a name": (b'{"a":"1","b', {"a": "1"}, ("after the header 'a'",)),
    "cut after a comma": (b'{"a":"1",', {"a": "1"}, ("after the header 'a'",)),
    "cut at once": (b"{", {}, ("no JSON",)),
    "with a mark, and cut": (b'\xef\xbb\xbf{"a":"1","b":', {"a": "1"}, ("after the header 'a'",)),
    "more after the end": (b'{"a":"1"} x', {"a": "1"}, ("Extra data",)),
    "a number": (b'{"a":"1","n":5,"b":"2"}', {"a": "1", "b": "2"}, ("'n' is a number",)),
    "a list": (b'{"a":"1","n":["x"],"b":"2"}', {"a": "1", "b": "2"}, ("'n' is a list",)),
    "an object": (b'{"a":"1","n":{"x":"y"}}', {"a": "1"}, ("'n' is an object",)),
    "true": (b'{"a":"1","n":true}', {"a": "1"}, ("'n' is true or false",)),
    "a name twice": (b'{"a":"1","b":"2","a":"3"}', {"a": "3", "b": "2"}, ("'a' is there more than once",)),
    "two names twice": (b'{"a":"1","b":"2","b":null,"a":""}', {"a": "", "b": None}, ("'a' is", "'b' is there more")),
    "a name twice within": (b'{"a":"1","n":{"a":1,"a":2}}', {"a": "1"}, ("'n' is an object",)),
    "XML with a name twice": (_XML.replace(b">b<", b">a<"), {"a": "2"}, ("'a' is there more than once",)),
    "beyond all numbers": (b'{"a":"1","n":1e999}', {"a": "1"}, ("'n' is a number",)),
    "no object": (b'["a","b"]', {}, ("are a list",)),
    "a number, and cut": (b'{"n":5,"a":"1","b', {"a": "1"}, ("'n' is a number", "after the header 'a'")),
    "bytes that are no UTF-8": (
        b'{"a":"1","n":"\xff\xfe","b":"2"}',
        {"a": "1", "b": "2"},
        ("byte 14", "'n' has bytes"),
    ),
    "XML that is cut": (_CUT, {"a": "1"}, ("no element found", "after the header 'a'")),
    "XML with a mark, and cut": (codecs.BOM_UTF8 + _CUT, {"a": "1"}, ("column", "after the header 'a'")),
    "XML in UTF-16, and cut": ((codecs.BOM_UTF16_LE + _CUT.decode().encode("utf-16-le"))[:-1], {"a": "1"}, ("utf-16",)),
    "XML that is cut in its declaration": (_XML[:20], {}, ("no well-formed XML",)),
    "XML that is cut in its first name": (_XML[:50], {}, ("no well-formed XML",)),
    "XML with bytes that are no UTF-8": (
        _XML.replace(b">1<", b">\xff<"),
        {"b": "2"},
        ("at byte", "the header 1, 'a', cannot be read"),
    ),
    "XML with a wrong element": (_XML.replace(b">1<", b"><x><"), {"b": "2"}, ("mismatched", "the header 1, 'a',")),
}


@cases("name", DAMAGED)
def test_what_is_damaged_is_reported_and_the_rest_is_read(name: str) -> None:
    extension, values, parts = DAMAGED[name]
    found = read_headers(extension)
    assert found.values == values
    for part in parts:
        assert part in found.reason
    message = Message(b"{}", extension=extension)
    assert (message.headers, message.undecoded_headers) == (values, found.reason)


@cases("name", DAMAGED)
def test_documents_have_the_reason_and_the_rest(name: str) -> None:
    extension, values, _ = DAMAGED[name]
    message = Message(b'{"Id": 7}', extension=extension)
    for document in (
        MessageDocument.of(message, BodyForm.DECODED).model_dump(),
        exported("orders", message),
    ):
        assert document["undecoded"] == f"headers: {message.undecoded_headers}"
        assert (document["headers"], document["decoded"]) == (values, {"Id": 7})
        json.dumps(document, allow_nan=False, default=str)


@pytest.mark.parametrize(
    "extension", [b"", b"\x01\x02{", b"plain text", b"{\xff\x00\x80", b"<other/>", b"<?xml?><Arr/>"]
)
def test_other_extensions_are_no_damaged_headers(extension: bytes) -> None:
    assert read_headers(extension) == ("", {}, "")


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=20)


@settings(deadline=None)
@given(st.dictionaries(_TEXT.filter(bool), _TEXT, max_size=5), st.sampled_from(HEADER_FORMATS), st.data())
def test_cut_headers_keep_their_beginning(headers: dict[str, str], form: str, data: st.DataObject) -> None:
    try:
        whole = write_headers(headers, form)
    except ValueError:  # XML cannot have the character
        return
    if read_headers(whole).reason or read_headers(whole).values != headers:
        return  # XML normalises some white space
    cut = read_headers(whole[: data.draw(st.integers(1, len(whole) - 1))])
    assert list(cut.values.items()) == list(headers.items())[: len(cut.values)]
    assert cut.reason or not cut.format
