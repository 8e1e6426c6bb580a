"""Requests that say a thing twice, or too much: refused with the member, and with the unit that counts."""

from __future__ import annotations

import httpx
import pytest
from fastapi import HTTPException

from qmnode.management.large_requests import _Reader
from tests.management.conftest import NAME, Managed

QUEUE = "/v1/queues/orders/messages"


@pytest.fixture(autouse=True)
async def orders(managed: Managed) -> None:
    await managed.manager.create_queue(NAME)


@pytest.mark.parametrize(
    ("method", "place", "text"),
    [
        ("POST", QUEUE, '{"messages": [{"text": "a", "label": "x", "label": "y"}]}'),
        ("POST", QUEUE, '{"messages": [], "messages": [{"text": "a"}]}'),
        ("POST", QUEUE, '{"messages": [{"format": "json", "value": {"Id": 1, "Id": 2}}]}'),
        ("POST", "/v1/queues", '{"name": "other", "name": "third"}'),
        ("PATCH", "/v1/queues/orders", '{"label": "a", "label": "b"}'),
    ],
)
async def test_a_member_that_is_there_twice_is_refused(
    client: httpx.AsyncClient, method: str, place: str, text: str
) -> None:
    answer = await client.request(method, place, content=text, headers={"Content-Type": "application/json"})
    assert (answer.status_code, "is twice in an object" in answer.json()["detail"]) == (400, True), answer.text
    assert (await client.get(QUEUE)).json()["messages"] == []
    assert (await client.get("/v1/queues/orders")).json()["label"] == ""
    assert {(await client.get(f"/v1/queues/{name}")).status_code for name in ("other", "third")} == {404}


async def test_a_member_of_a_large_request_that_is_there_twice_is_refused() -> None:
    for text in ('{"a": [1, 2], "a": []}', '{"a": [{"b": 1, "b": 2}]}', '{"a": {"b": 1, "b": 2}}'):
        with pytest.raises(HTTPException, match="is twice in an object"):
            await _Reader(text).document()


@pytest.mark.parametrize("label", ["x" * 250, "\U0001f600" * 125])
async def test_a_label_is_measured_in_utf_16_units(client: httpx.AsyncClient, label: str) -> None:
    answer = await client.post(QUEUE, json={"messages": [{"text": "a", "label": label}]})
    assert answer.status_code == 422
    assert "at most 249 UTF-16 units, and this has 250" in answer.json()["detail"]
    answer = await client.post("/v1/queues", json={"name": "other", "label": label})
    assert "at most 124 UTF-16 units" in answer.json()["detail"], answer.text
