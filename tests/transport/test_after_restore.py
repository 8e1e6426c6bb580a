"""After an older copy of a store was restored: which messages are lost, unknown, or come again, at both ends."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from qmnode import Message, QueueManager
from qmnode.commands import state
from qmnode.delivery.after_restore import AfterRestore
from qmnode.local.values import decode, encode
from qmnode.management.documents import NodeDocument
from qmnode.protocol.incoming_sequences import GAPS, IncomingSequence, IncomingSequences
from qmnode.storage import origin
from qmnode.storage.backup import restore
from qmnode.structures.guid import guid_to_text, new_guid
from tests.lab.waiting import eventually
from tests.transport.conftest import TRANSACTIONAL, Pair
from tests.transport.test_transfer import bodies, nothing_outgoing, send_in_transaction

if TYPE_CHECKING:
    from qmnode.protocol.incoming_sequences import OrderAcknowledgment
    from qmnode.protocol.outgoing_sequences import OutgoingSequence

pytestmark = pytest.mark.servers


def acknowledge_up_to(node: QueueManager, number: int) -> None:
    """Order acknowledgments of the node are lost, but for those of lower numbers."""
    notices = node.network.notices
    order = type(notices).order

    def send(acknowledgment: OrderAcknowledgment) -> None:
        if number:
            least = min(number, acknowledgment.sequence_number)
            order(notices, acknowledgment._replace(sequence_number=least))

    notices.order = send  # type: ignore[method-assign]


async def send(node: QueueManager, name: str, *texts: bytes) -> None:
    for text in texts:
        await send_in_transaction(node, name, [Message(text)])


async def restart_older(pair: Pair, name: str, backup: Path) -> QueueManager:
    await pair.stop(name)
    shutil.rmtree(pair.folder / name)
    restore(backup, pair.folder / name)
    return await pair.start(name)


def outgoing(node: QueueManager) -> OutgoingSequence:
    (sequence,) = node.network.state.outgoing
    return sequence


def resend(node: QueueManager) -> None:
    node.network.state.outgoing.resend_now(outgoing(node).queue)
    node.network.timers_changed()


async def test_a_restored_receiver_names_what_is_lost_and_goes_on_behind_it(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = pair.direct("BOB", TRANSACTIONAL)
    acknowledge_up_to(pair.bob, 0)
    await send(pair.alice, name, b"1", b"2")
    assert await bodies(pair.bob, TRANSACTIONAL, 2) == [b"1", b"2"]
    await pair.bob.backup(tmp_path / "copy")
    await send(pair.alice, name, b"3", b"4", b"5")
    assert await bodies(pair.bob, TRANSACTIONAL, 3) == [b"3", b"4", b"5"]
    acknowledge_up_to(pair.bob, 4)
    resend(pair.alice)
    await eventually(lambda: outgoing(pair.alice).acknowledged == 4)

    with capture_logs() as logs:
        bob = await restart_older(pair, "BOB", tmp_path / "copy")
        await eventually(lambda: bool(bob.after_restore["received"]))

    source = guid_to_text(pair.alice.identifier)
    sequence = hex(outgoing(pair.alice).active_id)
    lost = {"peer": source, "queue": name, "sequence": sequence, "first": 3, "last": 4, "state": "lost"}
    status = await bob.status()
    assert status.after_restore["received"] == [lost]
    assert [one["state"] for one in status.after_restore["identifiers"]] == ["unknown"]
    (said,) = [one for one in logs if one["event"].startswith("after the restore: ")]
    assert {key: said[key] for key in lost} == lost
    assert NodeDocument.of(status, "1").model_dump()["after_restore"] == status.after_restore
    found = decode(encode(status))
    assert found == status
    state._print(state._document({name: getattr(status, name) for name in status.__slots__}))
    printed = " ".join(capsys.readouterr().out.split())
    assert f"3 to 4 of sequence {sequence} to {name}, {source}: lost" in printed and "{" not in printed

    await pair.stop("BOB")
    bob = await pair.start("BOB")
    assert bob.after_restore["received"] == [lost], "it is kept"
    await eventually(lambda: bool(bob.network.state.incoming.gaps()))
    assert await bob.reset_incoming_sequences(pair.alice.identifier) == 1
    resend(pair.alice)
    assert await bodies(bob, TRANSACTIONAL, 1) == [b"5"]
    await eventually(lambda: outgoing(pair.alice).idle() and nothing_outgoing(pair.alice))
    await send(pair.alice, name, b"6")
    assert await bodies(bob, TRANSACTIONAL, 1) == [b"6"]


async def test_a_restored_sender_ends_what_it_sends_again(pair: Pair, tmp_path: Path) -> None:
    name = pair.direct("BOB", TRANSACTIONAL)
    acknowledge_up_to(pair.bob, 0)
    await send(pair.alice, name, b"1", b"2")
    assert await bodies(pair.bob, TRANSACTIONAL, 2) == [b"1", b"2"]
    await pair.alice.backup(tmp_path / "copy")
    await send(pair.alice, name, b"3", b"4")
    assert await bodies(pair.bob, TRANSACTIONAL, 2) == [b"3", b"4"]
    sequence = hex(outgoing(pair.alice).active_id)
    acknowledge_up_to(pair.bob, 100)

    alice = await restart_older(pair, "ALICE", tmp_path / "copy")

    await eventually(lambda: outgoing(alice).idle() and nothing_outgoing(alice))
    place = {"peer": guid_to_text(pair.bob.identifier), "queue": name, "sequence": sequence}
    assert (await alice.status()).after_restore["sent"] == [
        place | {"first": 1, "last": 2, "state": "again"},
        place | {"first": 3, "last": 4, "state": "unknown"},
    ]
    await send(alice, name, b"5")
    assert await bodies(pair.bob, TRANSACTIONAL, 1) == [b"5"]


async def test_a_restored_sender_ends_messages_of_a_sequence_that_was_over(pair: Pair, tmp_path: Path) -> None:
    """The destination has a newer sequence and takes none of the older one: what is sent now would wait behind it."""
    name = pair.direct("BOB", TRANSACTIONAL)
    acknowledge_up_to(pair.bob, 0)
    await send(pair.alice, name, b"1", b"2")
    assert await bodies(pair.bob, TRANSACTIONAL, 2) == [b"1", b"2"]
    await pair.alice.backup(tmp_path / "copy")
    acknowledge_up_to(pair.bob, 100)
    resend(pair.alice)
    await eventually(lambda: outgoing(pair.alice).idle() and nothing_outgoing(pair.alice))
    await send(pair.alice, name, b"3")
    assert await bodies(pair.bob, TRANSACTIONAL, 1) == [b"3"]
    await eventually(lambda: outgoing(pair.alice).idle() and nothing_outgoing(pair.bob))

    alice = await restart_older(pair, "ALICE", tmp_path / "copy")
    await send(alice, name, b"4")

    assert await bodies(pair.bob, TRANSACTIONAL, 1) == [b"4"]
    await eventually(lambda: outgoing(alice).idle() and nothing_outgoing(alice))


async def test_a_sender_that_was_restored_twice_goes_on_when_its_sequences_are_reset(
    pair: Pair, tmp_path: Path
) -> None:
    """Between the two restores the destination took a sequence of another time stamp: whether it has the messages of
    the copy cannot be known, so they are neither acknowledged nor lost. They come again after the reset.
    """
    name = pair.direct("BOB", TRANSACTIONAL)
    acknowledge_up_to(pair.bob, 0)
    await send(pair.alice, name, b"1", b"2")
    assert await bodies(pair.bob, TRANSACTIONAL, 2) == [b"1", b"2"]
    await pair.alice.backup(tmp_path / "copy")
    acknowledge_up_to(pair.bob, 100)
    alice = await restart_older(pair, "ALICE", tmp_path / "copy")
    await send(alice, name, b"3")
    assert await bodies(pair.bob, TRANSACTIONAL, 1) == [b"3"]
    await eventually(lambda: outgoing(alice).idle() and nothing_outgoing(pair.bob))

    alice = await restart_older(pair, "ALICE", tmp_path / "copy")
    await send(alice, name, b"4")
    (incoming,) = pair.bob.network.state.incoming
    await eventually(lambda: incoming.reject_count > 0)
    assert not outgoing(alice).idle()

    assert await pair.bob.reset_incoming_sequences(alice.identifier) == 1
    resend(alice)
    assert await bodies(pair.bob, TRANSACTIONAL, 3) == [b"1", b"2", b"4"]
    await eventually(lambda: outgoing(alice).idle() and nothing_outgoing(alice))


async def test_the_ranges_are_bounded_and_end_after_a_week(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pair.bob.after_restore == {}, "it is no copy"
    await pair.bob.backup(tmp_path / "copy")
    bob = await restart_older(pair, "BOB", tmp_path / "copy")
    ranges, incoming = bob.network.after_restore, bob.network.state.incoming
    destination = b"\x03" + rb"OS:BOB\PRIVATE$\TX".lower()
    for _ in range(GAPS + 5):
        sequence = IncomingSequence(new_guid(), destination, 0, "")
        ranges.missed({sequence: incoming.missed(sequence, 1 << 32, 7)})
    assert len(incoming.gaps()) == GAPS
    assert len(bob.after_restore["received"]) == 64
    now = origin.time.time()
    monkeypatch.setattr(origin.time, "time", lambda: now + 8 * 86_400)
    assert AfterRestore(bob).ranges == {}
    assert isinstance(incoming, IncomingSequences)
