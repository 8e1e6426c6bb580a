"""Certificates of users and queue managers as the directory has them: packed in one value, digests in another."""

from mqenterprise.directory.errors import ConstraintViolated
from qmnode.structures.errors import PacketError
from qmnode.structures.user_certificates import MqUserSignCerts


def digests_of(packed: bytes) -> tuple[bytes, ...]:
    """The digests of the certificates in an MQUSERSIGNCERTS structure, in their order (MS-MQDSSM 3.1.6.1.1.9).

    Raises ``ConstraintViolated`` for bytes that are no such structure.
    """
    try:
        return tuple(certificate.digest for certificate in MqUserSignCerts.parse(packed).certificates)
    except PacketError as error:
        raise ConstraintViolated(f"these are no packed certificates (MQUSERSIGNCERTS): {error}") from error
