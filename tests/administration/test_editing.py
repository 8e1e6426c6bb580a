"""Editing, exporting, importing and grouping messages, through the engine of a running queue manager."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import qmnode
from qmnode.administration.asker import Asker
from qmnode.administration.where import parse_where
from qmnode.errors import MessageQueuingError
from qmnode.model.message import Message
from qmnode.model.stored_message import received_message
from tests.administration.test_jobs import labels, run, send

ASKER = Asker("uid:1000")
FAILED = {
    "NServiceBus.FailedQ": "sales@.",
    "NServiceBus.ExceptionInfo.ExceptionType": "System.TimeoutException",
    "NServiceBus.ExceptionInfo.Message": "The bank did not answer",
    "NServiceBus.OriginatingEndpoint": "shop",
}


@pytest.fixture
async def qm(tmp_path: Path) -> AsyncIterator[qmnode.QueueManager]:
    async with qmnode.QueueManager.open(tmp_path / "store") as manager:
        for name in ("sales", "error"):
            await manager.create_queue(rf".\private$\{name}", transactional=True)
        await manager.create_queue(r".\private$\plain")
        yield manager


def only(qm: qmnode.QueueManager, name: str) -> Message:
    ((lookup, value),) = qm.names.find(rf".\private$\{name}").scan()
    return received_message(lookup, value)


def failed(number: int, **headers: str) -> Message:
    return Message.from_value({"Id": number}, format="nservicebus", headers=FAILED | headers, label=f"m{number}")


async def edit(qm: qmnode.QueueManager, name: str, changes: dict[str, Any], **options: Any) -> dict[str, Any]:
    lookup = only(qm, name).lookup_identifier
    return await qm.operations.edit(ASKER, rf".\private$\{name}", lookup, changes, **options)


async def test_an_edited_message_takes_the_place_of_the_old_one(qm: qmnode.QueueManager) -> None:
    await send(qm, "error", failed(7))
    before = only(qm, "error")

    planned = await edit(qm, "error", {"value": {"Id": 8}}, dry_run=True)
    assert only(qm, "error").packet == before.packet
    answer = await edit(qm, "error", {"value": {"Id": 8}, "headers": {"Retries": "0", "NServiceBus.FailedQ": None}})

    after = only(qm, "error")
    assert planned["lost"] == answer["lost"] and any("transaction" in one for one in answer["lost"])
    assert json.loads(after.body) == {"Id": 8} and after.label == "m7" and after.identifier != before.identifier
    assert after.headers["Retries"] == "0" and "NServiceBus.FailedQ" not in after.headers
    assert answer["to_lookup"] == after.lookup_identifier and answer["identifier"] == after.identifier.hex()


async def test_a_kept_message_stays_beside_its_edited_copy(qm: qmnode.QueueManager) -> None:
    await send(qm, "plain", Message(b"a", label="a"))

    await edit(qm, "plain", {"label": "b", "body": b"bytes"}, target=r".\private$\sales", keep=True)

    assert labels(qm, "plain") == ["a"] and only(qm, "sales").label == "b" and only(qm, "sales").body == b"bytes"


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, "nothing is changed"),
        ({"identifier": b"x" * 20}, "cannot be edited"),
        ({"label": 7}, "label=7: expected text"),
        ({"label": "x" * 300}, "label"),
        ({"priority": True}, "priority=True: expected 0 to 7"),
        ({"priority": 9, "body": b""}, "priority"),
        ({"correlation_identifier": b"short"}, "20 bytes"),
        ({"value": {"a": 1}, "format": "VT_NOTHING"}, "VT_NOTHING"),
        ({"headers": ["x"]}, "names with values"),
        ({"headers": {"x": 7}}, "headers are text"),
    ],
)
async def test_an_edit_that_cannot_be_is_refused_and_the_message_stays(
    qm: qmnode.QueueManager, changes: dict[str, Any], word: str
) -> None:
    await send(qm, "plain", Message(b"{}", label="a"))

    with pytest.raises(MessageQueuingError, match=word):
        await edit(qm, "plain", changes)

    assert labels(qm, "plain") == ["a"]


async def test_an_import_sends_each_message_once(qm: qmnode.QueueManager) -> None:
    await send(qm, "plain", *(Message(b"%d" % number, label=f"m{number}", app_specific=number) for number in range(3)))
    packets = [received_message(*entry).packet for entry in qm.names.find(r".\private$\plain").scan()]
    items = [{"packet": packet, "target": r".\private$\sales"} for packet in (*packets, packets[0])]

    planned = await qm.operations.import_messages(ASKER, items, dry_run=True)
    first = await qm.operations.import_messages(ASKER, items)
    second = await qm.operations.import_messages(ASKER, items)
    again = await qm.operations.import_messages(ASKER, items[:1], again=True)

    assert [one["result"] for one in planned] == ["would be sent"] * 3 + ["known"]
    assert [one["result"] for one in first] == ["sent"] * 3 + ["known"]
    assert {one["result"] for one in second} == {"known"} and again[0]["result"] == "sent"
    assert labels(qm, "sales") == ["m0", "m1", "m2", "m0"]


async def test_forged_and_broken_imports_are_refused_one_by_one(qm: qmnode.QueueManager) -> None:
    await send(qm, "plain", Message(b"x", label="sound"))
    packet = only(qm, "plain").packet
    items: list[dict[str, Any]] = [
        {"packet": b"", "target": r".\private$\sales"},
        {"packet": packet[:-9], "target": r".\private$\sales"},
        {"packet": b"\xff" * 200, "target": r".\private$\sales"},
        {"packet": packet, "target": ""},
        {"packet": packet, "target": "../../etc/passwd"},
        {"packet": packet, "target": r".\private$\missing"},
        {"packet": packet, "target": r".\system$;deadletter"},
        {"packet": "text", "target": r".\private$\sales"},
        {},
        {"packet": packet, "target": r".\private$\sales"},
    ]

    results = await qm.operations.import_messages(ASKER, items)

    assert [one["result"] for one in results] == ["refused"] * 9 + ["sent"]
    assert all(one["detail"] for one in results[:9]) and labels(qm, "sales") == ["sound"]
    for wrong in ("text", [7], [{}] * 501):
        with pytest.raises(MessageQueuingError, match="MQ_ERROR_INVALID_PARAMETER"):
            await qm.operations.import_messages(ASKER, wrong)  # type: ignore[arg-type]


async def test_a_failing_consumer_is_repaired_like_in_the_manual(qm: qmnode.QueueManager) -> None:
    # A consumer fails as one of NServiceBus does: its messages go to the queue "error" with headers that say why.
    bank = [failed(number) for number in range(3)]
    broken = failed(3, **{"NServiceBus.ExceptionInfo.ExceptionType": "System.FormatException"})
    await send(qm, "error", *bank, broken)

    # The groups show two troubles, the larger first, with what finds each.
    result = await qm.operations.failures(ASKER, ["error*"], ["exception", "queue"])
    timeout, format_error = result["groups"]
    assert (timeout["count"], timeout["last_hour"], format_error["count"]) == (3, 3, 1)
    assert timeout["exception"] == "System.TimeoutException: The bank did not answer"
    assert timeout["queue"] == "sales@." and timeout["first"] <= timeout["last"]

    # The message that nobody can read is edited where it is.
    found = await qm.operations.find(ASKER, ["error"], parse_where(format_error["where"], 0))
    lookup = found["found"][0]["lookup"]
    await qm.operations.edit(ASKER, r".\private$\error", lookup, {"value": {"Id": 3}})

    # The bank works again: one group is returned, then all that is left.
    job = await run(qm, "return", "error", criteria=parse_where(timeout["where"], 0))
    assert (job["done"], job["failed"]) == (3, 0)
    assert (await run(qm, "return", "error"))["done"] == 1

    # The consumer processes all of them.
    processed = []
    async with await qm.open_queue(r"DIRECT=OS:.\private$\sales") as queue:
        for _ in range(4):
            async with qm.transaction() as unit:
                processed.append(json.loads((await queue.receive(0, unit)).body)["Id"])
    assert processed == [0, 1, 2, 3] and labels(qm, "error") == []


async def test_dead_letters_are_grouped_by_their_class_and_sender(qm: qmnode.QueueManager) -> None:
    await send(qm, "plain", *(Message(b"", negative_journaling_requested=True, recoverable=True) for _ in range(2)))
    async with await qm.open_queue(r"DIRECT=OS:.\private$\plain") as queue:
        await queue.purge()

    result = await qm.operations.failures(ASKER, ["system$;dead*"], ["reason", "sender"])

    (group,) = result["groups"]
    assert (group["reason"], group["count"]) == ("NACK_Q_PURGED", 2)
    with pytest.raises(MessageQueuingError, match="grouped by"):
        await qm.operations.failures(ASKER, ["*"], ["colour"])
    with pytest.raises(MessageQueuingError, match="may not read"):
        await qm.operations.failures(Asker("reader", reads_bodies=False), ["*"], ["reason"])


@pytest.mark.parametrize("form", [["a"], {"a": 1}, 7])
async def test_the_format_of_an_edited_value_is_a_name(qm: qmnode.QueueManager, form: object) -> None:
    await send(qm, "plain", Message(b"one"))
    lookup = only(qm, "plain").lookup_identifier
    with pytest.raises(MessageQueuingError, match="format is the name of one"):
        await qm.operations.edit(ASKER, r".\private$\plain", lookup, {"value": "x", "format": form})
