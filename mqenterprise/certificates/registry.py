"""Users' certificates in the directory: mSMQSignCertificates and mSMQDigests, kept in step by compare and set.

A node counts a SID only when the certificate that verified is one of that user's here (MS-MQQB 3.1.5.8.3). A revoked
one is believed for as long as a node's user certificate cache lives (UserCertLifetime).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from mqenterprise.directory.connection import swap
from mqenterprise.directory.entries import Change, ChangeKind
from qmnode.directory.port import User, equals
from qmnode.security.sender_identity import SenderCertificate, parse_certificate
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import Guid, guid_to_text, new_guid
from qmnode.structures.public_keys import MqUserSignCert, MqUserSignCerts

if TYPE_CHECKING:
    from mqenterprise.directory.open_directory import EnterpriseDirectory


class CertificateError(Exception):
    """The sentence says why, and what to do."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


LARGEST_LIST: Final = 1_048_576
"""Bytes of mSMQSignCertificates (rangeUpper of its schema)."""
_ATTEMPTS: Final = 5
_FIELDS: Final = ("name", "certificates", "certificate_digest_list")

Entries = tuple[MqUserSignCert, ...]


@dataclass(frozen=True, slots=True)
class Registered:
    """A certificate of a user in the directory."""

    user: str
    identifier: Guid
    digest: bytes
    certificate: SenderCertificate | None
    """None for bytes that are no certificate with an RSA key: no message ever verifies with them."""
    fault: str | None = None

    def due_from(self, ahead: float) -> float | None:
        """When it is to be renewed: ``ahead`` seconds before it expires. None when it cannot be read."""
        return None if self.certificate is None else self.certificate.not_after - ahead


class CertificateRegistry:
    """The certificates of all users. Raises :class:`CertificateError` and ``DirectoryError``; calls block."""

    def __init__(self, directory: EnterpriseDirectory) -> None:
        self._directory = directory

    def list(self, user: str | None = None) -> Iterator[Registered]:
        users = self._directory.users.list(attributes=_FIELDS) if user is None else iter([self._user(user)])
        for each in users:
            for entry in _entries(each):
                yield _registered(each.name, entry)

    def check_user(self, user: str) -> None:
        """CertificateError when the directory does not know this user."""
        self._user(user)

    def register(self, user: str, encoded: bytes) -> Registered:
        """Add a certificate (DER). One that the user has already is left as it is.

        Refuses what no message could be verified with, and a certificate of another user: its digest would name two.
        """
        try:
            parse_certificate(encoded)
        except ValueError as error:
            raise CertificateError(f"this cannot be registered: {error}") from None
        digest = _digest(encoded)
        for other in self._directory.users.list(equals("certificate_digest_list", digest), attributes=_FIELDS):
            if other.name.casefold() != self._user(user).name.casefold():
                raise CertificateError(f"this certificate is registered for {other.name}: revoke it there first")
        entry = MqUserSignCert(digest=digest, identifier=new_guid(), certificate=encoded)

        def added(entries: Entries) -> Entries:
            return entries if any(each.certificate == encoded for each in entries) else (*entries, entry)

        name, after = self._change(user, added)
        return next(_registered(name, each) for each in after if each.certificate == encoded)

    def revoke(self, user: str, fingerprint: str) -> Registered:
        """Take a certificate away. Raises :class:`CertificateError` when the user has none of that fingerprint."""
        gone = self.find(user, fingerprint)

        def without(entries: Entries) -> Entries:
            return tuple(each for each in entries if each.digest != gone.digest)

        self._change(user, without)
        return gone

    def find(self, user: str, fingerprint: str) -> Registered:
        """The one certificate of a user whose fingerprint begins so (with or without ``SHA256:``)."""
        wanted = fingerprint.removeprefix("SHA256:").lower()
        found = [each for each in self.list(user) if wanted and fingerprint_of(each).startswith(wanted)]
        if len(found) != 1:
            many = "no certificate" if not found else f"{len(found)} certificates"
            raise CertificateError(f"{user} has {many} with the fingerprint {fingerprint}: see 'certificate list'")
        return found[0]

    def _user(self, name: str) -> User:
        found = self._directory.users.find(name)
        if found is None:
            raise CertificateError(
                f"there is no user named {name} in the directory: declare it under users, then apply"
            )
        return found

    def _change(self, user: str, change: Callable[[Entries], Entries]) -> tuple[str, Entries]:
        """Read, change and write until nobody else wrote in between: the user's name and the entries after it."""
        for _ in range(_ATTEMPTS):
            found = self._user(user)
            entries = _entries(found)
            after = change(entries)
            if after == entries or self._wrote(found, after):
                return found.name, after
        raise CertificateError(f"someone else changes the certificates of {user} all the time: try again")

    def _wrote(self, user: User, entries: Entries) -> bool:
        packed = MqUserSignCerts(certificates=entries).write() if entries else None
        if packed is not None and len(packed) > LARGEST_LIST:
            raise CertificateError(f"{user.name} has too many certificates: revoke some that are not used any more")
        # MS-MQDSSM 3.1.6.7.6.2: the digests are in the order of the certificates; both change together or not at all.
        digests = tuple(dict.fromkeys(entry.digest for entry in entries))
        assert user.full_path is not None
        return swap(
            self._directory.connection,
            user.full_path,
            {"mSMQSignCertificates": (user.certificates, packed)},
            [Change(ChangeKind.REPLACE, "mSMQDigests", digests)],
        )


def fingerprint_of(registered: Registered) -> str:
    """The hexadecimal digits that identify a registered certificate; its MD5 digest if it cannot be read."""
    if registered.certificate is None:
        return registered.digest.hex()
    return registered.certificate.fingerprint.removeprefix("SHA256:")


def _digest(encoded: bytes) -> bytes:
    """MQUSERSIGNCERT.Digest is MD5 by MS-MQMQ 2.2.22. Nothing is believed for its sake: the bytes are compared."""
    return hashlib.md5(encoded, usedforsecurity=False).digest()


def _entries(user: User) -> Entries:
    try:
        return MqUserSignCerts.parse(user.certificates).certificates if user.certificates else ()
    except PacketError as error:
        raise CertificateError(f"the certificates of {user.name} in the directory cannot be read: {error}") from None


def _registered(user: str, entry: MqUserSignCert) -> Registered:
    found = Registered(user, entry.identifier, bytes(entry.digest), None)
    try:
        return replace(found, certificate=parse_certificate(bytes(entry.certificate)))
    except ValueError as error:
        return replace(found, fault=str(error))


DAY: Final = 86_400


def row_of(registered: Registered, now: float, ahead: int) -> dict[str, Any]:
    """A certificate at ``now``; due when it expires within ``ahead`` days."""
    certificate = registered.certificate
    due_from = registered.due_from(ahead * DAY)
    return {
        "user": registered.user,
        "fingerprint": fingerprint_of(registered),
        "identifier": guid_to_text(registered.identifier),
        "digest": registered.digest.hex(),
        "subject_key": None if certificate is None else f"RSA {certificate.public_key.key_size}",
        "not_before": None if certificate is None else _date(certificate.not_before),
        "not_after": None if certificate is None else _date(certificate.not_after),
        "state": _state(registered, now, due_from),
        "is_due": due_from is None or due_from <= now,
    }


def _state(registered: Registered, now: float, due_from: float | None) -> str:
    certificate = registered.certificate
    if certificate is None or due_from is None:
        return f"useless: {registered.fault}"
    if now < certificate.not_before:
        return "not valid yet"
    if now > certificate.not_after:
        return "expired"
    return "expires soon" if due_from <= now else "valid"


def _date(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
