"""What a node says of the way of a message, and to whom."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import qmnode
from qmnode.administration.asker import Asker
from qmnode.security.access_check import Token
from qmnode.security.principals import Principal, unix_user
from qmnode.settings.node import Settings
from qmnode.structures.security_descriptor import QueueAccess, SecurityDescriptor, allow

SEEN, HIDDEN = r".\private$\seen", r".\private$\hidden"
USER = unix_user(3000)
STRANGER = Asker("uid:3000", principal=Principal("uid:3000", USER, Token.of(USER)))


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[qmnode.QueueManager]:
    async with qmnode.QueueManager.open(tmp_path / "store", Settings(computer_name="ALPHA")) as manager:
        may_peek = (
            SecurityDescriptor(owner=unix_user(1000)).with_dacl(allow(USER, QueueAccess.MQSEC_PEEK_MESSAGE)).write()
        )
        await manager.create_queue(SEEN, security=may_peek)
        await manager.create_queue(
            HIDDEN, security=SecurityDescriptor(owner=unix_user(1000)).with_dacl().write(), transactional=True
        )
        yield manager


async def test_what_a_caller_may_not_peek_at_is_counted_and_not_shown(manager: qmnode.QueueManager) -> None:
    for name, single in ((SEEN, None), (HIDDEN, "single")):
        async with await manager.open_queue(f"DIRECT=OS:{name}", qmnode.Access.SEND) as queue:
            await queue.send(qmnode.Message(b"x", label="order 7"), transaction=single)  # type: ignore[arg-type]
    asked = {"label": "order 7"}

    theirs = await manager.operations.trace(STRANGER, asked)
    ours = await manager.operations.trace(Asker("program"), asked)

    assert [place["queue"] for place in theirs["places"]] == [manager.names.find(SEEN).pathname]
    assert theirs["places"][0]["waiting"]["reason"] == "receiver"
    assert theirs["refused"] > 0
    assert {place["queue"] for place in ours["places"]} == {
        manager.names.find(name).pathname for name in (SEEN, HIDDEN)
    }
    assert ours["refused"] == 0


async def test_a_message_in_a_transaction_of_a_hidden_queue_stays_hidden(manager: qmnode.QueueManager) -> None:
    async with await manager.open_queue(f"DIRECT=OS:{HIDDEN}", qmnode.Access.SEND) as queue:
        identifier = await queue.send(qmnode.Message(b"x"), transaction="single")
    transaction = manager.transaction()
    async with await manager.open_queue(f"DIRECT=OS:{HIDDEN}") as queue:
        await queue.receive(0, transaction)
        asked = {"identifier": identifier.hex()}
        theirs = await manager.operations.trace(STRANGER, asked)
        ours = await manager.operations.trace(Asker("program"), asked)
        await transaction.abort()

    assert theirs["places"] == []
    assert [place["queue"] for place in ours["places"]] == [manager.names.find(HIDDEN).pathname]
    assert ours["began"] is True


async def test_reasons_need_the_right_to_the_properties_of_the_machine(manager: qmnode.QueueManager) -> None:
    async with await manager.open_queue(f"DIRECT=OS:{SEEN}", qmnode.Access.SEND) as queue:
        identifier = await queue.send(qmnode.Message(b"x"))
    manager.context.machine_security = SecurityDescriptor(owner=unix_user(1000)).with_dacl().write()

    theirs = await manager.operations.trace(STRANGER, {"identifier": identifier.hex()})

    assert [place["waiting"] for place in theirs["places"]] == [None]
    assert (theirs["passed"], theirs["began"]) == (None, None)


@pytest.mark.parametrize(
    "asked", [{}, {"identifier": ""}, {"identifier": "nonsense"}, {"identifier": "1-2\\3"}, {"body": "x"}, {"label": 7}]
)
async def test_a_question_that_cannot_be_is_refused(manager: qmnode.QueueManager, asked: dict[str, str]) -> None:
    with pytest.raises(qmnode.MessageQueuingError) as refused:
        await manager.operations.trace(Asker("program"), asked)
    assert refused.value.name == "MQ_ERROR_INVALID_PARAMETER"
