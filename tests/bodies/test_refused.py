"""Values that a format cannot have: BodyError with a sentence, and never another exception or bytes nobody reads."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pytest

from qmnode.bodies.choice import decode, encode, write_headers
from qmnode.bodies.limits import BodyError
from qmnode.bodies.typed_text import value_of_json, value_of_text
from tests.lab.cases import cases

WCF = {"action": "urn:do", "to": "net.msmq://host/private/orders", "body": {"Do": {"n": 1}}}


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@cases(
    ("value", "format", "sentence"),
    [
        ({"a": {"@xmlns": None}}, "xml", "NoneType cannot be written"),
        ({"a": {"@xmlns": ["urn:x"]}}, "xml", "list cannot be written"),
        ({"a": {"@xmlns": "\x01"}}, "xml", "XML cannot have"),
        ({"a": {"@xmlns": "http://www.w3.org/2000/xmlns/"}}, "xml", "is XML's own"),
        ({"Order": {1: 2}}, "xml", "1 is no name"),
        ({1: 2}, "xml", "1 is no name"),
        ({None: 2}, "xml", "None is no name"),
        ({"\u00b2": 1}, "xml", "is no name"),
        ({"a": {"@\u00b2": 1}}, "xml", "is no name"),
        (WCF | {"body": {1: 2}}, "wcf", "1 is no name"),
        (WCF | {"body": {"Do": {1: 2}}}, "wcf", "1 is no name"),
        (WCF | {"body": {"Do": {"@xmlns": None}}}, "wcf", "NoneType cannot be written"),
        (WCF | {"body": {"a b": 1}}, "wcf", "is no name"),
        (WCF | {"body": {"Do": {"": 1}}}, "wcf", "is no name"),
        (WCF | {"body": {"Do": {"@a b": 1}}}, "wcf", "is no name"),
        (WCF | {"body": {"Do": "\ud800"}}, "wcf", "surrogate"),
        (WCF | {"action": None}, "wcf", "action of a WCF message is text"),
        (WCF | {"reply_to": 5}, "wcf", "reply_to of a WCF message is text"),
        (WCF | {"headers": {"a": "b"}}, "wcf", "'headers' is not written"),
        (WCF | {"Action": "urn:do"}, "wcf", "'Action' is not written"),
        ("x", "VT_DATE_OLE", "'x' is no OLE date"),
        (datetime(99, 12, 31), "VT_DATE_OLE", "no OLE date: those are of the years 100 to 9999"),
        ("false", "VT_BOOL", "'false' is no VT_BOOL"),
        (2, "VT_BOOL", "2 is no VT_BOOL"),
        (1.0, "VT_BOOL", "1.0 is no VT_BOOL"),
        ([True, "false"], "VT_VECTOR|VT_BOOL", "'false' is no VT_BOOL"),
        ("abc", "VT_VECTOR|VT_BSTR", "it has a list of VT_BSTR"),
        ({"a": 1}, "VT_VECTOR|VT_BSTR", "it has a list of VT_BSTR"),
        ([], "VT_VECTOR|VT_STREAMED_OBJECT", "it has a list of VT_STREAMED_OBJECT"),
        ("abc", "VT_VECTOR|VT_UI1", "it has bytes"),
        (5, "VT_ARRAY|VT_UI1", "it has bytes"),
        (70_000, "VT_I2", "it has whole numbers from -32768 to 32767"),
        (-1, "VT_UI1", "it has whole numbers from 0 to 255"),
        (1.5, "VT_I8", "it has whole numbers from -9223372036854775808 to 9223372036854775807"),
        ("x", "VT_R8", "it has numbers"),
        (1e300, "VT_R4", "it has numbers up to 3.4e38"),
        ("x", "VT_CY", "from -922337203685477.5808 to 922337203685477.5807"),
        (5, "VT_BSTR", "it has text"),
        (5, "VT_LPSTR", "it has text of the code page cp1252"),
        ("\u65e5", "VT_LPSTR", "it has text of the code page cp1252"),
        ("2020-01-01", "VT_DATE", "it has a date and time"),
        ("x", "VT_CLSID", "it has a UUID"),
        (5, "text", "the format text has text or bytes"),
        (nested(5_000), "json", "nested too deep"),
        (
            1,
            "XML",
            "'XML' is no format: use xml, activex, wcf, json, text, nservicebus, rebus or a body type such as VT_BSTR",
        ),
        ({}, "", "'' is no format: use xml"),
        (1, "VT_PIGEON", "'VT_PIGEON' is no format: use xml"),
    ],
)
def test_a_value_is_refused_with_a_sentence(value: object, format: str, sentence: str) -> None:
    with pytest.raises(BodyError, match=re.escape(sentence)) as refused:
        encode(value, format)
    assert not re.search(r"format requires|codec|has no attribute|argument|memoryview|struct", str(refused.value))


@pytest.mark.parametrize("format", ["nservicebus", "rebus"])
@pytest.mark.parametrize("headers", [{"a": 5}, {"a": ["b"]}, {5: "a"}])
def test_headers_are_text(format: str, headers: Any) -> None:
    with pytest.raises(BodyError, match="headers are text"):
        write_headers(headers, format)


def test_a_code_page_that_is_none_is_named() -> None:
    with pytest.raises(BodyError, match="'pigeon' is no code page"):
        encode("a", "VT_LPSTR", code_page="pigeon")


@pytest.mark.parametrize(
    ("value", "format", "read"),
    [
        ({"a": {"@xmlns": 5}}, "xml", {"a": {"@xmlns": "5"}}),
        ({"\u00fcber-7.a": {"\u65e5": 1}}, "xml", {"\u00fcber-7.a": {"\u65e5": "1"}}),
        (value_of_text('<a xml:lang="en">b</a>', "xml"), "xml", {"a": {"@lang": "en", "#text": "b"}}),
        (1, "VT_BOOL", True),
        (False, "VT_BOOL", False),
        ([True, 0], "VT_VECTOR|VT_BOOL", [True, False]),
        (datetime(100, 1, 1), "VT_DATE_OLE", datetime(100, 1, 1)),
    ],
)
def test_what_is_written_is_read_again(value: object, format: str, read: object) -> None:
    decoded = decode(*encode(value, format)[:2])
    assert (decoded.value, decoded.reason) == (read, "")


def test_a_wcf_message_that_was_read_can_be_written_again() -> None:
    value = decode(encode(WCF, "wcf").body).value
    assert value["mode"] == "singleton-sized"
    assert decode(encode(value, "wcf").body).value == value


@pytest.mark.parametrize("format", ["VT_NULL", "VT_EMPTY"])
def test_text_is_not_dropped_for_a_type_without_bytes(format: str) -> None:
    assert value_of_text("\n", format) is None
    with pytest.raises(BodyError, match="is no VT_"):
        value_of_text("order 7", format)


def test_values_of_json_are_left_as_they_are_for_other_formats() -> None:
    assert value_of_json("2020-01-01", "xml") == "2020-01-01"
    assert value_of_json(["a"], "json") == ["a"]
