"""A UserMessage packet cut at the borders of its headers: what signing and encrypting read of it and put into it.

Taking a packet apart into structures and putting it together again takes several times as long as the cryptography. All
places come from the declarations of the structures, and the tests compare with what these do.
"""

from struct import Struct
from typing import Final

from qmnode.structures.base_header import BaseFlags
from qmnode.structures.guid import Guid
from qmnode.structures.message_properties_header import MessagePropertiesHeader
from qmnode.structures.message_security import AuthenticationLevel
from qmnode.structures.multi_queue_format_header import MultiQueueFormatHeader
from qmnode.structures.packet_view import (
    ADDRESS,
    BODY_SIZES,
    FLAGS_AT,
    GUID_SIZE,
    NAMES_AT,
    PROPERTIES_SIZE,
    SECURITY_SIZE,
    SIZE_AT,
    SIZE_END,
    SOURCE,
    pack_security,
    places_of,
    read_properties,
    read_security,
    security_parts,
    sent_time_of,
    user_flags_of,
)
from qmnode.structures.places import offset_of
from qmnode.structures.signature_properties import FLAGS_COVERED, signed_bytes
from qmnode.structures.transaction_header import TransactionFlags
from qmnode.structures.user_header import UserFlags
from qmnode.structures.user_message import UserMessage

_LONG: Final = Struct("<I")
_SHORT: Final = Struct("<H")
_MESSAGE_SIZE_AT: Final = BODY_SIZES.start
_SIZES_AND_PRIVACY: Final = Struct("<III")
"""MessageSize, AllocationBodySize and PrivacyLevel."""
_HASH_AT: Final = offset_of(MessagePropertiesHeader, "hash_algorithm")
_ALGORITHM_AT: Final = offset_of(MessagePropertiesHeader, "encryption_algorithm")
_OPTIONS: Final = Struct("<BBBBHI")
"""Of a signature: Flags.DM, Flags.PR, source journaling, the acknowledgments asked for, MessageClass, BodyType."""
DIRECT: Final = 7
_PADDING: Final = (b"", b"\0\0\0", b"\0\0", b"\0")
_CONNECTOR: Final = UserFlags.CQ.mask
_TRANSACTIONAL: Final = UserFlags.TH.mask
_SECURED: Final = UserFlags.SH.mask
_SEVERAL: Final = UserFlags.MQ.mask
_DM, _JP, _JN = UserFlags.DM, UserFlags.JP.shift, UserFlags.JN.shift
_DM_SHIFT, _DM_MASK = _DM.shift, _DM.mask >> _DM.shift
_DQ, _AQ, _RQ = UserFlags.DQ.shift, UserFlags.AQ.shift, UserFlags.RQ.shift
_PR: Final = BaseFlags.PR.mask


class Sections:
    """The sections of a sound packet: one that was made here, or checked when it was received."""

    __slots__ = (
        "_body_at", "_body_end", "_connector", "_end", "_key_at", "_names", "_numbers", "_properties", "_signature_at",
        "address", "encryption_algorithm", "encryption_key", "flags", "has_security",
        "hash_algorithm", "is_several", "packet", "privacy_level", "properties_at", "security_at", "security_flags",
        "security_id", "sender_cert", "sent_time", "signature", "to", "transaction_at",
    )  # fmt: skip

    def __init__(self, packet: bytes) -> None:
        self.packet = packet
        self.sent_time = sent_time_of(packet)
        self.flags = flags = user_flags_of(packet)
        self.address = packet[ADDRESS]
        """The destination queue manager: UserHeader.QueueManagerAddress."""
        self.to = flags >> _DQ & 7
        """UserHeader.Flags.DQ: what kind of name the destination has."""
        places = places_of(packet)
        ends = places.admin_queue, places.response_queue, places.connector_type
        self._names = [
            _unpadded(packet[begin:end], flags >> shift & 7)
            for begin, end, shift in zip((NAMES_AT, *ends), ends, (_DQ, _AQ, _RQ), strict=False)
        ]
        self._connector = packet[ends[-1] : ends[-1] + GUID_SIZE] if flags & _CONNECTOR else b""
        self.transaction_at = places.transaction_header
        """Where the TransactionHeader is, if there is one."""
        self.security_at = place = places.security_header
        """Where the SecurityHeader is, if there is one."""
        self.has_security = bool(flags & _SECURED)
        self.security_flags = 0
        self.security_id = self.encryption_key = self.signature = self.sender_cert = b""
        self._key_at = self._signature_at = place
        if self.has_security:
            self._cut_security(place)
        self.properties_at = place = places.properties
        """Where the MessagePropertiesHeader is."""
        self._numbers = numbers = read_properties(packet, place)
        _, label, _, _, _, _, size, _, privacy_level, hash_algorithm, encryption_algorithm, extension = numbers
        self.privacy_level, self.hash_algorithm = privacy_level, hash_algorithm
        self.encryption_algorithm = encryption_algorithm
        self._body_at = place + PROPERTIES_SIZE + 2 * label + extension
        self._body_end = self._body_at + size
        self._end = self._body_end + (place - self._body_end & 3)
        self.is_several = bool(flags & _SEVERAL)
        """Whether it goes to several destinations, and is signed as such (SIG30)."""

    def _cut_security(self, place: int) -> None:
        packet = self.packet
        self.security_flags, sid, key, signature, certificate, _ = read_security(packet, place)
        self._key_at, self._signature_at, certificate_at, _, _ = security_parts(packet, place)
        place += SECURITY_SIZE
        self.security_id = packet[place : place + sid]
        self.encryption_key = packet[self._key_at : self._key_at + key]
        self.signature = packet[self._signature_at : self._signature_at + signature]
        self.sender_cert = packet[certificate_at : certificate_at + certificate]

    @property
    def source(self) -> Guid:
        """The queue manager that sent it: UserHeader.SourceQueueManager."""
        return Guid(self.packet[SOURCE])

    @property
    def body(self) -> bytes:
        """The bytes of the body: MessagePropertiesHeader.MessageBody."""
        return self.packet[self._body_at : self._body_end]

    @property
    def several(self) -> MultiQueueFormatHeader | None:
        """The MultiQueueFormatHeader: of a message to several destinations, which is rare."""
        return UserMessage.parse(self.packet).multi_queue_format_header if self.is_several else None

    def signed(self, level: AuthenticationLevel, body: bytes) -> bytes:
        """The bytes that a signature of this kind covers, for the packet with this body (MS-MQMQ 2.5)."""
        if self.is_several or level is AuthenticationLevel.SIG30:
            return signed_bytes(UserMessage.parse(self.with_body(self.security_flags, body)), level)
        packet, at, flags = self.packet, self.properties_at, self.flags
        asked, label, message_class, correlation, body_type, tag, _, _, _, _, _, _ = self._numbers
        to, administration, response = self._names
        label_at = at + PROPERTIES_SIZE
        parts = [
            correlation,
            _LONG.pack(tag),
            body,
            packet[label_at : label_at + 2 * label] if label > 1 else b"",
            response,
            administration,
        ]
        if level is AuthenticationLevel.SIG20:
            options = _OPTIONS.pack(
                flags >> _DM_SHIFT & _DM_MASK,
                packet[2] & _PR,
                (flags >> _JP & 1) << 1 | flags >> _JN & 1,
                asked & FLAGS_COVERED,
                message_class,
                body_type,
            )
            parts += (packet[SOURCE], options, self._connector, to)
        return b"".join(parts)

    # The packet changed

    def with_hash_algorithm(self, algorithm: int) -> bytes:
        """The packet that says that its signature is made with another hash."""
        at = self.properties_at + _HASH_AT
        return self.packet[:at] + _LONG.pack(algorithm) + self.packet[at + 4 :]

    def with_security(self, header: bytes) -> bytes:
        """The packet with this SecurityHeader."""
        return self._joined(self._head(header), self.packet[self.properties_at :])

    def with_body(self, security_flags: int, body: bytes | None) -> bytes:
        """The packet with these flags in its SecurityHeader, if it has one, and with another body."""
        packet, at = self.packet, self.security_at
        flags = b""
        if self.has_security:
            flags = _SHORT.pack(security_flags)
        if body is None:
            return b"".join((packet[:at], flags, packet[at + len(flags) :]))
        head = (packet[SIZE_END:at], flags, packet[at + len(flags) : self.properties_at])
        sizes = self.properties_at + _MESSAGE_SIZE_AT
        numbers = packet[self.properties_at : sizes] + _LONG.pack(len(body)) + packet[sizes + 4 : self._body_at]
        return self._joined(*head, *self._with_rest(numbers, body))

    def encrypted(self, flags: int, key: bytes, provider: bytes, body: bytes, privacy: int, algorithm: int) -> bytes:
        """The packet with an encrypted body, the key to it and the provider of that in its SecurityHeader."""
        packet, at = self.packet, self.properties_at
        header = b"".join(
            (
                pack_security(
                    flags,
                    len(self.security_id),
                    len(key),
                    len(self.signature),
                    len(self.sender_cert),
                    len(provider),
                ),
                packet[self.security_at + SECURITY_SIZE : self._key_at],
                key,
                _PADDING[len(key) & 3],
                packet[self._signature_at : self._provider_at],
                provider,
                _PADDING[len(provider) & 3],
            )
        )
        numbers = b"".join(
            (
                packet[at : at + _MESSAGE_SIZE_AT],
                _SIZES_AND_PRIVACY.pack(len(body), len(body), privacy),
                packet[at + _HASH_AT : at + _ALGORITHM_AT],
                _LONG.pack(algorithm),
                packet[at + _ALGORITHM_AT + 4 : self._body_at],
            )
        )
        return self._joined(self._head(header), *self._with_rest(numbers, body))

    @property
    def _provider_at(self) -> int:
        return self._signature_at + (len(self.signature) + 3 & ~3) + (len(self.sender_cert) + 3 & ~3)

    def _head(self, header: bytes) -> bytes:
        """From behind BaseHeader.PacketSize to the MessagePropertiesHeader, with this SecurityHeader."""
        packet = self.packet
        flags = _LONG.pack(self.flags | _SECURED)
        return b"".join((packet[SIZE_END:FLAGS_AT], flags, packet[NAMES_AT : self.security_at], header))

    def _with_rest(self, numbers: bytes, body: bytes) -> tuple[bytes, bytes, bytes, bytes]:
        """The MessagePropertiesHeader up to its body, the body, its padding, and the headers behind it."""
        return numbers, body, _PADDING[len(numbers) + len(body) & 3], self.packet[self._end :]

    def _joined(self, *parts: bytes) -> bytes:
        """The packet of these parts, which begin behind BaseHeader.PacketSize: that leaves out a SessionHeader, and so
        changes with them."""
        packet = self.packet
        size = _LONG.unpack_from(packet, SIZE_AT)[0] + SIZE_END + sum(map(len, parts)) - len(packet)
        return b"".join((packet[:SIZE_AT], _LONG.pack(size), *parts))


def _unpadded(name: bytes, kind: int) -> bytes:
    """A queue name in a packet without its padding: only a direct name has some, behind as many bytes as it states."""
    return name[: _SHORT.size + _SHORT.unpack_from(name)[0]] if kind == DIRECT else name


def without_answers(packet: bytes) -> bytes:
    """The packet that asks for nothing to be sent when its message is received or dies: neither administration
    acknowledgments nor, if it is transactional, a FinalAck."""
    sections = Sections(packet)
    flags, asked = sections.flags, sections.properties_at
    if flags & _TRANSACTIONAL:
        flags &= ~(UserFlags.JP.mask | UserFlags.JN.mask)
    changed = bytearray(packet)
    _LONG.pack_into(changed, FLAGS_AT, flags)
    changed[asked] = 0
    if flags & _TRANSACTIONAL:
        transaction = sections.transaction_at
        _LONG.pack_into(changed, transaction, _LONG.unpack_from(packet, transaction)[0] & ~TransactionFlags.FA.mask)
    return bytes(changed)


def has_security(packet: bytes) -> bool:
    """Whether a packet has a SecurityHeader."""
    return bool(user_flags_of(packet) & _SECURED)
