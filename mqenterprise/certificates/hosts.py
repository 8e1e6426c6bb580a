"""Certificates of hosts and of users: issued by the enterprise's own authority, and renewed before they expire.

A host's certificate names its queue manager, and is valid for servers and clients. A user's certificate has no host
names, and is valid for clients only. Nodes accept neither in place of the other.
"""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from mqenterprise.certificates.registry import CertificateError
from mqenterprise.directory.authority import FOR_BOTH, FOR_CLIENTS, Issued, create_authority, issue, load_authority
from qmnode.security.tls import URI_SCHEME


class Holder(StrEnum):
    """The two kinds of holders of certificates."""

    HOST = "host"
    USER = "user"

    @property
    def usages(self) -> tuple[x509.ObjectIdentifier, ...]:
        """The extended key usages of its certificates."""
        return FOR_CLIENTS if self is Holder.USER else FOR_BOTH


@dataclass(frozen=True, slots=True)
class Authority:
    """Where the enterprise's own authority is kept: ``ca.pem``, which everybody may read, and its key."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def key(self) -> Path:
        return self.folder / "ca.key"

    @property
    def exists(self) -> bool:
        return self.certificate.exists() and self.key.exists()

    def create(self, name: str, now: datetime.datetime) -> None:
        """Create the authority. Raises :class:`CertificateError` if only its key or only its certificate exists."""
        if self.certificate.exists() or self.key.exists():
            raise CertificateError(f"{self.folder} holds half an authority: restore what is missing of ca.pem, ca.key")
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        create_authority(name, now).save(self.certificate, self.key)

    def load(self) -> Issued:
        """Return the certificate. Raises :class:`CertificateError` if there is none or it cannot be read."""
        try:
            return load_authority(self.certificate, self.key)
        except (OSError, ValueError) as error:
            raise CertificateError(f"the authority in {self.folder} cannot be used: {error}") from None


def why_due(
    authority: Authority,
    certificate: Path,
    key: Path,
    names: Sequence[str],
    now: datetime.datetime,
    renew_before: datetime.timedelta,
    holder: Holder = Holder.HOST,
) -> str | None:
    """The reason why the certificate in these files must be replaced; None if it need not."""
    if not authority.exists:
        return "the enterprise has no authority yet"
    if not certificate.exists() or not key.exists():
        return "there is none"
    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        private = serialization.load_pem_private_key(key.read_bytes(), password=None)
    except (ValueError, TypeError) as error:  # TypeError: the key has a passphrase
        return f"the one that is there cannot be read: {error}"
    if private.public_key() != found.public_key():
        return "its key is another one"
    try:
        found.verify_directly_issued_by(authority.load().certificate)
    except (ValueError, TypeError, InvalidSignature):
        return "another authority issued it"
    if set(names) != _names(found):
        return f"the {holder}'s names have changed"
    if set(holder.usages) != _usages(found):
        return f"it is not for a {holder}"
    if found.not_valid_after_utc - renew_before <= now:
        return f"it expires on {found.not_valid_after_utc:%Y-%m-%d}"
    return None


def issue_for_host(
    authority: Authority, certificate: Path, key: Path, name: str, names: Sequence[str], now: datetime.datetime
) -> None:
    """Issue a certificate for a host under all of its names, with a new key that only its owner can read.

    Raises :class:`CertificateError` for the queue manager of another host.
    """
    _refuse_that_of_others(certificate, names, now)
    _issue(Holder.HOST, authority, certificate, key, name, names, now)


def issue_for_user(authority: Authority, certificate: Path, key: Path, name: str, now: datetime.datetime) -> None:
    """Issue a certificate for a user of AMQP doors, with a new key that only its owner can read."""
    _issue(Holder.USER, authority, certificate, key, name, (), now)


def _issue(
    holder: Holder,
    authority: Authority,
    certificate: Path,
    key: Path,
    name: str,
    names: Sequence[str],
    now: datetime.datetime,
) -> None:
    certificate.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    key.unlink(missing_ok=True)
    issue(authority.load(), name, names, now, usages=holder.usages).save(certificate, key)


def _refuse_that_of_others(certificate: Path, names: Sequence[str], now: datetime.datetime) -> None:
    """Refuse a queue manager that the certificate of another host in the folder of all hosts names.

    A host of a workgroup says itself which queue manager it has, and one that was taken over could name another's.
    """
    claimed = {name.lower() for name in names if name.lower().startswith(URI_SCHEME)}
    others = sorted(certificate.parent.parent.glob(f"*/{certificate.name}")) if claimed else []
    for other in others:
        if other.parent == certificate.parent:
            continue
        try:
            found = x509.load_pem_x509_certificate(other.read_bytes())
        except (OSError, ValueError):
            continue
        if found.not_valid_after_utc > now and claimed & set(map(str.lower, _names(found))):
            raise CertificateError(
                f"{certificate.parent.name} says that its queue manager is the one of {other.parent.name}, as {other} "
                f"names it: look who it is. If it has taken that host's place, delete {other.parent}"
            )


def _usages(certificate: x509.Certificate) -> set[x509.ObjectIdentifier]:
    try:
        return set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return set()


def _names(certificate: x509.Certificate) -> set[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in found}
