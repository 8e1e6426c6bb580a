"""Whatever a body is made to do, the decoders stop at their budget, say why, and reach for nothing outside."""

from __future__ import annotations

import json
import sys
import time

import pytest

from qmnode.bodies.choice import FORMATS, decode, read_headers
from qmnode.bodies.limits import DEFAULT_LIMITS, Limits
from qmnode.bodies.values_as_json import plain
from tests.bodies.attacks import attacks
from tests.lab.cases import cases

LARGEST = 4 << 20
MILLISECONDS = 50
WIDE = Limits(nodes=1 << 40, octets=LARGEST)

outside: list[str] | None = None


def _watch(event: str, arguments: object) -> None:
    if outside is not None and event.partition(".")[0] in ("open", "socket", "subprocess", "exec", "compile", "import"):
        outside.append(f"{event} {arguments!r:.100}")


@pytest.fixture(scope="module", autouse=True)
def _audit() -> None:
    for name in FORMATS:
        decode(b"", format=name)  # each format's module is imported with its first use
    read_headers(b'{"cut')  # and the codecs
    read_headers(b"x")
    sys.addaudithook(_watch)


@cases("size", [LARGEST, DEFAULT_LIMITS.octets - 100, 2000], ids=["4 MiB", "1 MiB", "2 KB"])
@cases("name", attacks(2000))
def test_an_attack_ends_with_a_value_within_the_budget_or_with_the_reason(name: str, size: int) -> None:
    global outside
    body, body_type = attacks(size)[name]
    outside = []
    decoded = decode(body, body_type)
    headers = read_headers(body)
    reached, outside = outside, None
    assert reached == []
    assert (decoded.value is None) == bool(decoded.reason) or decoded.format.startswith("VT_")
    assert len(json.dumps(plain(decoded.value))) < 8 * DEFAULT_LIMITS.octets
    assert sum(map(len, headers.values.values())) <= DEFAULT_LIMITS.octets
    assert len(headers.reason) < 2000


@pytest.mark.soak
@pytest.mark.timed
@pytest.mark.parametrize("size", [LARGEST, DEFAULT_LIMITS.octets - 100], ids=["4 MiB", "1 MiB"])
def test_an_attack_takes_less_than_50_milliseconds(size: int) -> None:
    slow = {}
    for name, (body, body_type) in attacks(size).items():
        best = min(_seconds(body, body_type) for _ in range(5)) * 1000
        if best > MILLISECONDS:
            slow[name] = best
    assert slow == {}


def _seconds(body: bytes, body_type: int) -> float:
    start = time.process_time()
    decode(body, body_type)
    return time.process_time() - start


@pytest.mark.parametrize("name", [name for name in attacks(2000) if name.startswith(("xml billion", "xml external"))])
def test_entities_are_never_expanded_however_high_the_limits(name: str) -> None:
    body, _ = attacks(100_000)[name]
    assert "document type declaration" in decode(body, limits=WIDE).reason


@pytest.mark.parametrize("name", FORMATS)
def test_a_named_format_is_tried_on_any_bytes(name: str) -> None:
    for body in (b"", b"\0", b"\xff" * 40, bytes(range(256))):
        decoded = decode(body, 0, format=name)
        assert decoded.reason or decoded.format in ("text", "VT_EMPTY", "activex")


def test_a_cycle_is_cut_where_it_closes() -> None:
    body, _ = attacks(2000)["nrbf cycle"]
    assert decode(body).value == [{"$cycle": "array"}]


def test_limits_can_be_raised() -> None:
    body = b"<r>" + b"<a/>" * 20_000 + b"</r>"
    assert "raise the limit bodies.nodes" in decode(body).reason
    assert len(decode(body, limits=Limits(nodes=100_000)).value["r"]["a"]) == 20_000
