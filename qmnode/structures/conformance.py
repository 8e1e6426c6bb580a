"""Checks packets against the rules: their kind, and each broken rule for which a node refuses them."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

from qmnode.structures.enumerations import EncryptionAlgorithm, MessageClass, SenderIdentifierType, VariantType
from qmnode.structures.errors import PacketError
from qmnode.structures.fields import Array, Choice, Data, DeclaredStructure, Field, Nested, Scalar
from qmnode.structures.guid import ZERO_GUID
from qmnode.structures.layout import Structure
from qmnode.structures.packets import (
    ACK_BODY_SIZE,
    ORDER_ACK_LABEL,
    ORDER_QUEUE,
    ORDER_QUEUE_NAME,
    RESPONSE_PADDING,
    ConnectionParameters,
    EstablishConnection,
    FinalAckBody,
    InternalFlags,
    OrderAckBody,
    Ping,
    PingFlags,
    SessionAck,
    is_order_queue,
)
from qmnode.structures.user_message import INFINITE, SIGNATURE, BaseFlags, SecurityFlags, UserFlags

# ----------------------------------------------------------------------------------------------------------------------
# The terms of conformance: kinds of packets, rules, findings, and a node's handling of a broken rule.


class Kind(StrEnum):
    """The packets of MS-MQQB 2.2 and MS-MQMQ 2.2.20."""

    PING = "Ping"
    ESTABLISH_CONNECTION = "EstablishConnection"
    CONNECTION_PARAMETERS = "ConnectionParameters"
    SESSION_ACK = "SessionAck"
    ORDER_ACK = "OrderAck"
    FINAL_ACK = "FinalAck"
    USER_MESSAGE = "UserMessage"


class Handling(StrEnum):
    """A node's handling of a packet that breaks a rule."""

    REFUSED = "refused"
    """It discards the packet and closes the session (MS-MQQB 3.1.5.1.3)."""
    REJECTED = "rejected"
    """The destination answers with a negative acknowledgment (MS-MQQB 3.1.5.8.3), and does not store the message."""
    IGNORED = "ignored"
    """It drops the packet, and the session continues."""
    TOLERATED = "tolerated"
    """It accepts the packet like a correct one, for the stated reason."""


class Treatment(NamedTuple):
    """A handling, and the reason if it is not REFUSED."""

    handling: Handling
    why: str = ""


REFUSED: Final = Treatment(Handling.REFUSED)


def tolerated(why: str) -> Treatment:
    return Treatment(Handling.TOLERATED, why)


def rejected(why: str) -> Treatment:
    return Treatment(Handling.REJECTED, why)


def ignored(why: str) -> Treatment:
    return Treatment(Handling.IGNORED, why)


class Finding(NamedTuple):
    """A MUST that a packet breaks."""

    structure: str
    field: str
    offset: int | None
    """Offset in bytes from the packet's beginning."""
    sentence: str
    section: str
    handling: str = ""
    """A node's handling of the packet (``Handling``); empty for a rule between packets."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """A packet with the facts that the predicates need."""

    kind: Kind
    packet: Any
    from_client: bool | None
    """Whether the client sent it; None where the capture does not show it."""
    order_body: Any = None
    """OrderAck Body or FinalAck Body, if the body is one."""

    @property
    def base(self) -> Any:
        return self.packet.base_header

    @property
    def user(self) -> Any:
        return self.packet.user_header

    @property
    def properties(self) -> Any:
        return self.packet.message_properties_header


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. ``broken`` returns True for a packet of ``kinds`` that breaks it; ``sentence`` states it."""

    kinds: frozenset[Kind]
    field: str
    """Structure and field as the specification names them: "BaseHeader.Flags"."""
    section: str
    sentence: str
    broken: Callable[[Seen], bool]
    treatment: Treatment = REFUSED


# ----------------------------------------------------------------------------------------------------------------------
# The rules that a packet MUST keep beyond its layout, as a table: kinds, field, section, sentence, predicate, handling.
#
# The parsers accept packets that break these rules; the rule's handling decides what a node does with them. The
# permitted values of one field are declared with the field (``allowed``), with their handling in ``VALUES``. This table
# has the rules that tie fields together or depend on the kind of packet. Rules between packets are in
# ``qmnode.capture.conversations``; nodes do not check them. ``qmnode.structures.conformance`` applies all of them.

_IPX_ADDRESS = re.compile(r"[0-9A-F]{8}[.:][0-9A-F]{12}", re.IGNORECASE)
_LONGEST_ADDRESS = 64
_EMPTY_NAME = b"\0\0"
_FINAL_CLASSES = frozenset(
    {
        MessageClass.MQMSG_CLASS_ACK_RECEIVE,
        MessageClass.MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_Q,
        MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q,
        MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED,
        MessageClass.MQMSG_CLASS_NACK_BAD_ENCRYPTION,
        MessageClass.MQMSG_CLASS_NACK_UNSUPPORTED_CRYPTO_PROVIDER,
        MessageClass.MQMSG_CLASS_NACK_BAD_SIGNATURE,
        MessageClass.MQMSG_CLASS_NACK_Q_EXCEED_QUOTA,
        MessageClass.MQMSG_CLASS_NACK_Q_DELETED,
        MessageClass.MQMSG_CLASS_NACK_Q_PURGED,
        MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT,
    }
)
# MS-MQQB 3.1.5.8.2 sends this class too, though the list of 2.2.5 leaves it out.
_FINAL_CLASSES |= {MessageClass.MQMSG_CLASS_NACK_HOP_COUNT_EXCEEDED}
_AES = {EncryptionAlgorithm.AES128, EncryptionAlgorithm.AES192, EncryptionAlgorithm.AES256}
_RC = {EncryptionAlgorithm.RC2, EncryptionAlgorithm.RC4}
_ALGORITHMS = {1: _RC, 3: _RC, 5: _AES}
_PRIVATE = frozenset(_ALGORITHMS)
_BODY_TYPES = frozenset(VariantType)
_BLOCK = dict.fromkeys(_AES, 16) | {EncryptionAlgorithm.RC2: 8}


def _user_flag(name: str) -> Callable[[Seen], int]:
    part = UserFlags.FIELDS[name]
    return lambda seen: part.get(seen.user.flags)


def _base_flag(name: str) -> Callable[[Seen], int]:
    part = BaseFlags.FIELDS[name]
    return lambda seen: part.get(seen.base.flags)


_th, _dm, _dq, _aq, _rq, _ah = map(_user_flag, ("TH", "DM", "DQ", "AQ", "RQ", "AH"))
_pr, _sh, _dh, _tr = map(_base_flag, ("PR", "SH", "DH", "TR"))


def _other_user_flags(seen: Seen, *but: str) -> int:
    """The bits of UserHeader.Flags outside these fields. RC counts the routing servers on the way, so it may be set."""
    word: int = seen.user.flags
    for name in (*but, "RC", "DQ"):
        word = UserFlags.FIELDS[name].put(word, 0)
    return word


def _wrong_order_queue(seen: Seen) -> bool:
    queue = seen.user.destination_queue
    if _dq(seen) == 3:
        return bool(queue.private_queue_identifier != ORDER_QUEUE.private_queue_identifier)
    return _dq(seen) == 7 and not _names_order_queue(queue.direct_format_name)


def _names_order_queue(name: str) -> bool:
    """Whether a direct format name is an orderQueueName of MS-MQQB 2.2.4."""
    host, backslash, queue = name.partition("\\")
    protocol, _, address = host.partition(":")
    if (backslash + queue).casefold() != ORDER_QUEUE_NAME.casefold() or len(address) > _LONGEST_ADDRESS:
        return False
    match protocol.upper():
        case "TCP":
            return _is_ip_address(address)
        case "SPX":
            return _IPX_ADDRESS.fullmatch(address) is not None
        case _:
            return False


def _is_ip_address(text: str) -> bool:
    try:
        ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _refused(seen: Seen) -> int:
    return InternalFlags.FIELDS["CS"].get(seen.packet.internal_header.flags)


def _security(seen: Seen) -> Any:
    return seen.packet.security_header


def _security_bits(seen: Seen) -> tuple[int, int, int, int]:
    """ST, EB, DE and AI of SecurityHeader.Flags."""
    flags = _security(seen).flags
    kind, encrypted, default, present = (SecurityFlags.FIELDS[name].get(flags) for name in ("ST", "EB", "DE", "AI"))
    return kind, encrypted, default, present


def _security_sizes(seen: Seen) -> tuple[int, int, int, int, int]:
    held = _security(seen)
    return (
        held.sender_id_size,
        held.encryption_key_size,
        held.signature_size,
        held.sender_cert_size,
        held.provider_info_size,
    )


def _bad_sid(sid: bytes) -> bool:
    """MS-DTYP 2.4.2.2: revision 1, at most 15 sub-authorities of 4 bytes after 8 bytes."""
    return len(sid) < 8 or sid[0] != 1 or sid[1] > 15 or len(sid) != 8 + 4 * sid[1]


def _bad_sender(seen: Seen) -> bool:
    sender = bytes(_security(seen).security_id)
    match _security_bits(seen)[0]:
        case SenderIdentifierType.NONE:
            return bool(sender)
        case SenderIdentifierType.SID:
            return _bad_sid(sender)
        case SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER:
            return len(sender) != 16
        case _:
            return False


def _secured(broken: Callable[[Seen], bool]) -> Callable[[Seen], bool]:
    """The predicate, limited to packets with a SecurityHeader."""
    return lambda seen: _security(seen) is not None and broken(seen)


def _transactional(broken: Callable[[Any], bool]) -> Callable[[Seen], bool]:
    """The predicate on the TransactionHeader, limited to packets that have one."""

    def answer(seen: Seen) -> bool:
        header = seen.packet.transaction_header
        return header is not None and broken(header)

    return answer


def _in_session_header(broken: Callable[[Any], bool]) -> Callable[[Seen], bool]:
    """The predicate on the SessionHeader, limited to packets that have one."""

    def answer(seen: Seen) -> bool:
        header = seen.packet.session_header
        return header is not None and broken(header)

    return answer


def _encrypted(seen: Seen) -> bool:
    return _security(seen) is not None and bool(_security_bits(seen)[1])


def _wrong_length_for_cipher(seen: Seen) -> bool:
    block = _BLOCK.get(seen.properties.encryption_algorithm)
    size = seen.properties.message_size
    return _encrypted(seen) and block is not None and (not size or bool(size % block))


def _of(*kinds: Kind) -> frozenset[Kind]:
    return frozenset(kinds)


_ALL_BUT_PING = frozenset(Kind) - {Kind.PING}
_INTERNAL = _of(Kind.ESTABLISH_CONNECTION, Kind.CONNECTION_PARAMETERS, Kind.SESSION_ACK)
_OPENING = _of(Kind.ESTABLISH_CONNECTION, Kind.CONNECTION_PARAMETERS)
_ESTABLISH, _PARAMETERS, _ACK = _of(Kind.ESTABLISH_CONNECTION), _of(Kind.CONNECTION_PARAMETERS), _of(Kind.SESSION_ACK)
_ORDER, _FINAL = _of(Kind.ORDER_ACK), _of(Kind.FINAL_ACK)
_TRANSACTIONAL_ACKS = _ORDER | _FINAL
_USER = _of(Kind.USER_MESSAGE)
_MESSAGES = _USER | _TRANSACTIONAL_ACKS
_WITH_SESSION_HEADER = _MESSAGES | _ACK

_BASE, _USER_HEADER, _PROPERTIES = "MS-MQMQ 2.2.19.1", "MS-MQMQ 2.2.19.2", "MS-MQMQ 2.2.19.3"
_SESSION, _TRANSACTION, _SECURITY = "MS-MQMQ 2.2.20.4", "MS-MQMQ 2.2.20.5", "MS-MQMQ 2.2.20.6"
_INTERNAL_HEADER, _CONNECTION, _ESTABLISHING = "MS-MQQB 2.2.1", "MS-MQQB 2.2.2.1", "MS-MQQB 2.2.3.1"
_ORDER_ACK, _ORDER_BODY, _FINAL_ACK, _FINAL_BODY = (
    "MS-MQQB 2.2.4",
    "MS-MQQB 2.2.4.1",
    "MS-MQQB 2.2.5",
    "MS-MQQB 2.2.5.1",
)

_STILL_KNOWN: Final = tolerated("an acknowledgment is known by class, label, size and queue alone")
_NOT_KNOWN: Final = ignored("it is not taken for an acknowledgment")
_ORDINARY: Final = tolerated("it is a message of that class for the queue that it names")
_UNDECIPHERABLE: Final = rejected("the body cannot be decrypted")
_UNREAD: Final = tolerated("the field is ignored")
_FLAGS_COUNT: Final = tolerated("the flags count; acknowledging what was not sent closes the session")

# fmt: off
RULES: Final = tuple(Rule(*row) for row in (
    # --- BaseHeader
    (_MESSAGES, "BaseHeader.Flags", _BASE, "PR must be 0 in a transactional message",
     lambda seen: _th(seen) and _pr(seen)),
    (_ALL_BUT_PING, "BaseHeader.Flags", _BASE, "DH must be set when TR is",
     lambda seen: _tr(seen) and not _dh(seen)),
    (_INTERNAL, "BaseHeader.Flags", _BASE, "DH must not be set outside a UserMessage",
     lambda seen: _dh(seen),
     tolerated("no DebugHeader is looked for in it")),
    (_OPENING, "BaseHeader.Flags", _BASE, "SH must not be set without a SessionHeader",
     lambda seen: _sh(seen),
     tolerated("no SessionHeader is looked for in it")),
    (_INTERNAL | _TRANSACTIONAL_ACKS, "BaseHeader.TimeToReachQueue", _BASE,
     "must be 0xFFFFFFFF outside a UserMessage",
     lambda seen: seen.base.time_to_reach_queue != INFINITE,
     tolerated("such a packet does not expire here")),

    # --- UserHeader
    (_MESSAGES, "UserHeader.SourceQueueManager", _USER_HEADER, "must identify the sender, and is the null GUID",
     lambda seen: seen.user.source_queue_manager == ZERO_GUID),
    (_MESSAGES, "UserHeader.QueueManagerAddress", _USER_HEADER, "must be the null GUID for a direct format name",
     lambda seen: _dq(seen) == 7 and seen.user.queue_manager_address != ZERO_GUID,
     tolerated("the name alone says where the message goes")),
    (_MESSAGES, "UserHeader.QueueManagerAddress", _USER_HEADER,
     "must identify the destination's queue manager for a public or private queue, and is the null GUID",
     lambda seen: _dq(seen) in (3, 5) and seen.user.queue_manager_address == ZERO_GUID,
     tolerated("the null GUID stands for whoever receives the message")),
    (_MESSAGES, "UserHeader.Flags", _USER_HEADER, "DM must not be 0 when TH is set",
     lambda seen: _th(seen) and not _dm(seen)),
    (_MESSAGES, "UserHeader.Flags", _USER_HEADER, "AH must not be set when sent",
     lambda seen: _ah(seen),
     tolerated("it means nothing to a receiver")),
    (_USER, "UserHeader.AdminQueue", _USER_HEADER,
     "must not be given when MessagePropertiesHeader.Flags asks for no acknowledgment",
     lambda seen: not seen.properties.flags & 0x0F and _aq(seen),
     tolerated("nothing is sent there")),
    (_MESSAGES, "UserHeader.ResponseQueue", _USER_HEADER,
     "must be on the host of the administration queue (RQ is 4), and there is no administration queue",
     lambda seen: _rq(seen) == 4 and not _aq(seen)),

    # --- MessagePropertiesHeader
    (_MESSAGES, "MessagePropertiesHeader.AllocationBodySize", _PROPERTIES,
     "must be the bytes allocated for the body, and is less than MessageSize",
     lambda seen: seen.properties.allocation_body_size < seen.properties.message_size,
     tolerated("MessageSize alone counts")),
    (_MESSAGES, "MessagePropertiesHeader.EncryptionAlgorithm", _PROPERTIES,
     "must be RC2 or RC4 for PrivacyLevel 1 and 3, and AES for 5",
     lambda seen: seen.properties.encryption_algorithm not in
        _ALGORITHMS.get(seen.properties.privacy_level, {seen.properties.encryption_algorithm}), _UNDECIPHERABLE),
    (_MESSAGES, "MessagePropertiesHeader.Label", _PROPERTIES, "must not have null characters before its end",
     lambda seen: "\0" in seen.properties.label,
     tolerated("it is for people, and nothing is decided by it")),
    (_MESSAGES, "MessagePropertiesHeader.PrivacyLevel", _PROPERTIES,
     "must be 0 when the body is not encrypted (no SecurityHeader with EB set)",
     lambda seen: seen.properties.privacy_level in _PRIVATE and not _encrypted(seen),
     tolerated("a node that has decrypted a body leaves it; what a queue demands is checked on the encryption itself")),
    (_MESSAGES, "MessagePropertiesHeader.PrivacyLevel", _PROPERTIES,
     "must be a level that there is (0, 1, 3 or 5) when the body is not encrypted",
     lambda seen: seen.properties.privacy_level not in (0, *_PRIVATE) and not _encrypted(seen)),
    (_MESSAGES, "MessagePropertiesHeader.PrivacyLevel", _PROPERTIES,
     "must not be 0 when the body is encrypted (SecurityHeader.Flags.EB)",
     lambda seen: _encrypted(seen) and not seen.properties.privacy_level, _UNDECIPHERABLE),
    (_MESSAGES, "MessagePropertiesHeader.MessageSize", _PROPERTIES,
     "must be a whole number of the cipher's blocks, since an encrypted body is padded to that (PKCS 5)",
     _wrong_length_for_cipher, _UNDECIPHERABLE),

    # --- SessionHeader
    (_WITH_SESSION_HEADER, "SessionHeader.RecoverableMsgAckFlags", _SESSION,
     "must not acknowledge anything when RecoverableMsgAckSeqNumber is 0",
     _in_session_header(lambda header: not header.recoverable_msg_ack_seq_number and header.recoverable_msg_ack_flags),
     _FLAGS_COUNT),
    (_WITH_SESSION_HEADER, "SessionHeader.RecoverableMsgAckFlags", _SESSION,
     "bit 0 must be set: RecoverableMsgAckSeqNumber is the first message that is acknowledged",
     _in_session_header(lambda header: header.recoverable_msg_ack_seq_number
                        and not header.recoverable_msg_ack_flags & 1), _FLAGS_COUNT),

    # --- TransactionHeader
    (_MESSAGES, "TransactionHeader.PreviousTxSequenceNumber", _TRANSACTION,
     "must be the number of a message before this one",
     _transactional(lambda header: 0 < header.tx_sequence_number <= header.previous_tx_sequence_number)),

    # --- SecurityHeader
    (_MESSAGES, "SecurityHeader.SecurityData", _SECURITY,
     "at least one of SenderIdSize, EncryptionKeySize, SignatureSize, SenderCertSize, ProviderInfoSize must be nonzero",
     _secured(lambda seen: not any(_security_sizes(seen))),
     tolerated("a header that says nothing: the message is anonymous")),
    (_MESSAGES, "SecurityHeader.SecurityID", _SECURITY, "must be what Flags.ST says: nothing, a SID, or a GUID",
     _secured(_bad_sender)),
    (_MESSAGES, "SecurityHeader.ProviderInfo", _SECURITY,
     "must name the provider when there is a Signature and Flags.DE is clear",
     _secured(lambda seen: bool(_security_sizes(seen)[2] and not _security_bits(seen)[2] and not
                                _security_sizes(seen)[4])),
     tolerated("HashAlgorithm alone says how to verify")),
    (_MESSAGES, "SecurityHeader.ProviderInfo", _SECURITY, "must not have an empty ProviderName",
     _secured(lambda seen: bytes(_security(seen).provider_info)[4:] == _EMPTY_NAME)),
    (_MESSAGES, "SecurityHeader.ProviderInfo", _SECURITY, "must not be there when Flags.DE is set",
     _secured(lambda seen: bool(_security_bits(seen)[2] and _security_sizes(seen)[4])),
     tolerated("it is shown and not used")),

    # --- InternalHeader
    (_INTERNAL, "InternalHeader.Reserved", _INTERNAL_HEADER, "must be 0",
     lambda seen: seen.packet.internal_header.reserved, _UNREAD),
    (_ACK, "InternalHeader.Flags", _INTERNAL_HEADER, "CS must not be set in a SessionAck",
     lambda seen: _refused(seen),
     tolerated("a session that is open cannot be refused")),
    (_PARAMETERS, "InternalHeader.Flags", "MS-MQQB 3.1.5.4.1", "CS must be 0 in ConnectionParameters",
     lambda seen: _refused(seen)),
    (_ESTABLISH, "InternalHeader.Flags", "MS-MQQB 3.1.5.2.3", "CS must be 0 in a request",
     lambda seen: seen.from_client is True and _refused(seen)),

    # --- ConnectionParametersHeader and EstablishConnectionHeader
    (_PARAMETERS, "ConnectionParametersHeader.Reserved", _CONNECTION, "must be 0",
     lambda seen: seen.packet.connection_parameters_header.reserved, _UNREAD),
    (_ESTABLISH, "EstablishConnectionHeader.Reserved", _ESTABLISHING, "must be 0",
     lambda seen: seen.packet.establish_connection_header.reserved, _UNREAD),
    (_ESTABLISH, "EstablishConnectionHeader.ServerGuid", _ESTABLISHING,
     "must identify the acceptor in a response, and is the null GUID",
     lambda seen: seen.from_client is False and
        seen.packet.establish_connection_header.server_guid == ZERO_GUID),
    (_ESTABLISH, "EstablishConnectionHeader.Padding", _ESTABLISHING, "must be 512 bytes of 0x5A in a response",
     lambda seen: seen.from_client is False and
        bytes(seen.packet.establish_connection_header.padding) != RESPONSE_PADDING,
     tolerated("padding is ignored")),

    # --- OrderAck and FinalAck
    (_ORDER, "BaseHeader.Flags", _ORDER_ACK, "must be 0 in an OrderAck", lambda seen: seen.base.flags, _NOT_KNOWN),
    (_FINAL, "BaseHeader.Flags", _FINAL_ACK, "must be 0 in a FinalAck", lambda seen: seen.base.flags, _NOT_KNOWN),
    # 2.2.4 wants DM clear, but 3.1.7.17 sends both acknowledgments as recoverable: either is accepted.
    (_ORDER, "UserHeader.Flags", _ORDER_ACK, "must be 0 in an OrderAck, except MP and DQ",
     lambda seen: _other_user_flags(seen, "MP", "DM"), _STILL_KNOWN),
    (_FINAL, "UserHeader.Flags", _FINAL_ACK, "must be 0 in a FinalAck, except MP, DM and DQ",
     lambda seen: _other_user_flags(seen, "MP", "DM"), _STILL_KNOWN),
    (_FINAL, "UserHeader.Flags", _FINAL_ACK, "DM must be 1 in a FinalAck", lambda seen: _dm(seen) != 1, _STILL_KNOWN),
    (_ORDER, "UserHeader.Flags", _ORDER_ACK, "DQ must be 3 or 7 in an OrderAck", lambda seen: _dq(seen) not in (3, 7),
     _ORDINARY),
    (_FINAL, "UserHeader.Flags", _FINAL_ACK, "DQ must be 3 or 7 in a FinalAck", lambda seen: _dq(seen) not in (3, 7),
     _ORDINARY),
    (_ORDER, "UserHeader.DestinationQueue", _ORDER_ACK, "must be the order queue: number 4, or by address",
     _wrong_order_queue, _ORDINARY),
    (_FINAL, "UserHeader.DestinationQueue", _FINAL_ACK, "must be the order queue: number 4, or by address",
     _wrong_order_queue, _ORDINARY),
    (_ORDER, "MessagePropertiesHeader.Label", _ORDER_ACK, f"must be {ORDER_ACK_LABEL!r}",
     lambda seen: seen.properties.label != ORDER_ACK_LABEL, _NOT_KNOWN),
    (_FINAL, "MessagePropertiesHeader.Label", _FINAL_ACK, f"must be {ORDER_ACK_LABEL!r}",
     lambda seen: seen.properties.label != ORDER_ACK_LABEL, _NOT_KNOWN),
    (_ORDER, "MessagePropertiesHeader.MessageSize", _ORDER_ACK, "must be 0x24",
     lambda seen: seen.properties.message_size != ACK_BODY_SIZE, _NOT_KNOWN),
    (_FINAL, "MessagePropertiesHeader.MessageSize", _FINAL_ACK, "must be 0x24",
     lambda seen: seen.properties.message_size != ACK_BODY_SIZE, _NOT_KNOWN),
    (_ORDER, "MessagePropertiesHeader.Flags", _ORDER_ACK, "must be 0", lambda seen: seen.properties.flags,
     _STILL_KNOWN),
    (_FINAL, "MessagePropertiesHeader.Flags", _FINAL_ACK, "must be 0", lambda seen: seen.properties.flags,
     _STILL_KNOWN),
    (_FINAL, "MessagePropertiesHeader.MessageClass", _FINAL_ACK, "must be one of the classes of a FinalAck",
     lambda seen: seen.properties.message_class not in _FINAL_CLASSES,
     tolerated("any class of a refusal says that the message ended")),
    (_ORDER, "MessagePropertiesHeader.BodyType", _ORDER_ACK, "must be VT_EMPTY",
     lambda seen: seen.properties.body_type, _STILL_KNOWN),
    (_FINAL, "MessagePropertiesHeader.BodyType", _FINAL_ACK, "must be VT_EMPTY",
     lambda seen: seen.properties.body_type, _STILL_KNOWN),
    (_ORDER, "OrderAck Body.TxPreviousSequenceNumber", _ORDER_BODY, "must be TxSequenceNumber - 1",
     lambda seen: seen.order_body and seen.order_body.tx_sequence_number and
        seen.order_body.tx_previous_sequence_number != seen.order_body.tx_sequence_number - 1,
     tolerated("TxSequenceNumber alone counts")),

    # --- Ping
    (_of(Kind.PING), "Ping Packet.Flags", "MS-MQQB 2.2.7", "RF must be clear in a request",
     lambda seen: seen.from_client is True and PingFlags.FIELDS["RF"].get(seen.packet.flags),
     tolerated("a request refuses nothing")),
))
# fmt: on

VALUES: Final[dict[tuple[str, str, str], Treatment]] = {
    ("SecurityHeader", "Flags", "AU"): tolerated("it is cleared on arrival: only a receiver may set it"),
    ("SecurityHeader", "Flags", "AS"): tolerated("it is cleared on arrival: only a receiver may set it"),
    ("MessagePropertiesHeader", "PrivacyLevel", ""): _UNDECIPHERABLE,
    ("MessagePropertiesHeader", "HashAlgorithm", ""): tolerated("without a signature; one does not verify with it"),
    ("MessagePropertiesHeader", "EncryptionAlgorithm", ""): tolerated("in clear; an encrypted body cannot be read"),
    ("SessionHeader", "WindowSize", ""): tolerated("it is taken for 1"),
    ("ConnectionParametersHeader", "WindowSize", ""): tolerated("it is taken for 1"),
    ("EstablishConnectionHeader", "OperatingSystem", "RE"): tolerated("the system of a peer changes nothing"),
    ("OrderAck Body", "TxSequenceNumber", ""): tolerated("it acknowledges nothing"),
    ("OrderAck Body", "TxPreviousSequenceNumber", ""): tolerated("TxSequenceNumber alone counts"),
    ("FinalAck Body", "TxSequenceNumber", ""): tolerated("it acknowledges nothing"),
    ("FinalAck Body", "TxPreviousSequenceNumber", ""): tolerated("TxSequenceNumber alone counts"),
}
"""Handling of values that the declarations forbid, by structure, field and bits; all others are REFUSED."""

# fmt: off
NOTES: Final = tuple(Rule(*row) for row in (
    (_MESSAGES, "SecurityHeader.Flags", _SECURITY, "AI is clear although SecurityData is there",
     _secured(lambda seen: not _security_bits(seen)[3] and any(_security_sizes(seen)))),
    (_MESSAGES, "MessagePropertiesHeader.BodyType", _PROPERTIES,
     "is none of the types of 2.2.12, as is usual for applications (MS-MQQB 4.1.7 has VT_BSTR)",
     lambda seen: seen.properties.body_type not in _BODY_TYPES),
    # A MUST of 2.2.19.2, but frame 7 of MS-MQQB 4.1.7 breaks it: the acknowledgments then have no receiver.
    (_USER, "UserHeader.AdminQueue", _USER_HEADER,
     "is not given although MessagePropertiesHeader.Flags asks for acknowledgments",
     lambda seen: seen.properties.flags & 0x0F and not _aq(seen)),
    (_MESSAGES, "UserHeader.SentTime", _USER_HEADER, "is the packet's own signature, so it was never set",
     lambda seen: seen.user.sent_time == SIGNATURE),
))
# fmt: on
"""Notes on unusual content that breaks no MUST, or one that the specification's own frames break too."""


_KINDS: Final[dict[type, Kind]] = {
    Ping: Kind.PING,
    EstablishConnection: Kind.ESTABLISH_CONNECTION,
    ConnectionParameters: Kind.CONNECTION_PARAMETERS,
    SessionAck: Kind.SESSION_ACK,
}
_BODIES: Final[dict[Kind, type[OrderAckBody | FinalAckBody]]] = {
    Kind.ORDER_ACK: OrderAckBody,
    Kind.FINAL_ACK: FinalAckBody,
}
_LEAST_FINAL_CLASS: Final = 0x4000
"""The lowest class of a FinalAck, MS-MQQB 3.1.5.1.1."""


def look_at(packet: Any, from_client: bool | None) -> Seen:
    """A parsed packet with its kind.

    Acknowledgments of transactions are recognised by their class alone, not by all conditions of 3.1.5.1.1, so that an
    incomplete one is shown as a wrong acknowledgment and not as an ordinary message.
    """
    kind = _KINDS.get(type(packet)) or _message_kind(packet)
    body = None
    if kind in _BODIES and packet.message_properties_header.message_size == ACK_BODY_SIZE:
        body = _BODIES[kind].parse(bytes(packet.message_properties_header.message_body))
    return Seen(kind, packet, from_client, body)


def _message_kind(packet: Any) -> Kind:
    properties = packet.message_properties_header
    if properties.message_class == MessageClass.MQMSG_CLASS_ORDER_ACK:
        return Kind.ORDER_ACK
    to_order_queue = is_order_queue(packet.user_header.destination_queue)
    if properties.message_class >= _LEAST_FINAL_CLASS and (to_order_queue or properties.label == ORDER_ACK_LABEL):
        return Kind.FINAL_ACK
    return Kind.USER_MESSAGE


def treatment_of_value(structure: str, field: str, bits: str = "") -> Treatment:
    """The treatment of a packet with a forbidden value in a field, or in some bits of it."""
    return VALUES.get((structure, field, bits), REFUSED)


def violation(packet: Structure) -> Finding | None:
    """The first broken rule for which a node refuses the packet, or None."""
    return next(violations(packet), None)


def violations(packet: Structure) -> Iterator[Finding]:
    """All broken rules for which a node refuses the packet, without offsets."""
    yield from _refused_values(packet)
    seen = look_at(packet, None)
    for rule in _refusing(seen.kind):
        if rule.broken(seen):
            structure, _, name = rule.field.rpartition(".")
            yield Finding(structure, name, None, rule.sentence, rule.section, Handling.REFUSED)


@cache
def _refusing(kind: Kind) -> tuple[Rule, ...]:
    return tuple(rule for rule in RULES if kind in rule.kinds and rule.treatment.handling is Handling.REFUSED)


# --- what one field alone may hold
def _refused_values(value: Structure) -> Iterator[Finding]:
    for attribute, problem_of in _checks(type(value)):
        held = getattr(value, attribute)
        if held is not None:
            yield from problem_of(held)


@cache
def _checks(kind: type[Structure]) -> tuple[tuple[str, Callable[[Any], Iterator[Finding]]], ...]:
    """The checks for a structure of this kind, by attribute."""
    found: list[tuple[str, Callable[[Any], Iterator[Finding]]]] = []
    choices = {item.on: item.cases.keys() for item in kind.PLAN.fields if isinstance(item, Choice)}
    for item in kind.PLAN.fields:
        match item:
            case Scalar(attribute=attribute, allowed=allowed) if choices.get(attribute, ()) == allowed:
                pass  # the reader takes no other number: it has no case for it
            case Scalar():
                if (check := _check_of_number(kind, item)) is not None:
                    found.append((item.attribute, check))
            case Data(holds=holds) if holds is not None:
                found.append((item.attribute, _check_of_content(kind, item.name, holds)))
            case Nested() | Choice() if _has_checks(item):
                found.append((item.attribute, _inside))
            case Array(item=each) if _has_checks(each):
                found.append((item.attribute, _inside_each))
    return tuple(found)


def _has_checks(item: Field | None) -> bool:
    """Whether a value of this field is a structure with checks: a list may have thousands of those without."""
    match item:
        case Nested(structure=kind):
            return bool(_checks(kind))
        case Choice(cases=cases):
            return any(_has_checks(case) for case in cases.values())
    return False


def _inside(held: Any) -> Iterator[Finding]:
    return _refused_values(held) if isinstance(held, Structure) else iter(())


def _inside_each(held: Any) -> Iterator[Finding]:
    for one in held:
        yield from _inside(one)


def _check_of_number(kind: type[Structure], item: Scalar) -> Callable[[int], Iterator[Finding]] | None:
    name, section = kind.PLAN.name, kind.section()
    allowed = item.allowed if item.form == "number" else None
    if treatment_of_value(name, item.name) is not REFUSED:
        allowed = None
    parts = [
        part
        for part in (item.bits.FIELDS.values() if item.bits is not None else ())
        if part.allowed is not None and treatment_of_value(name, item.name, part.name) is REFUSED
    ]
    if allowed is None and not parts:
        return None

    def check(held: int) -> Iterator[Finding]:
        if allowed is not None and held not in allowed:
            yield Finding(name, item.name, None, f"must not be 0x{held:X}", section, Handling.REFUSED)
        for part in parts:
            if (value := part.get(held)) not in part.allowed:  # type: ignore[operator]
                sentence = f"{part.name} must not be 0x{value:X}"
                yield Finding(name, item.name, None, sentence, section, Handling.REFUSED)

    return check


def _check_of_content(
    kind: type[Structure], field: str, holds: type[DeclaredStructure]
) -> Callable[[bytes], Iterator[Finding]]:
    def check(held: bytes) -> Iterator[Finding]:
        if held:
            try:
                holds.parse(bytes(held))
            except PacketError as error:
                yield Finding(kind.PLAN.name, field, None, str(error), kind.section(), Handling.REFUSED)

    return check
