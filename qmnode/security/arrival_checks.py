"""Whether an arrived message may go into its queue (MS-MQQB 3.1.5.8.3).

Decrypt and verify (in a worker, if there is one), confirm the sender with the directory, compare with what the queue
demands (MS-MQDMPR 3.1.1.2), check access. A batch goes through in one piece and keeps its order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from qmnode.security.access_check import Token, access_check
from qmnode.security.errors import MessageDeferredError, MessageRefusedError
from qmnode.security.protector import (
    TRUSTED,
    Admitted,
    Deferred,
    Deliverer,
    MessageProtector,
    Opened,
    Refused,
    Verdict,
)
from qmnode.security.sender_identity import Sender, SenderClaim, SenderDirectory, Senders, anonymous, place_of
from qmnode.structures.enumerations import MessageClass, QueuePrivacyLevel
from qmnode.structures.errors import PacketError
from qmnode.structures.packet_view import has_security
from qmnode.structures.security_descriptor import ANONYMOUS, EVERYONE, QueueAccess, SecurityDescriptor, Sid

if TYPE_CHECKING:
    from qmnode.settings.security import SecuritySettings

Result = TypeVar("Result")


class Worker(Protocol):
    """Runs a piece of work: :func:`inline`, or where it does not hold up the event loop, such as ``asyncio.to_thread``.

    The library gives up the interpreter's lock for an RSA operation and must get it back from a loop that is busy,
    which hands it over every 5 ms (``sys.setswitchinterval``): measured, a signature of 280 microseconds then takes
    1,480. So a thread pays only while there is a core and time to spare; a node at its limit is faster with ``inline``.
    """

    async def __call__(self, work: Callable[[], Result], /) -> Result:
        """Return the result of ``work``."""


async def inline(work: Callable[[], Result]) -> Result:
    """The worker of a node with one core: here and now."""
    return work()


@dataclass(frozen=True, slots=True)
class QueueRules:
    """The demands of a queue on messages (MS-MQDMPR 3.1.1.2)."""

    authentication: bool = False
    privacy_level: int = QueuePrivacyLevel.OPTIONAL
    security: bytes = b""
    """A self-relative SECURITY_DESCRIPTOR. Nothing at all is one without a DACL, which protects nothing."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that is at its destination, and its queue's rules."""

    packet: bytes
    rules: QueueRules
    neighbour: Deliverer = TRUSTED
    """The queue manager that brought it."""
    believed: Sender | None = None
    """Its sender if it is not signed, for the word of that queue manager."""


class Facts(Protocol):
    """The part of an opened message that a queue judges."""

    @property
    def claim(self) -> SenderClaim | None:
        """The sender that its signature stands for, whom the directory has confirmed; None for an anonymous one."""

    @property
    def key_fingerprint(self) -> str | None:
        """The key that the message was encrypted to; None if it was not encrypted."""


class _Plain(NamedTuple):
    claim: SenderClaim | None = None
    key_fingerprint: str | None = None


_PLAIN: Final = _Plain()


class Admission:
    """Judges arrivals. For the event loop's thread."""

    def __init__(
        self,
        protector: MessageProtector,
        senders: SenderDirectory,
        settings: SecuritySettings,
        worker: Worker = inline,
    ) -> None:
        self._protector = protector
        self._senders = senders
        self._anonymous = anonymous(settings)
        self._worker = worker

    async def judge(self, arrivals: Sequence[Arrival], now: float) -> list[Verdict]:
        """A verdict for each arrival, in their order. Senders that are not known yet are asked for all at once."""
        opened = await self._opened([(arrival.packet, arrival.neighbour) for arrival in arrivals], now)
        claims = [outcome.claim for outcome in opened if isinstance(outcome, Opened) and outcome.claim is not None]
        senders = await self._senders.confirm_all(claims, now)
        return [self._verdict(outcome, senders, arrival) for outcome, arrival in zip(opened, arrivals, strict=True)]

    def refusal_of_plain(self, rules: QueueRules, believed: Sender | None = None) -> Refused | None:
        """The reason why a queue refuses messages that are neither signed nor encrypted: the same for all of them, so
        computed once. ``believed`` is their sender, for the word of the queue manager that brings them.
        """
        return refusal_of(_PLAIN, believed or self._anonymous, rules)

    async def _opened(self, packets: list[tuple[bytes, Deliverer]], now: float) -> list[Opened | Refused | Deferred]:
        """Messages in clear; a batch without any security header takes no detour through the worker."""
        if not any(has_security(packet) for packet, _ in packets):
            return self._protector.open_all(packets, now)
        return await self._worker(lambda: self._protector.open_all(packets, now))

    def _verdict(self, outcome: Opened | Refused | Deferred, senders: Senders, arrival: Arrival) -> Verdict:
        if not isinstance(outcome, Opened):
            return outcome
        unsigned = arrival.believed or self._anonymous
        sender = unsigned if outcome.claim is None else senders[place_of(outcome.claim)]
        if isinstance(sender, MessageRefusedError):
            return Refused(sender.message_class, sender.sentence)
        if isinstance(sender, MessageDeferredError):
            return Deferred(sender.sentence)
        refusal = refusal_of(outcome, sender, arrival.rules)
        if refusal is not None:
            return replace(refusal, silent=outcome.silent)
        return Admitted(outcome.written, sender, outcome.authentication_level, outcome.key_fingerprint, outcome.silent)


def refusal_of(facts: Facts, sender: Sender, rules: QueueRules) -> Refused | None:
    """The reason why the queue refuses a message; None if it takes it.

    A message is authenticated when the directory has confirmed its certificate for the sender that it names. A
    signature alone is not enough: anybody can make a certificate.

    No section names the classes for authentication and privacy; they are those of a signature and a decryption that
    failed, as the classes' own descriptions have it (MS-MQDMPR 3.1.1.12).
    """
    if rules.authentication and facts.claim is None:
        return Refused(
            MessageClass.MQMSG_CLASS_NACK_BAD_SIGNATURE,
            "the queue takes authenticated messages only: signed by a sender whose certificate the directory has",
        )
    encrypted = facts.key_fingerprint is not None
    if rules.privacy_level == QueuePrivacyLevel.BODY and not encrypted:
        return Refused(
            MessageClass.MQMSG_CLASS_NACK_BAD_ENCRYPTION, "the queue takes encrypted messages only, this one was not"
        )
    if rules.privacy_level == QueuePrivacyLevel.NONE and encrypted:
        return Refused(
            MessageClass.MQMSG_CLASS_NACK_BAD_ENCRYPTION, "the queue takes no encrypted messages, this one was"
        )
    if not _may_write(rules.security, sender.sids):
        return Refused(
            MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED, f"{sender.user} has no right to write messages to the queue"
        )
    return None


@lru_cache(maxsize=4096)
def _may_write(security: bytes, sids: frozenset[Sid]) -> bool:
    """The access check (MS-DTYP 2.5.3.2), remembered. A descriptor that cannot be read grants nothing."""
    if not security:
        return True
    try:
        descriptor = SecurityDescriptor.parse(security)
    except PacketError:
        return False
    return access_check(descriptor, Token(sids), QueueAccess.MQSEC_WRITE_MESSAGE).allowed


@lru_cache(maxsize=1024)
def asks_who_sends(security: bytes) -> bool:
    """Whether the right to write may depend on the sender: entries name others than Everyone and Anonymous."""
    try:
        descriptor = SecurityDescriptor.parse(security) if security else SecurityDescriptor()
    except PacketError:
        return False
    if descriptor.dacl is None:
        return False
    return any(getattr(ace.entry, "sid", None) not in (None, EVERYONE, ANONYMOUS) for ace in descriptor.dacl.aces)
