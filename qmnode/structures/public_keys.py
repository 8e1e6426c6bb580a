"""MQDSPUBLICKEY, MQDSPUBLICKEYS (MS-MQMQ 2.2.1, 2.2.2): a queue manager's public keys, as the directory stores them."""

from __future__ import annotations

from typing import Final

from qmnode.structures.fields import (
    AFTER,
    array,
    const8,
    const16,
    const32,
    data,
    guid,
    length32,
    nested,
    raw,
    rest,
    text,
    u8,
    u32,
)
from qmnode.structures.guid import Guid
from qmnode.structures.layout import Structure

# ----------------------------------------------------------------------------------------------------------------------
# Keys as Windows exports them: PUBLICKEYBLOB, SIMPLEBLOB (MS-MQQB 2.4), made of BLOBHEADER, RSAPUBKEY (MS-MQDS).

BLOB_VERSION: Final = 0x02
SIMPLEBLOB: Final = 0x01
PUBLICKEYBLOB: Final = 0x06

CALG_RSA_SIGN: Final = 0x00002400
CALG_RSA_KEYX: Final = 0x0000A400
CALG_RC2: Final = 0x00006602
CALG_RC4: Final = 0x00006801
CALG_AES_128: Final = 0x0000660E
CALG_AES_192: Final = 0x0000660F
CALG_AES_256: Final = 0x00006610

RSA1: Final = 0x31415352
"""The letters RSA1, which mark a public key."""

MAX_RSA_BYTES: Final = 2048
"""Longest modulus in bytes, and so the longest encrypted key: 16,384 bits, the most that Windows makes."""

_BLOB_TYPES: Final = {SIMPLEBLOB: "SIMPLEBLOB", PUBLICKEYBLOB: "PUBLICKEYBLOB"}
_SESSION_ALGORITHMS: Final = {
    CALG_AES_128: "AES-128",
    CALG_AES_192: "AES-192",
    CALG_AES_256: "AES-256",
    CALG_RC2: "RC2",
    CALG_RC4: "RC4",
}


# fmt: off
class BlobHeader(Structure, section="MS-MQDS 2.2.19", title="BLOBHEADER"):
    """The kind of the key that follows, and its algorithm."""

    blob_type: int     = u8(0, "bType", "Kind of blob", values=_BLOB_TYPES, strict=True, default=PUBLICKEYBLOB)
    version: int       = const8(1, "bVersion", BLOB_VERSION, "Version of the header")
    reserved: int      = const16(2, "wReserved", 0, "Must be zero")
    key_algorithm: int = u32(4, "aiKeyAlg", "Algorithm that the key is for")


class RsaPubKey(Structure, section="MS-MQDS 2.2.18", title="RSAPUBKEY"):
    """The parameters of an RSA public key."""

    magic: int           = const32(0, "magic", RSA1, "The letters RSA1")
    bit_length: int      = length32(4, "bitLen", "Bits of the modulus", of="modulus", per=8)
    public_exponent: int = u32(8, "pubExp", "Public exponent")
    modulus: bytes       = data(12, "modulus", "The modulus, least significant byte first", limit=MAX_RSA_BYTES)


class PublicKeyBlob(
    Structure, section="MS-MQQB 2.4.1", title="PUBLICKEYBLOB", requires={"header.blob_type": PUBLICKEYBLOB}
):
    """A public key as a receiver publishes it."""

    header: BlobHeader = nested(0, BlobHeader, "Kind and algorithm", default=BlobHeader(key_algorithm=CALG_RSA_KEYX))
    key: RsaPubKey     = nested(8, RsaPubKey, "The key")

    @property
    def modulus(self) -> int:
        """The modulus n as a number."""
        return int.from_bytes(self.key.modulus, "little")

    @property
    def exponent(self) -> int:
        """The public exponent e as a number."""
        return self.key.public_exponent

    @classmethod
    def of(cls, modulus: int, exponent: int, key_algorithm: int = CALG_RSA_KEYX) -> PublicKeyBlob:
        """The blob of an RSA public key. Its bit length is a multiple of eight, as MS-MQQB 2.4.1 requires."""
        octets = modulus.to_bytes((modulus.bit_length() + 7) // 8, "little")
        return cls(
            header=BlobHeader(key_algorithm=key_algorithm), key=RsaPubKey(public_exponent=exponent, modulus=octets)
        )


class SimpleBlob(Structure, section="MS-MQQB 2.4.2", title="SIMPLEBLOB"):
    """A session key, encrypted with the receiver's public key.

    The specification draws 256 bytes of key, which is right for a public key of 2,048 bits; other keys have other
    lengths.
    """

    blob_type: int              = const8(0, "bType", SIMPLEBLOB, "SIMPLEBLOB")
    version: int                = const8(1, "bVersion", BLOB_VERSION, "Version of the header")
    reserved: int               = const16(2, "wReserved", 0, "Must be zero")
    session_key_algorithm: int  = u32(4, "sessionKeyAlgorithm", "Algorithm that the session key is for",
                                      values=_SESSION_ALGORITHMS)
    exchange_algorithm: int     = const32(8, "keyExchangeAlgorithm", CALG_RSA_KEYX, "CALG_RSA_KEYX")
    encrypted_key: bytes        = rest(12, "encryptedKey", "RSAES-PKCS1-v1_5, least significant byte first",
                                       limit=MAX_RSA_BYTES)
# fmt: on


PROV_RSA_FULL: Final = 0x00000001
PROV_RSA_AES: Final = 0x00000018

BASE_PROVIDER: Final = "Microsoft Base Cryptographic Provider v1.0"
ENHANCED_PROVIDER: Final = "Microsoft Enhanced Cryptographic Provider v1.0"
AES_PROVIDER: Final = "Microsoft Enhanced RSA and AES Cryptographic Provider"
"""The three providers that senders support (MS-MQQB 3.1.7.1.5)."""

_PROVIDER_TYPES: Final = {PROV_RSA_FULL: "PROV_RSA_FULL", PROV_RSA_AES: "PROV_RSA_AES"}


# fmt: off
class MqdsPublicKey(Structure, section="MS-MQMQ 2.2.1", title="MQDSPUBLICKEY"):
    """A public key and the provider that made it."""

    key_length: int      = length32(0, "ulKeyLen", "Bytes of aBuf", of="key")
    provider_length: int = length32(4, "ulProviderLen", "Bytes of sProviderName, null included", of="provider_name")
    provider_type: int   = u32(8, "ulProviderType", "Kind of provider", values=_PROVIDER_TYPES)
    provider_name: str   = text(12, "sProviderName", "Name of the provider")
    key: bytes           = data(AFTER, "aBuf", "A PUBLICKEYBLOB")

    @property
    def public_key(self) -> PublicKeyBlob:
        """The key as a structure, as MS-MQQB 3.1.7.1.5.2 converts it. Raises PacketError for invalid bytes."""
        return PublicKeyBlob.parse(self.key)


class MqdsPublicKeys(Structure, section="MS-MQMQ 2.2.2", title="MQDSPUBLICKEYS", total="length"):
    """The public keys of a queue manager, one for each provider."""

    length: int                    = u32(0, "ulLen", "Bytes of this structure", default=0)
    key_count: int                 = length32(4, "cNumofKeys", "Number of keys", of="keys")
    keys: tuple[MqdsPublicKey, ...] = array(8, MqdsPublicKey, "aPublicKeys", "The keys")

# fmt: on


# ----------------------------------------------------------------------------------------------------------------------
# MQUSERSIGNCERT, MQUSERSIGNCERTS (MS-MQMQ 2.2.22, 2.2.21): users' signing certificates in the directory.


# fmt: off
class MqUserSignCert(Structure, section="MS-MQMQ 2.2.22", title="MQUSERSIGNCERT"):
    """One certificate of a user."""

    digest: bytes           = raw(0, 16, "Digest", "MD5 of Certificate")
    identifier: Guid        = guid(16, "Identifier", "Given by who registered the certificate")
    certificate_length: int = length32(32, "CertificateLength", "Bytes of Certificate", of="certificate")
    certificate: bytes      = data(36, "Certificate", "X.509 certificate, DER")


class MqUserSignCerts(Structure, section="MS-MQMQ 2.2.21", title="MQUSERSIGNCERTS"):
    """The certificates of one user."""

    certificate_count: int                   = length32(0, "CertificateCount", "Number of certificates",
                                                        of="certificates")
    certificates: tuple[MqUserSignCert, ...] = array(4, MqUserSignCert, "Certificates", "The certificates")
# fmt: on
