"""A user's messages between two nodes: signed on A, verified on B by the certificate in the directory, or refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qmnode import Access, Message, MessageQueuingError
from qmnode.management.message_documents import MessageDocument
from qmnode.security.protector import Signer
from qmnode.settings.security import SignerSettings, WeakAlgorithm
from qmnode.structures.enumerations import AuthenticationLevel, HashAlgorithm, PrivacyLevel, SenderIdentifierType
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid
from qmnode.structures.user_message import PrivateQueueFormatNameId, SecurityFlags, SecurityHeader
from tests.adversary.peer import session
from tests.certificates.enterprise import (
    ACCOUNT,
    ALICE,
    HOUR,
    LIFETIME,
    MALLORY,
    QUEUE,
    Enterprise,
    application_of,
    signed,
    two_nodes,
    user_certificate,
)
from tests.security.keys import private_key
from tests.security.messages import SOURCE, message, sent
from tests.transport.conftest import loopback_address

ARRIVED = "MQMSG_CLASS_ACK_REACH_QUEUE"
BAD_SIGNATURE = "MQMSG_CLASS_NACK_BAD_SIGNATURE"
SIG10, SIG20, SIG30 = AuthenticationLevel.SIG10, AuthenticationLevel.SIG20, AuthenticationLevel.SIG30


@pytest.fixture
async def enterprise(tmp_path: Path) -> AsyncIterator[Enterprise]:
    async with two_nodes(tmp_path) as enterprise:
        enterprise.register({ALICE: [user_certificate()]})
        yield enterprise


@pytest.mark.parametrize("level", [SIG10, SIG20])
@pytest.mark.parametrize("encrypted", [PrivacyLevel.NONE, PrivacyLevel.ADVANCED])
@pytest.mark.parametrize("hash_algorithm", [HashAlgorithm.SHA_256, HashAlgorithm.SHA_512])
async def test_a_signed_message_arrives_with_its_sender(
    enterprise: Enterprise, level: AuthenticationLevel, encrypted: PrivacyLevel, hash_algorithm: HashAlgorithm
) -> None:
    name = await enterprise.queue_on_b(authentication=True)
    async with await enterprise.a.open_queue(name, Access.SEND) as out:
        message = signed(level=level, privacy_level=encrypted, hash_algorithm=hash_algorithm)
        outcome, arrived = await enterprise.ends_as(out, message)
    assert outcome == ARRIVED and arrived is not None
    assert (arrived.body, arrived.authentication_level, arrived.hash_algorithm) == (b"an order", level, hash_algorithm)
    assert arrived.sender_identifier == ALICE.write()


async def test_a_signed_and_encrypted_message_leaves_without_the_dead_letter_queue_that_it_names(
    enterprise: Enterprise,
) -> None:
    name = await enterprise.queue_on_b(authentication=True)
    async with await enterprise.a.open_queue(name, Access.SEND) as out:
        for _ in range(2):
            message = signed(
                privacy_level=PrivacyLevel.ADVANCED, application_dead_letter_queue=r".\private$\undelivered"
            )
            outcome, arrived = await enterprise.ends_as(out, message)
            assert outcome == ARRIVED and arrived is not None
            assert (arrived.body, arrived.authentication_level) == (b"an order", SIG20)
            assert not arrived.application_dead_letter_queue


async def test_an_application_behind_the_socket_is_signed_for_as_its_user(
    enterprise: Enterprise, tmp_path: Path
) -> None:
    name = await enterprise.queue_on_b(authentication=True, transactional=True)
    async with application_of(enterprise.a, tmp_path) as application:
        out = await application.open_queue(name, Access.SEND)
        claims = {
            "sender_identifier_type": 1,
            "sender_identifier": MALLORY.write(),
        }  # counts for nothing
        async with application.transaction() as unit:
            await out.send_many([signed(b"one", **claims), signed(b"two")], transaction=unit)
        await out.send(signed(b"three"), transaction="single")
    async with await enterprise.b.open_queue(f"DIRECT=OS:{QUEUE}") as queue:
        arrived = [await queue.receive(timeout=60) for _ in range(3)]
    assert [message.body for message in arrived] == [b"one", b"two", b"three"]
    assert {message.sender_identifier for message in arrived} == {ALICE.write()}
    assert {message.authentication_level for message in arrived} == {SIG20}


async def test_a_signature_that_another_made_is_not_taken_over(enterprise: Enterprise, tmp_path: Path) -> None:
    """An application passes on a message that was signed: it is not signed by its first sender any more."""
    name = await enterprise.queue_on_b()
    async with await enterprise.a.open_queue(name, Access.SEND) as out:
        _, arrived = await enterprise.ends_as(out, signed())
        assert arrived is not None and arrived.authentication_level == SIG20
        outcome, again = await enterprise.ends_as(out, arrived)
    assert outcome == ARRIVED and again is not None
    assert (again.authentication_level, again.sender_identifier, again.signature) == (0, b"", b"")


async def test_a_certificate_of_ones_own_making_opens_no_door(enterprise: Enterprise) -> None:
    """A stranger signs with a key of his own and calls his certificate nobody's, or names Alice and signs nothing."""
    name = await enterprise.queue_on_b(authentication=True)
    open_to_all = await enterprise.queue_on_b(r".\private$\open")
    nameless = Signer(private_key(1024, 1), user_certificate(1), SenderIdentifierType.NONE, b"")
    claim = SecurityHeader(flags=SecurityFlags.of(ST=SenderIdentifierType.SID, AI=1), security_id=ALICE.write())
    packets = []
    for number, queue in enumerate((name, name, open_to_all, open_to_all)):
        plain = message(b"pay Mallory", sent_time=time.time())
        header = plain.user_header.replace(
            queue_manager_address=Guid(enterprise.b.identifier),
            destination_queue=PrivateQueueFormatNameId(private_queue_identifier=int(queue[-8:], 16)),
            message_id=1 + number,
        )
        plain = plain.replace(user_header=header)
        if number % 2:
            packets.append(plain.replace(security_header=claim).write())
        else:
            packets.append(sent(plain, SIG20, signer=nameless).write())
    async with session(loopback_address(), enterprise.addresses["B"], SOURCE) as stranger:
        await stranger.say(*packets)
    async with await enterprise.b.open_queue(f"DIRECT=OS:{QUEUE}") as queue:
        with pytest.raises(MessageQueuingError, match="MQ_ERROR_IO_TIMEOUT"):
            await queue.receive(timeout=0)
    async with await enterprise.b.open_queue(r"DIRECT=OS:.\private$\open") as queue:
        received = [await queue.receive(timeout=0) for _ in range(2)]
    assert [(one.authentication_level, one.sender_identifier) for one in received] == [(0, b"")] * 2
    assert [one.claimed_sender for one in received] == [b"", ALICE.write()]
    documents = [MessageDocument.of(one) for one in received]
    assert [(one.authenticated, one.sender) for one in documents] == [(False, None)] * 2
    assert [one.claimed_sender for one in documents] == [None, str(ALICE)]


async def test_several_destinations_share_an_msmq_3_signature(enterprise: Enterprise) -> None:
    name = await enterprise.queue_on_b(authentication=True)
    here = r".\private$\copies"
    await enterprise.a.create_queue(here, authentication=True)
    async with await enterprise.a.open_queue(rf"{name},DIRECT=OS:{here}", Access.SEND) as out:
        await out.send(signed(level=SIG30, recoverable=True))
    for node, path in ((enterprise.b, QUEUE), (enterprise.a, here)):
        async with await node.open_queue(f"DIRECT=OS:{path}") as queue:
            message = await queue.receive(timeout=60)
            assert (message.authentication_level, message.sender_identifier) == (SIG30, ALICE.write())
            assert len(message.signature) == 128


async def test_copies_for_two_queues_of_one_computer_both_arrive(enterprise: Enterprise) -> None:
    paths = (QUEUE, r".\private$\copies")
    names = [await enterprise.queue_on_b(path) for path in paths]
    async with await enterprise.a.open_queue(",".join(names), Access.SEND) as out:
        await out.send(signed(level=SIG30, recoverable=True))
    for path in paths:
        async with await enterprise.b.open_queue(f"DIRECT=OS:{path}") as queue:
            assert (await queue.receive(timeout=60)).authentication_level == SIG30


async def test_a_queue_for_authenticated_messages_refuses_others(enterprise: Enterprise) -> None:
    name = await enterprise.queue_on_b(authentication=True)
    async with await enterprise.a.open_queue(name, Access.SEND) as out:
        assert await enterprise.ends_as(out, Message(b"by nobody")) == (BAD_SIGNATURE, None)
    with pytest.raises(MessageQueuingError) as refused:
        async with await enterprise.b.open_queue(name, Access.SEND) as out:
            await out.send(Message(b"by nobody"))
    assert refused.value.code == ErrorCode.MQ_ERROR_ACCESS_DENIED


async def test_a_signed_message_that_stays_on_its_computer_has_its_sender(enterprise: Enterprise) -> None:
    name = await enterprise.queue_on_b(authentication=True)
    async with await enterprise.b.open_queue(name, Access.SEND) as out:
        await out.send(signed())
    async with await enterprise.b.open_queue(f"DIRECT=OS:{QUEUE}") as queue:
        message = await queue.receive(timeout=0)
    assert (message.authentication_level, message.sender_identifier) == (SIG20, ALICE.write())


async def test_a_revoked_certificate_is_refused_after_the_caches_lifetime(enterprise: Enterprise) -> None:
    name = await enterprise.queue_on_b()
    async with await enterprise.a.open_queue(name, Access.SEND) as out:
        assert (await enterprise.ends_as(out, signed()))[0] == ARRIVED
        # A goes on signing with what it knows: that the certificate was revoked is for B to find out.
        enterprise.a.signing.signers._lifetime = HOUR  # type: ignore[attr-defined]
        enterprise.register({ALICE: [user_certificate(1)]})
        await asyncio.sleep(LIFETIME / 1000)  # what is tested is that nothing but time must pass
        assert await enterprise.ends_as(out, signed()) == (BAD_SIGNATURE, None)


@pytest.mark.parametrize(("begins", "ends"), [(-HOUR, -60), (2 * HOUR, 3 * HOUR)], ids=["expired", "not valid yet"])
async def test_a_certificate_counts_only_in_its_time(enterprise: Enterprise, begins: float, ends: float) -> None:
    name = await enterprise.queue_on_b()
    enterprise.register({ALICE: [user_certificate(0, begins, ends)]})
    async with await enterprise.a.open_queue(name, Access.SEND) as out:
        assert await enterprise.ends_as(out, signed()) == (BAD_SIGNATURE, None)


async def test_the_sid_counts_only_beside_the_users_own_certificate(enterprise: Enterprise, tmp_path: Path) -> None:
    """The table of A says that its user is Mallory; the certificate is Alice's."""
    name = await enterprise.queue_on_b()
    certificate = tmp_path / "alice.der"
    certificate.write_bytes(user_certificate())
    enterprise.register({ALICE: [certificate.read_bytes()], MALLORY: [user_certificate(1)]})
    await enterprise.nodes.pop("A").close()
    await enterprise.start(
        "A",
        account_security_identifiers={ACCOUNT: str(MALLORY)},
        signers={ACCOUNT: SignerSettings(private_key=enterprise.key_file, certificate=certificate)},
    )
    async with await enterprise.a.open_queue(name, Access.SEND) as out:
        assert await enterprise.ends_as(out, signed()) == (BAD_SIGNATURE, None)


async def test_who_has_no_key_here_is_told_and_nothing_leaves(enterprise: Enterprise) -> None:
    name = await enterprise.queue_on_b()
    await enterprise.nodes.pop("A").close()
    await enterprise.start("A", signers={})
    async with await enterprise.a.open_queue(name, Access.SEND) as out:
        with pytest.raises(MessageQueuingError) as refused:
            await out.send_many([Message(b"plain", recoverable=True), signed()])
    assert refused.value.code == ErrorCode.MQ_ERROR_CERTIFICATE_NOT_PROVIDED
    assert "security.signers" in refused.value.sentence
    assert not any(queue.message_count for queue in enterprise.a.queue_collection.values())


async def test_weak_hashes_sign_only_when_the_settings_allow_them(enterprise: Enterprise) -> None:
    name = await enterprise.queue_on_b()
    async with await enterprise.a.open_queue(name, Access.SEND) as out:
        with pytest.raises(MessageQueuingError) as refused:
            await out.send(signed(hash_algorithm=HashAlgorithm.MD5))
    assert refused.value.code == ErrorCode.MQ_ERROR_CANNOT_CREATE_HASH_EX
    for node in ("A", "B"):
        await enterprise.nodes.pop(node).close()
        weak = frozenset({WeakAlgorithm.MD5})
        await enterprise.start(node, weak_algorithms_sent=weak, weak_algorithms_accepted=weak)
    async with await enterprise.a.open_queue(name, Access.SEND) as out:
        outcome, arrived = await enterprise.ends_as(out, signed(hash_algorithm=HashAlgorithm.MD5))
    assert outcome == ARRIVED and arrived is not None and arrived.authentication_level == SIG20


async def test_the_settings_choose_the_hash_algorithm_where_the_message_does_not(enterprise: Enterprise) -> None:
    name = await enterprise.queue_on_b()
    await enterprise.nodes.pop("A").close()
    await enterprise.start("A", hash_algorithm=HashAlgorithm.SHA_256)
    async with await enterprise.a.open_queue(name, Access.SEND) as out:
        outcome, arrived = await enterprise.ends_as(out, signed(privacy_level=PrivacyLevel.ADVANCED))
    assert outcome == ARRIVED and arrived is not None
    assert (arrived.authentication_level, arrived.hash_algorithm) == (SIG20, HashAlgorithm.SHA_256)


async def test_a_kind_of_signature_that_the_settings_do_not_accept_proves_nothing(enterprise: Enterprise) -> None:
    name = await enterprise.queue_on_b()
    await enterprise.nodes.pop("B").close()
    await enterprise.start("B", signatures_accepted=frozenset({SIG20, SIG30}))
    async with await enterprise.a.open_queue(name, Access.SEND) as out:
        assert (await enterprise.ends_as(out, signed()))[0] == ARRIVED
        assert await enterprise.ends_as(out, signed(level=SIG10)) == (BAD_SIGNATURE, None)


async def test_a_key_file_that_others_can_read_signs_nothing(enterprise: Enterprise) -> None:
    name = await enterprise.queue_on_b()
    enterprise.key_file.chmod(0o644)
    async with await enterprise.a.open_queue(name, Access.SEND) as out:
        with pytest.raises(MessageQueuingError, match="mode 0644"):
            await out.send(signed())
