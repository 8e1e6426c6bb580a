"""New keys, publication and its way back, internal certificates; and a rotation with messages under way."""

from __future__ import annotations

import pytest

from qmnode.security.errors import WeakAlgorithmError
from qmnode.security.key_stores import KeyPair, KeyPurpose, KeyRing, KeyState
from qmnode.security.protector import Opened, Protected, ProtectionRequest, Refused
from qmnode.security.published_keys import (
    PublishedKeys,
    first_pairs,
    make_pair,
    public_key_list,
    published,
    usable_providers,
)
from qmnode.security.rsa_keys import AES_PROVIDER, BASE_PROVIDER, ENHANCED_PROVIDER
from qmnode.security.sender_identity import make_internal_certificate, parse_certificate
from qmnode.settings.security import SecuritySettings
from qmnode.structures.enumerations import PrivacyLevel
from tests.security.keys import EVERYTHING_ALLOWED, private_key
from tests.security.messages import DESTINATION, NOW, Protector, encryption_pair, message, source

SETTINGS = SecuritySettings()


def test_a_node_makes_keys_for_what_is_not_weak_with_2048_bits() -> None:
    assert usable_providers(SETTINGS) == [AES_PROVIDER]
    assert usable_providers(EVERYTHING_ALLOWED) == [AES_PROVIDER, ENHANCED_PROVIDER, BASE_PROVIDER]
    pairs = first_pairs(SETTINGS, NOW)
    assert [(pair.purpose, pair.modulus_length, pair.state) for pair in pairs] == [
        (KeyPurpose.ENCRYPTION, 2048, KeyState.CURRENT),
        (KeyPurpose.SIGNING, 2048, KeyState.CURRENT),
    ]
    assert pairs[0].fingerprint != pairs[1].fingerprint


def test_the_specifications_lengths_can_be_asked_for() -> None:
    pair = make_pair(AES_PROVIDER, KeyPurpose.ENCRYPTION, SETTINGS, NOW, modulus_length=1024)
    assert (pair.modulus_length, pair.state) == (1024, KeyState.NEXT)
    with pytest.raises(WeakAlgorithmError):
        make_pair(BASE_PROVIDER, KeyPurpose.ENCRYPTION, SETTINGS, NOW)
    assert make_pair(BASE_PROVIDER, KeyPurpose.ENCRYPTION, EVERYTHING_ALLOWED, NOW).modulus_length == 512


def states(pairs: tuple[KeyPair, ...]) -> list[tuple[str, float | None]]:
    return [(pair.state.value, pair.superseded_time) for pair in pairs]


def test_publication_supersedes_the_providers_current_key_and_no_other() -> None:
    old, other = encryption_pair(), encryption_pair(ENHANCED_PROVIDER, 1)
    new = KeyPair.of(private_key(1024, 2), AES_PROVIDER.name, KeyPurpose.ENCRYPTION, KeyState.NEXT, NOW)
    after = published((old, other, new), new.fingerprint, NOW + 1.0)
    assert states(after) == [("previous", NOW + 1.0), ("current", None), ("current", None)]
    assert published(after, new.fingerprint, NOW + 2.0) == after
    back = published(after, old.fingerprint, NOW + 3.0)
    assert states(back) == [("current", None), ("current", None), ("previous", NOW + 3.0)]
    with pytest.raises(KeyError):
        published((old.destroyed(NOW),), old.fingerprint, NOW)


def test_a_key_is_needed_until_replicas_caches_and_messages_under_way_are_past() -> None:
    current = encryption_pair()
    assert current.needed_until(SETTINGS, 3600.0, 345_600.0) is None
    needed = current.superseded(NOW).needed_until(SETTINGS, 3600.0, 345_600.0)
    assert needed == NOW + 3600.0 + 600.0 + 600.0 + 345_600.0 + 300.0


def test_an_internal_certificate_has_the_key_and_the_dates() -> None:
    encoded = make_internal_certificate(private_key(1024), "bob" * 40, NOW, NOW + 100.0)
    certificate = parse_certificate(encoded)
    assert (certificate.not_before, certificate.not_after) == (NOW, NOW + 100.0)
    assert certificate.public_key.public_numbers() == private_key(1024).public_key.public_numbers()


def test_a_rotation_loses_no_message_that_is_under_way() -> None:
    """Ten rotations; each message is opened long after its key was superseded, until its key is destroyed."""
    here = Protector(DESTINATION, EVERYTHING_ALLOWED, KeyRing())
    away = source()
    pairs: tuple[KeyPair, ...] = (encryption_pair(),)
    stale = PublishedKeys.parse(DESTINATION, public_key_list(pairs, KeyPurpose.ENCRYPTION), NOW)
    under_way: list[tuple[str, object]] = []
    for turn in range(1, 11):
        now = NOW + turn * 3600.0
        new = KeyPair.of(private_key(1024, turn), AES_PROVIDER.name, KeyPurpose.ENCRYPTION, KeyState.NEXT, now)
        here.use_ring(KeyRing((*pairs, new)))
        pairs = published((*pairs, new), new.fingerprint, now + 1.0)
        here.use_ring(KeyRing(pairs))
        fresh = PublishedKeys.parse(DESTINATION, public_key_list(pairs, KeyPurpose.ENCRYPTION), now)
        for keys in (stale, fresh):  # a lagging replica, and one that is not
            packet = message(b"body %d" % turn, privacy_level=PrivacyLevel.ADVANCED, sent_time=now + 2.0)
            sent = away.protect(ProtectionRequest(packet.write(), keys=keys), now + 2.0)
            assert isinstance(sent, Protected)
            outcome = here.open(sent.written, now + 1800.0)
            assert isinstance(outcome, Opened)
            assert bytes(outcome.packet.message_properties_header.message_body) == b"body %d" % turn
            under_way.append((keys.keys[AES_PROVIDER.name].fingerprint, sent.packet))
        stale = fresh
    destroyed = pairs[0].fingerprint
    here.use_ring(KeyRing(pair.destroyed(NOW) if pair.fingerprint == destroyed else pair for pair in pairs))
    for fingerprint, packet in under_way:
        assert isinstance(here.open(packet.write(), NOW + 36_000.0), Refused if fingerprint == destroyed else Opened)  # type: ignore[arg-type]
