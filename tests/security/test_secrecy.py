"""No secret in what a node says: every value, error and outcome of this room is shown and searched."""

from __future__ import annotations

import pprint
import traceback

from qmnode.security.key_stores import FileKeyStore, KeyRing
from qmnode.security.protector import IncomingSecurity, Protected, ProtectionRequest
from qmnode.security.rsa_keys import sign
from qmnode.structures.enumerations import AuthenticationLevel, EncryptionAlgorithm, HashAlgorithm, PrivacyLevel
from tests.security.keys import EVERYTHING_ALLOWED, private_key
from tests.security.messages import DESTINATION, NOW, RING, Protector, message, published, signer, source


def secrets_of(number: int) -> list[str]:
    """The numbers of a private key, as they could show."""
    numbers = private_key(1024, number).signing_key.private_numbers()
    values = (numbers.d, numbers.p, numbers.q, numbers.dmp1)
    return [
        form for value in values for form in (str(value), f"{value:x}", repr(value.to_bytes(128, "big").strip(b"\0")))
    ]


def test_nothing_that_can_be_printed_holds_a_key() -> None:
    packet = message(privacy_level=PrivacyLevel.ADVANCED)
    request = ProtectionRequest(packet.write(), AuthenticationLevel.SIG20, signer(), published(*RING))
    away, here = source(), Protector(DESTINATION, EVERYTHING_ALLOWED, RING)
    protected = away.protect(request, NOW)
    assert isinstance(protected, Protected)
    opened = here.open(protected.written, NOW)
    sent_keys = list(away._outgoing.cache._entries.values())
    kept = [*sent_keys, *here._incoming.cache._entries.values()]
    shown = "".join(
        f"{thing!r}{thing!s}{pprint.pformat(thing)}"
        for thing in (request, protected, opened, away, here, RING, list(RING), kept, signer(), FileKeyStore)
    )
    symmetric = [form for key in sent_keys for form in (repr(key.symmetric_key)[2:-1], key.symmetric_key.hex())]
    for secret in [*secrets_of(0), *symmetric]:
        assert secret not in shown


def test_no_error_holds_a_key() -> None:
    told = []
    for attempt in (
        lambda: sign(private_key(512), HashAlgorithm.SHA_512, b""),
        lambda: private_key(1024).__reduce__(),
        lambda: type(private_key(1024)).from_der(private_key(1024).to_der()[:-9]),
    ):
        try:
            attempt()
        except (ValueError, TypeError) as error:
            told.append("".join(traceback.format_exception(error)))
    assert len(told) == 3
    refusing = IncomingSecurity(DESTINATION, EVERYTHING_ALLOWED, KeyRing([*RING]))
    wrong = message(privacy_level=PrivacyLevel.ADVANCED, encryption_algorithm=EncryptionAlgorithm.AES256)
    told.append(repr(refusing.open(wrong.write(), NOW)))
    assert not [secret for secret in secrets_of(0) if secret in "".join(told)]
