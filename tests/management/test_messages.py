"""Messages and dead letters over HTTP."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from qmnode import Access, Message
from tests.management.conftest import NAME, Managed

FORMAT = f"DIRECT=OS:{NAME}"


@pytest.fixture(autouse=True)
async def orders(managed: Managed) -> None:
    await managed.manager.create_queue(NAME)


async def test_a_batch_is_sent_and_received(client: httpx.AsyncClient) -> None:
    messages = [
        {"text": "Grüße", "label": "one", "priority": 5},
        {"base64": base64.b64encode(b"\x00\xff").decode()},
        {"text": "wide", "encoding": "utf-16-le", "body_type": 31},
        {},
    ]
    sent = await client.post("/v1/queues/orders/messages", json={"messages": messages})
    assert sent.status_code == 201
    received = (await client.post("/v1/queues/orders/receive", json={"limit": 9, "body": "text"})).json()["messages"]
    assert [message["identifier"] for message in received] == sent.json()["identifiers"]
    assert [message["text"] for message in received] == ["Grüße", None, "wide", ""]
    assert received[1]["base64"] == "AP8="
    assert (received[0]["label"], received[0]["priority"], received[0]["recoverable"]) == ("one", 5, True)
    empty = await client.post("/v1/queues/orders/receive", json={"limit": 9})
    assert (empty.status_code, empty.json()["messages"]) == (200, [])


async def test_peeking_shows_bodies_only_when_asked(client: httpx.AsyncClient, managed: Managed) -> None:
    await managed.fill(b"a", b"b", b"c")
    page = (await client.get("/v1/queues/orders/messages", params={"limit": 2})).json()
    assert [(one["body_size"], one["base64"], one["text"]) for one in page["messages"]] == [(1, None, None)] * 2
    rest = (await client.get("/v1/queues/orders/messages", params={"after": page["next"], "body": "base64"})).json()
    assert ([one["base64"] for one in rest["messages"]], rest["next"]) == (["Yw=="], None)
    one = await client.get(f"/v1/queues/orders/messages/{rest['messages'][0]['lookup_identifier']}?body=text")
    assert one.json()["text"] == "c"


async def test_one_message_is_moved_and_deleted(client: httpx.AsyncClient, managed: Managed) -> None:
    await managed.fill(b"a", b"b")
    first, second = (await client.get("/v1/queues/orders/messages")).json()["messages"]
    moved = await client.post(
        f"/v1/queues/orders/messages/{first['lookup_identifier']}/move", json={"target": "orders;later"}
    )
    assert moved.status_code == 204
    assert len((await client.get("/v1/queues/orders;later/messages")).json()["messages"]) == 1
    assert (await client.delete(f"/v1/queues/orders/messages/{second['lookup_identifier']}")).status_code == 204
    again = await client.delete(f"/v1/queues/orders/messages/{second['lookup_identifier']}")
    assert (again.status_code, again.json()["name"]) == (404, "MQ_ERROR_MESSAGE_NOT_FOUND")


async def test_a_transactional_queue_gets_its_transaction(client: httpx.AsyncClient, managed: Managed) -> None:
    await managed.manager.create_queue(r".\private$\exact", transactional=True)
    sent = await client.post("/v1/queues/exact/messages", json={"messages": [{"text": "a"}]})
    assert sent.status_code == 201
    wrong = await client.post("/v1/queues/exact/messages", json={"messages": [{"text": "a"}], "transactional": False})
    assert (wrong.status_code, wrong.json()["name"]) == (400, "MQ_ERROR_TRANSACTION_USAGE")


async def test_a_receive_waits_for_a_message(client: httpx.AsyncClient, managed: Managed) -> None:
    waiting = asyncio.create_task(client.post("/v1/queues/orders/receive", json={"timeout": 30, "body": "text"}))
    while not managed.server.context.waiting:
        await asyncio.sleep(0)
    await managed.fill(b"late")
    assert (await waiting).json()["messages"][0]["text"] == "late"
    assert managed.server.context.waiting == 0


async def test_who_goes_away_while_waiting_takes_no_message(client: httpx.AsyncClient, managed: Managed) -> None:
    waiting = asyncio.create_task(client.post("/v1/queues/orders/receive", json={"timeout": 30}))
    while not managed.server.context.waiting:
        await asyncio.sleep(0)
    waiting.cancel()
    while managed.server.context.waiting:
        await asyncio.sleep(0)
    await managed.fill(b"kept")
    assert (await managed.manager.queue(NAME)).message_count == 1


async def test_only_so_many_requests_wait(client: httpx.AsyncClient, managed: Managed) -> None:
    tasks = [asyncio.create_task(client.post("/v1/queues/orders/receive", json={"timeout": 30})) for _ in range(2)]
    while managed.server.context.waiting < 2:
        await asyncio.sleep(0)
    refused = await client.post("/v1/queues/orders/receive", json={"timeout": 30})
    assert (refused.status_code, refused.json()["name"]) == (429, "MQ_ERROR_INSUFFICIENT_RESOURCES")
    assert (await client.post("/v1/queues/orders/receive", json={})).status_code == 200
    await managed.fill(b"a", b"b")
    assert [len((await task).json()["messages"]) for task in tasks] == [1, 1]


async def test_stopping_ends_those_that_wait(client: httpx.AsyncClient, managed: Managed) -> None:
    waiting = asyncio.create_task(client.post("/v1/queues/orders/receive", json={"timeout": 60}))
    while not managed.server.context.waiting:
        await asyncio.sleep(0)
    await asyncio.wait_for(managed.server.stop(), 30)
    assert (await waiting).json()["messages"] == []


async def test_batches_and_requests_have_limits(client: httpx.AsyncClient) -> None:
    many = await client.post("/v1/queues/orders/messages", json={"messages": [{}] * 51})
    assert (many.status_code, "at most 50" in many.json()["detail"]) == (409, True)
    large = await client.post("/v1/queues/orders/messages", json={"messages": [{"text": "x" * 200_000}]})
    assert (large.status_code, large.json()["name"]) == (413, "MQ_ERROR_INSUFFICIENT_RESOURCES")

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield b" " * 1000

    chunked = await client.post("/v1/queues/orders/messages", content=endless())
    assert chunked.status_code == 413
    assert chunked.headers["content-type"] == "application/problem+json"


async def test_a_quota_is_a_conflict_that_says_which(client: httpx.AsyncClient, managed: Managed) -> None:
    await managed.manager.set_queue(NAME, quota=1)
    answer = await client.post("/v1/queues/orders/messages", json={"messages": [{"text": "x" * 2000}]})
    assert (answer.status_code, answer.json()["name"]) == (409, "MQ_ERROR_INSUFFICIENT_RESOURCES")
    assert "1 KB" in answer.json()["detail"]


async def bury(managed: Managed, *bodies: bytes, transactional: bool = False, name: str = NAME) -> None:
    """Make dead letters: messages that ask for it, purged."""
    async with await managed.manager.open_queue(f"DIRECT=OS:{name}", Access.SEND) as queue:
        messages = [Message(body, recoverable=True, negative_journaling_requested=True) for body in bodies]
        await queue.send_many(messages, "single" if transactional else None)
    async with await managed.manager.open_queue(f"DIRECT=OS:{name}") as queue:
        await queue.purge()


async def test_dead_letters_are_listed_retried_and_written_out(client: httpx.AsyncClient, managed: Managed) -> None:
    await bury(managed, b"one", b"two")
    listed = (await client.get("/v1/dead-letters")).json()["messages"]
    assert [one["message_class"] for one in listed] == ["MQMSG_CLASS_NACK_Q_PURGED"] * 2
    lines = (await client.get("/v1/dead-letters/export")).text.splitlines()
    assert [base64.b64decode(json.loads(line)["base64"]) for line in lines] == [b"one", b"two"]
    retried = await client.post("/v1/dead-letters/retry", json={"messages": [listed[0]["lookup_identifier"]]})
    assert retried.json()["results"][0]["identifier"]
    (back,) = (await client.post("/v1/queues/orders/receive", json={"body": "text"})).json()["messages"]
    assert (back["text"], back["message_class"]) == ("one", "MQMSG_CLASS_NORMAL")
    assert len((await client.get("/v1/dead-letters")).json()["messages"]) == 1


async def test_a_dead_letter_goes_to_the_queue_that_was_named(client: httpx.AsyncClient, managed: Managed) -> None:
    await managed.manager.create_queue(r".\private$\undelivered")
    message = {"text": "one", "dead_letter": True, "dead_letter_queue": "undelivered"}
    assert (await client.post("/v1/queues/orders/messages", json={"messages": [message]})).status_code == 201
    async with await managed.manager.open_queue(f"DIRECT=OS:{NAME}") as queue:
        await queue.purge()
    (dead,) = (await client.get("/v1/queues/undelivered/messages", params={"body": "text"})).json()["messages"]
    assert (dead["text"], dead["message_class"]) == ("one", "MQMSG_CLASS_NACK_Q_PURGED")
    assert dead["dead_letter_queue"] == r".\private$\undelivered"
    wrong = {"text": "one", "dead_letter": True, "dead_letter_queue": "a\\b\\c"}
    refused = await client.post("/v1/queues/orders/messages", json={"messages": [wrong]})
    assert (refused.status_code, refused.json()["name"]) == (400, "MQ_ERROR_ILLEGAL_QUEUE_PATHNAME")


async def test_what_cannot_be_retried_stays(client: httpx.AsyncClient, managed: Managed) -> None:
    await bury(managed, b"one")
    await managed.manager.delete_queue(NAME)
    (result,) = (await client.post("/v1/dead-letters/retry", json={})).json()["results"]
    assert (result["identifier"], result["name"]) == (None, "MQ_ERROR_QUEUE_NOT_FOUND")
    assert len((await client.get("/v1/dead-letters")).json()["messages"]) == 1


async def test_a_transactional_dead_letter_is_retried_in_a_transaction(
    client: httpx.AsyncClient, managed: Managed
) -> None:
    exact = r".\private$\exact"
    await managed.manager.create_queue(exact, transactional=True)
    await bury(managed, b"one", transactional=True, name=exact)
    (result,) = (await client.post("/v1/dead-letters/retry", json={})).json()["results"]
    assert result["name"] is None
    assert (await managed.manager.queue(exact)).message_count == 1
    assert (await client.get("/v1/dead-letters")).json()["messages"] == []


async def test_a_message_waits_for_its_delivery_time(client: httpx.AsyncClient) -> None:
    messages = [{"text": "at", "deliver_at": "2100-01-01T01:00:00+01:00"}, {"text": "in", "deliver_in": 3600}]
    sent = (await client.post("/v1/queues/orders/messages", json={"messages": messages})).json()["identifiers"]
    assert (await client.get("/v1/queues/orders/messages")).json()["messages"] == []
    waiting = (await client.get("/v1/queues/delayed$/messages", params={"body": "text"})).json()["messages"]
    assert [(one["identifier"], one["text"]) for one in waiting] == list(zip(sent, ("at", "in"), strict=True))
    assert waiting[0]["delivery_time"] == "2100-01-01T00:00:00Z"
    cancelled = await client.delete(f"/v1/queues/delayed$/messages/{waiting[0]['lookup_identifier']}")
    assert cancelled.status_code == 204


@pytest.mark.parametrize(
    "wrong", [{"deliver_at": "2100-01-01"}, {"deliver_in": -1}, {"deliver_in": 1, "deliver_at": "2100-01-01T00:00Z"}]
)
async def test_what_is_no_delivery_time_is_refused(client: httpx.AsyncClient, wrong: dict[str, object]) -> None:
    refused = await client.post("/v1/queues/orders/messages", json={"messages": [{"text": "m"} | wrong]})
    assert refused.status_code == 422
    assert "deliver_" in refused.text
