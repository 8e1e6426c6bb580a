"""Who may do what: tokens, roles, TLS, the permissions of files and sockets, and the audit log."""

import asyncio
import hashlib
import json
import ssl
import stat
from pathlib import Path

import httpx
import pytest

from qmnode.log_limit import LogLimit
from qmnode.management import authentication
from qmnode.management.audit import UNKNOWN_LINES, AuditLog
from qmnode.management.tokens import Role, Tokens
from qmnode.settings.node import ConfigurationError
from tests.management.conftest import (
    NAME,
    OPERATOR,
    READER,
    Managed,
    digest,
    write_certificate,
    write_tokens,
)

CHANGES = [
    ("POST", "/v1/queues"),
    ("PATCH", "/v1/queues/orders"),
    ("DELETE", "/v1/queues/orders"),
    ("DELETE", "/v1/queues/orders/messages"),
    ("POST", "/v1/queues/orders/messages"),
    ("POST", "/v1/queues/orders/receive"),
    ("POST", "/v1/outgoing-queues/x/pause"),
    ("POST", "/v1/queues/orders/pause"),
    ("POST", "/v1/dead-letters/retry"),
]
READINGS = [
    "/v1/node",
    "/v1/queues",
    "/v1/queues/orders",
    "/v1/queues/orders/messages",
    "/v1/outgoing-queues",
    "/v1/connections",
    "/v1/transactions",
    "/v1/journals",
    "/v1/dead-letters",
    "/v1/quotas",
    "/metrics",
    "/openapi.json",
]


async def test_without_a_right_token_nothing_is_told(managed: Managed) -> None:
    for token in (None, "guessed", digest(OPERATOR), ""):
        async with managed.tcp(token) as client:
            for path in [*READINGS, "/v1/nothing"]:
                answer = await client.get(path)
                assert (answer.status_code, answer.json()["name"]) == (401, "MQ_ERROR_ACCESS_DENIED")
                assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_other_schemes_are_no_tokens(managed: Managed) -> None:
    async with managed.tcp(None) as client:
        assert (await client.get("/v1/node", auth=("alice", OPERATOR))).status_code == 401


async def test_readers_read(managed: Managed) -> None:
    await managed.manager.create_queue(NAME)
    async with managed.tcp(READER) as client:
        for path in READINGS:
            assert (await client.get(path)).status_code == 200, path


async def test_readers_change_nothing(managed: Managed) -> None:
    await managed.manager.create_queue(NAME)
    async with managed.tcp(READER) as client:
        for method, path in CHANGES:
            answer = await client.request(method, path, json={"name": "other"})
            assert (answer.status_code, answer.json()["name"]) == (403, "MQ_ERROR_ACCESS_DENIED"), path
            assert "grafana" in answer.json()["detail"]
    assert [queue.pathname for queue in await managed.manager.queues() if queue.queue_type == "private"] == [
        r"ALPHA\private$\orders"
    ]


async def test_bodies_are_for_operators(managed: Managed) -> None:
    await managed.manager.create_queue(NAME)
    async with managed.tcp(READER) as reader, managed.tcp(OPERATOR) as operator:
        for path in (
            "/v1/queues/orders/messages?body=text",
            "/v1/dead-letters?body=base64",
            "/v1/dead-letters/export",
        ):
            assert (await reader.get(path)).status_code == 403
            assert (await operator.get(path)).status_code == 200


async def test_health_needs_no_token(managed: Managed) -> None:
    async with managed.tcp(None) as client:
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        assert (await client.get("/readyz")).json() == {"status": "ok", "warnings": []}


async def test_a_node_that_is_not_ready_says_so(managed: Managed, client: httpx.AsyncClient) -> None:
    managed.server.context.ready = lambda: False
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["name"]) == (503, "MQ_ERROR_SERVICE_NOT_AVAILABLE")
    assert (await client.get("/healthz")).status_code == 200


async def test_tcp_without_tls_gets_no_answer(managed: Managed) -> None:
    assert managed.server.address is not None
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{managed.server.address[1]}") as client:
        with pytest.raises(httpx.TransportError):
            await client.get("/healthz")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1:DeprecationWarning")
async def test_old_tls_is_refused(managed: Managed) -> None:
    assert managed.server.address is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection(*managed.server.address, ssl=context)


async def test_a_renewed_certificate_and_new_tokens_are_taken_over(managed: Managed) -> None:
    write_certificate(managed.folder, serial=4711)
    (managed.folder / "tokens.yaml").write_text(f'[{{"name": "bob", "role": "read", "sha256": "{digest("bobs")}"}}]')
    managed.server.reload()
    async with managed.tcp("bobs") as client:
        assert (await client.get("/v1/node")).status_code == 200
    async with managed.tcp(OPERATOR) as client:
        assert (await client.get("/v1/node")).status_code == 401


async def test_broken_tokens_leave_the_old_ones(managed: Managed) -> None:
    (managed.folder / "tokens.yaml").write_text("nonsense: [")
    managed.server.reload()
    async with managed.tcp(OPERATOR) as client:
        assert (await client.get("/v1/node")).status_code == 200


async def test_the_unix_socket_is_for_the_nodes_user(managed: Managed) -> None:
    assert managed.settings.socket is not None
    assert stat.S_IMODE(managed.settings.socket.stat().st_mode) == 0o600


# Files of tokens


def test_tokens_that_everybody_can_read_are_refused(tmp_path: Path) -> None:
    path = write_tokens(tmp_path)
    path.chmod(0o604)
    with pytest.raises(ConfigurationError, match="everybody may read"):
        Tokens(path)


def test_a_token_is_found_by_its_digest(tmp_path: Path) -> None:
    tokens = Tokens(write_tokens(tmp_path))
    caller = tokens.caller(READER)
    assert caller is not None
    assert (caller.name, caller.role) == ("grafana", Role.READ)
    assert tokens.caller(READER + "x") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[{name: a, role: admin, sha256: '" + "0" * 64 + "'}]", "0.role"),
        ("[{name: a, role: read, sha256: my-secret-token}]", "0.sha256"),
        ("{a: b}", "list"),
        ("[", "tokens.yaml"),
        (f"[{{name: a, role: read, sha256: '{'0' * 64}'}}, {{name: a, role: read, sha256: '{'1' * 64}'}}]", "two"),
    ],
)
def test_mistakes_in_tokens_are_explained_without_showing_them(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "tokens.yaml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigurationError) as caught:
        Tokens(path)
    assert expected in str(caught.value)
    assert "my-secret-token" not in str(caught.value)


# Slow callers

UNFINISHED = (
    b"POST /v1/queues HTTP/1.1\r\nHost: node\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
)


async def test_who_is_refused_cannot_hold_the_connection_with_a_body(managed: Managed) -> None:
    assert managed.server.address is not None
    reader, writer = await asyncio.open_connection(*managed.server.address, ssl=managed.trust())
    writer.write(UNFINISHED)
    answer = await asyncio.wait_for(reader.read(), 20)  # ends: the connection is closed
    assert answer.startswith(b"HTTP/1.1 401")
    writer.close()


async def test_a_body_that_does_not_come_ends_the_request(managed: Managed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "BODY_TIME", 0.1)
    reader, writer = await asyncio.open_unix_connection(managed.settings.socket)
    writer.write(UNFINISHED)
    answer = await asyncio.wait_for(reader.read(), 20)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"application/problem+json" in answer
    writer.close()


# The audit log


async def test_every_change_is_written_down(managed: Managed, client: httpx.AsyncClient) -> None:
    async with managed.tcp(OPERATOR) as alice:
        await alice.post("/v1/queues", json={"name": "orders", "label": "L"})
        await alice.post("/v1/queues/orders/messages", json={"messages": [{"text": "the body"}]})
        await alice.get("/v1/queues")
    await client.delete("/v1/queues/none")
    created, sent, deleted = managed.audited()
    assert (created["who"], created["channel"], created["action"]) == ("alice", "tcp", "create_queue")
    assert (created["outcome"], created["status"], created["from"]) == ("done", 201, "127.0.0.1")
    assert (created["target"], created["details"]) == ({"name": "orders"}, {"queue": "orders", "properties": ["label"]})
    assert (sent["target"], sent["details"]) == ({"name": "orders"}, {"messages": 1})
    assert (deleted["who"].startswith("uid:"), deleted["channel"]) == (True, "unix")
    assert (deleted["outcome"], deleted["problem"]) == ("failed", "MQ_ERROR_QUEUE_NOT_FOUND")
    assert all(entry["time"].endswith("Z") for entry in (created, sent, deleted))


async def test_what_was_denied_is_written_down_too(managed: Managed) -> None:
    async with managed.tcp(READER) as client:
        await client.delete("/v1/queues/orders")
    async with managed.tcp("guessed") as client:
        await client.delete("/v1/queues/orders")
    read, guessed = managed.audited()
    assert (read["who"], read["outcome"], read["action"]) == ("grafana", "denied", "DELETE /v1/queues/orders")
    assert (guessed["who"], guessed["outcome"], guessed["status"]) == (None, "denied", 401)


async def test_the_audit_log_has_no_bodies_and_no_secrets_and_is_private(managed: Managed) -> None:
    async with managed.tcp(OPERATOR) as client:
        await client.post("/v1/queues", json={"name": "orders"})
        await client.post("/v1/queues/orders/messages", json={"messages": [{"text": "the body", "label": "label"}]})
        await client.post("/v1/queues/orders/messages", json={"messages": [{"text": "the body", "what": 1}]})
        await client.post("/v1/queues/orders/receive", json={"body": "text"})
    text = (managed.folder / "audit.log").read_text()
    for secret in ("the body", OPERATOR, hashlib.sha256(OPERATOR.encode()).hexdigest()):
        assert secret not in text
    assert stat.S_IMODE((managed.folder / "audit.log").stat().st_mode) == 0o600
    assert len(managed.audited()) == 4


async def test_requests_without_a_token_fill_no_audit_log(managed: Managed) -> None:
    async with managed.tcp(None) as stranger, managed.tcp(OPERATOR) as client:
        for _ in range(100):
            assert (await stranger.post("/v1/queues", json={"name": "x"})).status_code == 401
        for number in range(15):
            await client.post("/v1/queues", json={"name": f"own{number}"})
    entries = managed.audited()
    assert sum(entry["who"] is None for entry in entries) == UNKNOWN_LINES
    assert sum(entry["who"] == "alice" for entry in entries) == 15


def test_the_next_entry_says_how_many_attempts_were_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, now = AuditLog(tmp_path / "audit.log"), [0.0]
    monkeypatch.setattr(log, "_unknown", LogLimit(lambda: now[0], UNKNOWN_LINES, 60.0))
    for number in range(1_000):
        log.write_unknown({"number": number}, f"2001:db8::{number:x}")  # of one block
    now[0] = 61.0
    log.write_unknown({"number": 1_000}, "2001:db8::1")
    log.close()
    entries = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    assert len(entries) == UNKNOWN_LINES + 1
    assert entries[-1]["left_out_before"] == 1_000 - UNKNOWN_LINES


async def test_a_rotated_audit_log_is_begun_again(managed: Managed, client: httpx.AsyncClient) -> None:
    (managed.folder / "audit.log").rename(managed.folder / "audit.log.1")
    managed.server.reload()
    await client.post("/v1/queues", json={"name": "orders"})
    assert [entry["action"] for entry in managed.audited()] == ["create_queue"]


def test_a_name_cannot_end_a_line_of_the_audit_log_nor_keep_it_from_being_written(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    for name in ("half \ud800", "line\u2028paragraph\u2029next\u0085", "\x9b31mred", "\n{}"):
        log.write({"target": name})
        written = (tmp_path / "audit.log").read_bytes().splitlines()[-1]
        assert written.isascii()
        assert json.loads(written) == {"target": name}
    log.close()
    assert len((tmp_path / "audit.log").read_text().splitlines()) == 4


def test_an_audit_log_that_cannot_be_written_is_a_mistake_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be written"):
        AuditLog(tmp_path / "none" / "audit.log")


async def test_the_role_bodies_sees_bodies_and_changes_nothing(managed: Managed) -> None:
    await managed.manager.create_queue(NAME)
    await managed.fill(b"secret of the order")
    path = managed.settings.tokens
    assert path is not None
    tokens = [{"name": role, "role": role, "sha256": digest(role)} for role in ("bodies", "administer")]
    path.write_text(json.dumps(tokens))
    managed.server.reload()
    async with managed.tcp("bodies") as client:
        shown = await client.get("/v1/queues/orders/messages", params={"body": "text"})
        assert shown.json()["messages"][0]["text"] == "secret of the order"
        assert (await client.delete("/v1/queues/orders/messages")).status_code == 403
        assert (await client.get("/v1/audit")).status_code == 403
        assert (await client.get("/v1/caller")).json() == {"name": "bodies", "role": "bodies", "machine": "ALPHA"}
    async with managed.tcp("administer") as client:
        assert (await client.delete("/v1/queues/orders/messages")).is_success
        entries = (await client.get("/v1/audit", params={"limit": 2})).json()["entries"]
        assert [entry["who"] for entry in entries] == ["administer", "bodies"]
        assert [entry["outcome"] for entry in entries] == ["done", "denied"]
