"""How a format is chosen, and what people's programs write beside the plain cases."""

from __future__ import annotations

import codecs
from datetime import datetime
from struct import pack
from typing import TYPE_CHECKING

import pytest

from qmnode.bodies.choice import decode, encode, read_headers, write_headers
from qmnode.bodies.limits import BodyError
from qmnode.management.message_documents import BodyForm, MessageDocument
from qmnode.model.message import Message
from tests.lab.cases import cases

if TYPE_CHECKING:
    from collections.abc import Callable

XML = '<?xml version="1.0" encoding="utf-16"?><Order><Id>7</Id></Order>'


@pytest.mark.parametrize("body", [XML.encode(), XML.encode("utf-16"), XML.encode("utf-16-le"), XML.encode("utf-16-be")])
def test_xml_that_declares_utf16_is_read_whatever_it_is_in(body: bytes) -> None:
    assert decode(body).value == {"Order": {"Id": "7"}}


@cases(
    ("body", "body_type", "format", "value"),
    [
        (b"", 0, "text", ""),
        (b"plain", 0, "text", "plain"),
        (b" <a/>", 0, "xml", {"a": ""}),
        (b"[1]", 0, "json", [1]),
        (b"\x00\x01", 0x2011, "VT_ARRAY|VT_UI1", b"\x00\x01"),
        (b"\x00\x01", 0x1011, "VT_VECTOR|VT_UI1", b"\x00\x01"),
        (b"\x02\x00\x00\x00\x01\x00\xff\xff", 0x1002, "VT_VECTOR|VT_I2", [1, -1]),
        (b"\x01\x00\xff\xff", 0x1002, "VT_VECTOR|VT_I2", [1, -1]),
        (b"\xff\xff", 11, "VT_BOOL", True),
        (b"\x00\x00", 11, "VT_BOOL", False),
        (b"", 1, "VT_NULL", None),
        (b"", 8, "VT_BSTR", ""),
        (bytes(8), 7, "VT_DATE", datetime(1, 1, 1)),
        (bytes.fromhex("000000000000e03f"), 7, "VT_DATE", datetime(1899, 12, 30, 12)),
        (bytes.fromhex("000000000000f4bf"), 7, "VT_DATE", datetime(1899, 12, 29, 6)),
    ],
)
def test_body_type_and_content_choose_the_format(body: bytes, body_type: int, format: str, value: object) -> None:
    decoded = decode(body, body_type)
    assert (decoded.format, decoded.value, decoded.reason) == (format, value, "")


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("Hello, world".encode("utf-16"), "Hello, world"),
        ("Hello, w\xf6rld\r\n\t7".encode("utf-16-le"), "Hello, w\xf6rld\r\n\t7"),
        ("Hello".encode("utf-16-be"), "Hello"),
        ("Order 7\0".encode("utf-16-le"), "Order 7"),
        ("\U0001f600 is fine".encode("utf-16-le"), "\U0001f600 is fine"),
        (b"\xfe\xff" + "\u65e5\u672c".encode("utf-16-be"), "\u65e5\u672c"),
        ("\u05d0\u200f".encode("utf-16"), "\u05d0\u200f"),
        ('{"a": "\xfc"}'.encode("utf-16-le"), {"a": "\xfc"}),
        ("[1, 2]".encode("utf-16-be"), [1, 2]),
    ],
)
def test_text_of_utf16_is_recognised_without_a_body_type(body: bytes, value: object) -> None:
    decoded = decode(body)
    assert (decoded.value, decoded.reason) == (value, "")
    assert decode(body, format=decoded.format) == decoded


@pytest.mark.parametrize(
    "body",
    [
        pack("<4h", 1, 2, 3, 4),
        pack("<4i", 65, 66, 67, 68),
        pack("<4q", 65, 66, 67, 68),
        pack("<4d", 1, 2, 3, 4),
        pack("<3h", 65, 66, 67),  # too few to tell them from letters
        "\u65e5\u672c\u8a9e\u65e5\u672c\u8a9e".encode("utf-16-le"),
        b"\xff\xfe",
        b"\xff\xfe\x00\xd8",
        b"\xff\xfea\0b",
        "a\ud800bcdef".encode("utf-16-le", "surrogatepass"),
        bytes(8),
    ],
)
def test_what_may_be_numbers_or_damaged_is_not_taken_for_text(body: bytes) -> None:
    assert decode(body).reason == "the bytes are of no known format"


def test_lpstr_takes_the_code_page_that_is_named() -> None:
    assert decode("\u65e5\u672c".encode("cp932"), 30, code_page="cp932").value == "\u65e5\u672c"
    assert "no code page" in decode(b"a", 30, code_page="pigeon").reason
    assert Message.from_value("\u20ac", format="VT_LPSTR").body == b"\x80"


def test_a_streamed_object_is_named_and_not_loaded() -> None:
    found = decode(bytes(range(16)) + b"state", 68).value
    assert found == {"object": "streamed", "class": "03020100-0504-0706-0809-0a0b0c0d0e0f", "content": b"state"}


def test_an_ole_date_is_written_for_com_programs() -> None:
    moment = datetime(2026, 5, 6, 12)
    assert decode(*encode(moment, "VT_DATE_OLE")[:2]).value == moment


def test_a_reply_has_the_identifier_of_its_request() -> None:
    request = Message(b"question")
    request.__dict__["identifier"] = bytes(range(20))
    assert request.reply(b"answer").correlation_identifier == bytes(range(20))


@pytest.mark.parametrize(
    "format", ["VT_VECTOR|VT_UI1", "VT_ARRAY|VT_UI1", "VT_I4", "VT_CLSID", "VT_DATE", "xml", "wcf"]
)
def test_values_that_a_format_cannot_have_are_refused(format: str) -> None:
    with pytest.raises(BodyError):
        encode(object() if format == "xml" else 1 << 40, format)


_XSI = "http://www.w3.org/2001/XMLSchema-instance"


@pytest.mark.public_report("Particular/ServiceControl#1618")
@pytest.mark.parametrize(
    ("extension", "headers"),
    [
        (b'{"rbs2-msg-id":"1","rbs2-return-address":null}', {"rbs2-msg-id": "1", "rbs2-return-address": None}),
        (b'{"a":"","b":null,"c":"null"}', {"a": "", "b": None, "c": "null"}),
        (b'{"a":null}', {"a": None}),
        (
            b"<ArrayOfHeaderInfo><HeaderInfo><Key>a</Key></HeaderInfo>"
            b"<HeaderInfo><Key>b</Key><Value /></HeaderInfo></ArrayOfHeaderInfo>",
            {"a": None, "b": ""},
        ),
        (
            f'<ArrayOfHeaderInfo xmlns:x="{_XSI}"><HeaderInfo><Key>a</Key><Value x:nil="true"/></HeaderInfo>'
            "</ArrayOfHeaderInfo>".encode(),
            {"a": None},
        ),
    ],
)
def test_a_header_without_a_value_is_not_an_empty_one(extension: bytes, headers: dict[str, str | None]) -> None:
    found = Message(b"{}", extension=extension)
    assert (found.headers, found.undecoded_headers) == (headers, "")
    assert read_headers(write_headers(found.headers, read_headers(extension).format)).values == headers
    assert found.decoded().value == {}
    assert MessageDocument.of(found, BodyForm.DECODED).model_dump(mode="json")["headers"] == headers


@pytest.mark.parametrize("body", [b'{"a":"x \\ud83d?"}', b'{"a":["\\udc00"]}', b'{"\\ud83d":1}'])
def test_half_a_surrogate_pair_is_shown_as_what_is_missing_and_not_as_a_question(body: bytes) -> None:
    document = MessageDocument.of(Message(body, extension=b'{"b":"\\ud83d"}'), BodyForm.DECODED)
    assert "\ufffd" in str(document.decoded) and str(document.decoded).count("?") == body.count(b"?")
    assert document.headers == {"b": "\ufffd"}


@pytest.mark.public_report("Particular/ServiceControl#4196")
@pytest.mark.parametrize("name", ["nservicebus", "rebus"])
@pytest.mark.parametrize(
    "write",
    [
        lambda text: codecs.BOM_UTF8 + text,
        lambda text: text + b"\0\0\0",
        lambda text: codecs.BOM_UTF8 + text + b"\0",
    ],
    ids=["a mark", "NUL characters behind", "both"],
)
def test_headers_with_a_byte_order_mark_are_read(name: str, write: Callable[[bytes], bytes]) -> None:
    headers = {"NServiceBus.MessageId": "1", "rbs2-content-type": "application/json", "line": "one\ntwo é"}
    message = Message(b"{}", extension=write(write_headers(headers, name)))
    assert (message.headers, message.undecoded_headers) == (headers, "")
