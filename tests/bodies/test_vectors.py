"""Bytes of .NET's serializers are read to the values that went in, and .NET reads what is written."""

from __future__ import annotations

import base64
import json
import math
import subprocess
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from qmnode.bodies.choice import decode, encode, read_headers, write_headers
from qmnode.bodies.values_as_json import plain
from tests.lab.cases import cases

VECTORS = Path(__file__).parent / "vectors"
NEWTONSOFT = "/usr/lib/cli/Newtonsoft.Json-5.0/Newtonsoft.Json.dll"
ASSEMBLIES = ("System.ServiceModel", "System.Runtime.Serialization", "System.Xml", NEWTONSOFT)


def recorded() -> list[dict[str, Any]]:
    lines = [line for name in ("activex", "formatters") for line in (VECTORS / f"{name}.jsonl").open(encoding="utf-8")]
    vectors = [json.loads(line) for line in lines]
    for vector in vectors:
        vector["body"] = base64.b64decode(vector["body"])
        if "extension" in vector:
            vector["extension"] = base64.b64decode(vector["extension"])
    return vectors


ALL = recorded()
BODIES = [vector for vector in ALL if "extension" not in vector]
HEADERS = [vector for vector in ALL if "extension" in vector]


def test_each_format_and_body_type_has_enough_vectors() -> None:
    counts = Counter(vector["format"] for vector in ALL)
    assert counts.total() >= 250
    assert {name: count for name, count in counts.items() if count < 15} == {"VT_NULL": 1}, (
        "VT_NULL has no bytes to vary"
    )


@cases("name", sorted({vector["format"] for vector in BODIES}))
def test_recorded_bodies_decode_to_what_went_in(name: str) -> None:
    for vector in BODIES:
        if vector["format"] == name:
            decoded = decode(vector["body"], vector["body_type"])
            assert (decoded.format, decoded.reason) == (name, "")
            assert plain(decoded.value) == vector["value"]
            assert type(plain(decoded.value)) in (type(vector["value"]), float)


@pytest.mark.parametrize("name", ["nservicebus", "rebus"])
def test_recorded_headers_decode_to_what_went_in(name: str) -> None:
    for vector in HEADERS:
        if vector["format"] == name:
            assert read_headers(vector["extension"]) == (name, vector["value"], "")


@cases("name", sorted({vector["format"] for vector in BODIES if vector["format"].startswith("VT_")}))
def test_values_of_body_types_are_written_as_the_formatter_writes_them(name: str) -> None:
    for vector in BODIES:
        if vector["format"] == name and vector["written"]:
            value = decode(vector["body"], vector["body_type"]).value
            assert encode(value, name)[:2] == (vector["body"], vector["body_type"])


@pytest.fixture(scope="module")
def dotnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the compiled programs."""
    folder = tmp_path_factory.mktemp("dotnet")
    (folder / "Newtonsoft.Json.dll").symlink_to(NEWTONSOFT)
    references = [f"-r:{name}" for name in ASSEMBLIES]
    for name in ("Formatters", "Check"):
        sources = [str(VECTORS / f"{name}.cs"), str(VECTORS / "Json.cs")]
        subprocess.run(["mcs", f"-out:{folder / name}.exe", *references, *sources], check=True, capture_output=True)
    return folder


def run(program: Path, lines: str = "") -> list[Any]:
    done = subprocess.run(["mono", str(program)], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_recorded_vectors_are_what_the_serializers_write_today(dotnet: Path) -> None:
    kept = [json.loads(line) for line in (VECTORS / "formatters.jsonl").open(encoding="utf-8")]
    assert run(dotnet / "Formatters.exe") == kept


ORDER = {
    "@Source": "web <1>",
    "Id": 7,
    "Customer": "A & B \u65e5\u672c",
    "Total": Decimal("12.50"),
    "Paid": True,
    "When": datetime(2026, 5, 6, 7, 8, 9),
    "Lines": {"Line": [{"Item": "screw", "Count": 100}, {"Item": "nut", "Count": -1}]},
}
ORDER_READ = {
    "Id": 7,
    "Customer": "A & B \u65e5\u672c",
    "Total": "12.50",
    "Paid": True,
    "When": "2026-05-06T07:08:09",
    "Note": None,
    "Lines": ORDER["Lines"]["Line"],  # type: ignore[index]
    "Source": "web <1>",
}
XML_VALUES: list[tuple[str, Any, Any]] = [
    ("string", "hello", "hello"),
    ("string", "", ""),
    ("string", "<a>&\"' \u65e5 \U0001f600\ttab", "<a>&\"' \u65e5 \U0001f600\ttab"),
    ("string", "line\r\nline\n", "line\r\nline\n"),
    ("boolean", True, True),
    ("int", -(1 << 31), -(1 << 31)),
    ("long", 1 << 40, 1 << 40),
    ("unsignedLong", (1 << 64) - 1, (1 << 64) - 1),
    ("double", 0.1, 0.1),
    ("double", math.inf, "INF"),
    ("decimal", Decimal("-1234567890.0001"), "-1234567890.0001"),
    ("dateTime", datetime(2026, 11, 22, 21, 30, tzinfo=UTC), "2026-11-22T21:30:00+00:00"),
    ("dateTime", datetime(2026, 1, 2, 3, 4, 5, 678900), "2026-01-02T03:04:05.678900"),
    ("guid", UUID("00112233-4455-6677-8899-aabbccddeeff"), "00112233-4455-6677-8899-aabbccddeeff"),
    ("base64Binary", bytes(range(256)), base64.b64encode(bytes(range(256))).decode()),
    ("ArrayOfInt", [1, 2, -3], [1, 2, -3]),
    ("ArrayOfString", ["a", "", "<c>"], ["a", "", "<c>"]),
    ("ArrayOfDouble", [0.5, -1e300], [0.5, -1e300]),
    ("Order", {"Order": ORDER}, ORDER_READ),
    ("Shipped", {"Shipped": {"@xmlns": "urn:shop", "Number": "S", "Carrier": {"@xmlns": "urn:other", "#text": "Post"}}},
     {"Number": "S", "Carrier": "Post"}),
    ("Maybe", {"Maybe": {"Count": None}}, {"Count": None, "Text": None}),
    ("Maybe", {"Maybe": {"Count": 5, "Text": ""}}, {"Count": 5, "Text": ""}),
]  # fmt: skip
HEADER_VALUES: list[dict[str, str]] = [
    {},
    {"NServiceBus.MessageId": "1", "NServiceBus.ContentType": "application/json"},
    {"NServiceBus.ExceptionInfo.StackTrace": "no stock\n   at C:\\src <&> \"'", "\u00fcber": "\u65e5\u672c \U0001f600"},
    {"rbs2-error-details": "control \x01 character", "empty": ""},
]
WCF_VALUE = {
    "action": "http://tempuri.org/IShop/Do",
    "to": "net.msmq://localhost/private/shop",
    "message_id": "urn:uuid:00112233-4455-6677-8899-aabbccddeeff",
    "reply_to": "net.msmq://client/private/answers",
    "body": {"Do": {"@xmlns": "http://tempuri.org/", "@kind": "k", "name": "<\u65e5>", "n": [1, 2], "long": "y" * 300}},
}


def test_the_serializers_read_what_is_written(dotnet: Path) -> None:
    lines, expected = [], []
    for root, value, read in XML_VALUES:
        lines.append(("xml", root, encode(value, "xml").body, b""))
        expected.append(read)
    for headers in HEADER_VALUES:
        for name in ("nservicebus", "rebus"):
            lines.append((name, "", b"", write_headers(headers, name)))
            expected.append(headers)
    lines.append(("wcf", "", encode(WCF_VALUE, "wcf").body, b""))
    expected.append(
        {key: WCF_VALUE[key] for key in ("action", "to", "message_id", "reply_to")}
        | {
            "body": '<Do xmlns="http://tempuri.org/" kind="k"><name>&lt;\u65e5&gt;</name><n>1</n><n>2</n>'
            f"<long>{'y' * 300}</long></Do>"
        }
    )
    text = "".join(
        f"{name}\t{root}\t{base64.b64encode(body).decode()}\t{base64.b64encode(extension).decode()}\n"
        for name, root, body, extension in lines
    )
    assert run(dotnet / "Check.exe", text) == expected
