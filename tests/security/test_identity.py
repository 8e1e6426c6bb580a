"""Who a sender is: what the directory confirms, what the cache remembers, and for how long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from qmnode.directory.port import (
    DirectoryOperationError,
    DirectoryOperationResult,
    GroupExpansion,
    User,
)
from qmnode.security.errors import MessageDeferredError, MessageRefusedError
from qmnode.security.key_stores import KeyPair, KeyPurpose, KeyState
from qmnode.security.published_keys import public_key_list
from qmnode.security.sender_identity import SenderClaim, SenderDirectory, anonymous, parse_certificate
from qmnode.settings.security import SecuritySettings
from qmnode.structures.enumerations import MessageClass, SenderIdentifierType
from qmnode.structures.guid import Guid
from qmnode.structures.security_descriptor import ANONYMOUS, AUTHENTICATED_USERS, EVERYONE, Sid
from tests.security.directories import GROUP, FakeDirectory, user_certificates
from tests.security.keys import private_key
from tests.security.messages import NOW, SOURCE, USER, certificate

SETTINGS = SecuritySettings()
OTHER_USER = Sid.from_text("S-1-5-21-1-2-3-1001").write()
AWAY = DirectoryOperationError(DirectoryOperationResult.DIRECTORY_NOT_CONNECTED, "the directory does not answer")


def claim(
    identifier: bytes = USER, number: int = 0, kind: SenderIdentifierType = SenderIdentifierType.SID
) -> SenderClaim:
    return SenderClaim(kind, identifier, parse_certificate(certificate(1024, number)))


def registered() -> FakeDirectory:
    return FakeDirectory(certificates={USER: (certificate(1024, 1), certificate())})


async def refused(directory: FakeDirectory, who: SenderClaim) -> MessageRefusedError:
    with pytest.raises(MessageRefusedError) as caught:
        await SenderDirectory(directory, SETTINGS).confirm(who, NOW)
    assert caught.value.message_class is MessageClass.MQMSG_CLASS_NACK_BAD_SIGNATURE
    return caught.value


async def test_a_user_whose_certificate_the_directory_holds_is_who_it_says_with_all_groups() -> None:
    directory = registered()
    assert isinstance(directory, GroupExpansion)
    sender = await SenderDirectory(directory, SETTINGS).confirm(claim(), NOW)
    assert sender.user.write() == USER
    assert sender.sids == {sender.user, EVERYONE, AUTHENTICATED_USERS, GROUP}


async def test_a_certificate_that_is_not_the_users_is_refused() -> None:
    error = await refused(FakeDirectory(certificates={USER: (certificate(1024, 1),)}), claim())
    assert claim().certificate.fingerprint in error.sentence


async def test_anothers_sid_beside_ones_own_certificate_is_refused() -> None:
    directory = FakeDirectory(certificates={USER: (certificate(),), OTHER_USER: (certificate(1024, 1),)})
    await refused(directory, claim(OTHER_USER))


async def test_a_user_that_the_directory_does_not_know_is_refused() -> None:
    await refused(FakeDirectory(), claim())


@pytest.mark.parametrize("listed", [b"", b"\x01\0\0\0", b"\xff" * 40])
async def test_a_list_that_cannot_be_read_holds_no_certificate(listed: bytes) -> None:
    class Broken(FakeDirectory):
        async def read_directory(self, object_type: Any, filters: Any = (), attributes: Any = None, **_: Any) -> Any:
            return User(name="alice", certificates=listed)

    await refused(Broken(), claim())


async def test_what_is_no_sid_is_refused_even_if_the_directory_has_it() -> None:
    await refused(FakeDirectory(certificates={bytes(12): (certificate(),)}), claim(bytes(12)))


async def test_while_the_directory_is_away_the_message_waits() -> None:
    """The text rejects it, which loses the message because a server restarts."""
    directory = registered()
    directory.fault = AWAY
    senders = SenderDirectory(directory, SETTINGS)
    with pytest.raises(MessageDeferredError, match="does not answer"):
        await senders.confirm(claim(), NOW)
    directory.fault = None
    assert (await senders.confirm(claim(), NOW)).user.write() == USER


async def test_a_confirmed_certificate_is_believed_for_its_lifetime_and_no_longer() -> None:
    directory = registered()
    senders = SenderDirectory(directory, SETTINGS)
    assert senders.cached(claim(), NOW) is None
    sender = await senders.confirm(claim(), NOW)
    directory.certificates.clear()  # revoked
    assert await senders.confirm(claim(), NOW + 1200.0) is sender
    assert directory.reads == 1
    with pytest.raises(MessageRefusedError):
        await senders.confirm(claim(), NOW + 1201.0)


async def test_a_user_can_be_forgotten_at_once() -> None:
    senders = SenderDirectory(registered(), SETTINGS)
    await senders.confirm(claim(), NOW)
    assert senders.forget(USER) == 1
    assert senders.cached(claim(), NOW) is None


async def test_a_change_of_another_object_makes_no_user_be_asked_for_again() -> None:
    """Whoever may change anything in the directory could else have every node read all certificates at each change."""
    directory = registered()
    directory.user_identifier = Guid(b"a user of 16 by.")
    senders = SenderDirectory(directory, SETTINGS)
    await senders.confirm(claim(), NOW)
    senders.forget_users(Guid(b"another 16 bytes"))
    assert senders.cached(claim(), NOW) is not None
    senders.forget_users(directory.user_identifier)
    assert senders.cached(claim(), NOW) is None
    await senders.confirm(claim(), NOW)
    senders.forget_users(None)
    assert senders.cached(claim(), NOW) is None


async def test_a_change_of_a_user_without_identifier_is_heard_as_any_change() -> None:
    senders = SenderDirectory(registered(), SETTINGS)
    await senders.confirm(claim(), NOW)
    senders.forget_users(Guid(b"another 16 bytes"))
    assert senders.cached(claim(), NOW) is None


async def test_an_answer_to_a_question_from_before_a_change_is_not_kept() -> None:
    directory = registered()
    directory.hold = asyncio.Event()
    senders = SenderDirectory(directory, SETTINGS)
    asked = asyncio.ensure_future(senders.confirm(claim(), NOW))
    while not directory.reads:
        await asyncio.sleep(0)
    senders.forget_users(None)
    directory.hold.set()
    await asked
    assert senders.cached(claim(), NOW) is None


async def test_an_answer_is_kept_while_other_objects_change_all_the_time() -> None:
    directory = registered()
    directory.user_identifier = Guid(b"a user of 16 by.")
    senders = SenderDirectory(directory, SETTINGS)
    for changed, is_known in ((Guid(b"another 16 bytes"), True), (directory.user_identifier, False)):
        senders.forget(USER)
        directory.hold, directory.reads = asyncio.Event(), 0
        asked = asyncio.ensure_future(senders.confirm(claim(), NOW))
        while not directory.reads:
            await asyncio.sleep(0)
        senders.forget_users(changed)
        directory.hold.set()
        await asked
        assert (senders.cached(claim(), NOW) is not None) is is_known


async def test_messages_that_wait_for_one_sender_share_one_question() -> None:
    directory = registered()
    directory.hold = asyncio.Event()
    senders = SenderDirectory(directory, SETTINGS)
    waiting = [asyncio.ensure_future(senders.confirm(claim(), NOW)) for _ in range(50)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # one that leaves takes nothing from the others
    directory.hold.set()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert {outcome.user.write() for outcome in outcomes[1:]} == {USER}  # type: ignore[union-attr]
    assert directory.reads == 1


async def test_closing_ends_what_waits() -> None:
    directory = registered()
    directory.hold = asyncio.Event()
    senders = SenderDirectory(directory, SETTINGS)
    waiting = asyncio.ensure_future(senders.confirm(claim(), NOW))
    await asyncio.sleep(0)
    await senders.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


QUEUE_MANAGER = SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER


@pytest.mark.parametrize("as_certificates", [False, True])
async def test_a_queue_manager_that_signs_is_everyone(as_certificates: bool) -> None:
    pair = KeyPair.of(
        private_key(1024), "Microsoft Enhanced Cryptographic Provider v1.0", KeyPurpose.SIGNING, KeyState.CURRENT, NOW
    )
    keys = user_certificates(certificate()) if as_certificates else public_key_list([pair], KeyPurpose.SIGNING)
    directory = FakeDirectory(signing_keys={SOURCE: keys})
    sender = await SenderDirectory(directory, SETTINGS).confirm(claim(SOURCE, kind=QUEUE_MANAGER), NOW)
    assert (sender.user, sender.sids) == (EVERYONE, {EVERYONE})


async def test_a_queue_manager_with_anothers_key_is_refused() -> None:
    directory = FakeDirectory(signing_keys={SOURCE: user_certificates(certificate(1024, 1))})
    await refused(directory, claim(SOURCE, kind=QUEUE_MANAGER))


def test_nobody_is_anonymous_and_in_everyone_only_if_the_settings_say_so() -> None:
    assert anonymous(SETTINGS).sids == {ANONYMOUS, EVERYONE}
    strict = SecuritySettings(everyone_includes_anonymous=False)
    assert (anonymous(strict).user, anonymous(strict).sids) == (ANONYMOUS, {ANONYMOUS})
