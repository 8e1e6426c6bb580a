"""Certificates of users and queue managers as the directory has them: packed in one value, digests in another."""

import base64
from hashlib import md5

from mqenterprise.directory.entries import Entry
from mqenterprise.directory.errors import ConstraintViolated
from mqenterprise.directory.mapping import Values
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import new_guid
from qmnode.structures.public_keys import MqUserSignCert, MqUserSignCerts


def digests_of(packed: bytes) -> tuple[bytes, ...]:
    """The digests of the certificates in an MQUSERSIGNCERTS structure, in their order (MS-MQDSSM 3.1.6.1.1.9).

    Raises ``ConstraintViolated`` for bytes that are no such structure.
    """
    try:
        return tuple(certificate.digest for certificate in MqUserSignCerts.parse(packed).certificates)
    except PacketError as error:
        raise ConstraintViolated(f"these are no packed certificates (MQUSERSIGNCERTS): {error}") from error


def pack_certificates(encoded: tuple[str, ...]) -> dict[str, Values]:
    """Encode certificates in base64 as ``mSMQSignCertificates`` and ``mSMQDigests`` (MS-MQDSSM 3.1.6.7.6.2)."""
    if not encoded:
        return {"mSMQSignCertificates": (), "mSMQDigests": ()}
    certificates = []
    for text in encoded:
        der = base64.b64decode(text)
        digest = md5(der, usedforsecurity=False).digest()
        certificates.append(MqUserSignCert(digest=digest, identifier=new_guid(), certificate=der))
    packed = MqUserSignCerts(certificates=tuple(certificates)).write()
    return {"mSMQSignCertificates": (packed,), "mSMQDigests": tuple(one.digest for one in certificates)}


def unpack_certificates(entry: Entry) -> tuple[str, ...] | str:
    """Return a user's certificates in base64, sorted, or one text with the reason why they cannot be decoded."""
    packed = entry.first("mSMQSignCertificates")
    if packed is None:
        return ()
    try:
        found = MqUserSignCerts.parse(packed).certificates
    except PacketError as error:
        return f"(not understood: {error})"
    return tuple(sorted(base64.b64encode(one.certificate).decode() for one in found))
