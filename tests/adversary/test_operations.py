"""Operations on messages: searches and their cursors, jobs, imports."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

import qmnode
from qmnode.administration.asker import Asker
from qmnode.security.access_check import Token
from qmnode.security.principals import Principal, unix_user
from qmnode.structures.security_descriptor import SecurityDescriptor
from tests.adversary.attacks import Area, attack
from tests.management import conftest as management
from tests.management.conftest import NAME, READER, Managed
from tests.remote_read.conftest import OPEN

managed, client = management.managed, management.client
"""Fixtures of that room's own tests."""
SECRET = r".\private$\secret"


def stranger(number: int = 3000) -> Asker:
    user = unix_user(number)
    return Asker(f"uid:{number}", principal=Principal(f"uid:{number}", user, Token.of(user)))


@pytest.fixture
async def qm(tmp_path: Path) -> AsyncIterator[qmnode.QueueManager]:
    async with qmnode.QueueManager.open(tmp_path / "store") as manager:
        nobody = SecurityDescriptor(owner=unix_user(1000)).with_dacl().write()
        await manager.create_queue(SECRET, security=nobody)
        await manager.create_queue(NAME, security=OPEN)
        for name, body in ((SECRET, b"the secret"), (NAME, b"an order")):
            async with await manager.open_queue(f"DIRECT=OS:{name}", qmnode.Access.SEND) as queue:
                await queue.send_many([qmnode.Message(body, label="l", recoverable=True)] * 3)
        yield manager


@attack(
    Area.OPERATIONS,
    can="search with patterns that match the queues of others, and with cursors that point into these queues",
    promised="the search returns no message, count or history of a queue that the caller may not read",
)
async def test_cursors_and_patterns_lead_into_no_other_queue(qm: qmnode.QueueManager) -> None:
    hidden = qm.names.find(SECRET)
    everything = await qm.operations.find(Asker("program"), ["*"], {})
    own = await qm.operations.find(stranger(), [NAME], {})
    cursors = [one["after"] for one in everything["found"]]
    forged = [f"{hidden.queue_id:x}.0", f"{hidden.queue_id:x}.1", "0.0", "ffffffff.ffffffffffffffff"]
    forged += ["-", f"-{hidden.queue_id:x}.ffffffffffffffff", "-0.0", "-ffffffff.0"]

    for cursor in ["", *cursors, *forged]:
        for names in (["*"], ["*secret*", NAME]):
            page = await qm.operations.find(stranger(), names, {}, cursor)
            assert {one["queue"] for one in page["found"]} <= {own["found"][0]["queue"]}, cursor
            assert page["total"] == own["total"] == 3
    for cursor in ("--1.0", "0.-1", "1.2.3", "g.0", "1" * 40, "0.0\n", "٣.٣", "../.."):
        with pytest.raises(qmnode.MessageQueuingError):
            await qm.operations.find(stranger(), [NAME], {}, cursor)
    with pytest.raises(qmnode.MessageQueuingError):
        await qm.operations.find(stranger(), [SECRET], {})
    assert len((await qm.operations.failures(stranger(), ["*"], ["queue"]))["groups"]) == 1


@attack(
    Area.OPERATIONS,
    can="start jobs over the queues of others; use the numbers of other people's jobs to see, pause or undo these "
    "jobs, or to read their logs",
    promised="a job touches only queues that its owner may read and write; the number of a job gives no right to it; "
    "the number of open jobs is limited",
)
async def test_jobs_give_no_right_that_their_owner_has_not(qm: qmnode.QueueManager) -> None:
    job = await qm.operations.start_job(Asker("uid:1000"), "copy", [NAME], target=NAME, dry_run=True)

    for kind, names, target in (
        ("delete", [SECRET], ""),
        ("move", [SECRET], NAME),
        ("copy", [NAME], SECRET),
        ("return", [NAME], SECRET),
        ("replay", [f"{SECRET};journal"], ""),
        ("move", [NAME], "../../etc/passwd\0"),
        ("move", [NAME], "x" * 513),
        ("shred", [NAME], ""),
    ):
        with pytest.raises(qmnode.MessageQueuingError):
            await qm.operations.start_job(stranger(), kind, names, target=target)
    for action in ("pause", "resume", "cancel", "undo", "__class__", ""):
        with pytest.raises(qmnode.MessageQueuingError):
            await qm.operations.control_job(stranger(), job["job"], action)
    for number in (job["job"], 0, -1, 1 << 80):
        with pytest.raises(qmnode.MessageQueuingError):
            await qm.operations.show_job(stranger(), number)
        with pytest.raises(qmnode.MessageQueuingError):
            await qm.operations.job_log(stranger(), number)
    assert await qm.operations.list_jobs(stranger()) == []
    assert (qm.names.find(SECRET).message_count, qm.names.find(NAME).message_count) == (3, 3)


@attack(
    Area.OPERATIONS,
    can="import data that is no packet, with false sizes, counts and depths, forged identifiers, and paths in place "
    "of queues",
    promised="the node refuses each one with an explanation and stores nothing; its memory stays bounded, and the "
    "next import works",
)
async def test_hostile_imports_are_refused_one_by_one(managed: Managed, client: httpx.AsyncClient) -> None:
    await managed.manager.create_queue(NAME)
    await managed.fill(b"x" * 100)
    async with await managed.manager.open_queue(f"DIRECT=OS:{NAME}", qmnode.Access.PEEK) as queue:
        packet = (await queue.peek(0)).packet
    larger = bytearray(packet)
    struct.pack_into("<I", larger, 8, 0xFFFFFFF0)  # the size that the base header claims
    hostile = [b"", b"\0", b"LIOR", packet[:-1], packet[:60], bytes(larger), b"\xff" * 5000, packet[::-1]]
    items = [{"packet": base64.b64encode(one).decode(), "target": "orders"} for one in hostile]
    names = ["../../etc/passwd", "DIRECT=OS:..\\..\\x", "DIRECT=TCP:0\\x", "a\0b", "PUBLIC=x", "system$;deadletter"]
    items += [{"packet": base64.b64encode(packet).decode(), "target": name} for name in names]

    results = []
    for item in items:
        answer = await client.post("/v1/messages/import", json={"messages": [item]})
        assert answer.status_code in (200, 422), (item, answer.text)
        results += answer.json().get("results", [{"result": "refused", "detail": answer.json().get("detail")}])
    deep = "[" * 50_000
    for content, status in (
        (deep, (400, 422)),
        (json.dumps({"messages": [items[-1]] * 501}), (413, 422)),
        (json.dumps({"messages": [{"packet": "A" * 200_000, "target": "orders"}]}), (413,)),
        ('{"messages": [{"packet": "' + "=" * 99 + '", "target": "orders"}]}', (200,)),  # an empty packet
    ):
        headers = {"Content-Type": "application/json"}
        answer = await client.post("/v1/messages/import", content=content, headers=headers)
        assert answer.status_code in status and '"sent"' not in answer.text, answer.text[:200]
    assert [one["result"] for one in results] == ["refused"] * len(items), results
    assert all(one["detail"] for one in results)
    assert (await managed.manager.queue(NAME)).message_count == 1

    good = {"packet": base64.b64encode(packet).decode(), "target": "orders"}
    sent = (await client.post("/v1/messages/import", json={"messages": [good, good]})).json()["results"]
    assert [one["result"] for one in sent] == ["sent", "known"]


@attack(
    Area.OPERATIONS,
    can="without the right to read bodies, search by bodies, values and headers, group failures, and export",
    promised="no answer, count or time depends on a body: the node refuses all of this before it looks at a message",
)
async def test_nothing_is_found_by_bodies_that_may_not_be_read(managed: Managed) -> None:
    await managed.manager.create_queue(NAME)
    await managed.fill(b'{"Secret": 7}')
    async with managed.tcp(READER) as reader:
        for path, query in (
            ("/v1/messages", {"where": "body=Secret"}),
            ("/v1/messages", {"where": "value.Secret=7"}),
            ("/v1/messages", {"where": "header.NServiceBus.FailedQ"}),
            ("/v1/messages", {"body": "decoded"}),
            ("/v1/messages/export", {}),
            ("/v1/failures", {}),
        ):
            for queue in ("orders", "*", "no-such*"):
                answer = await reader.get(path, params={"queue": queue, **query})
                assert answer.status_code == 403, (path, query, answer.text)
                assert "Secret" not in answer.text
        found = (await reader.get("/v1/messages", params={"queue": "orders"})).json()["found"][0]["message"]
    assert found["text"] is found["base64"] is found["decoded"] is found["extension"] is None
