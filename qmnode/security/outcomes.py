"""Requests to message security and its answers, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from qmnode.structures.message_security import AuthenticationLevel, SenderIdentifierType
from qmnode.structures.packet_view import Sections
from qmnode.structures.user_message import UserMessage

if TYPE_CHECKING:
    from qmnode.errors import MessageQueuingError
    from qmnode.security.identity import Sender, SenderClaim
    from qmnode.security.published_keys import PublishedKeys
    from qmnode.security.rsa_keys import PrivateKey
    from qmnode.structures.message_classes import MessageClass


class Neighbour(NamedTuple):
    """The queue manager at the other end of the session that brought a message."""

    block: str
    """Its address, or its /64 network in IPv6."""
    declared: bool
    """Whether the neighbour is in the directory and speaks from its own address, or has shown a certificate."""


TRUSTED: Final = Neighbour("", declared=True)
"""The neighbour that stands for this machine itself."""


@dataclass(frozen=True, slots=True)
class Signer:
    """The signer of a message: a user, or this queue manager for itself."""

    private_key: PrivateKey
    certificate: bytes
    """The X.509 certificate in DER."""
    type: SenderIdentifierType
    identifier: bytes
    """A SID, or the GUID of the queue manager."""


@dataclass(slots=True)
class ProtectionRequest:
    """An outgoing message and what its security needs. Privacy level and algorithms are in the packet."""

    packet: bytes
    authentication_level: AuthenticationLevel = AuthenticationLevel.NONE
    signer: Signer | None = None
    keys: PublishedKeys | None = None
    """Of the destination queue manager, wherever the next hop is; filled in when they are looked up."""
    sections: Sections = field(init=False, repr=False, compare=False)
    """The packet, cut into its headers."""

    def __post_init__(self) -> None:
        self.sections = Sections(self.packet)


@dataclass(frozen=True, slots=True)
class Protected:
    """The packet as it leaves."""

    written: bytes

    @property
    def packet(self) -> UserMessage:
        """The same as a structure."""
        return UserMessage.parse(self.written)


@dataclass(frozen=True, slots=True)
class Unprotectable:
    """The message must not leave (3.1.7.1.5.1): it goes to the dead-letter queue if the sender wanted that."""

    error: MessageQueuingError


@dataclass(frozen=True, slots=True)
class Opened:
    """An arrived message in clear. Only this node has set its bits AU and AS."""

    written: bytes
    authentication_level: AuthenticationLevel = AuthenticationLevel.NONE
    """The kind of signature that verified."""
    claim: SenderClaim | None = None
    """The claimed signer, to be confirmed by the directory before it counts. None: the sender is anonymous."""
    key_fingerprint: str | None = None
    """Of our key that the message was encrypted to; None if it was not."""
    silent: bool = False
    """Whether the sender gets no answer, because an answer would show whether the body decrypted."""

    @property
    def packet(self) -> UserMessage:
        """The packet as a structure."""
        return UserMessage.parse(self.written)


@dataclass(frozen=True, slots=True)
class Refused:
    """The message fails a check: its negative acknowledgment, and a sentence for the log."""

    message_class: MessageClass
    sentence: str
    silent: bool = False
    """The same as in :class:`Opened`."""
    key_missing: bool = field(default=False, compare=False)
    """Whether none of our private keys unwraps the session key: it may be one that was not read yet."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """The message cannot be judged now. It is neither acknowledged nor refused; the sender will send it again."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """An arrived message that may go into its queue."""

    written: bytes
    """In clear, with our bits."""
    sender: Sender
    authentication_level: AuthenticationLevel
    key_fingerprint: str | None = None
    """Of our key that the message was encrypted to; None if it was not."""
    silent: bool = False
    """The same as in :class:`Opened`."""

    @property
    def packet(self) -> UserMessage:
        """The packet as a structure."""
        return UserMessage.parse(self.written)


Verdict = Admitted | Refused | Deferred
"""The outcome for an arrived message."""
