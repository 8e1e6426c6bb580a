"""Arrivals from end to end: what a queue takes from whom."""

from __future__ import annotations

import asyncio

import pytest

from qmnode.directory.port import DirectoryOperationError, DirectoryOperationResult
from qmnode.security.arrival_checks import Admission, Arrival, QueueRules
from qmnode.security.protector import Admitted, Deferred, MessageProtector, Refused, Signer, Verdict
from qmnode.security.sender_identity import Sender, SenderDirectory
from qmnode.settings.security import SecuritySettings
from qmnode.structures.enumerations import AuthenticationLevel, MessageClass, QueuePrivacyLevel, SenderIdentifierType
from qmnode.structures.enumerations import PrivacyLevel as MessagePrivacy
from qmnode.structures.security_descriptor import (
    ANONYMOUS,
    EVERYONE,
    Ace,
    Acl,
    QueueAccess,
    SecurityDescriptor,
    Sid,
    allow,
    deny,
)
from qmnode.structures.user_message import SecurityFlags, SecurityHeader, UserMessage
from tests.security.directories import GROUP, FakeDirectory
from tests.security.keys import private_key
from tests.security.messages import DESTINATION, NOW, RING, USER, certificate, message, sent, signer

WRITE = QueueAccess.MQSEC_WRITE_MESSAGE
ALICE = Sid.parse(USER)
SIG20 = AuthenticationLevel.SIG20
STRICT = SecuritySettings(everyone_includes_anonymous=False)


def rules(*aces: Ace, **demands: object) -> QueueRules:
    security = SecurityDescriptor(dacl=Acl.of(*aces)).write() if aces else b""
    return QueueRules(security=security, **demands)  # type: ignore[arg-type]


def admission(directory: FakeDirectory | None = None, settings: SecuritySettings = STRICT) -> Admission:
    registered = directory or FakeDirectory(certificates={USER: (certificate(),)})
    protector = MessageProtector(DESTINATION, settings, RING)
    return Admission(protector, SenderDirectory(registered, settings), settings)


async def verdict(packet: UserMessage, demands: QueueRules, judge: Admission | None = None) -> Verdict:
    (outcome,) = await (judge or admission()).judge([Arrival(packet.write(), demands)], NOW)
    return outcome


def class_of(outcome: Verdict) -> MessageClass | None:
    return outcome.message_class if isinstance(outcome, Refused) else None


DENIED = MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED


async def test_a_signed_message_of_a_user_with_the_right_is_admitted() -> None:
    outcome = await verdict(sent(message(), SIG20), rules(allow(ALICE, WRITE)))
    assert isinstance(outcome, Admitted)
    assert outcome.sender.user == ALICE
    assert outcome.authentication_level is SIG20


async def test_rights_of_groups_count() -> None:
    assert isinstance(await verdict(sent(message(), SIG20), rules(allow(GROUP, WRITE))), Admitted)
    denied = await verdict(sent(message(), SIG20), rules(deny(GROUP, WRITE), allow(ALICE, WRITE)))
    assert class_of(denied) is DENIED


async def test_an_unsigned_sid_has_no_rights() -> None:
    """The text would check the SID that the packet claims."""
    claimed = SecurityHeader(flags=SecurityFlags.of(ST=1, AI=1), security_id=USER)
    outcome = await verdict(message().replace(security_header=claimed), rules(allow(ALICE, WRITE)))
    assert class_of(outcome) is DENIED


@pytest.mark.parametrize("encrypted", [False, True])
async def test_an_unsigned_sender_that_counts_has_rights_also_if_the_body_is_encrypted(encrypted: bool) -> None:
    believed = Sender(ALICE, frozenset({ALICE, GROUP}))
    packet = sent(message(privacy_level=MessagePrivacy.ADVANCED)) if encrypted else message()
    arrival = Arrival(packet.write(), rules(allow(GROUP, WRITE)), believed=believed)
    (outcome,) = await admission().judge([arrival], NOW)
    assert isinstance(outcome, Admitted)
    assert (outcome.sender, outcome.authentication_level) == (believed, AuthenticationLevel.NONE)


async def test_the_signer_counts_and_not_the_unsigned_sender() -> None:
    believed = Sender(ALICE, frozenset({ALICE}))
    others = FakeDirectory(certificates={USER: (certificate(1024, 1),)})
    arrival = Arrival(sent(message(), SIG20).write(), rules(allow(ALICE, WRITE)), believed=believed)
    (outcome,) = await admission(others).judge([arrival], NOW)
    assert class_of(outcome) is MessageClass.MQMSG_CLASS_NACK_BAD_SIGNATURE


async def test_an_unsigned_queue_manager_is_not_everyone() -> None:
    claimed = SecurityHeader(flags=SecurityFlags.of(ST=2, AI=1), security_id=bytes(16))
    outcome = await verdict(message().replace(security_header=claimed), rules(allow(EVERYONE, WRITE)))
    assert class_of(outcome) is DENIED


@pytest.mark.parametrize(("trustee", "admitted"), [(ANONYMOUS, True), (EVERYONE, False), (ALICE, False)])
async def test_a_message_without_security_header_is_checked_as_anonymous(trustee: Sid, admitted: bool) -> None:
    outcome = await verdict(message(), rules(allow(trustee, WRITE)))
    assert isinstance(outcome, Admitted) is admitted


@pytest.mark.parametrize(
    "demands",
    [
        rules(),
        rules(authentication=True),
        rules(privacy_level=QueuePrivacyLevel.BODY),
        rules(allow(ALICE, WRITE)),
        rules(allow(ANONYMOUS, WRITE)),
    ],
)
async def test_what_is_said_of_all_plain_messages_is_what_would_be_said_of_each(demands: QueueRules) -> None:
    judge = admission()
    outcome = await verdict(message(), demands, judge)
    assert judge.refusal_of_plain(demands) == (None if isinstance(outcome, Admitted) else outcome)


async def test_by_default_everyone_is_everyone() -> None:
    judge = admission(settings=SecuritySettings())
    assert isinstance(await verdict(message(), rules(allow(EVERYONE, WRITE)), judge), Admitted)


async def test_a_descriptor_that_cannot_be_read_grants_nothing() -> None:
    assert class_of(await verdict(message(), QueueRules(security=b"\x01\x00\x04\x80"))) is DENIED


async def test_a_queue_for_authenticated_messages_takes_no_others() -> None:
    demands = rules(authentication=True)
    assert class_of(await verdict(message(), demands)) is MessageClass.MQMSG_CLASS_NACK_BAD_SIGNATURE
    assert isinstance(await verdict(sent(message(), SIG20), demands), Admitted)


async def test_a_certificate_that_names_nobody_does_not_authenticate() -> None:
    """Anybody can make one, sign with it, and write another's SID beside it."""
    for identifier in (b"", USER):
        nameless = Signer(private_key(1024), certificate(), SenderIdentifierType.NONE, identifier)
        packet = sent(message(), SIG20, signer=nameless)
        outcome = await verdict(packet, rules(authentication=True))
        assert class_of(outcome) is MessageClass.MQMSG_CLASS_NACK_BAD_SIGNATURE
        assert isinstance(await verdict(packet, rules()), Admitted)
        assert class_of(await verdict(packet, rules(allow(ALICE, WRITE)))) is DENIED


@pytest.mark.parametrize(
    ("level", "encrypted", "admitted"),
    [
        (QueuePrivacyLevel.NONE, False, True),
        (QueuePrivacyLevel.NONE, True, False),
        (QueuePrivacyLevel.OPTIONAL, False, True),
        (QueuePrivacyLevel.OPTIONAL, True, True),
        (QueuePrivacyLevel.BODY, False, False),
        (QueuePrivacyLevel.BODY, True, True),
    ],
)
async def test_a_queues_privacy_level_is_kept(level: QueuePrivacyLevel, encrypted: bool, admitted: bool) -> None:
    packet = sent(message(privacy_level=MessagePrivacy.ADVANCED)) if encrypted else message()
    outcome = await verdict(packet, rules(privacy_level=level))
    assert class_of(outcome) is (None if admitted else MessageClass.MQMSG_CLASS_NACK_BAD_ENCRYPTION)


async def test_a_certificate_that_is_not_the_users_is_refused() -> None:
    judge = admission(FakeDirectory(certificates={USER: (certificate(1024, 1),)}))
    outcome = await verdict(sent(message(), SIG20), rules(), judge)
    assert class_of(outcome) is MessageClass.MQMSG_CLASS_NACK_BAD_SIGNATURE


async def test_while_the_directory_is_away_signed_messages_wait_and_others_pass() -> None:
    away = DirectoryOperationError(DirectoryOperationResult.DIRECTORY_NOT_CONNECTED, "it is away")
    judge = admission(FakeDirectory(fault=away))
    signed, plain = await judge.judge(
        [Arrival(sent(message(), SIG20).write(), rules()), Arrival(message().write(), rules())], NOW
    )
    assert isinstance(signed, Deferred)
    assert isinstance(plain, Admitted)


async def test_cryptography_runs_in_the_worker_and_plain_batches_do_not_go_there() -> None:
    runs = 0

    async def worker(work):  # type: ignore[no-untyped-def]
        nonlocal runs
        runs += 1
        return await asyncio.to_thread(work)

    protector = MessageProtector(DESTINATION, STRICT, RING)
    registered = FakeDirectory(certificates={USER: (certificate(),)})
    judge = Admission(protector, SenderDirectory(registered, STRICT), STRICT, worker)
    await judge.judge([Arrival(message().write(), rules())] * 3, NOW)
    assert runs == 0
    outcomes = await judge.judge(
        [Arrival(sent(message(), SIG20).write(), rules()), Arrival(message(b"2").write(), rules())], NOW
    )
    assert runs == 1
    bodies = [bytes(each.packet.message_properties_header.message_body) for each in outcomes]  # type: ignore[union-attr]
    assert bodies == [b"a body", b"2"]


async def test_senders_of_a_batch_are_asked_for_at_once_and_each_once() -> None:
    directory = FakeDirectory(certificates={USER: (certificate(),)}, hold=asyncio.Event())
    judge = admission(directory)
    alice = Arrival(sent(message(), SIG20).write(), rules())
    eve = Arrival(sent(message(), SIG20, signer=signer(1024, 1)).write(), rules())
    running = asyncio.ensure_future(judge.judge([alice, eve, alice, eve], NOW))
    for _ in range(4):
        await asyncio.sleep(0)
    assert directory.reads == 2
    directory.hold.set()  # type: ignore[union-attr]
    outcomes = await running
    assert [type(outcome) for outcome in outcomes] == [Admitted, Refused, Admitted, Refused]
    assert directory.reads == 2
