"""The sender of a message: the identity that its signature proves, and the token for the access check. MS-MQQB
3.1.5.8.3.

A SID in a packet is a claim. It counts only if the certificate that verified the signature is one that the directory
holds for that SID; else the sender is anonymous, and still access-checked. The text lets an unsigned message name any
SID. Here one counts only where ``security.unsigned_senders`` says so, for the word of the queue manager that brings it.
Nor does an unsigned message pass as Everyone by saying that a queue manager sent it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.x509.oid import NameOID

from qmnode.directory.port import (
    Directory,
    DirectoryOperationError,
    DirectoryOperationResult,
    GroupExpansion,
    QueueManager,
    User,
    WorkgroupDirectory,
    equals,
)
from qmnode.security.caches import AgedCache, SharedReads
from qmnode.security.errors import MessageDeferredError, MessageRefusedError
from qmnode.security.rsa_keys import MAXIMUM_MODULUS_LENGTH, Policy, PrivateKey, public_key_to_wire
from qmnode.settings.security import SecuritySettings
from qmnode.structures.enumerations import MessageClass, SenderIdentifierType
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.structures.public_keys import MqdsPublicKeys, MqUserSignCerts
from qmnode.structures.security_descriptor import ANONYMOUS, AUTHENTICATED_USERS, EVERYONE, Sid


@dataclass(frozen=True, slots=True)
class SenderClaim:
    """The sender that a packet claims, with the certificate that verified its signature."""

    type: SenderIdentifierType
    identifier: bytes
    """A SID or the GUID of a queue manager."""
    certificate: SenderCertificate


@dataclass(frozen=True, slots=True)
class Sender:
    """A sender as the access check sees it."""

    user: Sid
    """The user's own SID; Everyone for a queue manager, Anonymous without a proven identity."""
    sids: frozenset[Sid]
    """``Token.Sids`` of MS-DTYP 2.5.3.2: the user and all groups."""


class UserCertKey(NamedTuple):
    """The key of a user certificate: both compared bytewise (3.1.5.8.3)."""

    certificate: bytes
    security_id: bytes


@dataclass(frozen=True, slots=True)
class CachedUserCert:
    """CachedUserCert, 3.1.1.3.4, with the user's groups as the directory expanded them."""

    identifier: Guid
    """The digest of the certificate: MQUSERSIGNCERT.Identifier."""
    sender: Sender
    cached_time: float
    user: Guid | None = None
    """The user's object in the directory; None for a queue manager, and where the directory names none."""


Senders = dict[UserCertKey, Sender | MessageRefusedError | MessageDeferredError]
"""The senders of a batch, or why one is none."""

ANONYMOUS_SENDER: Final = Sender(ANONYMOUS, frozenset({ANONYMOUS}))
USER_CERT_CACHE_SIZE: Final = 53
"""UserCertCacheSize, MS-MQQB 3.1.3.1: the most cached entries."""
QUEUE_MANAGER_SENDER: Final = Sender(EVERYONE, frozenset({EVERYONE}))
"""The identity of a queue manager that signs for itself (3.1.5.8.3)."""


def anonymous(settings: SecuritySettings) -> Sender:
    """The sender of a message that proves no identity."""
    if settings.everyone_includes_anonymous:
        return Sender(ANONYMOUS, frozenset({ANONYMOUS, EVERYONE}))
    return ANONYMOUS_SENDER


class SenderDirectory:
    """The user certificate cache before the directory. For the event loop's thread; crypto is not done here."""

    def __init__(self, directory: Directory, settings: SecuritySettings) -> None:
        self._directory = directory
        self.cache: AgedCache[UserCertKey, CachedUserCert] = AgedCache(
            USER_CERT_CACHE_SIZE, settings.user_cert_lifetime
        )
        """The certificates of users by digest: UserCertCache."""
        self._reads: SharedReads[UserCertKey, CachedUserCert] = SharedReads()
        self._changed: dict[UserCertKey, set[Guid | None]] = {}
        """By question under way, the objects that changed since it was asked; None: any object."""

    def cached(self, claim: SenderClaim, now: float) -> Sender | None:
        """The sender, if the cache can confirm the claim: most messages need no more."""
        cached = self.cache.get(place_of(claim), now)
        return None if cached is None else cached.sender

    async def confirm(self, claim: SenderClaim, now: float) -> Sender:
        """The sender, asked from the directory if the cache does not know.

        Raises :class:`MessageRefusedError` when the directory holds no such certificate for the claimed identifier, and
        :class:`MessageDeferredError` when it does not answer. Messages with the same claim share one question.
        """
        known = self.cached(claim, now)
        if known is not None:
            return known
        place = place_of(claim)
        return (await self._reads.share(place, lambda: self._read(claim, place, now))).sender

    async def confirm_all(self, claims: Iterable[SenderClaim], now: float) -> Senders:
        """Every sender of a batch, or why not; the directory is asked for all that are unknown at once."""
        senders: Senders = {}
        unknown: dict[UserCertKey, SenderClaim] = {}
        for claim in claims:
            place = place_of(claim)
            if place not in senders and place not in unknown:
                known = self.cached(claim, now)
                if known is None:
                    unknown[place] = claim
                else:
                    senders[place] = known
        if unknown:
            answers = await asyncio.gather(*(self._settled(claim, now) for claim in unknown.values()))
            senders.update(zip(unknown, answers, strict=True))
        return senders

    async def _settled(self, claim: SenderClaim, now: float) -> Sender | MessageRefusedError | MessageDeferredError:
        try:
            return await self.confirm(claim, now)
        except (MessageRefusedError, MessageDeferredError) as error:
            return error

    def forget(self, security_identifier: bytes) -> int:
        """Believe nothing that was cached about a user or queue manager; returns how many certificates that were."""
        return self.cache.forget(lambda place, _: place.security_id == security_identifier)

    def forget_users(self, changed: Guid | None) -> None:
        """Ask again for the certificates of ``changed``, if that object is a user; None: of all users."""
        for since in self._changed.values():
            since.add(changed)
        self.cache.forget(
            lambda _, cached: cached.sender is not QUEUE_MANAGER_SENDER and _is_changed(cached.user, changed)
        )

    async def close(self) -> None:
        """End the questions that still run."""
        await self._reads.close()

    async def _read(self, claim: SenderClaim, place: UserCertKey, now: float) -> CachedUserCert:
        changed = self._changed[place] = set()
        try:
            identifier, user = await self._registered_as(claim)
            sender = None if identifier is None else await self._sender(claim)
        except DirectoryOperationError as error:
            if error.result is DirectoryOperationResult.OBJECT_NOT_FOUND:
                raise _unknown(claim) from None
            raise MessageDeferredError(f"the sender cannot be looked up: {error.sentence}") from None
        finally:
            del self._changed[place]
        if identifier is None or sender is None:
            raise _unknown(claim)
        cached = CachedUserCert(identifier, sender, now, user)
        whose = user if claim.type is SenderIdentifierType.SID else Guid(claim.identifier)
        if not any(_is_changed(whose, one) for one in changed):  # an answer from before a change may be wrong since
            self.cache.add(place, cached)
        return cached

    async def _registered_as(self, claim: SenderClaim) -> tuple[Guid | None, Guid | None]:
        """MQUSERSIGNCERT.Identifier of the certificate, None if the directory lacks it; and the user's object."""
        if claim.type is SenderIdentifierType.SID:
            user = await self._directory.read_directory(
                User, [equals("security_identifier", claim.identifier)], ["identifier", "certificates"]
            )
            return _identifier_in(user.certificates, claim.certificate), user.identifier
        # The text looks for a user with this GUID as SID, whom no directory has: every message that a queue manager
        # signed would be refused. The queue manager's own object is meant.
        queue_manager = await self._directory.read_directory(
            QueueManager,
            [equals("identifier", Guid(claim.identifier))],
            ["public_signing_key_list", "public_signing_keys"],
        )
        if _is_key_in(queue_manager.public_signing_keys, claim.certificate):
            return ZERO_GUID, None
        return _identifier_in(queue_manager.public_signing_key_list, claim.certificate), None

    async def _sender(self, claim: SenderClaim) -> Sender:
        """The user with all groups. Groups that are no SIDs are left out: they could only grant."""
        if claim.type is not SenderIdentifierType.SID:
            return QUEUE_MANAGER_SENDER
        user = _sid(claim.identifier)
        if user is None:
            raise _unknown(claim)
        listed: tuple[Sid | None, ...] = ()
        if isinstance(self._directory, GroupExpansion):
            listed = tuple(map(_sid, await self._directory.expand_groups(claim.identifier)))
        groups = {group for group in listed if group is not None}
        return Sender(user, frozenset({user, EVERYONE, AUTHENTICATED_USERS, *groups}))


_UNSIGNED_KEPT: Final = 1_024
"""Senders of unsigned messages that are remembered."""


class UnsignedSenderDirectory:
    """The accounts that unsigned messages name, with their groups. For the event loop's thread."""

    def __init__(self, directory: Directory, settings: SecuritySettings, clock: Callable[[], float]) -> None:
        self._directory = directory
        self._lifetime = settings.principal_lifetime
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[Sender | None, float]] = OrderedDict()
        self._reads: SharedReads[bytes, None] = SharedReads()

    def is_known(self, identifier: bytes) -> bool:
        """Whether :meth:`sender` has an answer that is not too old."""
        known = self._known.get(identifier)
        return known is not None and self._clock() < known[1]

    def sender(self, identifier: bytes) -> Sender | None:
        """The account of a SID as it was looked up last; None if unsigned messages of this account do not count."""
        known = self._known.get(identifier)
        return None if known is None else known[0]

    async def look_up(self, identifier: bytes) -> None:
        """Ask the directory for an account. Raises :class:`MessageDeferredError` when it does not answer."""
        await self._reads.share(identifier, lambda: self._look_up(identifier))

    async def close(self) -> None:
        """End the questions that still run."""
        await self._reads.close()

    async def _look_up(self, identifier: bytes) -> None:
        try:
            found = await self._find(identifier)
        except DirectoryOperationError as error:
            if error.result is not DirectoryOperationResult.OBJECT_NOT_FOUND:
                raise MessageDeferredError(f"the sender cannot be looked up: {error.sentence}") from None
            found = None
        self._known[identifier] = found, self._clock() + self._lifetime
        self._known.move_to_end(identifier)
        if len(self._known) > _UNSIGNED_KEPT:
            self._known.popitem(last=False)

    async def _find(self, identifier: bytes) -> Sender | None:
        """The account, if it is one of a domain: the groups and users of this machine, and the well-known ones, are
        not those of the machine that sent the message."""
        user = _sid(identifier)
        if user is None or not user.is_domain_account:
            return None
        directory = self._directory
        listed: tuple[Sid | None, ...] = ()
        if isinstance(directory, GroupExpansion):
            listed = tuple(map(_sid, await directory.expand_groups(identifier)))
        elif type(directory) is not WorkgroupDirectory:
            await directory.read_directory(User, [equals("security_identifier", identifier)], ["security_identifier"])
        groups = {group for group in listed if group is not None}
        return Sender(user, frozenset({user, EVERYONE, AUTHENTICATED_USERS, *groups}))


def _is_changed(whose: Guid | None, changed: Guid | None) -> bool:
    """Whether a change may be one of the object ``whose``; None: that is not known."""
    return changed is None or whose in (None, changed)


def _sid(encoded: bytes) -> Sid | None:
    try:
        return Sid.parse(encoded)
    except PacketError:
        return None


def place_of(claim: SenderClaim) -> UserCertKey:
    """The key of a claim in the cache."""
    return UserCertKey(claim.certificate.encoded, claim.identifier)


def _identifier_in(encoded: bytes | None, certificate: SenderCertificate) -> Guid | None:
    """The identifier of the bytewise same certificate in an MQUSERSIGNCERTS. One that cannot be read holds none."""
    try:
        listed = MqUserSignCerts.parse(encoded or b"").certificates
    except PacketError:
        return None
    return next((entry.identifier for entry in listed if entry.certificate == certificate.encoded), None)


def _is_key_in(encoded: bytes | None, certificate: SenderCertificate) -> bool:
    """Whether the certificate's key is one of an MQDSPUBLICKEYS: what MS-MQDMPR 3.1.1.1 says the attribute is, and
    what is in mSMQSignKey. MS-MQDSSM 3.1.6.7.1.8 makes it MQUSERSIGNCERTS, in mSMQSignCertificates."""
    try:
        keys = [entry.public_key.key for entry in MqdsPublicKeys.parse(encoded or b"").keys]
    except PacketError:
        return False
    return public_key_to_wire(certificate.public_key) in [(key.modulus, key.public_exponent) for key in keys]


def _unknown(claim: SenderClaim) -> MessageRefusedError:
    whom = "the user" if claim.type is SenderIdentifierType.SID else "the queue manager"
    return MessageRefusedError(
        MessageClass.MQMSG_CLASS_NACK_BAD_SIGNATURE,
        f"the directory holds no certificate {claim.certificate.fingerprint} for {whom} that signed",
    )


# ----------------------------------------------------------------------------------------------------------------------
# Certificates that messages are signed with: X.509 (MS-MQMQ 2.2.20.6), parsed once and checked for every message.
#
# A certificate does not prove its account by itself: the directory does (``identity``). So no chain is built here; an
# internal certificate is signed by nobody but itself.

LARGEST_CERTIFICATE = 0xFFFF
"""Bytes: SecurityHeader.SenderCertSize ends there."""
LONGEST_EXPONENT = 32
"""Bits (MS-MQMQ 2.2.20.6). A longer one would only make verifying slow."""


@dataclass(frozen=True, slots=True)
class SenderCertificate:
    """The parts of a certificate that verifying needs. Times are seconds since 1970."""

    encoded: bytes
    public_key: RSAPublicKey
    not_before: float
    not_after: float
    fingerprint: str

    def fault(self, now: float, clock_skew: float, policy: Policy) -> str | None:
        """Why it cannot be used at ``now``, as a sentence, or None."""
        bits = self.public_key.key_size
        if now < self.not_before - clock_skew:
            return f"certificate {self.fingerprint} is not valid yet"
        if now > self.not_after:
            return f"certificate {self.fingerprint} has expired"
        if bits > MAXIMUM_MODULUS_LENGTH:
            return f"certificate {self.fingerprint} has a key of {bits} bits, more than {MAXIMUM_MODULUS_LENGTH}"
        policy.require_modulus(bits)
        return None


def parse_certificate(encoded: bytes) -> SenderCertificate:
    """A certificate with an RSA key from its DER bytes. Raises ValueError for anything else."""
    if len(encoded) > LARGEST_CERTIFICATE:
        raise ValueError(f"a certificate of {len(encoded)} bytes is too large")
    try:
        certificate = x509.load_der_x509_certificate(encoded)
        public_key = certificate.public_key()
        not_before, not_after = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except Exception as error:  # the library raises its own UnsupportedAlgorithm beside ValueError
        raise ValueError(f"not a certificate that can be read: {type(error).__name__}") from None
    if not isinstance(public_key, RSAPublicKey):
        raise ValueError("the certificate's key is not an RSA key")
    if public_key.public_numbers().e >> LONGEST_EXPONENT:
        raise ValueError(f"the public exponent of the certificate's key has more than {LONGEST_EXPONENT} bits")
    fingerprint = f"SHA256:{hashlib.sha256(encoded).hexdigest()[:32]}"
    return SenderCertificate(encoded, public_key, not_before.timestamp(), not_after.timestamp(), fingerprint)


LONGEST_NAME = 64
"""Characters of a certificate's common name (RFC 5280, ub-common-name)."""


def make_internal_certificate(private_key: PrivateKey, name: str, not_before: float, not_after: float) -> bytes:
    """A certificate signed by its own key, DER: only that the key exists. Times are seconds since 1970."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:LONGEST_NAME])])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private_key.public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(not_before, UTC))
        .not_valid_after(datetime.fromtimestamp(not_after, UTC))
        .sign(private_key.signing_key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.DER)
