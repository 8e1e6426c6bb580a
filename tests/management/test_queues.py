"""Queues, outgoing queues and journals over HTTP."""

from typing import Any
from urllib.parse import quote

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import qmnode
from qmnode.model.api import Access
from qmnode.model.queue import ConnectionAttempt
from qmnode.structures.enumerations import ConnectionStatus
from tests.management.conftest import NAME, Managed

OUTGOING = r"DIRECT=OS:beta\private$\orders"


async def test_a_queue_is_created_shown_changed_and_deleted(client: httpx.AsyncClient, managed: Managed) -> None:
    created = await client.post("/v1/queues", json={"name": "orders", "label": "Orders", "quota": 100})
    assert created.status_code == 201
    assert created.json()["pathname"] == r"ALPHA\private$\orders"
    assert (created.json()["quota"], created.json()["journal_quota"]) == (100, None)
    changed = await client.patch("/v1/queues/orders", json={"quota": None, "privacy_level": "body"})
    assert (changed.json()["quota"], changed.json()["privacy_level"], changed.json()["label"]) == (
        None,
        "body",
        "Orders",
    )
    shown = await client.get(f"/v1/queues/{quote(NAME)}")
    assert shown.json() == changed.json()
    assert (await client.delete("/v1/queues/orders")).status_code == 204
    assert (await client.get("/v1/queues/orders")).status_code == 404
    assert r"ALPHA\private$\orders" not in [queue.pathname for queue in await managed.manager.queues()]


async def test_a_number_is_neither_true_nor_false(client: httpx.AsyncClient) -> None:
    refused = await client.post("/v1/queues", json={"name": "orders", "quota": True})
    assert refused.status_code == 422 and "a number is wanted" in refused.text


@pytest.mark.public_report("spring-projects/spring-amqp#3489", "rabbitmq/rabbitmq-management#672")
@pytest.mark.parametrize("name", ["a/b", "/", "x/y/messages", "in/é%2F", "o/../../v1/node", "q?x#y", "a. b "])
async def test_a_name_may_have_slashes(client: httpx.AsyncClient, managed: Managed, name: str) -> None:
    assert (await client.post("/v1/queues", json={"name": name})).status_code == 201
    at = f"/v1/queues/{quote(name, safe='')}"
    sent = await client.post(f"{at}/messages", json={"messages": [{"text": "x"}]})
    assert sent.status_code == 201, sent.text
    assert (await client.get(at)).json()["message_count"] == 1
    (listed,) = (await client.get(f"{at.lower()}/messages")).json()["messages"]
    assert (await client.delete(f"{at}/messages/{listed['lookup_identifier']}")).status_code == 204
    assert (await client.delete(at)).status_code == 204
    assert managed.audited()[-1]["target"]["name"] == name
    assert (await client.get("/v1%2Fqueues")).status_code == 404, "one between names is not encoded"
    outgoing = quote(rf"DIRECT=OS:beta\private$\{name}", safe="")
    assert (await client.get(f"/v1/outgoing-queues/{outgoing}/connection-history")).json()["code"] == "0xC00E0003"


@pytest.mark.parametrize("name", ["DIRECT=http://host/msmq/private$/q", "DIRECT=https://host:8443/msmq/q"])
async def test_a_queue_behind_http_is_refused_with_the_reason(client: httpx.AsyncClient, name: str) -> None:
    at = f"/v1/queues/{quote(name, safe='')}"
    for answer in (
        await client.get(at),
        await client.get(f"{at}/messages"),
        await client.post(f"{at}/receive", json={}),
        await client.post(f"{at}/messages", json={"messages": [{"text": "x"}]}),
    ):
        assert answer.json()["name"] == "MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION"
        assert "a node does not speak the HTTP transport" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "sentence"),
    [
        ("GET", "/v1/queues?limitt=1", "did you mean 'limit'?"),
        ("GET", "/v1/queues?limit=1&limit=2", "give it once"),
        ("GET", "/v1/queues/orders/messages?body=none&body=text", "give it once"),
        ("DELETE", "/v1/queues/orders?dry_run=true", "known here: none"),
        ("POST", "/v1/queues/orders/messages?transactional=true", "known here: none"),
    ],
)
async def test_a_parameter_without_effect_is_refused(
    client: httpx.AsyncClient, method: str, path: str, sentence: str
) -> None:
    await client.post("/v1/queues", json={"name": "orders"})
    answer = await client.request(method, path, json={} if method == "POST" else None)
    assert answer.status_code == 422 and sentence in answer.json()["detail"], answer.text
    assert (await client.get("/v1/queues/orders")).json()["message_count"] == 0
    assert (await client.get("/v1/queues?kind=private&kind=system&limit=5")).status_code == 200
    assert (await client.get("/healthz?by=watchdog")).status_code == 200


async def test_a_queue_that_exists_is_a_conflict(client: httpx.AsyncClient) -> None:
    await client.post("/v1/queues", json={"name": "orders"})
    again = await client.post("/v1/queues", json={"name": "ORDERS"})
    assert (again.status_code, again.json()["name"]) == (409, "MQ_ERROR_QUEUE_EXISTS")
    assert again.headers["content-type"] == "application/problem+json"
    assert again.json()["code"] == "0xC00E0005"


async def test_lists_come_in_pages_and_by_pattern(client: httpx.AsyncClient) -> None:
    for number in range(5):
        await client.post("/v1/queues", json={"name": f"q{number}"})
    first = (await client.get("/v1/queues", params={"kind": "private", "limit": 3})).json()
    assert [queue["pathname"][-2:] for queue in first["queues"]] == ["q0", "q1", "q2"]
    rest = (await client.get("/v1/queues", params={"kind": "private", "after": first["next"]})).json()
    assert [queue["pathname"][-2:] for queue in rest["queues"]] == ["q3", "q4"]
    assert rest["next"] is None
    found = (await client.get("/v1/queues", params={"name": "*Q3"})).json()
    assert [queue["pathname"][-2:] for queue in found["queues"]] == ["q3"]


async def test_a_purge_empties_a_queue(client: httpx.AsyncClient, managed: Managed) -> None:
    await managed.manager.create_queue(NAME)
    await managed.fill(b"a", b"b")
    assert (await client.delete("/v1/queues/orders/messages")).status_code == 204
    assert (await managed.manager.queue(NAME)).message_count == 0


async def test_an_outgoing_queue_is_paused_looked_into_and_purged(client: httpx.AsyncClient, managed: Managed) -> None:
    path = f"/v1/queues/{quote(OUTGOING)}"
    sent = await client.post(f"{path}/messages", json={"messages": [{"text": "a"}]})
    assert sent.status_code == 201
    outgoing = f"/v1/outgoing-queues/{quote(OUTGOING)}"
    assert (await client.post(f"{outgoing}/pause")).status_code == 204
    (queue,) = (await client.get("/v1/outgoing-queues")).json()["queues"]
    assert (queue["state"], queue["message_count"]) == ("on hold", 1)
    (message,) = (await client.get(f"{path}/messages", params={"body": "text"})).json()["messages"]
    assert message["text"] == "a"
    assert (await client.delete(f"{path}/messages")).status_code == 204
    assert (await client.post(f"{outgoing}/resume")).status_code == 204
    (queue,) = (await client.get("/v1/outgoing-queues")).json()["queues"]
    assert (queue["state"], queue["message_count"]) == ("inactive", 0)


async def test_the_attempts_to_connect_of_an_outgoing_queue_are_told(
    client: httpx.AsyncClient, managed: Managed
) -> None:
    async with await managed.manager.open_queue(OUTGOING, Access.SEND):
        queue = managed.manager.outgoing_queue(OUTGOING)
        queue.connection_history.append(ConnectionAttempt(ConnectionStatus.PING_FAILURE, 20, 0xC00E0090, ("10.0.0.9",)))
        answer = await client.get(f"/v1/outgoing-queues/{quote(OUTGOING)}/connection-history")

    assert answer.json()["attempts"] == [
        {"status": "ping_failure", "time": "1970-01-01T00:00:20Z", "error": "0xC00E0090", "addresses": ["10.0.0.9"]}
    ]
    missing = await client.get("/v1/outgoing-queues/orders/connection-history")
    assert (missing.status_code, missing.json()["name"]) == (404, "MQ_ERROR_QUEUE_NOT_FOUND")


async def test_how_far_transactional_messages_are_is_told(client: httpx.AsyncClient, managed: Managed) -> None:
    """This node has no network: nothing was sent, and nothing is known."""
    async with await managed.manager.open_queue(OUTGOING, Access.SEND):
        answer = await client.get(f"/v1/outgoing-queues/{quote(OUTGOING)}/transfer")
    assert (answer.status_code, answer.json()["next"], answer.json()["unread_messages"]) == (200, None, 0)
    missing = await client.get("/v1/outgoing-queues/orders/transfer")
    assert (missing.status_code, missing.json()["name"]) == (404, "MQ_ERROR_QUEUE_NOT_FOUND")


async def test_the_summary_leaves_out_names_that_the_caller_has(client: httpx.AsyncClient, managed: Managed) -> None:
    async def summary(**asked: object) -> dict[str, Any]:
        return dict((await client.get("/v1/queue-summary", params=asked)).json())

    await managed.manager.create_queue(NAME, label="one")
    await managed.fill(b"a", b"b")
    first = await summary(node=True)
    place = first["pathname"].index(r"ALPHA\private$\orders")
    assert (first["label"][place], first["message_count"][place], first["arrived"][place]) == ("one", 2, 2)
    assert (first["node"]["queue_count"], first["node"]["message_count"]) == (1, 2)

    again = await summary(known=first["names"])
    assert (again["names"], again["node"], again["pathname"], again["label"]) == (first["names"], None, [], [])
    assert again["message_count"] == first["message_count"]

    await managed.manager.set_queue(NAME, label="another")
    changed = await summary(known=first["names"])
    assert changed["names"] != first["names"]
    assert changed["label"][place] == "another"


async def test_a_paused_queue_shows_that_it_is_everywhere_and_gives_no_message(
    client: httpx.AsyncClient, managed: Managed
) -> None:
    await managed.manager.create_queue(NAME)
    await managed.fill(b"a", b"b")
    assert (await client.post("/v1/queues/orders/pause")).status_code == 204
    name = r"ALPHA\private$\orders"
    queue = (await client.get("/v1/queues/orders")).json()
    assert (queue["state"], queue["waiting"]["reason"], queue["waiting"]["messages"]) == ("on hold", "paused", 2)
    (row,) = (await client.get("/v1/waiting")).json()["waiting"]
    assert (row["queue"], row["reason"]) == (name, "paused")
    short = (await client.get("/v1/queue-summary")).json()
    assert short["state"][short["pathname"].index(name)] == "on hold"
    metric = (
        'qmnode_waiting_since_timestamp_seconds{machine="ALPHA",queue="ALPHA\\\\private$\\\\orders",reason="paused"}'
    )
    assert metric in (await client.get("/metrics")).text
    assert (await client.post("/v1/queues/orders/receive", json={})).json()["messages"] == []
    message, _ = (await client.get("/v1/queues/orders/messages?body=text")).json()["messages"]
    assert (await client.delete(f"/v1/queues/orders/messages/{message['lookup_identifier']}")).status_code == 204
    assert (await client.post("/v1/queues/orders/resume")).status_code == 204
    assert (await client.get("/v1/queues/orders")).json()["state"] is None
    assert metric not in (await client.get("/metrics")).text
    assert len((await client.post("/v1/queues/orders/receive", json={})).json()["messages"]) == 1


async def test_no_journal_is_paused(client: httpx.AsyncClient, managed: Managed) -> None:
    await managed.manager.create_queue(NAME)
    answer = await client.post("/v1/queues/orders;journal/pause")
    assert (answer.status_code, "only public, private and outgoing" in answer.json()["detail"]) == (400, True)


async def test_journals_are_listed_and_their_messages_seen(client: httpx.AsyncClient, managed: Managed) -> None:
    await managed.manager.create_queue(NAME, journaling=True)
    await managed.fill(b"kept")
    await client.post("/v1/queues/orders/receive", json={})
    machine, journal = (await client.get("/v1/journals")).json()["journals"]
    assert machine["queue"] is None
    assert (journal["queue"], journal["message_count"]) == (r"ALPHA\private$\orders", 1)
    (message,) = (await client.get("/v1/queues/orders;journal/messages?body=text")).json()["messages"]
    assert message["text"] == "kept"


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"name": "a", "quota": -1}, "body.quota"),
        ({"name": "a", "type": "no guid"}, "body.type"),
        ({"name": "a", "colour": "red"}, "body.colour"),
        ({}, "body.name"),
        ({"name": "a", "privacy_level": "much"}, "body.privacy_level"),
    ],
)
async def test_what_is_not_valid_says_where(client: httpx.AsyncClient, body: dict[str, object], where: str) -> None:
    answer = await client.post("/v1/queues", json=body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["name"] == "MQ_ERROR_INVALID_PARAMETER"
    assert where in [mistake["where"] for mistake in answer.json()["mistakes"]]


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        (
            "queues",
            {"name": "a", "jornaling": True},
            "body.jornaling: it is no field of this document (did you mean journaling?)",
        ),
        (
            "queues",
            {"name": "a", "colour": "red"},
            "body.colour: it is no field of this document (known here: authentication,",
        ),
        ("queues", {"name": "a", "privacy_level": "bdy"}, "'none', 'optional' or 'body' (did you mean body?)"),
        (
            "queues",
            {"name": "a", "quota": "10MB"},
            "body.quota: '10MB' is no number of KB: write one, or null for none",
        ),
        (
            "queues/orders/messages",
            {"messages": [{"priorty": 3}]},
            "body.messages.0.priorty: it is no field of this document (did you mean priority?)",
        ),
        ("jobs", {"kind": "mvoe", "queues": ["a"]}, "(did you mean move?)"),
        (
            "jobs",
            {"kind": "move", "quees": ["a"]},
            "body.quees: it is no field of this document (did you mean queues?)",
        ),
    ],
)
async def test_a_misspelt_field_or_value_is_answered_with_the_nearest(
    client: httpx.AsyncClient, path: str, body: dict[str, object], sentence: str
) -> None:
    answer = await client.post(f"/v1/{path}", json=body)
    assert answer.status_code == 422
    assert sentence in answer.json()["detail"]


async def test_the_model_refuses_names_of_system_queues(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/queues", json={"name": r".\system$;deadletter"})
    assert (answer.status_code, answer.json()["name"]) == (400, "MQ_ERROR_ILLEGAL_QUEUE_PATHNAME")


async def test_a_queue_that_somebody_keeps_for_himself_is_a_conflict(
    client: httpx.AsyncClient, managed: Managed
) -> None:
    await managed.manager.create_queue(NAME)
    async with await managed.manager.open_queue(f"DIRECT=OS:{NAME}", qmnode.Access.RECEIVE, qmnode.Share.DENY_RECEIVE):
        answer = await client.post("/v1/queues/orders/receive", json={})
    assert (answer.status_code, answer.json()["name"]) == (409, "MQ_ERROR_SHARING_VIOLATION")


async def test_who_may_use_a_queue_is_shown_and_changed(client: httpx.AsyncClient, managed: Managed) -> None:
    await managed.manager.create_queue(NAME)
    assert (await client.get("/v1/queues/orders/access")).status_code == 200
    change = {"change": "deny", "trustee": "anonymous", "rights": ["send-message"]}
    changed = await client.post("/v1/queues/orders/access", json=change)
    assert changed.json()["rules"][0] | {"mask": ""} == {
        "kind": "deny",
        "trustee": "S-1-5-7",
        "name": "anonymous",
        "rights": ["send-message"],
        "mask": "",
        "inherited": False,
        "known": None,
    }
    assert managed.audited()[-1]["details"] == change
    wrong = await client.post("/v1/queues/orders/access", json=change | {"trustee": "somebody"})
    assert (wrong.status_code, wrong.json()["name"]) == (400, "MQ_ERROR_ILLEGAL_USER")


@pytest.mark.public_report("rabbitmq/rabbitmq-server#9648", "cloudfoundry/firehose_exporter#24")
async def test_every_name_of_a_queue_is_a_label_of_its_own_in_the_metrics(
    client: httpx.AsyncClient, managed: Managed
) -> None:
    names = ["qq", "q q", "q-q", "q.q", "q'q", "{q}", "é\u2028q", "\U0001f600"]
    for number, name in enumerate(names):
        assert (await client.post("/v1/queues", json={"name": name})).status_code == 201
        await managed.fill(*[b"x"] * number, name=rf".\private$\{name}")
    families = {family.name: family for family in text_string_to_metric_families((await client.get("/metrics")).text)}
    found = {one.labels["queue"].rpartition("\\")[2]: one.value for one in families["qmnode_queue_messages"].samples}
    assert {name: found[name] for name in names} == {name: number for number, name in enumerate(names)}
