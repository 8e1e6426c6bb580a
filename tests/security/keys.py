"""Keys for the tests: made once, as making them is slow."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

from Crypto.Util import number
from cryptography.hazmat.primitives.asymmetric import rsa

from qmnode.security.rsa_keys import Policy, PrivateKey
from qmnode.settings.security import SecuritySettings, WeakAlgorithm

ALL_WEAK = frozenset(WeakAlgorithm)


def private_key(modulus_length: int, which: int = 0) -> PrivateKey:
    """The key of that length and number: the same one in the whole run."""
    return _made_once(modulus_length, which)


@cache
def same_key(modulus_length: int) -> PrivateKey:
    """A key that is the same in every run: for tests whose outcome would otherwise be a matter of luck."""
    randomness = random.Random(modulus_length)
    p, q = (number.getPrime(modulus_length // 2, randfunc=randomness.randbytes) for _ in range(2))
    return PrivateKey(rsa_private_key(max(p, q), min(p, q)))


def ciphertexts(modulus_length: int, count: int) -> Iterator[bytes]:
    """What keys of that length could have made, little-endian: numbers, the same in every run."""
    randomness = random.Random(count)
    for _ in range(count):
        yield randomness.randrange(1 << modulus_length - 1).to_bytes(modulus_length // 8, "little")


def rsa_private_key(p: int, q: int) -> rsa.RSAPrivateKey:
    exponent = pow(65537, -1, (p - 1) * (q - 1))
    public = rsa.RSAPublicNumbers(65537, p * q)
    parts = rsa.RSAPrivateNumbers(p, q, exponent, exponent % (p - 1), exponent % (q - 1), pow(q, -1, p), public)
    return parts.private_key()


@cache
def _made_once(modulus_length: int, which: int) -> PrivateKey:
    return PrivateKey.generate(modulus_length, Policy(ALL_WEAK, "weak_algorithms_sent"))


EVERYTHING_ALLOWED = SecuritySettings(weak_algorithms_sent=ALL_WEAK, weak_algorithms_accepted=ALL_WEAK)
