"""Algorithms of old nodes that ``cryptography`` refuses: RC2 with short keys, MD2, MD4, RSA keys under 1,024 bits.

The one module that uses pycryptodome, which the extra ``legacy`` installs. Nothing reaches it unless the settings allow
the weak algorithm that needs it, and it is imported only then.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from qmnode.security.errors import LegacyUnavailableError
from qmnode.structures.enumerations import HashAlgorithm

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

PUBLIC_EXPONENT: Final = 65537
_SMALLEST_MODULUS: Final = 384
"""Bits of the shortest key of the base provider."""


def _load(name: str, purpose: str) -> ModuleType:
    """A module of pycryptodome."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise LegacyUnavailableError(
            f"{purpose} needs the extra 'legacy': install 'qmnode[legacy]', or better, retire what still uses it"
        ) from error


def rc2_encrypt(key: bytes, padded: bytes, effective_bits: int) -> bytes:
    """RC2 (RFC 2268) in CBC mode with a zero IV over whole blocks, with 40 to 1,024 effective key bits."""
    return bytes(_rc2(key, effective_bits).encrypt(padded))


def rc2_decrypt(key: bytes, encrypted: bytes, effective_bits: int) -> bytes:
    """The reverse of :func:`rc2_encrypt`; the padding stays."""
    return bytes(_rc2(key, effective_bits).decrypt(encrypted))


def _rc2(key: bytes, effective_bits: int) -> Any:
    arc2 = _load("Crypto.Cipher.ARC2", f"RC2 with {effective_bits} effective bits")
    return arc2.new(key, arc2.MODE_CBC, iv=bytes(8), effective_keylen=effective_bits)


_HASH_MODULES: Final = {HashAlgorithm.MD2: "Crypto.Hash.MD2", HashAlgorithm.MD4: "Crypto.Hash.MD4"}


def digest(algorithm: HashAlgorithm, data: bytes) -> bytes:
    """MD2 (RFC 1319) or MD4 (RFC 1320) of ``data``."""
    return bytes(_hash(algorithm, data).digest())


def _hash(algorithm: HashAlgorithm, data: bytes) -> Any:
    return _load(_HASH_MODULES[algorithm], algorithm.name).new(data)


def sign(private_key: RSAPrivateKey, algorithm: HashAlgorithm, data: bytes) -> bytes:
    """RSASSA-PKCS1-v1_5 with MD2 or MD4. The signature is big-endian, as RFC 3447 has it."""
    numbers = private_key.private_numbers()
    key = _load("Crypto.PublicKey.RSA", algorithm.name).construct(
        (numbers.public_numbers.n, numbers.public_numbers.e, numbers.d, numbers.p, numbers.q), consistency_check=False
    )
    return bytes(_load("Crypto.Signature.pkcs1_15", algorithm.name).new(key).sign(_hash(algorithm, data)))


def verify(public_key: RSAPublicKey, algorithm: HashAlgorithm, signature: bytes, data: bytes) -> bool:
    """Whether a big-endian RSASSA-PKCS1-v1_5 signature with MD2 or MD4 is this key's over ``data``."""
    numbers = public_key.public_numbers()
    key = _load("Crypto.PublicKey.RSA", algorithm.name).construct((numbers.n, numbers.e), consistency_check=False)
    try:
        _load("Crypto.Signature.pkcs1_15", algorithm.name).new(key).verify(_hash(algorithm, data), signature)
    except ValueError:
        return False
    return True


def generate_short_key(modulus_length: int) -> RSAPrivateKey:
    """A new RSA key of 384 to 1,023 bits.

    Neither library makes one whole; pycryptodome gives the primes. Anyone who records the traffic can break such a
    key in hours.
    """
    from cryptography.hazmat.primitives.asymmetric import rsa

    if not _SMALLEST_MODULUS <= modulus_length < 1024 or modulus_length % 8:
        raise ValueError(f"a short RSA key has {_SMALLEST_MODULUS} to 1,016 bits in whole bytes, not {modulus_length}")
    number = _load("Crypto.Util.number", f"a new RSA key of {modulus_length} bits")
    p, q = _primes(number, modulus_length)
    modulus, exponent = p * q, pow(PUBLIC_EXPONENT, -1, (p - 1) * (q - 1))
    return rsa.RSAPrivateNumbers(
        p=p,
        q=q,
        d=exponent,
        dmp1=exponent % (p - 1),
        dmq1=exponent % (q - 1),
        iqmp=pow(q, -1, p),
        public_numbers=rsa.RSAPublicNumbers(PUBLIC_EXPONENT, modulus),
    ).private_key()


def _primes(number: Any, modulus_length: int) -> tuple[int, int]:
    """Two different primes whose product has exactly the length, both fit for the public exponent."""
    while True:
        p = number.getPrime(modulus_length // 2)
        q = number.getPrime(modulus_length - modulus_length // 2)
        fits = (p * q).bit_length() == modulus_length and p != q
        if fits and (p - 1) % PUBLIC_EXPONENT and (q - 1) % PUBLIC_EXPONENT:
            return max(p, q), min(p, q)
