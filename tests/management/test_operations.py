"""Operations on messages over HTTP."""

import httpx

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
