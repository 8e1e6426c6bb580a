"""The door matrix over HTTP: each route, as tokens with and without SIDs and as users of the Unix socket."""

from __future__ import annotations

import base64
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count, product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from qmnode import Access, Message, QueueManager
from qmnode.management.app import build_app
from qmnode.management.request_context import Context
from qmnode.management.server import ManagementServer
from qmnode.security.principals import Principals, unix_user
from qmnode.service import configure_log
from qmnode.settings.node import LogSettings, ManagementSettings, Settings
from qmnode.structures.security_descriptor import (
    AUTHENTICATED_USERS,
    BUILTIN_ADMINISTRATORS,
    EVERYONE,
    LOCAL,
    NETWORK,
    Sid,
)
from qmnode.structures.security_descriptor import QueueAccess as Right
from tests.adversary import wire
from tests.doors.directory import Groups
from tests.doors.expectation import (
    DOMAIN,
    MEMBER,
    STRANGER,
    Entries,
    Matrix,
    Who,
    allowed,
    described,
    descriptors,
)
from tests.doors.http import Answer, Client
from tests.management.conftest import Managed, digest, write_certificate

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users")

USER = 60_001
ELSEWHERE = r"DIRECT=OS:elsewhere\private$\orders"
HERE = frozenset({EVERYONE, AUTHENTICATED_USERS, LOCAL})
AWAY = frozenset({EVERYONE, AUTHENTICATED_USERS, NETWORK})
TOKENS: dict[str, tuple[str, Sid | None, Who]] = {
    "owner": ("operate", DOMAIN.owner, Who(AWAY | {DOMAIN.owner})),
    "member": ("operate", MEMBER, Who(AWAY | {MEMBER, DOMAIN.group})),
    "stranger": ("operate", STRANGER, Who(AWAY | {STRANGER})),
    "reader": ("read", DOMAIN.declared, Who(AWAY | {DOMAIN.declared}, reads_only=True)),
    "operator": ("operate", None, Who(frozenset(), everything=True)),
    "auditor": ("administer", None, Who(frozenset(), everything=True)),
    "watcher": ("read", None, Who(frozenset(), everything=True, reads_only=True)),
}
USERS: dict[str, tuple[int, Who]] = {
    "root": (0, Who(HERE | {unix_user(0), BUILTIN_ADMINISTRATORS}, everything=True)),
    "user": (USER, Who(HERE | {unix_user(USER)})),
}
PRINCIPALS = {name: who for name, (_, _, who) in TOKENS.items()} | {name: who for name, (_, who) in USERS.items()}
DESCRIPTORS = descriptors(DOMAIN)
NAMES = {f"q{number}": text for number, text in enumerate(DESCRIPTORS)}
PACKET = base64.b64encode(
    wire.UserMessage(source=wire.identifier(), message_id=1, queue=wire.direct(r"OS:alpha\private$\q0")).packet()
).decode()
NO_MESSAGE = "0x123456789abcdef"


@dataclass(frozen=True)
class Row:
    """A route on a queue: the rights that it needs, and a request to it."""

    rights: Right
    method: str
    path: Callable[[str], str]
    body: Callable[[str], object] = lambda _: None
    granted: Callable[[Answer, str], bool] = lambda answer, _: answer.status != 403
    repairs: bool = False


def of(suffix: str = "") -> Callable[[str], str]:
    """The path of a queue, or of something in it."""
    return lambda name: f"/v1/queues/{quote(name)}{suffix}"


def lists(name: str) -> Callable[[Answer, str], bool]:
    """Whether a queue is in a list."""

    def found(answer: Answer, queue: str) -> bool:
        pathnames = {one["pathname"].lower().rpartition("\\")[2] for one in answer.json()[name]}
        return not {queue, f"{queue};journal"}.isdisjoint(pathnames)

    return found


PERMISSIONS = Right.MQSEC_GET_QUEUE_PERMISSIONS
PROPERTIES = Right.MQSEC_GET_QUEUE_PROPERTIES
RECEIVE, PEEK, WRITE = Right.MQSEC_RECEIVE_MESSAGE, Right.MQSEC_PEEK_MESSAGE, Right.MQSEC_WRITE_MESSAGE
ROWS: dict[str, Row] = {
    "GET /v1/queues": Row(PROPERTIES, "GET", lambda _: "/v1/queues?limit=500", granted=lists("queues"), repairs=True),
    "GET /v1/journals": Row(PROPERTIES, "GET", lambda _: "/v1/journals", granted=lists("journals"), repairs=True),
    "GET /v1/queue-summary": Row(
        PROPERTIES, "GET", lambda _: "/v1/queue-summary", repairs=True,
        granted=lambda answer, name: f"\\{name}\"".upper() in json.dumps(answer.json()["pathname"]).upper(),
    ),
    "GET /metrics": Row(
        PROPERTIES, "GET", lambda _: "/metrics", repairs=True,
        granted=lambda answer, name: f"\\\\{name}\"".upper() in answer.text.upper(),
    ),
    "GET /v1/queues/{name}": Row(PROPERTIES, "GET", of(), repairs=True),
    "GET /v1/queues/{name}/incoming-sequences": Row(PROPERTIES, "GET", of("/incoming-sequences"), repairs=True),
    "GET /v1/queues/{name}/refused-messages": Row(PROPERTIES, "GET", of("/refused-messages"), repairs=True),
    "GET /v1/queues/{name}/access": Row(PERMISSIONS, "GET", of("/access"), repairs=True),
    "POST /v1/queues/{name}/access": Row(
        PERMISSIONS | Right.MQSEC_CHANGE_QUEUE_PERMISSIONS, "POST", of("/access"), repairs=True,
        body=lambda _: {"change": "remove", "trustee": "S-1-5-21-4-4-4-4", "rights": ["full-control"]},
    ),
    "PATCH /v1/queues/{name}": Row(Right.MQSEC_SET_QUEUE_PROPERTIES, "PATCH", of(), lambda _: {"label": "x"}),
    "POST /v1/queues/{name}/pause": Row(Right.MQSEC_SET_QUEUE_PROPERTIES, "POST", of("/pause")),
    "POST /v1/queues/{name}/resume": Row(Right.MQSEC_SET_QUEUE_PROPERTIES, "POST", of("/resume")),
    "POST /v1/queues/{name}/messages": Row(
        WRITE, "POST", of("/messages"), lambda _: {"messages": [{"text": "x", "recoverable": False}]}
    ),
    "GET /v1/queues/{name}/messages": Row(PEEK, "GET", of("/messages")),
    "GET /v1/queues/{name}/messages, journal": Row(PEEK, "GET", lambda name: of("/messages")(f"{name};journal")),
    "GET /v1/queues/{name}/messages, format name": Row(
        PEEK, "GET", lambda name: of("/messages")(f"DIRECT=OS:.\\PRIVATE$\\{name.upper()}")
    ),
    "GET /v1/queues/{name}/messages, encoded": Row(
        PEEK, "GET", lambda name: "/v1/queues/" + "".join(f"%{ord(one):02x}" for one in name) + "/messages"
    ),
    "GET /v1/queues/{name}/messages/{lookup}": Row(PEEK, "GET", of(f"/messages/{NO_MESSAGE}")),
    "DELETE /v1/queues/{name}/messages/{lookup}": Row(RECEIVE, "DELETE", of(f"/messages/{NO_MESSAGE}")),
    "DELETE /v1/queues/{name}/messages/{lookup}, journal": Row(
        Right.MQSEC_RECEIVE_JOURNAL_MESSAGE, "DELETE", lambda name: of(f"/messages/{NO_MESSAGE}")(f"{name};journal")
    ),
    "POST /v1/queues/{name}/messages/{lookup}/move": Row(
        RECEIVE | WRITE, "POST", of(f"/messages/{NO_MESSAGE}/move"), lambda name: {"target": f"{name};later"}
    ),
    "POST /v1/queues/{name}/messages/{lookup}/edit": Row(
        RECEIVE, "POST", of(f"/messages/{NO_MESSAGE}/edit"), lambda _: {"label": "x"}
    ),
    "POST /v1/queues/{name}/receive": Row(RECEIVE, "POST", of("/receive"), lambda _: {"limit": 1}),
    "DELETE /v1/queues/{name}/messages": Row(RECEIVE, "DELETE", of("/messages")),
    "GET /v1/messages": Row(PEEK, "GET", lambda name: f"/v1/messages?queue={name}"),
    "GET /v1/messages/export": Row(PEEK, "GET", lambda name: f"/v1/messages/export?queue={name}"),
    "GET /v1/history": Row(
        PROPERTIES, "GET", lambda name: f"/v1/history?queue={name}", repairs=True,
        granted=lambda answer, name: any(
            one["queue"].lower().rpartition("\\")[2] == name for one in answer.json()["queues"]
        ),
    ),
    "GET /v1/failures": Row(
        PEEK, "GET", lambda name: f"/v1/failures?queue={name}",
        granted=lambda answer, _: answer.status != 403 and not answer.json()["refused"],
    ),
    "POST /v1/jobs": Row(
        RECEIVE, "POST", lambda _: "/v1/jobs", lambda name: {"kind": "delete", "queues": [name], "dry_run": True}
    ),
    "POST /v1/jobs, copy": Row(
        PEEK | WRITE, "POST", lambda _: "/v1/jobs",
        lambda name: {"kind": "copy", "queues": [name], "target": name, "dry_run": True},
    ),
    "POST /v1/messages/import": Row(
        WRITE, "POST", lambda _: "/v1/messages/import",
        lambda name: {"messages": [{"packet": PACKET, "target": name}], "dry_run": True},
        lambda answer, _: answer.status != 403 and answer.json()["results"][0]["result"] == "would be sent",
    ),
    "DELETE /v1/queues/{name}": Row(Right.MQSEC_DELETE_QUEUE, "DELETE", of()),
}  # fmt: skip
LISTS = ("GET /v1/queues", "GET /v1/journals", "GET /v1/queue-summary", "GET /metrics")
LATER = quote(ELSEWHERE, safe="")
made = count()
EVERYBODY = frozenset(PRINCIPALS)
ADMINISTRATORS = frozenset({"operator", "auditor", "watcher", "root"})
OWNERS = ADMINISTRATORS | {"owner"}
MACHINE: dict[str, tuple[frozenset[str], str, Callable[[], object]]] = {
    # The principals that may; those that only read may not where the method changes something.
    "POST /v1/queues": (ADMINISTRATORS | {"user"}, "/v1/queues", lambda: {"name": f"made{next(made)}"}),
    "GET /v1/outgoing-queues": (EVERYBODY, "/v1/outgoing-queues", lambda: None),
    "GET /v1/outgoing-queues/{name}/connection-history": (
        EVERYBODY, f"/v1/outgoing-queues/{LATER}/connection-history", lambda: None,
    ),
    "GET /v1/outgoing-queues/{name}/transfer": (EVERYBODY, f"/v1/outgoing-queues/{LATER}/transfer", lambda: None),
    "POST /v1/outgoing-queues/{name}/pause": (ADMINISTRATORS, f"/v1/outgoing-queues/{LATER}/pause", lambda: None),
    "POST /v1/outgoing-queues/{name}/resume": (ADMINISTRATORS, f"/v1/outgoing-queues/{LATER}/resume", lambda: None),
    "GET /v1/jobs/{number}": (OWNERS, "/v1/jobs/{job}", lambda: None),
    "GET /v1/jobs/{number}/log": (OWNERS, "/v1/jobs/{job}/log", lambda: None),
    "POST /v1/jobs/{number}": (OWNERS, "/v1/jobs/{job}", lambda: {"action": "pause"}),
    "GET /v1/jobs": (EVERYBODY, "/v1/jobs", lambda: None),
    "GET /v1/dead-letters": (ADMINISTRATORS, "/v1/dead-letters", lambda: None),
    "POST /v1/dead-letters/retry": (ADMINISTRATORS, "/v1/dead-letters/retry", dict),
    "POST /v1/dead-letters/retry, one": (
        ADMINISTRATORS, "/v1/dead-letters/retry", lambda: {"messages": [NO_MESSAGE]},
    ),
    "GET /v1/dead-letters/export": (ADMINISTRATORS - {"watcher"}, "/v1/dead-letters/export", lambda: None),
    "GET /v1/keys": (EVERYBODY, "/v1/keys", lambda: None),
    "POST /v1/keys/reload": (ADMINISTRATORS, "/v1/keys/reload", lambda: None),
    "GET /v1/document": (frozenset({"auditor", "root"}), "/v1/document", lambda: None),
    "PUT /v1/document": (frozenset({"auditor", "root"}), "/v1/document?dry_run=true", lambda: {"queues": []}),
    "GET /v1/carries": (frozenset({"auditor", "root"}), "/v1/carries", lambda: None),
    "POST /v1/carries": (
        frozenset({"auditor", "root"}), "/v1/carries", lambda: {"source": "DIRECT=OS:old\\orders", "target": "q0"},
    ),
    "GET /v1/carries/{number}/ledger": (frozenset({"auditor", "root"}), "/v1/carries/1/ledger", lambda: None),
    "DELETE /v1/carries/{number}": (frozenset({"auditor", "root"}), "/v1/carries/1", lambda: None),
    "PUT /v1/carries/{number}/messages": (
        frozenset({"auditor", "root"}), "/v1/carries/1/messages", lambda: {"epoch": 1},
    ),
    "GET /v1/keys/rotation": (frozenset({"auditor", "root"}), "/v1/keys/rotation", lambda: None),
    "POST /v1/keys/rotation": (
        frozenset({"auditor", "root"}), "/v1/keys/rotation", lambda: {"action": "rotate", "version": 0},
    ),
    "GET /v1/node": (EVERYBODY, "/v1/node", lambda: None),
    "GET /v1/caller": (EVERYBODY, "/v1/caller", lambda: None),
    "GET /v1/audit": (frozenset({"auditor", "root"}), "/v1/audit", lambda: None),
    "PUT /v1/node/online": (ADMINISTRATORS, "/v1/node/online", lambda: {"online": True}),
    "GET /v1/quotas": (EVERYBODY, "/v1/quotas", lambda: None),
    "GET /v1/connections": (EVERYBODY, "/v1/connections", lambda: None),
    "GET /v1/waiting": (EVERYBODY, "/v1/waiting", lambda: None),
    "GET /v1/trace": (EVERYBODY, "/v1/trace?label=nothing", lambda: None),
    "GET /v1/transactions": (EVERYBODY, "/v1/transactions", lambda: None),
    "GET /healthz": (EVERYBODY, "/healthz", lambda: None),
    "GET /readyz": (EVERYBODY, "/readyz", lambda: None),
    "GET /openapi.json": (EVERYBODY, "/openapi.json", lambda: None),
}  # fmt: skip


def routes(app: FastAPI) -> set[str]:
    """The methods and paths that the application has, shown in its document or not."""
    found = set()
    for one in app.routes:
        for route in getattr(one, "original_router", app).routes if not hasattr(one, "methods") else [one]:
            found |= {f"{method} {route.path}" for method in route.methods - {"HEAD"}}
    return found


def test_every_route_has_a_row() -> None:
    assert routes(build_app(Context(None, None))) == {name.partition(",")[0] for name in (*ROWS, *MACHINE)}


def test_a_route_without_a_row_is_found() -> None:
    app = build_app(Context(None, None))
    app.routes.append(APIRoute("/v1/backdoor", lambda: None, methods=["POST"], include_in_schema=False))
    missing = routes(app) - {name.partition(",")[0] for name in (*ROWS, *MACHINE)}
    assert missing == {"POST /v1/backdoor"}


@pytest.fixture
async def managed(tmp_path: Path) -> AsyncIterator[Managed]:
    configure_log(LogSettings(level="error"))
    certificate, key = write_certificate(tmp_path)
    tokens = tmp_path / "tokens.yaml"
    lines = [
        {"name": name, "role": role, "sha256": digest(name)} | ({"principal": str(sid)} if sid is not None else {})
        for name, (role, sid, _) in TOKENS.items()
    ]
    tokens.write_text(json.dumps(lines))
    tokens.chmod(0o600)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        settings = ManagementSettings(
            socket=Path(folder) / "management.sock", mode=0o666, listen="127.0.0.1:0", tokens=tokens,
            certificate=certificate, private_key=key, audit_log=tmp_path / "audit.log",
        )  # fmt: skip
        async with QueueManager.open(tmp_path / "store", Settings(computer_name="ALPHA")) as manager:
            for name, text in NAMES.items():
                await manager.create_queue(
                    rf".\private$\{name}", security=described(DESCRIPTORS[text], DOMAIN.owner), journaling=True
                )
                async with await manager.open_queue(rf"DIRECT=OS:.\private$\{name}", Access.SEND) as out:
                    await out.send(Message(b"for the history"))
            await manager.open_queue(ELSEWHERE, Access.SEND)
            await manager.operations._history.sample()
            principals = Principals(manager.settings.security, Groups())
            server = ManagementServer(
                manager, settings, lambda: True, operations=manager.operations, principals=principals
            )
            await server.start()
            yield Managed(manager, server, tmp_path)
            await server.stop()


@pytest.fixture
async def clients(managed: Managed) -> AsyncIterator[dict[str, Client]]:
    async with AsyncExitStack() as stack:
        assert managed.server.address is not None and managed.settings.socket is not None
        found = {name: Client.over_tls(managed.server.address[1], managed.trust(), name) for name in TOKENS}
        found |= {name: Client.as_user(managed.settings.socket, user) for name, (user, _) in USERS.items()}
        for client in found.values():
            stack.callback(client.close)
        yield found


def tried_on(row: Row, who: Who) -> Iterable[tuple[str, Entries]]:
    """The queues to try a row on: of the descriptors about one right, those of its own rights.

    Few where the role alone refuses, which costs a connection each time.
    """
    if who.reads_only and row.method != "GET":
        yield from [(name, DESCRIPTORS[text]) for name, text in NAMES.items() if text in ("default", "open")]
        return
    for name, text in NAMES.items():
        single = text.startswith(("only ", "all but MQSEC"))
        if single and not row.rights & Right[text.rpartition(" ")[2]]:
            continue
        yield name, DESCRIPTORS[text]


async def test_no_denied_principal_succeeds_and_no_allowed_one_fails(
    managed: Managed, clients: dict[str, Client], capsys: pytest.CaptureFixture[str]
) -> None:
    matrix = Matrix("HTTP")
    for (operation, row), (principal, client) in product(ROWS.items(), clients.items()):
        who, answer = PRINCIPALS[principal], None
        for name, entries in tried_on(row, who):
            expected = allowed(entries, who, DOMAIN.owner, int(row.rights), repairs=row.repairs)
            expected &= not (
                who.reads_only and (row.method != "GET" or operation in ("GET /v1/failures", "GET /v1/messages/export"))
            )
            if answer is None or operation not in LISTS:
                answer = await client.ask(row.method, row.path(name), row.body(name))
                assert answer.status < 500 and answer.status not in (400, 405, 422, 429), (operation, answer)
            found = answer.status != 403 and row.granted(answer, name)
            matrix.count(f"{principal}, {operation}, {NAMES[name]}", expected, found)
            if found and operation == "DELETE /v1/queues/{name}":
                await managed.manager.create_queue(rf".\private$\{name}", security=described(entries, DOMAIN.owner))
    (job,) = await jobs_of(clients["owner"])
    for operation, (may, path, body) in MACHINE.items():
        for principal, client in clients.items():
            method = operation.partition(" ")[0]
            expected = principal in may and not (PRINCIPALS[principal].reads_only and method != "GET")
            answer = await client.ask(method, path.format(job=job), body())
            found = answer.status != 403
            if operation != "GET /v1/audit":  # whose entries name what was denied to others
                found &= "MQ_ERROR_ACCESS_DENIED" not in answer.text
            matrix.count(f"{principal}, {operation}", expected, found)
    with capsys.disabled():
        print(matrix.report())
    assert not matrix.wrong, "\n".join(matrix.wrong[:60])
    assert matrix.cells >= 2000


async def jobs_of(client: Client) -> list[int]:
    """A job of this client's own."""
    job = await client.ask("POST", "/v1/jobs", {"kind": "delete", "queues": ["q0"], "dry_run": True})
    return [job.json()["job"]]


async def test_a_list_has_only_the_jobs_of_its_caller(clients: dict[str, Client]) -> None:
    started: Any = await jobs_of(clients["owner"])
    seen = {name: (await client.ask("GET", "/v1/jobs")).json()["jobs"] for name, client in clients.items()}
    assert {name for name, jobs in seen.items() if [one["job"] for one in jobs] == started} == OWNERS


async def test_a_token_is_in_the_groups_of_its_sid(managed: Managed, clients: dict[str, Client]) -> None:
    """A denial of a group counts, over HTTP as everywhere, and it is remembered."""
    (name,) = [name for name, text in NAMES.items() if text == "all but a group"]
    answers = {who: (await clients[who].ask("GET", of("/messages")(name))).status for who in ("member", "stranger")}
    assert answers == {"member": 403, "stranger": 200}
    principals = managed.server.context.principals
    assert principals is not None
    begun = time.process_time()
    for _ in range(100):
        await principals.of_token("member", str(MEMBER))
    assert time.process_time() - begun < 0.1 * 100  # 1 ms each, on a machine that is a hundred times slower
