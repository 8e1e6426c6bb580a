"""MQUSERSIGNCERT, MQUSERSIGNCERTS (MS-MQMQ 2.2.22, 2.2.21): users' signing certificates in the directory."""

from qmnode.structures.fields import Guid, array, data, guid, length32, raw
from qmnode.structures.layout import Structure


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
