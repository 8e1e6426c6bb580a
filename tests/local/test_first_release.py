"""Applications of the first release with a node of today, and the other way round."""

import asyncio
import json
import socket
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

import qmnode
from qmnode.local import values
from qmnode.local.asking import ask
from qmnode.local.frames import GREETING, PROTOCOL_VERSION, FrameKind, FrameReader, frame
from qmnode.local.remote import RemoteQueueManager
from qmnode.model.administration import IncomingSequenceInformation, NodeStatus, TransactionInformation
from qmnode.model.api import QueueInformation
from qmnode.structures.guid import Guid
from tests.local.conftest import FORMAT, NAME, Service

HELLO = bytes.fromhex("15000000 01 000000 01000000") + b'{"version":1}'
"""What the library of the first release sends, byte for byte."""
FIRST_RELEASE = {
    "$status": {
        "computer_name", "identifier", "online", "queue_count", "outgoing_queue_count", "message_count", "total_bytes",
        "dead_letter_count", "quota", "quota_used", "journal_quota", "journal_quota_used", "throttled",
        "transaction_count", "in_doubt_count", "journal_copies_dropped", "warnings",
    },
    "$queue": {
        "pathname", "format_name", "queue_type", "identifier", "private_queue_number", "label", "type", "journaling",
        "quota", "journal_quota", "authentication", "privacy_level", "transactional", "multicast_address",
        "base_priority", "create_time", "modify_time", "message_count", "total_bytes", "journal_message_count",
        "journal_total_bytes", "active", "subqueues", "state", "next_hops",
    },
    "$transaction": {"identifier", "state", "in_doubt", "operation_count", "queues"},
}  # fmt: skip
"""Fields of the types that travel; the constructors of the first release take no others."""


def call(number: int, method: str, *arguments: object) -> bytes:
    """A call as the first release makes it."""
    return frame(
        FrameKind.CALL, number, json.dumps(["manager", 0, method, arguments, {}], separators=(",", ":")).encode()
    )


def exchange(path: Path, *frames: bytes) -> list[Any]:
    """Send frames one after the other; the JSON of each answer."""
    answers = []
    with socket.socket(socket.AF_UNIX) as node:
        node.settimeout(30)
        node.connect(str(path))
        reader = FrameReader()
        for sent in frames:
            node.sendall(sent)
            while not (found := reader.feed(node.recv(65536))):
                pass
            assert found[0].kind == FrameKind.RESULT, found[0].body
            answers.append(json.loads(found[0].body))
    return answers


async def test_an_application_of_the_first_release_gets_the_fields_that_it_knows(service: Service) -> None:
    await service.manager.create_queue(NAME, transactional=True)
    async with service.manager.transaction() as tx, await service.manager.open_queue(FORMAT, qmnode.Access.SEND) as out:
        await out.send(qmnode.Message(b"1"), transaction=tx)
        hello, status, queue, queues, transactions = await asyncio.to_thread(
            exchange, service.socket, HELLO, call(2, "status"), call(3, "queue", NAME), call(4, "queues", None),
            call(5, "list_transactions"),
        )  # fmt: skip
    assert hello["version"] == 1
    assert hello["computer_name"] == service.manager.computer_name
    assert len(queues) > 1
    assert len(transactions) == 1
    for value in (status, queue, *queues, *transactions):
        ((tag, attributes),) = value.items()
        assert attributes.keys() == FIRST_RELEASE[tag]


async def test_an_application_of_today_gets_all_fields(service: Service, remote: RemoteQueueManager) -> None:
    expected = await service.manager.status()
    assert (await remote.status()).disk_bytes == expected.disk_bytes > 0
    assert (await asyncio.to_thread(ask, service.socket, "status"))["disk_bytes"] == expected.disk_bytes


@pytest.mark.parametrize("promise", [False, None, 1, "yes"])
async def test_only_a_plain_promise_counts(service: Service, promise: object) -> None:
    greeting = json.dumps({"version": PROTOCOL_VERSION, "added_fields": promise}).encode()
    _, status = await asyncio.to_thread(
        exchange, service.socket, frame(FrameKind.HELLO, 1, greeting), call(2, "status")
    )
    assert status["$status"].keys() == FIRST_RELEASE["$status"]


@pytest.mark.parametrize(
    ("kind", "tag"), [(NodeStatus, "$status"), (QueueInformation, "$queue"), (TransactionInformation, "$transaction")]
)
def test_fields_that_were_added_have_defaults(kind: type, tag: str) -> None:
    names = {field.name for field in fields(kind)}
    assert names >= FIRST_RELEASE[tag]
    added = [field for field in fields(kind) if field.name not in FIRST_RELEASE[tag]]
    assert [field.name for field in added if field.default is field.default_factory is MISSING] == []


async def test_answers_of_newer_nodes_are_read_without_what_is_unknown_here(service: Service) -> None:
    await service.manager.create_queue(NAME)
    sequence = IncomingSequenceInformation(Guid(bytes(16)), FORMAT, "10.0.0.1", 1, 2, 3, 4)
    for value in (await service.manager.status(), await service.manager.queue(NAME), sequence):
        newer = json.loads(values.encode(value))
        next(iter(newer.values()))["invented"] = 1
        assert values.decode(json.dumps(newer).encode()) == value


async def test_answers_of_a_node_of_the_first_release_are_read(service: Service) -> None:
    status = json.loads(values.encode(await service.manager.status()))
    status["$status"] = {name: status["$status"][name] for name in FIRST_RELEASE["$status"]}
    assert values.decode(json.dumps(status).encode()).disk_bytes == 0


async def test_a_node_of_the_first_release_is_not_asked_what_it_does_not_know(remote: RemoteQueueManager) -> None:
    of_first_release = {"version": 1, "computer_name": "ALPHA", "identifier": bytes(16)}
    await remote.create_queue(NAME)
    remote.line.hello = of_first_release
    assert await remote.incoming_sequences(r".\private$\none") == []
    remote.line.hello = of_first_release | GREETING
    with pytest.raises(qmnode.MessageQueuingError, match="QUEUE_NOT_FOUND"):
        await remote.incoming_sequences(r".\private$\none")
