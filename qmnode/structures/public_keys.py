"""MQDSPUBLICKEY, MQDSPUBLICKEYS (MS-MQMQ 2.2.1, 2.2.2): a queue manager's public keys, as the directory stores them."""

from typing import Final

from qmnode.structures.fields import AFTER, array, data, length32, text, u32
from qmnode.structures.key_blobs import PublicKeyBlob
from qmnode.structures.layout import Structure

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
