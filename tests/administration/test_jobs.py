"""Jobs over messages: each operation, dry runs, logs, pause, cancel and undo, and what a restart leaves of them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import qmnode
from qmnode.administration.asker import Asker
from qmnode.errors import MessageQueuingError
from qmnode.model.message import Message
from qmnode.storage.errors import StoreError
from qmnode.storage.store import Store

ASKER = Asker("uid:1000")


@pytest.fixture
async def qm(tmp_path: Path) -> AsyncIterator[qmnode.QueueManager]:
    async with qmnode.QueueManager.open(tmp_path / "store") as manager:
        for name in ("orders", "later"):
            await manager.create_queue(rf".\private$\{name}", journaling=True)
        for name in ("tx", "txlater"):
            await manager.create_queue(rf".\private$\{name}", transactional=True)
        yield manager


async def send(qm: qmnode.QueueManager, name: str, *messages: Message) -> None:
    unit = "single" if (await qm.queue(rf".\private$\{name}")).transactional else None
    async with await qm.open_queue(rf"DIRECT=OS:.\private$\{name}", qmnode.Access.SEND) as queue:
        await queue.send_many(messages, unit)  # type: ignore[arg-type]


def numbered(count: int, **properties: Any) -> list[Message]:
    return [Message(b"%d" % number, label=f"m{number}", recoverable=True, **properties) for number in range(count)]


def labels(qm: qmnode.QueueManager, name: str) -> list[str]:
    from qmnode.model.stored_message import received_message

    queue = qm.names.find(name if "\\" in name or "=" in name else rf".\private$\{name}")
    return [received_message(*entry).label for entry in queue.scan()]


async def finished(qm: qmnode.QueueManager, number: int) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            job = await qm.operations.show_job(ASKER, number)
            if job["state"] != "running":
                return job
            await asyncio.sleep(0.01)  # Jobs give way to a loop that has something to do.


async def run(qm: qmnode.QueueManager, kind: str, *queues: str, **options: Any) -> dict[str, Any]:
    criteria = options.pop("criteria", None)
    job = await qm.operations.start_job(ASKER, kind, queues, criteria, **options)
    return await finished(qm, job["job"])


async def log(qm: qmnode.QueueManager, number: int) -> list[dict[str, Any]]:
    return list((await qm.operations.job_log(ASKER, number))["entries"])


async def test_a_move_keeps_everything_and_its_undo_brings_all_back(qm: qmnode.QueueManager) -> None:
    await send(qm, "orders", *numbered(5, correlation_identifier=b"\7" * 20, extension=b"headers"))
    before = list(qm.names.find(r".\private$\orders").scan())

    job = await run(qm, "move", "orders", target="later")

    assert (job["state"], job["done"], job["failed"]) == ("done", 5, 0)
    assert labels(qm, "orders") == [] and labels(qm, "later") == [f"m{number}" for number in range(5)]
    after = list(qm.names.find(r".\private$\later").scan())
    assert [(lookup, value[20:]) for lookup, value in after] == [(lookup, value[20:]) for lookup, value in before]
    assert labels(qm, r".\private$\orders;journal") == [], "a move is no receive"

    undone = await qm.operations.control_job(ASKER, job["job"], "undo")
    assert (await finished(qm, undone["job"]))["done"] == 5
    assert labels(qm, "later") == [] and labels(qm, "orders") == [f"m{number}" for number in range(5)]
    with pytest.raises(MessageQueuingError, match="nothing that can be taken back"):
        await qm.operations.control_job(ASKER, job["job"], "undo")


async def test_only_what_the_criteria_find_is_moved_and_the_log_says_which(qm: qmnode.QueueManager) -> None:
    await send(qm, "orders", *numbered(4))

    job = await run(qm, "move", "orders", target="later", criteria={"label": "m2"})

    assert labels(qm, "later") == ["m2"] and labels(qm, "orders") == ["m0", "m1", "m3"]
    (entry,) = await log(qm, job["job"])
    assert entry["result"] == "moved" and entry["way"] == "as it is" and entry["target"].endswith("later")


async def test_selected_messages_are_moved_and_those_that_are_gone_are_named(qm: qmnode.QueueManager) -> None:
    await send(qm, "orders", *numbered(3))
    places = [lookup for lookup, _ in qm.names.find(r".\private$\orders").scan()]

    job = await run(qm, "move", "orders", target="later", lookups=[places[2], places[0], 77, places[2]])

    assert labels(qm, "orders") == ["m1"] and sorted(labels(qm, "later")) == ["m0", "m2"]
    assert (job["done"], job["failed"], job["total"]) == (2, 1, 3)
    assert {entry["result"] for entry in await log(qm, job["job"])} == {"moved", "gone"}


async def test_a_dry_run_changes_nothing_and_says_what_it_would(qm: qmnode.QueueManager) -> None:
    await send(qm, "orders", *numbered(3))

    job = await run(qm, "move", "orders", target="tx", dry_run=True)

    assert (job["done"], job["undoable"]) == (3, False)
    assert [entry["way"] for entry in await log(qm, job["job"])] == ["sent anew"] * 3
    assert labels(qm, "orders") == ["m0", "m1", "m2"] and labels(qm, "tx") == []


async def test_a_dry_run_of_a_deletion_names_no_way_and_no_target(qm: qmnode.QueueManager) -> None:
    await send(qm, "orders", *numbered(2))

    job = await run(qm, "delete", "orders", dry_run=True)

    assert job["done"] == 2 and labels(qm, "orders") == ["m0", "m1"]
    entries = await log(qm, job["job"])
    assert {entry["result"] for entry in entries} == {"would be done"}
    assert not any("way" in entry or "target" in entry for entry in entries)


async def test_a_dry_run_to_another_machine_leaves_no_outgoing_queue_behind(qm: qmnode.QueueManager) -> None:
    await send(qm, "orders", *numbered(2))
    known = r"DIRECT=OS:BETA\private$\known"
    await (await qm.open_queue(known, qmnode.Access.SEND)).close()

    for target in (known, r"BETA\private$\new", r"BETA\private$\orders"):
        job = await run(qm, "move", "orders", target=target, dry_run=True)
        assert job["done"] == 2
    async with asyncio.timeout(60):
        while [queue.pathname for queue in qm.names.all_outgoing()] != [known]:  # the job ends just after its state
            await asyncio.sleep(0.01)

    await run(qm, "move", "orders", target=r"BETA\private$\new")
    assert labels(qm, r"DIRECT=OS:BETA\private$\new") == ["m0", "m1"]


async def test_a_copy_leaves_the_original_and_its_undo_takes_the_copies(qm: qmnode.QueueManager) -> None:
    await send(qm, "orders", *numbered(3))

    job = await run(qm, "copy", "orders", target="later")
    assert labels(qm, "orders") == labels(qm, "later") == ["m0", "m1", "m2"]
    async with await qm.open_queue(r"DIRECT=OS:.\private$\later") as queue:
        await queue.receive(0)
    undone = await qm.operations.control_job(ASKER, job["job"], "undo")
    undone = await finished(qm, undone["job"])

    assert (undone["done"], undone["failed"]) == (2, 1)
    assert labels(qm, "orders") == ["m0", "m1", "m2"] and labels(qm, "later") == []


async def test_a_copy_into_the_same_queue_ends(qm: qmnode.QueueManager) -> None:
    await send(qm, "orders", *numbered(3))

    assert (await run(qm, "copy", "orders", target="orders"))["done"] == 3
    assert labels(qm, "orders") == ["m0", "m1", "m2"] * 2


async def test_what_comes_after_the_start_is_left_alone(qm: qmnode.QueueManager) -> None:
    await send(qm, "orders", *numbered(2))
    job = await qm.operations.start_job(ASKER, "move", ["orders"], target="later")
    await send(qm, "orders", Message(b"", label="late"))

    assert (await finished(qm, job["job"]))["done"] == 2
    assert labels(qm, "orders") == ["late"]


async def test_long_jobs_let_a_short_one_of_another_owner_end_before_them(
    qm: qmnode.QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qmnode.administration.jobs._SLICE", 0)
    await send(qm, "orders", *numbered(400))
    await send(qm, "tx", *numbered(1))

    long = [await qm.operations.start_job(ASKER, "copy", ["orders"], target="later", dry_run=True) for _ in range(5)]
    short = await qm.operations.start_job(Asker("uid:1001"), "move", ["tx"], target="txlater")
    async with asyncio.timeout(60):
        while (await qm.operations.show_job(Asker("uid:1001"), short["job"]))["state"] == "running":
            await asyncio.sleep(0)

    states = [(await qm.operations.show_job(ASKER, job["job"]))["state"] for job in long]
    assert states == ["running"] * 5 and labels(qm, "txlater") == ["m0"]
    assert [(await finished(qm, job["job"]))["done"] for job in long] == [400] * 5


async def test_deleting_is_as_a_purge_and_cannot_be_undone(qm: qmnode.QueueManager) -> None:
    await send(qm, "orders", *numbered(2), Message(b"", label="kept", negative_journaling_requested=True))

    job = await run(qm, "delete", "orders", criteria={"label": "*[0-9]*"})
    assert job["done"] == 0, "a bracket stands for itself"
    job = await run(qm, "delete", "orders")

    assert job["done"] == 3 and labels(qm, "orders") == []
    assert labels(qm, r".\system$;deadletter") == ["kept"]
    with pytest.raises(MessageQueuingError, match="nothing that can be taken back"):
        await qm.operations.control_job(ASKER, job["job"], "undo")


async def test_messages_between_transactional_and_other_queues_are_sent_anew(qm: qmnode.QueueManager) -> None:
    await send(qm, "orders", *numbered(3, extension=b"headers", app_specific=7))

    assert (await run(qm, "move", "orders", target="tx"))["done"] == 3
    assert labels(qm, "orders") == [] and labels(qm, "tx") == ["m0", "m1", "m2"]
    async with await qm.open_queue(r"DIRECT=OS:.\private$\tx") as queue, qm.transaction() as unit:
        message = await queue.receive(0, unit)
        assert message.transactional and message.first_in_transaction and message.last_in_transaction
        assert (message.extension, message.app_specific) == (b"headers", 7)
    assert (await run(qm, "move", "tx", target="later"))["done"] == 2
    assert labels(qm, "later") == ["m1", "m2"]


async def test_failed_messages_return_to_where_their_headers_say(qm: qmnode.QueueManager) -> None:
    def failed(label: str, address: str) -> Message:
        return Message.from_value("{}", format="nservicebus", headers={"NServiceBus.FailedQ": address}, label=label)

    await send(
        qm, "tx", failed("a", f"txlater@{qm.computer_name}"), failed("b", "orders"), failed("c", "no such\\@"),
        Message(b"", label="d"),
    )  # fmt: skip

    job = await run(qm, "return", "tx")

    assert (job["done"], job["failed"]) == (2, 2)
    assert (labels(qm, "txlater"), labels(qm, "orders"), labels(qm, "tx")) == (["a"], ["b"], ["c", "d"])
    assert [entry["result"] for entry in await log(qm, job["job"])] == ["moved", "moved", "failed", "failed"]


async def test_dead_letters_and_poison_return(qm: qmnode.QueueManager) -> None:
    await send(qm, "orders", Message(b"", label="dead", negative_journaling_requested=True, recoverable=True))
    async with await qm.open_queue(r"DIRECT=OS:.\private$\orders") as queue:
        await queue.purge()
    await send(qm, "orders", Message(b"", label="aside", recoverable=True))
    assert (await run(qm, "move", "orders", target="orders;poison"))["done"] == 1

    assert (await run(qm, "return", r"system$;deadletter"))["done"] == 1
    assert (await run(qm, "return", "orders;poison"))["done"] == 1

    assert labels(qm, "orders") == ["aside", "dead"], "what was moved has its old place"


async def test_a_journal_is_replayed_into_its_queue(qm: qmnode.QueueManager) -> None:
    await send(qm, "orders", *numbered(3))
    async with await qm.open_queue(r"DIRECT=OS:.\private$\orders") as queue:
        await queue.receive_many(3, 0)

    job = await run(qm, "replay", "orders;journal", criteria={"label": "m1"})

    assert job["done"] == 1 and labels(qm, "orders") == ["m1"]
    assert labels(qm, r".\private$\orders;journal") == ["m0", "m1", "m2"]
    assert (await run(qm, "replay", "orders"))["failed"] == 1, "only journals are replayed"


async def test_a_move_to_another_machine_waits_in_the_outgoing_queue(qm: qmnode.QueueManager) -> None:
    await send(qm, "tx", *numbered(2))
    outgoing = r"DIRECT=OS:BETA\private$\tx"

    job = await run(qm, "move", "tx", target=outgoing)

    assert job["done"] == 2 and labels(qm, "tx") == [] and labels(qm, outgoing) == ["m0", "m1"]
    numbers = [m.transaction_sequence_number for m in await _peek_all(qm, outgoing)]
    assert numbers == [1, 2]
    assert {entry["detail"].rpartition("look in ")[2] for entry in await log(qm, job["job"])} == {
        "the dead letters of this node"
    }
    back = await run(qm, "move", outgoing, target="txlater")
    assert back["done"] == 2 and labels(qm, "txlater") == ["m0", "m1"]


async def test_what_leaves_for_another_machine_becomes_a_dead_letter_if_there_is_no_such_queue(
    qm: qmnode.QueueManager,
) -> None:
    await send(qm, "orders", *numbered(2))
    target = r"BETA\private$\mistyped"

    rehearsal = await run(qm, "copy", "orders", target=target, dry_run=True)
    job = await run(qm, "copy", "orders", target=target)

    for one in (rehearsal, job):
        details = [entry["detail"] for entry in await log(qm, one["job"])]
        assert [detail.rpartition("look in ")[2] for detail in details] == ["the dead letters of that machine"] * 2
    assert all(m.negative_journaling_requested for m in await _peek_all(qm, f"DIRECT=OS:{target}"))
    at_home = await run(qm, "copy", "orders", target="tx")
    assert not any(m.negative_journaling_requested for m in await _peek_all(qm, r".\private$\tx"))
    assert not any(entry.get("detail") for entry in await log(qm, at_home["job"]))


async def test_a_target_that_this_node_does_not_have_is_refused_with_a_sentence(qm: qmnode.QueueManager) -> None:
    await send(qm, "orders", *numbered(1))

    for target in ("mistyped", rf"{qm.computer_name}\private$\mistyped"):
        with pytest.raises(MessageQueuingError, match=r"has no queue .*mistyped: create it first") as refused:
            await qm.operations.start_job(ASKER, "copy", ["orders"], target=target)
        assert refused.value.name == "MQ_ERROR_QUEUE_NOT_FOUND"
    assert labels(qm, "orders") == ["m0"]


async def _peek_all(qm: qmnode.QueueManager, name: str) -> list[Message]:
    from qmnode.model.stored_message import received_message

    return [received_message(*entry) for entry in qm.names.find(name).scan()]


async def test_a_full_target_pauses_the_job_and_nothing_is_lost(qm: qmnode.QueueManager) -> None:
    await qm.set_queue(r".\private$\later", quota=2)
    await send(qm, "orders", *(Message(b"x" * 400, label=f"m{number}", recoverable=True) for number in range(10)))

    job = await run(qm, "move", "orders", target="later")

    assert job["state"] == "paused" and "quota" in job["reason"] and 0 < job["done"] < 10
    assert labels(qm, "later") + labels(qm, "orders") == [f"m{number}" for number in range(10)]
    await qm.set_queue(r".\private$\later", quota=1000)
    await qm.operations.control_job(ASKER, job["job"], "resume")
    assert (await finished(qm, job["job"]))["done"] == 10
    assert labels(qm, "later") == [f"m{number}" for number in range(10)]


async def test_pause_resume_and_cancel_leave_what_they_say(qm: qmnode.QueueManager) -> None:
    await send(qm, "orders", *numbered(1000))
    job = await qm.operations.start_job(ASKER, "move", ["orders"], target="later")

    paused = await qm.operations.control_job(ASKER, job["job"], "pause")
    moved = len(labels(qm, "later"))
    assert paused["state"] == "paused" and moved == paused["done"] < 1000
    assert (await qm.operations.control_job(ASKER, job["job"], "resume"))["state"] == "running"
    cancelled = await qm.operations.control_job(ASKER, job["job"], "cancel")

    assert cancelled["state"] == "cancelled" and cancelled["done"] == len(labels(qm, "later"))
    assert labels(qm, "later") + labels(qm, "orders") == [f"m{number}" for number in range(1000)]
    with pytest.raises(MessageQueuingError, match="can no longer be changed"):
        await qm.operations.control_job(ASKER, job["job"], "resume")


@pytest.mark.parametrize(
    ("kind", "queues", "options", "word"),
    [
        ("move", ["orders"], {}, "into which queue"),
        ("shred", ["orders"], {}, "no operation"),
        ("move", ["missing"], {"target": "later"}, "no queue"),
        ("move", ["orders"], {"target": "missing"}, "no queue"),
        ("move", ["orders"], {"target": "orders;journal"}, "journal"),
        ("move", ["orders"], {"target": r"system$;deadletter"}, "cannot be sent to"),
        ("move", ["orders"], {"target": "later", "lookups": [-1]}, "64 bits"),
        ("move", ["orders"], {"target": "later", "lookups": [True]}, "64 bits"),
        ("move", ["orders", "later"], {"target": "tx", "lookups": [1]}, "one queue"),
        ("delete", ["orders"], {"target": "later"}, "no target"),
        ("move", [], {"target": "later"}, "1 to 1000"),
        ("move", ["orders"], {"target": "later", "criteria": {"colour": "red"}}, "colour"),
        ("move", ["orders"], {"target": r"DIRECT=OS:.\private$\later,DIRECT=OS:.\private$\tx"}, "name one"),
    ],
)
async def test_a_job_that_cannot_be_is_refused_at_once(
    qm: qmnode.QueueManager, kind: str, queues: list[str], options: dict[str, Any], word: str
) -> None:
    with pytest.raises(MessageQueuingError) as refused:
        await qm.operations.start_job(ASKER, kind, queues, options.pop("criteria", None), **options)

    assert word in str(refused.value)
    assert await qm.operations.list_jobs(ASKER) == []


async def test_a_job_goes_on_after_a_restart_and_its_log_is_whole(tmp_path: Path) -> None:
    async with qmnode.QueueManager.open(tmp_path / "store") as qm:
        await qm.create_queue(r".\private$\orders")
        await qm.create_queue(r".\private$\later")
        await send(qm, "orders", *numbered(1500))
        job = await qm.operations.start_job(ASKER, "move", ["orders"], target="later")
        while not labels(qm, "later"):
            await asyncio.sleep(0)
        assert 0 < len(labels(qm, "later")) < 1500
    async with qmnode.QueueManager.open(tmp_path / "store") as qm:
        assert (await finished(qm, job["job"]))["done"] == 1500
        assert labels(qm, "later") == [f"m{number}" for number in range(1500)]
        assert len(await log(qm, job["job"])) == 1500


async def test_a_job_in_a_copy_of_its_store_waits_to_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def rest_for_ever(pace: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("qmnode.administration.jobs.Pace.rest", rest_for_ever)
    async with qmnode.QueueManager.open(tmp_path / "store") as qm:
        await qm.create_queue(r".\private$\orders")
        await send(qm, "orders", *numbered(1500))
        await qm.operations.start_job(ASKER, "copy", ["orders"], target=r"DIRECT=OS:BETA\private$\orders")
        await qm.backup(tmp_path / "copy")
    async with qmnode.QueueManager.open(tmp_path / "copy") as qm:
        (job,) = await qm.operations.list_jobs(ASKER)
        assert job["state"] == "paused" and "restored" in job["reason"]


async def test_an_older_release_refuses_a_store_with_jobs_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with qmnode.QueueManager.open(tmp_path / "store") as qm:
        await qm.create_queue(r".\private$\orders")
        assert qm.store.get_meta("format_version") == bytes((0, 0, 0, 1))
        await run(qm, "delete", "orders")
    monkeypatch.setattr("qmnode.storage.store.NEWEST_FORMAT", 2)

    with pytest.raises(StoreError, match="has format 3, and this program reads up to 2"):
        Store.open(tmp_path / "store")


async def test_who_has_limited_rights_sees_and_changes_only_own_jobs(qm: qmnode.QueueManager) -> None:
    class Nobody:
        pass

    class Principal:
        administrator = True

    await send(qm, "orders", *numbered(2))
    job = await run(qm, "delete", "orders")
    stranger = Asker("uid:2000", principal=Nobody())

    assert await qm.operations.list_jobs(stranger) == []
    for action in ("pause", "cancel", "undo"):
        with pytest.raises(MessageQueuingError, match="belongs to"):
            await qm.operations.control_job(stranger, job["job"], action)
    for helper in (Asker("uid:3000", principal=Principal()), Asker("uid:1000", principal=Nobody())):
        assert [one["job"] for one in await qm.operations.list_jobs(helper)] == [job["job"]]
    for forged in (0, -1, 99, "1", None, [1]):
        with pytest.raises(MessageQueuingError, match="no job"):
            await qm.operations.show_job(ASKER, forged)  # type: ignore[arg-type]
