"""Text as programs of .NET write it: references to control characters, other encodings, compressed bodies."""

from __future__ import annotations

import gzip
import json

import pytest

from qmnode import Message
from qmnode.bodies.choice import decode, encode, read_headers
from qmnode.bodies.limits import Limits
from tests.lab.cases import cases


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("<Scan><Code>12&#x1C;34</Code></Scan>", {"Scan": {"Code": "12\x1c34"}}),
        ("<Gs1>0104&#29;17&#x0000001d;</Gs1>", {"Gs1": "0104\x1d17\x1d"}),
        ('<Printer command="&#x1B;E"><Reset>&#x0;&#xC;</Reset></Printer>', None),
        ("<Hl7>&#xB;MSH|^~\\&amp;|&#x1C;&#xD;</Hl7>", {"Hl7": "\x0bMSH|^~\\&|\x1c\r"}),
        ("<Text>\ue000\ue001&#x2;</Text>", {"Text": "\ue000\ue001\x02"}),
        ("<Text><![CDATA[&#x1C;]]>&#x1C;<!-- &#x1C; --></Text>", {"Text": "&#x1C;\x1c"}),
        ("<Text>&#xFFFE;&#xD83D;</Text>", {"Text": "\ufffe\ud83d"}),
    ],
)
def test_references_to_characters_that_xml_forbids_are_read(body: str, value: object) -> None:
    found = decode(body.encode())
    assert not found.reason
    assert found.value == value or (value is None and "\x1bE" in str(found.value).replace("\\x1b", "\x1b"))


@pytest.mark.parametrize("text", ["12\x1c34", "\0", "\x1b[0m", "a\x1fb\r\nc"])
def test_control_characters_are_written_as_references(text: str) -> None:
    body = encode({"Scan": {"Code": text}}, "xml").body
    assert not set(body) & (set(range(32)) - set(b"\r\n\t"))
    assert decode(body).value == {"Scan": {"Code": text}}


def test_a_reference_that_is_none_is_refused() -> None:
    for body in ("<A>&#x110000;</A>", "<A>&#;</A>", "<A>&#x1C</A>", "<A>&#x1C;<![CDATA[</A>"):
        assert decode(body.encode(), format="xml").reason


def test_many_references_cost_no_more_than_their_length() -> None:
    body = b"<A>" + b"&#x1C;<!--" * 20_000 + b"</A>"
    assert decode(body, format="xml", limits=Limits(octets=1 << 24, nodes=1_000_000)).reason
    many = "".join(f"&#x{number:X};" for number in range(0xD800, 0xE000)) * 4
    assert decode(f"<A>{many}</A>".encode(), format="xml", limits=Limits(octets=1 << 24, nodes=1_000_000)).value


@cases(
    ("declared", "codec", "text"),
    [
        ("shift_jis", "cp932", "日本①"),
        ("Shift_JIS", "cp932", "カナ"),
        ("euc-jp", "euc_jp", "東京"),
        ("iso-2022-jp", "iso2022_jp", "大阪"),
        ("gb2312", "gbk", "上海"),
        ("GB18030", "gb18030", "北京"),
        ("big5", "cp950", "臺北"),
        ("ks_c_5601-1987", "cp949", "서울"),
        ("koi8-r", "koi8_r", "Москва"),
        ("windows-1251", "cp1251", "Киев"),
        ("IBM850", "cp850", "Zürich"),
        ("iso-8859-2", "iso8859_2", "Łódź"),
        ("windows-874", "cp874", "กรุงเทพ"),
    ],
)
def test_the_encodings_of_dotnet_are_read(declared: str, codec: str, text: str) -> None:
    body = f'<?xml version="1.0" encoding="{declared}"?>\r\n<City><Name>{text}</Name></City>'.encode(codec)
    assert decode(body).value == {"City": {"Name": text}}


@pytest.mark.parametrize("declared", ["rot13", "raw_unicode_escape", "idna", "zlib", "hex", "x-user-defined"])
def test_other_encodings_are_named_and_refused(declared: str) -> None:
    found = decode(f'<?xml version="1.0" encoding="{declared}"?><A/>'.encode())
    assert declared in found.reason


@pytest.mark.parametrize(
    ("charset", "codec"),
    [
        ("utf-16", "utf-16-le"),
        ("UTF-16", "utf-16"),
        ("utf-16BE", "utf-16-be"),
        ("utf-32", "utf-32-le"),
        ("shift_jis", "cp932"),
    ],
)
@pytest.mark.parametrize("name", ["rbs2-content-type", "NServiceBus.ContentType"])
def test_headers_say_the_encoding_of_a_body(charset: str, codec: str, name: str) -> None:
    headers = {name: f'application/json; charset="{charset}"'}
    body = '{"city": "東京"}'.encode(codec)
    assert decode(body, headers=headers).value == {"city": "東京"}


def test_compressed_bodies_of_rebus_are_read() -> None:
    for body, value in (
        (gzip.compress(b'{"a": 1}'), {"a": 1}),
        (gzip.compress(b"<A><B>x</B></A>", 1), {"A": {"B": "x"}}),
        (gzip.compress(b"[1,") + gzip.compress(b"2]"), [1, 2]),
    ):
        extension = json.dumps({"rbs2-msg-id": "1", "rbs2-content-encoding": "gzip"}).encode()
        assert Message(body, extension=extension).decoded().value == value


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (gzip.compress(bytes(50_000_000), 9), "more than 1048576 bytes when unpacked"),
        (gzip.compress(b'{"a": 1}')[:-9], "cut"),
        (b'{"a": 1}', "no gzip"),
        (gzip.compress(b"") * 5000, "members"),
    ],
    ids=["bomb", "cut", "plain", "members"],
)
def test_what_cannot_be_unpacked_says_why(body: bytes, reason: str) -> None:
    found = decode(body, headers={"rbs2-content-encoding": "gzip"})
    assert reason in found.reason
    assert found.value is None


def test_headers_in_utf_16_are_read() -> None:
    text = (
        '<?xml version="1.0" encoding="utf-16"?><ArrayOfHeaderInfo><HeaderInfo><Key>a</Key><Value>1&#x1C;2</Value>'
        "</HeaderInfo></ArrayOfHeaderInfo>"
    )
    for codec in ("utf-8", "utf-16-le", "utf-16"):
        assert read_headers(text.encode(codec)).values == {"a": "1\x1c2"}, codec
