"""Whatever a peer sends, opening it ends in an outcome; and threads do not disturb each other."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qmnode.security.protector import Deferred, Opened, Protected, ProtectionRequest, Refused
from qmnode.structures.enumerations import AuthenticationLevel, PrivacyLevel
from qmnode.structures.errors import PacketError
from qmnode.structures.user_message import SecurityHeader, UserMessage
from tests.security.keys import EVERYTHING_ALLOWED
from tests.security.messages import DESTINATION, NOW, RING, Protector, message, published, sent, signer, source

OUTCOMES = (Opened, Refused, Deferred)
GOOD = sent(message(bytes(40), privacy_level=PrivacyLevel.ADVANCED), AuthenticationLevel.SIG20)
WIRE = GOOD.write()


def protector() -> Protector:
    return Protector(DESTINATION, EVERYTHING_ALLOWED, RING)


HERE = protector()


@settings(max_examples=200, deadline=None)
@given(places=st.lists(st.tuples(st.integers(0, len(WIRE) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_altered_bytes_end_in_an_outcome_and_never_in_another_authenticated_body(
    places: list[tuple[int, int]],
) -> None:
    altered = bytearray(WIRE)
    for place, value in places:
        altered[place] = value
    try:
        packet = UserMessage.parse(bytes(altered))
    except PacketError:
        return
    outcome = HERE.open(packet.write(), NOW)
    assert isinstance(outcome, OUTCOMES)
    if isinstance(outcome, Opened) and outcome.authentication_level is not AuthenticationLevel.NONE:
        assert bytes(outcome.packet.message_properties_header.message_body) == bytes(40)


headers = st.builds(
    SecurityHeader,
    flags=st.integers(0, 0xFFFF),
    security_id=st.binary(max_size=70),
    encryption_key=st.one_of(st.binary(max_size=200), st.just(GOOD.security_header.encryption_key)),  # type: ignore[union-attr]
    signature=st.binary(max_size=300),
    sender_cert=st.one_of(st.binary(max_size=300), st.just(signer().certificate)),
    provider_info=st.binary(max_size=20),
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    header=headers,
    privacy_level=st.sampled_from([0, 1, 2, 3, 5, 0xFFFFFFFF]),
    cipher=st.sampled_from([0, 0x6602, 0x6801, 0x660E, 0x660F, 0x6610, 0xFFFFFFFF]),
    digest=st.sampled_from([0, 0x8001, 0x8002, 0x8003, 0x8004, 0x800C, 0x800E, 0xFFFFFFFF]),
    body=st.binary(max_size=64),
)
def test_any_security_header_ends_in_an_outcome_and_authenticates_nobody(
    header: SecurityHeader, privacy_level: int, cipher: int, digest: int, body: bytes
) -> None:
    packet = message(body)
    properties = packet.message_properties_header.replace(
        privacy_level=privacy_level, encryption_algorithm=cipher, hash_algorithm=digest
    )
    outcome = HERE.open(packet.replace(security_header=header, message_properties_header=properties).write(), NOW)
    assert isinstance(outcome, OUTCOMES)
    if isinstance(outcome, Opened):
        assert outcome.claim is None
        assert outcome.authentication_level is AuthenticationLevel.NONE


def test_threads_share_a_protector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small caches, many destinations' worth of keys: evictions, insertions and look-ups in four threads at once."""
    for name in ("SEND", "RECEIVE"):
        monkeypatch.setattr(f"qmnode.security.protector.{name}_SYMMETRIC_KEY_CACHE_SIZE", 4)
    here = Protector(DESTINATION, EVERYTHING_ALLOWED, RING)

    def work(number: int) -> bool:
        away = source(EVERYTHING_ALLOWED)
        body = os.urandom(50)
        for _ in range(25):
            packet = message(body, privacy_level=PrivacyLevel.ADVANCED)
            protected = away.protect(
                ProtectionRequest(packet.write(), AuthenticationLevel.SIG20, signer(), published(*RING)), NOW + number
            )
            assert isinstance(protected, Protected)
            away._outgoing.cache.forget(lambda _place, _key: True)
            opened = here.open(protected.written, NOW + number)
            assert isinstance(opened, Opened)
            assert bytes(opened.packet.message_properties_header.message_body) == body
            here.clean_up(NOW)
        return True

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(8)))
