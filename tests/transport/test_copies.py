"""A copy that runs beside its original, with one identity, is noticed by whom both send to; and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from qmnode import Access, Message, QueueManager
from qmnode.delivery.neighbours import CopyWatch, Speakers
from qmnode.management.metrics import exposition
from qmnode.management.request_context import Context
from qmnode.settings.node import ManagementSettings
from qmnode.storage.backup import restore
from qmnode.structures.guid import Guid, guid_to_text, new_guid
from tests.lab.waiting import holds
from tests.transport.conftest import PLAIN, Pair, loopback_address

ONE, OTHER, THIRD = "192.0.2.1", "192.0.2.2", "192.0.2.3"
OURS = "192.0.2.9"
OWN_64 = ("2001:db8::1", "2001:db8::aaaa")


def began(identifier: Guid, speakers: Speakers, addresses: str, step: float = 1.0, local: str = OURS) -> list[bool]:
    """What is said when it speaks from the addresses that these digits stand for."""
    hosts = {"1": ONE, "2": OTHER, "3": THIRD}
    return [speakers.heard(identifier, hosts[digit], local, number * step) for number, digit in enumerate(addresses)]


@pytest.mark.parametrize("addresses", ["1", "1111", "12", "1122", "121", "11211", "123"])
def test_one_host_and_one_that_moved_even_there_and_back_are_no_conflict(addresses: str) -> None:
    speakers = Speakers()

    assert not any(began(new_guid(), speakers, addresses))
    assert speakers.conflicts(10.0) == []


@pytest.mark.parametrize("addresses", ["1212", "111222112", "2121", "1213"])
def test_two_hosts_in_turns_are_a_conflict_that_is_said_once(addresses: str) -> None:
    speakers, identifier = Speakers(), new_guid()

    assert began(identifier, speakers, addresses + addresses).count(True) == 1
    (conflict,) = speakers.conflicts(20.0)
    assert conflict.identifier == identifier
    assert set(conflict.addresses) < {ONE, OTHER, THIRD}


def test_hosts_that_take_turns_over_hours_are_a_machine_that_moves() -> None:
    assert not any(began(new_guid(), Speakers(), "12121212", step=400.0))


def test_a_machine_with_an_address_in_each_of_our_networks_is_no_conflict() -> None:
    speakers, identifier = Speakers(), new_guid()
    for now in range(10):
        assert not speakers.heard(identifier, ONE, OURS, now)
        assert not speakers.heard(identifier, "198.51.100.1", "198.51.100.9", now)
        assert not speakers.heard(identifier, "2001:db8::1", "2001:db8::9", now)


def test_a_machine_that_changes_its_ipv6_address_in_its_network_is_no_conflict_and_another_network_is() -> None:
    speakers, identifier = Speakers(), new_guid()
    turns = [speakers.heard(identifier, OWN_64[now % 2], "2001:db8::9", now) for now in range(10)]
    assert not any(turns)

    both = ("2001:db8::1", "2001:db8:0:1::1")
    assert any(speakers.heard(identifier, both[now % 2], "2001:db8::9", now) for now in range(10, 20))


def test_a_conflict_is_over_when_one_of_them_has_been_silent_and_said_anew_when_it_is_back() -> None:
    troubles: dict[str, str] = {"disk": "is full"}
    watch, identifier = CopyWatch(troubles), new_guid()

    def turns(begin: float) -> None:
        for number in range(4):
            watch.heard(identifier, (ONE, OTHER)[number % 2], OURS, begin + number)

    with capture_logs() as lines:
        turns(0.0)
        for now in range(4, 300, 30):  # only one speaks
            watch.heard(identifier, OTHER, OURS, now)
            watch.look(now)
        assert f"{guid_to_text(identifier)} at {ONE} and {OTHER}" in troubles["identity"]
        watch.look(303.0)
        assert troubles == {"disk": "is full"}
        turns(400.0)
        watch.look(500.0)

    assert [line["log_level"] for line in lines] == ["warning", "info", "warning"]
    assert "identity" in troubles


def test_however_many_queue_managers_come_little_is_remembered_and_named() -> None:
    troubles: dict[str, str] = {}
    watch = CopyWatch(troubles)
    for _ in range(2000):
        identifier = new_guid()
        for number in range(4):
            watch.heard(identifier, (ONE, OTHER)[number % 2], OURS, float(number))

    assert troubles["identity"].count(" at ") == 3
    assert " and 509 more" in troubles["identity"]


async def _send(node: QueueManager, name: str) -> None:
    out = await node.open_queue(name, Access.SEND)
    await out.send(Message(b"x", recoverable=True))


@pytest.mark.public_report("docs.particular.net/transports/msmq/troubleshooting")
async def test_a_restored_copy_beside_its_original_is_noticed_by_whom_both_send_to(pair: Pair, tmp_path: Path) -> None:
    name = pair.direct("BOB", PLAIN)
    await pair.alice.backup(tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "COPY")
    pair.addresses["COPY"] = loopback_address()
    copy = await pair.start("COPY")
    assert copy.identifier == pair.alice.identifier

    with capture_logs() as lines:
        for number, node in enumerate((pair.alice, copy, pair.alice, copy)):
            assert (await pair.bob.status()).warnings == ()
            await _send(node, name)
            await _arrives(pair.bob, number)

    (warning,) = (await pair.bob.status()).warnings
    addresses = sorted((pair.addresses["ALICE"], pair.addresses["COPY"]))
    assert warning.startswith("identity: ")
    assert f"{guid_to_text(copy.identifier)} at {addresses[0]} and {addresses[1]}" in warning
    (line,) = (one for one in lines if "queue_manager" in one)
    assert (line["log_level"], line["addresses"]) == ("warning", tuple(addresses))
    text = await exposition(Context(pair.bob, ManagementSettings()))
    assert b'qmnode_trouble{what="identity"} 1.0' in text


async def _count(node: QueueManager) -> int:
    """Messages in its own queue. Those that it has sent may wait in others for a while."""
    return (await node.queue(PLAIN)).message_count


async def _arrives(node: QueueManager, before: int) -> None:
    async def has() -> bool:
        return await _count(node) > before

    await holds(has, 60, "the message arrives")


async def test_a_node_that_sends_and_receives_and_moves_causes_no_warning(pair: Pair) -> None:
    for number in range(2):
        for sender, receiver in ((pair.alice, "BOB"), (pair.bob, "ALICE"), (pair.alice, "BOB")):
            before = await _count(pair.nodes[receiver])
            await _send(sender, pair.direct(receiver, PLAIN))
            await _arrives(pair.nodes[receiver], before)
        if number == 0:
            await pair.stop("ALICE")
            pair.addresses["ALICE"] = loopback_address()
            await pair.start("ALICE")

    assert (await pair.bob.status()).warnings == ()
    assert (await pair.alice.status()).warnings == ()
