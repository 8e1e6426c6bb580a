"""A wrong key never passes for a right one: the sender is told, the log names the keys, and nothing is delivered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from qmnode import Access, Message
from qmnode.security.key_stores import FileKeyStore, KeyState
from qmnode.structures.enumerations import AuthenticationLevel, PrivacyLevel
from qmnode.structures.user_message import UserMessage
from tests.certificates.enterprise import ALICE, HOUR, Enterprise, two_nodes, user_certificate
from tests.security.messages import encryption_pair

BAD_ENCRYPTION = "MQMSG_CLASS_NACK_BAD_ENCRYPTION"
ARRIVED = "MQMSG_CLASS_ACK_REACH_QUEUE"
BODY = b"a body of several blocks of the cipher, of which any may be altered"


@pytest.fixture
async def enterprise(tmp_path: Path) -> AsyncIterator[Enterprise]:
    async with two_nodes(tmp_path, key_reload_interval=HOUR, public_key_lifetime=3_600_000) as enterprise:
        enterprise.register({ALICE: [user_certificate()]})
        yield enterprise


def secret(level: AuthenticationLevel = AuthenticationLevel.NONE) -> Message:
    return Message(BODY, privacy_level=PrivacyLevel.ADVANCED, authentication_level=level)


def reasons(logged: list[dict[str, object]]) -> str:
    return " ".join(str(line.get("reason")) for line in logged)


async def test_a_message_to_a_destroyed_key_is_refused(enterprise: Enterprise) -> None:
    name = await enterprise.queue_on_b()
    store = FileKeyStore(enterprise.folder / "B" / "keys")
    contents = store.read_now()
    (old,) = contents.pairs
    new = encryption_pair(number=2)
    async with await enterprise.a.open_queue(name, Access.SEND) as out:
        assert (await enterprise.ends_as(out, secret()))[0] == ARRIVED
        # Too early for A, which still has the old one: what the waiting times of a rotation are for.
        pairs = (replace(old, state=KeyState.DESTROYED, private_key=None), new)
        store.replace_now(pairs, expected_version=contents.version)
        await enterprise.b.network.keys.read()
        with structlog.testing.capture_logs() as logged:
            assert await enterprise.ends_as(out, secret()) == (BAD_ENCRYPTION, None)
    assert new.fingerprint in reasons(logged)


async def test_a_message_to_another_nodes_key_is_refused(enterprise: Enterprise) -> None:
    name = await enterprise.queue_on_b()

    def swap(sections: dict[str, list[dict[str, str]]]) -> None:
        keys = {entry["computer_name"]: entry["public_encryption_key_list"] for entry in sections["queue_managers"]}
        for entry in sections["queue_managers"]:
            entry["public_encryption_key_list"] = keys["A"]

    enterprise.write(swap)
    (own,) = enterprise.b.network.keys.status.fingerprints
    async with await enterprise.a.open_queue(name, Access.SEND) as out:
        with structlog.testing.capture_logs() as logged:
            assert await enterprise.ends_as(out, secret()) == (BAD_ENCRYPTION, None)
    assert own in reasons(logged)


def altered(change: Callable[[UserMessage], UserMessage], enterprise: Enterprise) -> None:
    """Somebody between A and B changes what is encrypted."""
    send = enterprise.b.network.security.admission.judge

    async def judge(arrivals, now):  # type: ignore[no-untyped-def]
        return await send(
            [replace(each, packet=change(UserMessage.parse(each.packet)).write()) for each in arrivals], now
        )

    enterprise.b.network.security.admission.judge = judge  # type: ignore[method-assign]


def with_body(packet: UserMessage, place: int) -> UserMessage:
    body = bytearray(packet.message_properties_header.message_body)
    body[place] ^= 1
    return packet.put(message_properties_header=packet.message_properties_header.put(message_body=bytes(body)))


def with_key(packet: UserMessage) -> UserMessage:
    header = packet.security_header
    assert header is not None
    blob = bytearray(header.encryption_key)
    blob[-1] ^= 1
    return packet.put(security_header=header.put(encryption_key=bytes(blob)))


@pytest.mark.parametrize(
    ("change", "level", "outcome"),
    [
        (with_key, AuthenticationLevel.NONE, BAD_ENCRYPTION),
        (lambda packet: with_body(packet, -17), AuthenticationLevel.NONE, BAD_ENCRYPTION),  # it changes the padding
        # One answer for all that fails inside: another class would tell that the body decrypted.
        (lambda packet: with_body(packet, 0), AuthenticationLevel.SIG20, BAD_ENCRYPTION),
    ],
    ids=["session key", "padding", "signed body"],
)
async def test_what_was_altered_on_the_way_is_refused(
    enterprise: Enterprise,
    change: Callable[[UserMessage], UserMessage],
    level: AuthenticationLevel,
    outcome: str,
) -> None:
    name = await enterprise.queue_on_b()
    async with await enterprise.a.open_queue(name, Access.SEND) as out:
        assert (await enterprise.ends_as(out, secret(level)))[0] == ARRIVED
        altered(change, enterprise)
        assert await enterprise.ends_as(out, secret(level)) == (outcome, None)
