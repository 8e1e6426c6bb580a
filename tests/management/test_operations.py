"""Operations on messages over HTTP."""

import asyncio
import base64
import json
from typing import Any

import httpx

import qmnode
from tests.management.conftest import NAME, READER, Managed


async def test_a_search_pages_through_what_it_finds(managed: Managed, client: httpx.AsyncClient) -> None:
    await managed.manager.create_queue(NAME)
    await managed.fill(b"tea", b"coffee", b"tea and coffee")

    first = (await client.get("/v1/messages", params={"queue": "ord*", "where": "body=tea", "limit": 1})).json()
    again = {"queue": "ord*", "where": "body=tea", "cursor": first["next"], "body": "text"}
    rest = (await client.get("/v1/messages", params=again)).json()

    assert [one["queue"] for one in first["found"]] == [managed.manager.names.find(NAME).pathname]
    assert [one["message"]["text"] for one in rest["found"]] == ["tea and coffee"]
    assert (first["scanned"], rest["scanned"], rest["total"], rest["next"]) == (1, 2, 3, None)


async def test_a_reader_finds_by_properties_and_not_by_bodies(managed: Managed) -> None:
    await managed.manager.create_queue(NAME)
    await managed.fill(b"secret")
    async with managed.tcp(READER) as reader:
        by_label = await reader.get("/v1/messages", params={"queue": "orders", "where": "label=l"})
        for where in ("body=secret", "value.Order.Id=7", "header.NServiceBus.FailedQ"):
            refused = await reader.get("/v1/messages", params={"queue": "orders", "where": where})
            assert (refused.status_code, refused.json()["name"]) == (403, "MQ_ERROR_ACCESS_DENIED"), where
        shown = await reader.get("/v1/messages", params={"queue": "orders", "body": "text"})

    assert len(by_label.json()["found"]) == 1 and by_label.json()["found"][0]["message"]["text"] is None
    assert shown.status_code == 403


async def test_a_search_that_cannot_be_is_a_problem_with_a_sentence(client: httpx.AsyncClient) -> None:
    for query, status, word in (
        ({"queue": "orders"}, 404, "no queue"),
        ({"queue": "*", "where": "colour=red"}, 400, "colour"),
        ({"queue": "*", "where": "label"}, 400, "NAME=VALUE"),
        ({"queue": "*", "where": "older=soon"}, 400, "15m"),
        ({"queue": "*", "cursor": "../../etc"}, 400, "cursor"),
        ({"queue": "*", "limit": "0"}, 422, "limit"),
        ({}, 422, "queue"),
    ):
        answer = await client.get("/v1/messages", params=query)
        assert answer.status_code == status and word in answer.json()["detail"], (query, answer.text)


async def test_a_search_goes_on_after_any_message(managed: Managed, client: httpx.AsyncClient) -> None:
    await managed.manager.create_queue(NAME)
    await managed.fill(b"a", b"b", b"c")
    found = (await client.get("/v1/messages", params={"queue": "orders"})).json()["found"]

    rest = await client.get("/v1/messages", params={"queue": "orders", "cursor": found[0]["cursor"]})

    assert [one["message"]["lookup_identifier"] for one in rest.json()["found"]] == [
        one["message"]["lookup_identifier"] for one in found[1:]
    ]


async def test_an_export_is_a_stream_of_lines_that_are_imported(managed: Managed, client: httpx.AsyncClient) -> None:
    await managed.manager.create_queue(NAME)
    await managed.manager.create_queue(r".\private$\again")
    for first in range(0, 250, 50):  # more than the pages that the node reads at a time
        await managed.fill(*(b"%d" % number for number in range(first, first + 50)))

    async with client.stream("GET", "/v1/messages/export", params={"queue": "ord*", "where": "label=l"}) as answer:
        lines = [json.loads(line) async for line in answer.aiter_lines()]
    items = [{"packet": line["packet"], "target": "again"} for line in lines[:3]]
    imported = (await client.post("/v1/messages/import", json={"messages": items})).json()["results"]

    assert answer.headers["content-type"].startswith("application/x-ndjson") and "left-out" not in answer.headers
    assert [int(line["text"]) for line in lines] == [*range(250)] and lines[0]["queue"].endswith("orders")
    assert [one["result"] for one in imported] == ["sent"] * 3


async def test_an_export_that_cannot_be_is_a_problem_and_no_stream(managed: Managed, client: httpx.AsyncClient) -> None:
    await managed.manager.create_queue(NAME)
    for query, status in (({"queue": "none"}, 404), ({"queue": "*", "where": "colour=red"}, 400), ({}, 422)):
        answer = await client.get("/v1/messages/export", params=query)
        assert answer.status_code == status and answer.json()["detail"], (query, answer.text)
    async with managed.tcp(READER) as reader:
        assert (await reader.get("/v1/messages/export", params={"queue": "orders"})).status_code == 403


async def job_ended(client: httpx.AsyncClient, number: int) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            job: dict[str, Any] = (await client.get(f"/v1/jobs/{number}")).json()
            if job["state"] != "running":
                return job


async def test_a_job_moves_messages_is_watched_and_taken_back(managed: Managed, client: httpx.AsyncClient) -> None:
    await managed.manager.create_queue(NAME)
    await managed.manager.create_queue(r".\private$\later")
    await managed.fill(b"a", b"b")
    wanted = {"kind": "move", "queues": ["orders"], "where": ["body=b"], "target": "later"}

    begun = await client.post("/v1/jobs", json=wanted)
    job = await job_ended(client, begun.json()["job"])
    log = (await client.get(f"/v1/jobs/{job['job']}/log")).json()
    undo = (await client.post(f"/v1/jobs/{job['job']}", json={"action": "undo"})).json()

    assert (begun.status_code, job["done"], job["state"]) == (201, 1, "done")
    assert log["entries"][0]["result"] == "moved" and log["next"] is None
    assert undo["undoes"] == job["job"] and (await job_ended(client, undo["job"]))["done"] == 1
    assert (await managed.manager.queue(NAME)).message_count == 2
    assert [one["job"] for one in (await client.get("/v1/jobs")).json()["jobs"]] == [undo["job"], job["job"]]
    first, second = managed.audited()
    assert (first["action"], first["details"]["queues"], first["outcome"]) == ("start_job", ["orders"], "done")
    assert second["details"]["action"] == "undo"


async def test_a_reader_begins_and_changes_no_job(managed: Managed, client: httpx.AsyncClient) -> None:
    await managed.manager.create_queue(NAME)
    job = (await client.post("/v1/jobs", json={"kind": "delete", "queues": ["orders"], "dry_run": True})).json()
    async with managed.tcp(READER) as reader:
        for path, body in (
            ("/v1/jobs", {"kind": "delete", "queues": ["orders"]}),
            (f"/v1/jobs/{job['job']}", {"action": "cancel"}),
        ):
            assert (await reader.post(path, json=body)).status_code == 403


async def test_jobs_that_cannot_be_are_problems(client: httpx.AsyncClient) -> None:
    for method, path, body, status in (
        ("POST", "/v1/jobs", {"kind": "shred", "queues": ["x"]}, 422),
        ("POST", "/v1/jobs", {"kind": "delete", "queues": ["no-such"]}, 404),
        ("POST", "/v1/jobs", {"kind": "move", "queues": ["*"]}, 400),
        ("POST", "/v1/jobs", {"kind": "delete", "queues": ["*"], "messages": ["0x1ffffffffffffffff"]}, 422),
        ("GET", "/v1/jobs/99", None, 400),
        ("GET", "/v1/jobs/99/log", None, 400),
        ("GET", "/v1/jobs/..", None, 404),
        ("POST", "/v1/jobs/99", {"action": "pause"}, 400),
    ):
        answer = await client.request(method, path, json=body)
        assert answer.status_code == status, (path, body, answer.text)


async def test_messages_are_edited_imported_and_grouped(managed: Managed, client: httpx.AsyncClient) -> None:
    await managed.manager.create_queue(NAME)
    await managed.fill(b"{}")
    (found,) = (await client.get("/v1/messages", params={"queue": "orders"})).json()["found"]
    place = found["message"]["lookup_identifier"]
    async with await managed.manager.open_queue(f"DIRECT=OS:{NAME}", qmnode.Access.PEEK) as queue:
        packet = base64.b64encode((await queue.peek(0)).packet).decode()

    edited = await client.post(f"/v1/queues/orders/messages/{place}/edit", json={"value": {"Id": 7}, "label": "new"})
    item = {"packet": packet, "target": "orders"}
    imported = (await client.post("/v1/messages/import", json={"messages": [item, item]})).json()
    groups = (await client.get("/v1/failures", params={"queue": "orders", "by": "reason"})).json()["groups"]

    assert edited.status_code == 200 and edited.json()["lost"], edited.text
    assert [one["result"] for one in imported["results"]] == ["sent", "known"]
    assert groups[0]["count"] == 2 and groups[0]["reason"] == "NORMAL"
    async with managed.tcp(READER) as reader:
        assert (await reader.get("/v1/failures", params={"queue": "orders"})).status_code == 403
        assert (await reader.post("/v1/messages/import", json={"messages": [item]})).status_code == 403
    forged = {"packet": "AAAA", "target": "orders"}
    refused = (await client.post("/v1/messages/import", json={"messages": [forged]})).json()["results"]
    assert refused[0]["result"] == "refused" and "packet" in refused[0]["detail"]
    for wrong in ({"packet": packet, "target": ""}, {"target": "orders"}):
        assert (await client.post("/v1/messages/import", json={"messages": [wrong]})).status_code == 422, wrong


async def test_counters_over_time_are_shown(managed: Managed, client: httpx.AsyncClient) -> None:
    await managed.manager.create_queue(NAME)
    await managed.fill(b"a", b"b")
    await managed.manager.operations._history.sample()

    found = (await client.get("/v1/history", params={"queue": "ord*"})).json()

    assert (found["step"], found["queues"][0]["arrived"], found["queues"][0]["messages"]) == (10, [2], [2])
    assert len(found["times"]) == 1
    assert (await client.get("/v1/history", params={"span": "year"})).status_code == 422
    assert (await client.get("/v1/history", params={"queue": "none"})).status_code == 404
