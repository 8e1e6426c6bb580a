"""A consumer of NServiceBus fails. How an administrator finds out why, mends one message, and has all processed.

A manual page that runs: read it from top to bottom. ``docs/operations.md`` explains the commands.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import qmnode
from qmnode.bodies.choice import read_headers
from tests.lab.nodes import NodeProcess, running_node

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from qmnode.local.remote import RemoteQueueManager

pytestmark = [pytest.mark.servers]
SALES, ERROR = r".\private$\sales", r".\private$\error"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running_node(tmp_path / "node") as started:
        yield started


def headers_in_extension(**headers: str) -> bytes:
    """Headers as NServiceBus.Transport.Msmq writes them: XML, UTF-8, an array of header infos, and a NUL at the end."""
    infos = "".join(
        f"<HeaderInfo><Key>{name.replace('__', '.')}</Key><Value>{value}</Value></HeaderInfo>"
        for name, value in headers.items()
    )
    schema = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:xsd="http://www.w3.org/2001/XMLSchema"'
    return f'<?xml version="1.0"?><ArrayOfHeaderInfo {schema}>{infos}</ArrayOfHeaderInfo>\0'.encode()


def command(identifier: int, amount: str) -> qmnode.Message:
    """``PlaceOrder`` as an endpoint of NServiceBus sends it: JSON, body type 0, headers in the extension."""
    return qmnode.Message(
        json.dumps({"OrderId": identifier, "Amount": amount}).encode(),
        label="NServiceBus.EnclosedMessageTypes=Sales.PlaceOrder",
        extension=headers_in_extension(
            NServiceBus__MessageId=f"00000000-0000-0000-0000-{identifier:012d}",
            NServiceBus__EnclosedMessageTypes="Sales.PlaceOrder, Sales.Messages",
            NServiceBus__ContentType="application/json",
            NServiceBus__OriginatingEndpoint="Shop",
        ),
        recoverable=True,
    )


async def consume(qm: RemoteQueueManager) -> list[int]:
    """The endpoint ``sales``: takes orders, and moves failed ones to ``error``, as its recoverability does."""
    processed = []
    async with (
        await qm.open_queue(f"DIRECT=OS:{SALES}") as sales,
        await qm.open_queue(f"DIRECT=OS:{ERROR}", qmnode.Access.SEND) as error,
    ):
        while True:
            async with qm.transaction() as transaction:
                try:
                    message = await sales.receive(0, transaction)
                except qmnode.MessageQueuingError:
                    return processed
                order = json.loads(message.body)
                try:
                    float(order["Amount"])
                    processed.append(order["OrderId"])
                except ValueError as failure:
                    known = {
                        name.replace(".", "__"): value for name, value in read_headers(message.extension).values.items()
                    }
                    failed = headers_in_extension(
                        **known | {
                            "NServiceBus__FailedQ": "sales@ALPHA",
                            "NServiceBus__ExceptionInfo__ExceptionType": "System.FormatException",
                            "NServiceBus__ExceptionInfo__Message": str(failure),
                            "NServiceBus__TimeOfFailure": "2026-11-22 14:30:00:000000 Z",
                        }
                    )  # fmt: skip
                    await error.send(message.copy(extension=failed), transaction)


async def test_a_failing_consumer_is_found_mended_and_its_messages_are_processed(node: NodeProcess) -> None:
    # Five orders are placed. The consumer takes those that it understands; two fail.
    async with await node.connect() as qm:
        for name in (SALES, ERROR):
            await qm.create_queue(name, transactional=True)
        async with await qm.open_queue(f"DIRECT=OS:{SALES}", qmnode.Access.SEND) as sales:
            amounts = {1: "10", 2: "ten", 3: "30", 4: "ten", 5: "50"}
            for identifier, amount in amounts.items():
                await sales.send(command(identifier, amount), "single")
        assert await consume(qm) == [1, 3, 5]

    # Why did they fail? One group: its reason, its queue, how many, and the criteria that find it.
    told = node.command("message", "failures", "error", "--by", "exception", "--by", "queue", "--json")
    (group,) = (json.loads(line) for line in told.stdout.splitlines())
    assert group["exception"] == "System.FormatException: could not convert string to float: 'ten'"
    assert (group["queue"], group["count"], group["last_hour"]) == ("sales@ALPHA", 2, 2)

    # Look at them: decoded bodies, with their headers.
    where = [word for text in group["where"] for word in ("--where", text)]
    shown = node.command("message", "find", "error", *where, "--json")
    second, fourth = (json.loads(line) for line in shown.stdout.splitlines())
    assert (second["decoded"]["OrderId"], fourth["decoded"]["OrderId"]) == (2, 4)
    assert second["headers"]["NServiceBus.OriginatingEndpoint"] == "Shop"

    # Mend one. What is lost is said before anything is done.
    lookup = second["lookup_identifier"]
    mended = '{"OrderId": 2, "Amount": "20"}'
    dry = node.command("message", "edit", "error", lookup, "--value", mended, "--dry-run")
    assert "another identifier" in dry.stderr and "nothing is changed" in dry.stderr
    assert node.command("message", "edit", "error", lookup, "--value", mended).returncode == 0

    # Return all to where they failed: first as a dry run, then in earnest.
    dry = node.command("message", "return", "error", *where, "--dry-run")
    assert dry.stderr.count("sales") == 2 and dry.returncode == 0
    returned = node.command("message", "return", "error", *where)
    assert "2 messages returned" in returned.stderr and returned.returncode == 0

    # The consumer processes the mended order. The other one fails again, and is still nowhere lost.
    async with await node.connect() as qm:
        assert await consume(qm) == [2]
        assert [(await qm.queue(name)).message_count for name in (SALES, ERROR)] == [0, 1]

    # Mend that one as well, and return it by its lookup identifier: everything is processed, nothing twice.
    (left,) = (json.loads(line) for line in node.command("message", "find", "error", "--json").stdout.splitlines())
    mended = '{"OrderId": 4, "Amount": "40"}'
    assert node.command("message", "edit", "error", left["lookup_identifier"], "--value", mended).returncode == 0
    assert node.command("message", "return", "error", "--all").returncode == 0
    async with await node.connect() as qm:
        assert await consume(qm) == [4]
        assert [(await qm.queue(name)).message_count for name in (SALES, ERROR)] == [0, 0]
