"""Each row of the table of promises, tried: what arrives, where, how often, and which properties it has."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

import qmnode
from qmnode.administration.promises import QueueRole, TransferMode, promise
from qmnode.errors import MessageQueuingError
from qmnode.model.message import Message
from qmnode.model.stored_message import received_message
from tests.administration.test_jobs import run
from tests.docs.operations_table import PAGE, SOURCES, TARGETS, with_table

NAMES: Final = {
    QueueRole.PLAIN: r".\private$\plain",
    QueueRole.TRANSACTIONAL: r".\private$\tx",
    QueueRole.JOURNAL: r".\private$\source;journal",
    QueueRole.DEAD_LETTERS: r".\system$;deadletter",
    QueueRole.OUTGOING: r"DIRECT=OS:BETA\private$\x",
}
TARGET_NAMES: Final = {
    QueueRole.PLAIN: r".\private$\into",
    QueueRole.TRANSACTIONAL: r".\private$\intotx",
    QueueRole.JOURNAL: r".\private$\into;journal",
    QueueRole.DEAD_LETTERS: r".\system$;deadletter",
    QueueRole.REMOTE: r"DIRECT=OS:GAMMA\private$\x",
}
PROPERTIES: Final[dict[str, Any]] = {
    "recoverable": True,
    "body_type": 31,
    "app_specific": 7,
    "correlation_identifier": b"\7" * 20,
    "extension": b"headers",
    "response_queue_format_name": r"DIRECT=OS:ALPHA\private$\answers",
    "administration_queue_format_name": r"DIRECT=OS:ALPHA\private$\acks",
    "negative_journaling_requested": True,
    "time_to_be_received": 100_000,
}
IDENTITY: Final = ("identifier", "lookup_identifier", "sent_time", "arrival_time", "transactional")


def test_the_page_shows_the_rules_that_run() -> None:
    assert with_table(PAGE.read_text()) == PAGE.read_text(), "run python -m tests.docs.operations_table"


@pytest.fixture
async def qm(tmp_path: Path) -> AsyncIterator[qmnode.QueueManager]:
    async with qmnode.QueueManager.open(tmp_path / "store") as manager:
        for name in ("plain", "into"):
            await manager.create_queue(rf".\private$\{name}")
        await manager.create_queue(r".\private$\source", journaling=True)
        for name in ("tx", "intotx"):
            await manager.create_queue(rf".\private$\{name}", transactional=True)
        yield manager


async def fill(qm: qmnode.QueueManager, kind: QueueRole) -> None:
    """Three messages in a queue of this kind."""
    names = {QueueRole.JOURNAL: r".\private$\source", QueueRole.DEAD_LETTERS: r".\private$\plain"}
    name = names.get(kind, NAMES[kind])
    messages = [Message(b"%d" % number, label=f"m{number}", **PROPERTIES) for number in range(3)]
    full = name if "=" in name else f"DIRECT=OS:{name}"
    async with await qm.open_queue(full, qmnode.Access.SEND) as queue:
        await queue.send_many(messages, "single" if kind is QueueRole.TRANSACTIONAL else None)
    if kind in names:
        async with await qm.open_queue(full) as queue:
            await (queue.purge() if kind is QueueRole.DEAD_LETTERS else queue.receive_many(3, 0))


def messages(qm: qmnode.QueueManager, name: str) -> list[Message]:
    return [received_message(*entry) for entry in qm.names.find(name).scan()]


@pytest.mark.parametrize("copies", [False, True], ids=["moved", "copied"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", SOURCES)
async def test_a_pair_of_kinds_keeps_its_promise(
    qm: qmnode.QueueManager, source: QueueRole, target: QueueRole, copies: bool
) -> None:
    await fill(qm, source)
    before = messages(qm, NAMES[source])
    way = promise(source, target, copies=copies).way
    kind = "copy" if copies else "move"
    if way is TransferMode.REFUSED:
        with pytest.raises(MessageQueuingError):
            await run(qm, kind, NAMES[source], target=TARGET_NAMES[target])
        assert len(messages(qm, NAMES[source])) == 3
        return

    job = await run(qm, kind, NAMES[source], target=TARGET_NAMES[target])

    assert (job["done"], job["failed"], job["state"]) == (3, 0, "done")
    after = messages(qm, TARGET_NAMES[target])
    assert [one.label for one in after] == ["m0", "m1", "m2"]
    assert len(messages(qm, NAMES[source])) == (3 if copies else 0)
    for old, new in zip(before, after, strict=True):
        assert {name: getattr(new, name) for name in PROPERTIES} == PROPERTIES
        assert new.body == old.body and new.message_class == 0
        if way is TransferMode.AS_IT_IS:
            assert [getattr(new, name) for name in IDENTITY] == [getattr(old, name) for name in IDENTITY]
        else:
            assert new.identifier != old.identifier and new.lookup_identifier != old.lookup_identifier
    if target in (QueueRole.PLAIN, QueueRole.TRANSACTIONAL):
        assert all(one.transactional is (target is QueueRole.TRANSACTIONAL) for one in after)
