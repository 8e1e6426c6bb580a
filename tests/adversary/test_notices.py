"""Notices are a node's own messages: nobody has the node put them where its own queues would believe them."""

from __future__ import annotations

from tests.adversary import wire
from tests.adversary.attacks import Area, attack
from tests.adversary.lab import bodies_until, send, sent, waiting
from tests.adversary.peer import session
from tests.transport.conftest import PLAIN, TRANSACTIONAL, Pair

SYSTEM = (
    "SYSTEM$;DEADLETTER", "SYSTEM$;DEADXACT", "SYSTEM$;JOURNAL", r"private$\order_queue$", r"private$\notify_queue$",
    r"private$\admin_queue$", r"private$\plain;JOURNAL", r"private$\delayed$",
)  # fmt: skip
ALL = wire.ACK_ARRIVAL | wire.ACK_RECEIPT | wire.NACK_ARRIVAL | wire.NACK_RECEIPT


@attack(
    Area.ACKNOWLEDGMENTS,
    can="ask for acknowledgments and refusals to the node's own system queues, and send the body of a final "
    "acknowledgment with this request",
    promised="none of them gets into a system queue, and none ends a message of the node or of its peers",
)
async def test_notices_come_into_no_system_queue(pair: Pair, own: str) -> None:
    await pair.alice.set_online(False)
    await send(pair.alice, pair.direct("BOB", TRANSACTIONAL), [b"0", b"1", b"2"])
    target, bob, alice = pair.addresses["BOB"], pair.bob.identifier, pair.alice.identifier
    body = wire.final_ack(bob, 1, bob, wire.BAD_DESTINATION, wire.Place(1 << 32, 1, 0), alice, 1)[-36:]
    admins = [wire.direct(rf"TCP:{target}\{name}") for name in SYSTEM] + [wire.private(4), wire.private(4, kind=2)]
    admins.append(wire.direct(rf"TCP:{target}\private$\admin"))
    packets = [
        wire.UserMessage(
            source=source, address=bob, message_id=100 + 10 * number + 2 * place + late,
            queue=wire.direct(rf"TCP:{target}\{queue}"), admin=admin, asks=ALL, body=body, label="QM Ordering Ack",
            reach=0 if late else wire.INFINITE, sent=1_000,
        ).packet()
        for number, admin in enumerate(admins)
        for source in (wire.identifier(), alice, bob)
        for place, queue in enumerate((r"private$\plain", r"private$\nothing", r"private$\delayed$"))
        for late in (0, 1)
    ]  # fmt: skip
    queues = pair.bob.queue_collection
    queues.delayed.security = b""  # as if an administrator had let everybody in
    async with session(own, target, wire.identifier()) as peer:
        await peer.say(*packets)
    system = [queues.dead_letter, queues.transactional_dead_letter, queues.journal, queues.delayed]
    assert [queue.message_count for queue in system] == [0, 0, 0, 0]
    assert (await pair.bob.queue(r".\private$\admin")).message_count  # they are sent to a queue of an application
    assert waiting(pair.alice) == 3
    await pair.alice.set_online(True)
    await sent(pair.alice)
    assert await bodies_until(pair.bob, TRANSACTIONAL, b"2") == [b"0", b"1", b"2"]
    await send(pair.alice, pair.direct("BOB", PLAIN), [b"last"], transactional=False)
    assert (await bodies_until(pair.bob, PLAIN, b"last"))[-1] == b"last"
