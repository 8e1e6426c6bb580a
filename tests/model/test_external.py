"""External transactions: MS-MQDMPR 3.1.4.6 to 3.1.4.11."""

import pytest

from qmnode import Access, Message, MessageQueuingError
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import new_guid

LEDGER = r"DIRECT=OS:.\private$\ledger"


class Coordinator:
    def __init__(self):
        self.told = []

    def prepare_done(self, identifier):
        self.told.append(("prepared", identifier))

    def commit_done(self, identifier):
        self.told.append(("committed", identifier))

    def abort_done(self, identifier):
        self.told.append(("aborted", identifier))

    def recover(self, identifiers):
        self.told.append(("recover", *identifiers))


@pytest.fixture
async def ledger(qm):
    qm.external.resource_manager = Coordinator()
    await qm.create_queue(r".\private$\ledger", transactional=True)
    send = await qm.open_queue(LEDGER, Access.SEND)
    await send.send_many([Message(b"1"), Message(b"2"), Message(b"3")], transaction="single")
    return send, await qm.open_queue(LEDGER)


async def rest(qm) -> list[bytes]:
    queue = await qm.open_queue(LEDGER)
    try:
        return [message.body for message in await queue.receive_many(10, timeout=0)]
    except MessageQueuingError:
        return []


async def work(qm, ledger):
    """One of each kind of operation."""
    send, receive = ledger
    tx = qm.external.enlist(new_guid())
    assert (await receive.receive(transaction=tx)).body == b"1"
    await send.send(Message(b"4"), transaction=tx)
    done = await qm.open_queue(LEDGER + ";done", Access.MOVE)
    await receive.move((await receive.peek()).lookup_identifier, done, transaction=tx)
    return tx.identifier


async def test_a_prepared_transaction_is_in_doubt_after_a_crash_and_holds_what_it_held(node, ledger):
    identifier = await work(node.qm, ledger)
    await node.qm.external.prepare(identifier)
    assert node.qm.external.resource_manager.told == [("prepared", identifier)]
    qm = await node.crash()
    assert qm.external.in_doubt == [identifier]
    queue = await qm.open_queue(LEDGER)
    assert (await queue.peek(timeout=0)).body == b"3"
    qm = await node.crash()
    assert qm.external.in_doubt == [identifier]
    await qm.external.reenlistment_commit(identifier)
    qm = await node.crash()
    assert qm.external.in_doubt == []
    assert await rest(qm) == [b"3", b"4"]
    assert (await qm.queue(r".\private$\ledger;done")).message_count == 1


async def test_a_transaction_in_doubt_can_be_aborted(node, ledger):
    identifier = await work(node.qm, ledger)
    await node.qm.external.prepare(identifier)
    qm = await node.crash()
    await qm.external.reenlistment_abort(identifier)
    qm = await node.crash()
    assert await rest(qm) == [b"1", b"2", b"3"]
    assert qm.external.in_doubt == []


async def test_a_transaction_that_was_not_prepared_is_gone_after_a_crash(node, ledger):
    await work(node.qm, ledger)
    qm = await node.crash()
    assert qm.external.in_doubt == []
    assert await rest(qm) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("end", ["commit", "abort", "single phase"])
async def test_the_coordinator_is_told_how_it_ended(qm, ledger, end):
    identifier = await work(qm, ledger)
    told = qm.external.resource_manager.told
    match end:
        case "single phase":
            await qm.external.prepare(identifier, single_phase=True)
            assert told == [("committed", identifier)]
        case "commit":
            await qm.external.prepare(identifier)
            await qm.external.commit(identifier)
            assert told == [("prepared", identifier), ("committed", identifier)]
        case "abort":
            await qm.external.prepare(identifier)
            await qm.external.abort(identifier)
            assert told == [("prepared", identifier), ("aborted", identifier)]
    with pytest.raises(MessageQueuingError) as error:
        await qm.external.commit(identifier)
    assert error.value.code is ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE
    assert qm.store.read_transactions() == []


async def test_a_coordinator_that_cannot_be_reached_is_reported_with_what_waits_for_it(node, ledger):
    identifier = await work(node.qm, ledger)
    await node.qm.external.prepare(identifier)
    with pytest.raises(MessageQueuingError, match="did not say how these transactions end"):
        node.qm.external.reenlistment_timeout()


async def test_an_identifier_is_enlisted_once(qm, ledger):
    identifier = new_guid()
    qm.external.enlist(identifier)
    with pytest.raises(MessageQueuingError) as error:
        qm.external.enlist(identifier)
    assert error.value.code is ErrorCode.MQ_ERROR_TRANSACTION_ENLIST
