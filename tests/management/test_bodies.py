"""Bodies and headers over the management API."""

from __future__ import annotations

import gc
import time
from statistics import median

import httpx
import pytest

import qmnode
from tests.management.conftest import NAME, Managed

QUEUE = "/v1/queues/orders/messages"


@pytest.fixture(autouse=True)
async def orders(managed: Managed) -> None:
    await managed.manager.create_queue(NAME)


async def test_a_value_is_sent_in_a_format_and_shown_decoded(client: httpx.AsyncClient) -> None:
    value = {"Order": {"Id": "7", "Note": None}}
    messages = [
        {"format": "xml", "value": value},
        {"format": "VT_BSTR", "value": "hello"},
        {"format": "nservicebus", "value": {"a": 1}, "headers": {"NServiceBus.MessageId": "1"}},
    ]
    assert (await client.post(QUEUE, json={"messages": messages})).status_code == 201
    found = (await client.get(QUEUE, params={"body": "decoded"})).json()["messages"]
    assert [(one["format"], one["decoded"], one["headers"]) for one in found] == [
        ("xml", value, None),
        ("VT_BSTR", "hello", None),
        ("json", {"a": 1}, {"NServiceBus.MessageId": "1"}),
    ]
    one = (await client.get(f"{QUEUE}/{found[2]['lookup_identifier']}", params={"body": "decoded"})).json()
    assert (one["headers_format"], one["text"]) == ("nservicebus", '{"a":1}')


@pytest.mark.parametrize(
    ("format", "value"),
    [
        ("VT_DATE", "2020-01-02T03:04:05"),
        ("VT_CY", "1.5"),
        ("VT_CLSID", "00112233-4455-6677-8899-aabbccddeeff"),
        ("VT_VECTOR|VT_UI1", "AAEC"),
        ("VT_ARRAY|VT_UI1", "AAEC"),
        ("VT_VECTOR|VT_DATE", ["2020-01-02T00:00:00"]),
        ("VT_VECTOR|VT_BSTR", ["a", ""]),
        ("VT_BOOL", False),
        ("VT_R8", "INF"),
    ],
)
async def test_a_decoded_body_can_be_sent_again(client: httpx.AsyncClient, format: str, value: object) -> None:
    answer = await client.post(QUEUE, json={"messages": [{"format": format, "value": value}]})
    assert answer.status_code == 201, answer.text
    (found,) = (await client.get(QUEUE, params={"body": "decoded"})).json()["messages"]
    assert (found["format"], found["decoded"]) == (format, value)


async def test_an_ole_date_is_sent_as_text(client: httpx.AsyncClient) -> None:
    message = {"format": "VT_DATE_OLE", "value": "2020-01-02"}
    assert (await client.post(QUEUE, json={"messages": [message]})).status_code == 201
    (found,) = (await client.get(QUEUE, params={"body": "decoded"})).json()["messages"]
    assert (found["format"], found["decoded"]) == ("VT_DATE", "2020-01-02T00:00:00")


async def test_a_list_never_fails_for_one_body(client: httpx.AsyncClient, managed: Managed) -> None:
    await managed.fill(b"<a>" * 1000, b"\x00\x01\x00\x01\x04\x02", b'{"a": "\\ud800"}', b"fine")
    found = (await client.get(QUEUE, params={"body": "decoded"})).json()["messages"]
    assert [bool(one["undecoded"]) for one in found] == [True, True, False, False]
    assert found[0]["text"] == "<a>" * 1000


async def test_decoded_bodies_are_not_asked_for_without_saying_so(client: httpx.AsyncClient, managed: Managed) -> None:
    await managed.fill(b"<a>1</a>")
    for form in ("none", "text", "base64"):
        found = (await client.get(QUEUE, params={"body": form})).json()["messages"][0]
        assert (found["format"], found["decoded"], found["headers"]) == (None, None, None)


@pytest.mark.parametrize(
    "message",
    [
        {"value": 1},
        {"headers": {"a": "b"}},
        {"format": "pigeon", "value": 1},
        {"format": "xml", "value": None},
        {"format": "xml", "value": {"a": 1, "b": 2}},
        {"format": "VT_I2", "value": 70000},
        {"format": "xml", "value": 1, "text": "x"},
        {"format": "VT_I2", "value": 1, "headers": {"a": "b"}},
        {"format": "rebus", "value": "x", "extension": "AAEC"},
        {"format": "xml", "value": {"a": {"@xmlns": None}}},
        {"format": "VT_DATE_OLE", "value": "x"},
        {"format": "VT_DATE_OLE", "value": 5},
        {"format": "VT_DATE", "value": "x"},
        {"format": "VT_BOOL", "value": "maybe"},
        {"format": "VT_VECTOR|VT_UI1", "value": "not base64!"},
        {"format": "VT_VECTOR|VT_BSTR", "value": "abc"},
        {"format": "", "value": "x"},
    ],
)
async def test_what_cannot_be_written_is_refused(client: httpx.AsyncClient, message: dict[str, object]) -> None:
    answer = await client.post(QUEUE, json={"messages": [message]})
    assert answer.status_code == 422
    assert "Value error" not in answer.text


_LINE = "  <Description>goods of some kind, as the catalogue names them</Description>\r\n"
XML = qmnode.Message(f'<?xml version="1.0"?>\r\n<Order>\r\n{_LINE * 12}</Order>'.encode())
BSTR = qmnode.Message.from_value("text" * 128, format="VT_BSTR")


@pytest.mark.soak
@pytest.mark.timed
@pytest.mark.parametrize(("message", "most"), [(XML, 1.6), (BSTR, 1.5)], ids=["XML", "VT_BSTR"])
async def test_decoding_makes_a_list_little_slower(
    client: httpx.AsyncClient, managed: Managed, message: qmnode.Message, most: float
) -> None:
    async with await managed.manager.open_queue(f"DIRECT=OS:{NAME}", qmnode.Access.SEND) as queue:
        await queue.send_many([message] * 1000)
    managed.server.context.settings = managed.settings.model_copy(update={"batch": 1000, "request_size": 1 << 24})
    gc.freeze()  # as the service does when it has started

    seconds: dict[str, list[float]] = {"text": [], "decoded": []}
    for _ in range(9):
        for body, taken in seconds.items():
            begin = time.process_time()
            answer = await client.get(QUEUE, params={"body": body, "limit": 1000})
            taken.append(time.process_time() - begin)
            assert answer.content.count(b'"lookup_identifier"') == 1000
    gc.unfreeze()

    assert median(seconds["decoded"]) < most * median(seconds["text"])
