"""Signing and encrypting a message, and the way back, with warm caches: AES-256, SHA-512, 1 KiB, RSA-1024 and 2048.

The baselines are the bare calls of the library for the same cryptography: one RSA operation, one AES run. The
bars are for two nodes on two cores (4,000 and 1,500 messages a second); sender and receiver each have one core's time,
250 and 666 microseconds a message, of which transport and storage need their part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.ciphers import Cipher, modes
from cryptography.hazmat.primitives.ciphers.algorithms import AES

from qmnode.security.key_stores import KeyRing
from qmnode.security.protector import Opened, Protected, ProtectionRequest
from qmnode.structures.enumerations import AuthenticationLevel, PrivacyLevel
from qmnode.structures.user_message import UserMessage
from tests.bench import Comparison, bench, medians
from tests.security.keys import EVERYTHING_ALLOWED, private_key
from tests.security.messages import DESTINATION, NOW, Protector, encryption_pair, message, published, signer, source

if TYPE_CHECKING:
    from collections.abc import Callable

BODY: Final = bytes(range(256)) * 4
SENDING_BARS: Final = {1024: 2.0, 2048: 1.5}
"""Times the bare calls. Signing takes about 87 and 252 microseconds here."""
RECEIVING_BARS: Final = {1024: 6.0, 2048: 5.0}
"""Verifying takes 9 and 20: the rest weighs more."""
CALLS: Final = {1024: 200, 2048: 80}


def _bare_sending(modulus_length: int) -> Callable[[], object]:
    key, pad, digest = private_key(modulus_length).signing_key, padding.PKCS1v15(), hashes.SHA512()

    def run() -> None:
        key.sign(BODY, pad, digest)
        context = Cipher(AES(bytes(32)), modes.CBC(bytes(16))).encryptor()
        context.update(BODY)
        context.finalize()

    return run


def _bare_receiving(modulus_length: int) -> Callable[[], object]:
    private, pad, digest = private_key(modulus_length).signing_key, padding.PKCS1v15(), hashes.SHA512()
    signature, key = private.sign(BODY, pad, digest), private.public_key()

    def run() -> None:
        context = Cipher(AES(bytes(32)), modes.CBC(bytes(16))).decryptor()
        context.update(BODY)
        context.finalize()
        key.verify(signature, BODY, pad, digest)

    return run


def _lines(modulus_length: int) -> list[Comparison]:
    pair = encryption_pair(modulus_length=modulus_length)
    away, here = source(), Protector(DESTINATION, EVERYTHING_ALLOWED, KeyRing([pair]))
    packet = message(BODY, privacy_level=PrivacyLevel.ADVANCED)
    request = ProtectionRequest(packet.write(), AuthenticationLevel.SIG20, signer(modulus_length), published(pair))
    protected = away.protect(request, NOW)
    assert isinstance(protected, Protected)
    arrived = UserMessage.parse(protected.packet.write())
    assert isinstance(here.open(arrived.write(), NOW), Opened)
    sending, bare_sending, receiving, bare_receiving = medians(
        [
            lambda: away.protect(request, NOW),
            _bare_sending(modulus_length),
            lambda: here.open(arrived.write(), NOW),
            _bare_receiving(modulus_length),
        ],
        calls=CALLS[modulus_length],
        rounds=15,
    )
    return [
        Comparison(
            f"sign, encrypt: RSA-{modulus_length}, {1 / sending:,.0f}/s",
            sending,
            "sign, AES",
            bare_sending,
            SENDING_BARS[modulus_length],
        ),
        Comparison(
            f"decrypt, verify: RSA-{modulus_length}, {1 / receiving:,.0f}/s",
            receiving,
            "AES, verify",
            bare_receiving,
            RECEIVING_BARS[modulus_length],
        ),
    ]


@bench("security")
def security() -> list[Comparison]:
    """One core, one thread, caches warm."""
    return [line for modulus_length in (1024, 2048) for line in _lines(modulus_length)]
