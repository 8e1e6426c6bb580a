"""Messages between nodes that have no direct connection: stored and sent on by a routing server (MS-MQBR 1.3)."""

from __future__ import annotations

import pytest

from qmnode.structures.enumerations import MessageClass, PrivacyLevel
from tests.forwarding.conftest import Enterprise
from tests.lab.waiting import until

pytestmark = pytest.mark.servers

NUMBERS = [b"%d" % number for number in range(300)]


async def nothing_waits(enterprise: Enterprise) -> bool:
    return not await enterprise.source.outgoing()


@pytest.mark.parametrize(  # the demo has all of them
    "kind",
    [
        pytest.param("express", marks=pytest.mark.soak),
        pytest.param("recoverable", marks=pytest.mark.soak),
        "transactional",
    ],
)
async def test_messages_arrive_once_and_in_order_through_a_routing_server(enterprise: Enterprise, kind: str) -> None:
    transactional = kind == "transactional"
    name = await enterprise.target.create_queue(kind, transactional=transactional)
    await enterprise.source.send(name, NUMBERS, transactional=transactional, recoverable=kind == "recoverable")
    assert await enterprise.target.bodies(kind, len(NUMBERS)) == NUMBERS
    if kind != "express":  # the last few express ones are acknowledged after ten seconds only
        await until(lambda: nothing_waits(enterprise), "order acknowledgments, back through the routing server")


async def test_administration_acknowledgments_find_their_way_back(enterprise: Enterprise) -> None:
    name = await enterprise.target.create_queue("acknowledged")
    admin = await enterprise.source.create_queue("admin")
    await enterprise.source.send(
        name, [b"asked"], recoverable=True, acknowledgements_requested=0x0F, administration_queue_format_name=admin
    )
    assert await enterprise.target.bodies("acknowledged", 1) == [b"asked"]
    classes = {message.message_class for message in await enterprise.source.receive(r"private$\admin", 2)}
    assert classes == {MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE, MessageClass.MQMSG_CLASS_ACK_RECEIVE}


async def test_the_final_acknowledgment_finds_its_way_back(enterprise: Enterprise) -> None:
    name = await enterprise.target.create_queue("journaled", transactional=True)
    await enterprise.source.send(name, [b"kept"], transactional=True, positive_journaling_requested=True)
    assert await enterprise.target.bodies("journaled", 1) == [b"kept"]
    (journaled,) = await enterprise.source.receive("SYSTEM$;JOURNAL", 1)
    assert journaled.body == b"kept"


async def test_a_refusal_by_the_destination_finds_its_way_back(enterprise: Enterprise) -> None:
    name = enterprise.target.private_name(0x7777)
    await enterprise.source.send(name, [b"to no queue"], transactional=True, negative_journaling_requested=True)
    (dead,) = await enterprise.source.receive("SYSTEM$;DEADXACT", 1)
    assert (dead.body, dead.message_class) == (b"to no queue", MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q)


async def test_every_hop_reports_a_traced_message(enterprise: Enterprise) -> None:
    name = await enterprise.target.create_queue("traced")
    reports = await enterprise.source.create_public_queue("reports")
    await enterprise.source.send(
        name, [b"seen"], recoverable=True, tracing_requested=True, tracing_queue_identifier=reports
    )
    assert await enterprise.target.bodies("traced", 1) == [b"seen"]
    found = await enterprise.source.receive("reports", 4)
    texts = [(report.label.split()[0].rpartition(":")[2], report.body.decode("utf-16-le")) for report in found]
    hops = {text.partition("<NEXT HOP>")[2].partition("<")[0] for _, text in texts if "<NEXT HOP>" in text}
    assert hops == {enterprise.first.machine.listens, enterprise.target.machine.listens}
    assert sorted(count for count, text in texts if "<NEXT HOP>" not in text) == ["00", "01"]
    assert {report.message_class for report in found} == {MessageClass.MQMSG_CLASS_REPORT}
    assert await enterprise.source.count(r".\reports") == 0


async def test_what_passes_is_not_changed_and_nobody_on_the_way_can_read_what_is_encrypted(
    enterprise: Enterprise,
) -> None:
    plain = await enterprise.target.create_queue("unchanged")
    secret = await enterprise.target.create_queue("secret")
    enterprise.target.kill()
    more = {"recoverable": True, "label": "label", "extension": b"x" * 33, "priority": 5}
    await enterprise.source.send(plain, [b"as it was"], **more)
    await enterprise.source.send(secret, [b"nobody reads this"], privacy_level=PrivacyLevel.ADVANCED, **more)
    passing, encrypted = await enterprise.first.look(plain), await enterprise.first.look(secret)
    assert b"nobody reads" not in encrypted.packet
    await enterprise.target.start_again()
    (arrived,) = await enterprise.target.receive(r"private$\unchanged", 1)
    (decrypted,) = await enterprise.target.receive(r"private$\secret", 1)
    assert arrived.packet == passing.packet
    assert (arrived.body, arrived.label, arrived.extension, arrived.priority) == (
        b"as it was",
        *list(more.values())[1:],
    )
    assert decrypted.body == b"nobody reads this"
    assert arrived.source_machine_identifier == enterprise.source.machine.identifier


async def test_messages_wait_at_the_routing_server_for_a_target_that_is_off(enterprise: Enterprise) -> None:
    plain = await enterprise.target.create_queue("later")
    ordered = await enterprise.target.create_queue("later-tx", transactional=True)
    enterprise.target.kill()
    await enterprise.source.send(plain, NUMBERS, recoverable=True)
    await enterprise.source.send(ordered, NUMBERS, transactional=True)

    async def waits() -> bool:
        return await enterprise.first.count(plain) == len(NUMBERS) and not await enterprise.source.count(plain)

    # What the source has no acknowledgment for, it would send over the other routing server, and that would overtake.
    await until(waits, "recoverable messages at the routing server, and none of them at their source")
    enterprise.first.kill()
    await enterprise.first.start_again()
    assert await enterprise.first.count(plain) == len(NUMBERS)
    await enterprise.target.start_again()
    assert await enterprise.target.bodies("later", len(NUMBERS)) == NUMBERS
    assert await enterprise.target.bodies("later-tx", len(NUMBERS)) == NUMBERS
    await until(lambda: nothing_waits(enterprise), "acknowledgments")
    assert await enterprise.target.count(r".\private$\later") == 0
    assert await enterprise.target.count(r".\private$\later-tx") == 0


async def test_messages_that_expire_at_the_routing_server_are_told_of(enterprise: Enterprise) -> None:
    """One that is transactional and one that is not, together: their ten seconds are for machines that are busy."""
    kinds = {False: "expires", True: "expires-tx"}
    names = {
        transactional: await enterprise.target.create_queue(kind, transactional=transactional)
        for transactional, kind in kinds.items()
    }
    admins = {kind: await enterprise.source.create_queue(f"{kind}-admin") for kind in kinds.values()}
    enterprise.target.kill()
    for transactional, kind in kinds.items():
        asked = {"acknowledgements_requested": 0x0F, "administration_queue_format_name": admins[kind]}
        await enterprise.source.send(
            names[transactional], [b"late"], transactional=transactional, recoverable=True, time_to_reach_queue=10,
            negative_journaling_requested=True, **asked,
        )  # fmt: skip
        await enterprise.source.send(names[transactional], [b"in time"], transactional=transactional, recoverable=True)

    async def there() -> bool:
        return [await enterprise.first.count(name) for name in names.values()] == [2, 2]

    await until(there, "all messages at the routing server")
    for transactional, kind in kinds.items():
        keeper = enterprise.source if transactional else enterprise.first
        (dead,) = await keeper.receive("SYSTEM$;DEADXACT" if transactional else "SYSTEM$;DEADLETTER", 1)
        assert (dead.body, dead.message_class) == (b"late", MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT)
        (told,) = await enterprise.source.receive(rf"private$\{kind}-admin", 1)
        assert told.message_class == MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT
    await enterprise.target.start_again()
    for kind in kinds.values():
        assert await enterprise.target.bodies(kind, 1) == [b"in time"]
        assert await enterprise.source.count(rf".\private$\{kind}-admin") == 0
