"""The node over HTTP: totals, quotas, connections, transactions, metrics, and errors of HTTP itself."""

import gzip
import time
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from cryptography.x509 import load_pem_x509_certificate
from prometheus_client.parser import text_string_to_metric_families

from qmnode import Access, Message
from qmnode.model.administration import ConnectionInformation
from qmnode.security.key_stores import KeyPair, KeyPurpose, KeyRing, KeyState
from qmnode.security.message_security import KeyStoreStatus
from qmnode.security.rsa_keys import Policy, PrivateKey
from qmnode.structures.guid import guid_to_text
from tests.management.conftest import NAME, Managed, write_certificate


async def test_the_node_and_its_totals(client: httpx.AsyncClient, managed: Managed) -> None:
    await managed.manager.create_queue(NAME)
    await managed.fill(b"a", b"b")
    node = (await client.get("/v1/node")).json()
    assert (node["computer_name"], node["queue_count"], node["message_count"]) == ("ALPHA", 1, 2)
    assert node["identifier"] == guid_to_text(managed.manager.identifier)
    quotas = (await client.get("/v1/quotas")).json()
    assert (quotas["quota"], quotas["journal_quota"], quotas["quota_used"]) == (0x00100000, None, node["total_bytes"])


class Sessions:
    def connections(self) -> list[ConnectionInformation]:
        return [ConnectionInformation("10.0.0.7:1801", "established", incoming=True, established=1.8e9)]


async def test_connections_come_from_who_keeps_them(client: httpx.AsyncClient, managed: Managed) -> None:
    assert (await client.get("/v1/connections")).json() == {"connections": []}
    managed.server.context.connection_list = Sessions()
    (connection,) = (await client.get("/v1/connections")).json()["connections"]
    assert (connection["address"], connection["established"]) == ("10.0.0.7:1801", "2027-01-15T08:00:00Z")


async def test_metrics_have_totals_and_the_fullest_queues(client: httpx.AsyncClient, managed: Managed) -> None:
    for number in range(3):
        name = rf".\private$\q{number}"
        await managed.manager.create_queue(name)
        await managed.fill(*[b"x"] * number, name=name)
    managed.server.context.settings = managed.settings.model_copy(update={"metrics_queues": 2})
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert families["qmnode_messages"].samples[0].value == 3
    shown = {sample.labels["queue"][-2:]: sample.value for sample in families["qmnode_queue_messages"].samples}
    assert shown == {"q2": 2, "q1": 1}
    (oldest, _) = families["qmnode_queue_oldest_message_timestamp_seconds"].samples
    assert oldest.labels["queue"].endswith("q2")
    assert 0 <= families["qmnode_time_seconds"].samples[0].value - oldest.value < 3600
    document = (await client.get("/v1/queues/q2")).json()
    assert datetime.fromisoformat(document["oldest_arrival"]).timestamp() == pytest.approx(oldest.value)
    assert families["qmnode_quota_bytes"].samples[0].value == 2**30
    assert "process_resident_memory_bytes" in families


async def test_metrics_say_since_when_messages_wait_to_leave(client: httpx.AsyncClient, managed: Managed) -> None:
    before = time.time()
    async with await managed.manager.open_queue(r"DIRECT=TCP:127.0.0.9\private$\away", Access.SEND) as queue:
        await queue.send(Message(b"waits"))

    text = (await client.get("/metrics")).text

    families = {family.name: family for family in text_string_to_metric_families(text)}
    (oldest,) = families["qmnode_outgoing_oldest_message_timestamp_seconds"].samples
    assert before - 1 <= oldest.value <= families["qmnode_time_seconds"].samples[0].value


async def test_metrics_say_what_is_in_trouble_and_when_the_certificate_ends(
    client: httpx.AsyncClient, managed: Managed, tmp_path: Path
) -> None:
    certificate, _ = write_certificate(tmp_path)
    managed.server.context.settings = managed.settings.model_copy(update={"certificate": certificate})
    managed.manager.troubles["directory"] = "it does not answer"

    text = (await client.get("/metrics")).text

    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert [sample.labels for sample in families["qmnode_trouble"].samples] == [{"what": "directory"}]
    (end,) = families["qmnode_certificate_expiry_timestamp_seconds"].samples
    assert end.value == load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc.timestamp()
    certificate.write_text("broken")
    assert "qmnode_certificate_expiry_timestamp_seconds 0.0" in (await client.get("/metrics")).text


class ReadKeys:
    def __init__(self, status: KeyStoreStatus) -> None:
        self.status = status

    async def read(self) -> KeyStoreStatus:
        return self.status


async def test_metrics_say_since_when_others_encrypt_to_a_key(client: httpx.AsyncClient, managed: Managed) -> None:
    assert managed.server.context.key_reader is None
    assert "qmnode_encryption_key_published_timestamp_seconds{" not in (await client.get("/metrics")).text
    status = KeyStoreStatus(3, None, ("f1", "f2"), (("Enhanced", 1000.0), ("AES", 2000.0)))
    managed.server.context.key_reader = ReadKeys(status)

    text = (await client.get("/metrics")).text

    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples = families["qmnode_encryption_key_published_timestamp_seconds"].samples
    assert {sample.labels["provider"]: sample.value for sample in samples} == {"Enhanced": 1000.0, "AES": 2000.0}


async def test_keys_are_shown_with_their_age_and_certificates_with_their_end(
    client: httpx.AsyncClient, managed: Managed, tmp_path: Path
) -> None:
    certificate, _ = write_certificate(tmp_path)
    managed.server.context.settings = managed.server.context.settings.model_copy(update={"certificate": certificate})
    old, new = (
        KeyPair(
            provider="Enhanced", purpose=KeyPurpose.ENCRYPTION, state=state, fingerprint=state.value,
            modulus_length=2048, created_time=created, published_time=created + 60, superseded_time=superseded,
            private_key=PrivateKey.generate(2048, Policy(frozenset(), "weak_algorithms_sent")),
        )
        for state, created, superseded in ((KeyState.PREVIOUS, 1000.0, 90_000.0), (KeyState.CURRENT, 80_000.0, None))
    )  # fmt: skip
    managed.server.context.key_reader = ReadKeys(KeyStoreStatus.of(7, KeyRing([old, new])))

    found = (await client.get("/v1/keys")).json()

    times = [(key["state"], key["created"], key["published"], key["superseded"]) for key in found["keys"]]
    assert times == [
        ("previous", "1970-01-01T00:16:40Z", "1970-01-01T00:17:40Z", "1970-01-02T01:00:00Z"),
        ("current", "1970-01-01T22:13:20Z", "1970-01-01T22:14:20Z", None),
    ]
    assert found["fingerprints"] == ["previous", "current"]
    (shown,) = found["certificates"]
    assert (shown["use"], shown["fault"]) == ("management", None)
    assert datetime.fromisoformat(shown["ends"]) > datetime.now(UTC)
    certificate.write_text("broken")
    (shown,) = (await client.get("/v1/keys")).json()["certificates"]
    assert (shown["ends"], "no PEM file" in shown["fault"]) == (None, True)


async def test_what_is_not_there_is_a_problem(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v2/queues")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    assert answer.json()["name"] == "MQ_ERROR_INVALID_PARAMETER"


async def test_a_wrong_method_is_a_problem(client: httpx.AsyncClient) -> None:
    answer = await client.put("/v1/queues", json={})
    assert (answer.status_code, answer.headers["content-type"]) == (405, "application/problem+json")
    assert answer.json()["name"] == "MQ_ERROR_UNSUPPORTED_OPERATION"
    assert "GET" in answer.headers["allow"]


@pytest.mark.public_report("fastapi/fastapi#1773")
@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/openapi.json", "/v1/queues", "/v1/nothing"])
async def test_a_watchdog_may_ask_for_the_head_alone(client: httpx.AsyncClient, path: str) -> None:
    whole, head = await client.get(path), await client.head(path)
    assert (head.status_code, head.content) == (whole.status_code, b"")
    assert head.headers["content-type"] == whole.headers["content-type"]
    assert (await client.get("/healthz")).json() == {"status": "ok"}, "the connection goes on"


@pytest.mark.public_report("fastapi/fastapi#3373")
@pytest.mark.parametrize("given", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data"])
async def test_a_body_that_is_not_called_json_is_refused_with_what_to_say(
    client: httpx.AsyncClient, given: str
) -> None:
    for path in ("/v1/queues", "/v1/queues/orders/messages", "/v1/jobs"):
        answer = await client.post(path, content=b'{"name": "x"}', headers={"content-type": given})
        assert (answer.status_code, answer.headers["content-type"]) == (415, "application/problem+json")
        detail = answer.json()["detail"]
        assert given in detail and "'Content-Type: application/json'" in detail


@pytest.mark.public_report("HarperFast/harper#1438", "fastapi/fastapi#2992")
@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "deflate", "identity"])
async def test_a_compressed_body_is_refused_with_the_reason(client: httpx.AsyncClient, encoding: str) -> None:
    whole = b'{"name": "x"}'
    content = whole if encoding == "identity" else gzip.compress(whole)
    answer = await client.post(
        "/v1/queues", content=content, headers={"content-type": "application/json", "content-encoding": encoding}
    )
    if encoding != "identity":
        assert (answer.status_code, answer.headers["content-type"]) == (415, "application/problem+json")
        assert f"encoded as '{encoding}'" in answer.json()["detail"]


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[]", b"null", b""])
async def test_what_is_no_json_is_a_problem(client: httpx.AsyncClient, content: bytes) -> None:
    answer = await client.post("/v1/queues", content=content, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_mistake_of_the_node_is_a_problem_without_a_traceback(
    client: httpx.AsyncClient, managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> None:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(managed.manager, "status", broken)
    answer = await client.get("/v1/node")
    assert (answer.status_code, answer.json()["name"]) == (500, "MQ_ERROR")
    assert "inside" not in answer.text


async def test_every_resource_is_described(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"] and operation["description"] and operation["tags"], (method, path)
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
