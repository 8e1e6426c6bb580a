"""Numbers of a message's security in MS-MQMQ 2.2.19.3 and 2.2.20.6: hashes, ciphers, privacy, signatures, senders.

The names are those of MS-MQDMPR 3.1.1.12, the numbers are on the wire. The algorithm ids are CryptoAPI's ALG_ID.
"""

from enum import IntEnum
from typing import Final


class PrivacyLevel(IntEnum):
    """PrivacyLevel: how the body is encrypted in transit. Values of MessagePropertiesHeader.PrivacyLevel."""

    NONE = 0
    BASE = 1
    ENHANCED = 3
    ADVANCED = 5


PRIVACY_LEVELS: Final = frozenset(map(int, PrivacyLevel))


class HashAlgorithm(IntEnum):
    """HashAlgorithm: the hash that a signature is made over. Values of MessagePropertiesHeader.HashAlgorithm."""

    MD2 = 0x8001
    MD4 = 0x8002
    MD5 = 0x8003
    SHA1 = 0x8004
    SHA_256 = 0x800C
    SHA_512 = 0x800E


class EncryptionAlgorithm(IntEnum):
    """EncryptionAlgorithm: the cipher of the body. Values of MessagePropertiesHeader.EncryptionAlgorithm."""

    RC2 = 0x6602
    RC4 = 0x6801
    AES128 = 0x660E
    AES192 = 0x660F
    AES256 = 0x6610


class AuthenticationLevel(IntEnum):
    """AuthenticationLevel: the kind of digital signature requested, or found on arrival (SecurityHeader.Flags.AS)."""

    NONE = 0
    SIG10 = 1
    SIG20 = 3
    SIG30 = 5


class SenderIdentifierType(IntEnum):
    """SenderIdentifierType: the kind of SenderIdentifier. Values of SecurityHeader.Flags.ST."""

    NONE = 0
    SID = 1
    QUEUE_MANAGER_IDENTIFIER = 2
