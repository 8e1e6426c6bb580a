"""SecurityHeader (MS-MQMQ 2.2.20.6): the sender of a message, its signature and the key of its body."""

from qmnode.structures.fields import AFTER, Flags, bits, data, length16, length32, padding, text_to_null, u16, u32
from qmnode.structures.layout import Structure


# fmt: off
class SecurityFlags(Flags, width=16):
    """The contents of SecurityData. X bits are unused: kept as they are, ignored.

    AI states whether SecurityData is present, yet frame 7 of MS-MQQB 4.1.7 has a SecurityID and a clear AI: the sizes
    decide which parts are present.
    """

    ST  = bits(0, 4, "Type of SecurityID", values={0: "none", 1: "SID", 2: "queue manager"})
    AU  = bits(4, 1, "Authenticated; sent as 0", allowed=(0,))
    EB  = bits(5, 1, "The body is encrypted")
    DE  = bits(6, 1, "The default cryptographic provider is used")
    AI  = bits(7, 1, "SecurityData is present")
    AS  = bits(8, 4, "Type of signature that authenticated; sent as 0", allowed=(0,))
    X12 = bits(12, 4, "Unused (X12 to X15)")


class ProviderInfo(Structure, section="MS-MQMQ 2.2.20.6"):
    """The cryptographic provider, when it is not the default."""

    provider_type: int = u32(0, "ProviderType", "Type of the provider (PROV_RSA_FULL is 1)")
    provider_name: str = text_to_null(4, "ProviderName", "Its name")


class SecurityHeader(Structure, section="MS-MQMQ 2.2.20.6"):
    """Security information; a part of size zero is absent. Each part is padded to 4 bytes; padding is kept."""

    flags: int                = u16(0, "Flags", "Options", bits=SecurityFlags, default=0)
    sender_id_size: int       = length16(2, "SenderIdSize", "Bytes of SecurityID", of="security_id")
    encryption_key_size: int  = length16(4, "EncryptionKeySize", "Bytes of EncryptionKey", of="encryption_key")
    signature_size: int       = length16(6, "SignatureSize", "Bytes of Signature", of="signature")
    sender_cert_size: int     = length32(8, "SenderCertSize", "Bytes of SenderCert, at most 65535", of="sender_cert",
                                         allowed=range(1 << 16))
    provider_info_size: int   = length32(12, "ProviderInfoSize", "Bytes of ProviderInfo", of="provider_info")
    security_id: bytes        = data(16, "SecurityID", "SID of the sender, or GUID of its queue manager", default=b"")
    security_id_padding: bytes    = padding("SecurityID padding")
    encryption_key: bytes     = data(AFTER, "EncryptionKey", "SIMPLEBLOB with the key of the body", default=b"")
    encryption_key_padding: bytes = padding("EncryptionKey padding")
    signature: bytes          = data(AFTER, "Signature", "Digital signature of the properties in 2.5", default=b"")
    signature_padding: bytes      = padding("Signature padding")
    sender_cert: bytes        = data(AFTER, "SenderCert", "X.509 certificate of the sender", default=b"")
    sender_cert_padding: bytes    = padding("SenderCert padding")
    provider_info: bytes      = data(AFTER, "ProviderInfo", "The provider, when not the default", default=b"",
                                     holds=ProviderInfo)
    provider_info_padding: bytes  = padding("ProviderInfo padding")
# fmt: on
