"""Shared by building and reading packets: the offsets of fields that every packet has, and the rare headers.

The offsets come from the declared structures; the two modules that run once for each message use them. The structures
themselves insert and extract the rare headers (security, several destinations, tracing, SOAP).
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from qmnode.errors import MessageQueuingError
from qmnode.model.message import DEFAULTS, Message
from qmnode.model.record import HEAD, PREFIX, PREFIX_SIZE, RecordFlag
from qmnode.structures import base_header
from qmnode.structures.base_header import BaseFlags
from qmnode.structures.conformance import violations
from qmnode.structures.debug_header import DebugHeader
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import ZERO_GUID, Guid, guid_from_text, guid_to_text
from qmnode.structures.multi_queue_format_header import (
    ADMIN,
    RESPONSE,
    MQFAddressHeader,
    MQFDirectQueueFormatName,
    MQFDistributionQueueFormatName,
    MQFFormatNameElement,
    MQFPrivateQueueFormatName,
    MQFPublicQueueFormatName,
    MultiQueueFormatHeader,
    format_names,
)
from qmnode.structures.names import (
    DirectFormatName,
    DistributionListFormatName,
    FormatName,
    PrivateFormatName,
    PublicFormatName,
    QueueNameError,
    parse_single_format_name,
)
from qmnode.structures.packet_view import PROPERTIES_SIZE
from qmnode.structures.security_header import ProviderInfo, SecurityFlags, SecurityHeader
from qmnode.structures.soap_header import SoapHeader
from qmnode.structures.transaction_header import TransactionFlags
from qmnode.structures.user_header import UserFlags, UserHeader
from qmnode.structures.user_message import UserMessage


def format_name_of_property(text: str) -> FormatName:
    """A format name of one queue. Raises MQ_ERROR_ILLEGAL_FORMATNAME for other text: the message is not sent."""
    try:
        return parse_single_format_name(text)
    except QueueNameError as error:
        raise MessageQueuingError(error.code, error.sentence) from None


MAXIMUM_PACKET_SIZE: Final = 0x00400000
"""The limit of BaseHeader.PacketSize, MS-MQMQ 2.2.19.1."""
MAXIMUM_LABEL: Final = 249

SIGNATURE: Final = base_header.SIGNATURE
VERSION_NUMBER: Final = base_header.VERSION
FIXED_SIZE: Final = HEAD.size - PREFIX_SIZE + PROPERTIES_SIZE
TIME_TO_REACH_QUEUE: Final[int] = DEFAULTS["time_to_reach_queue"]
PADDING: Final = (b"", b"\0\0\0", b"\0\0", b"\0")
RECOVERABLE_FLAG: Final = UserFlags.of(DM=1)
NEGATIVE_JOURNAL_FLAG: Final = UserFlags.JN.mask
POSITIVE_JOURNAL_FLAG: Final = UserFlags.JP.mask
DESTINATION_SHIFT: Final = UserFlags.DQ.shift
ADMINISTRATION_SHIFT: Final = UserFlags.AQ.shift
RESPONSE_SHIFT: Final = UserFlags.RQ.shift
TO_MASK: Final = UserFlags.DQ.mask
HAS_SECURITY: Final = UserFlags.SH.mask
HAS_TRANSACTION: Final = UserFlags.TH.mask
HAS_PROPERTIES: Final = UserFlags.MP.mask
HAS_CONNECTOR: Final = UserFlags.CQ.mask
TRANSACTIONAL: Final = RecordFlag.TRANSACTIONAL.value
FIRST_FLAG: Final = TransactionFlags.FM.mask
LAST_FLAG: Final = TransactionFlags.LM.mask
FINAL_ACK_FLAG: Final = TransactionFlags.FA.mask
NO_CORRELATION: Final = bytes(20)
KEEP_ON_LOSS: Final = RecordFlag.NEGATIVE_JOURNAL.value
KEEP_ON_DELIVERY: Final = RecordFlag.POSITIVE_JOURNAL.value
RARE_FLAGS: Final = UserFlags.SH.mask | UserFlags.MQ.mask | UserFlags.HH.mask
TRACED: Final = BaseFlags.DH.mask


class Names:
    """Reads the queue names of a UserHeader, one after the other."""

    __slots__ = ("address", "offset", "source", "value")

    def __init__(self, value: bytes, source: bytes, address: bytes) -> None:
        self.value = value
        self.source = source
        self.address = address
        self.offset = HEAD.size

    def bytes(self, count: int) -> bytes:
        start = self.offset
        self.offset += count
        return self.value[start : self.offset]

    def take(self, kind: int, administration: str = "") -> str:
        match kind:
            case 0:
                return ""
            case 1:
                return administration
            case 5:
                return f"PUBLIC={guid_to_text(self.bytes(16))}"
            case 7:
                size = int.from_bytes(self.bytes(2), "little")
                text = self.bytes(size)[:-2].decode("utf-16-le", "replace")
                self.offset += -(size + 2) & 3
                return f"DIRECT={text}"
            case 6:
                computer = self.bytes(16)
            case 4:
                # On the computer of the administration queue.
                computer = (
                    guid_from_text(administration[8:44]) if administration.startswith("PRIVATE=") else self.source
                )
            case _:
                computer = self.source if kind == 2 else self.address
        return f"PRIVATE={guid_to_text(computer)}\\{int.from_bytes(self.bytes(4), 'little'):08x}"


_SECURITY: Final = frozenset(
    (
        "sender_identifier_type",
        "sender_identifier",
        "sender_certificate",
        "signature",
        "symmetric_key",
        "authentication_provider_name",
    )
)
_MULTIPLE: Final = frozenset(
    (
        "destination_multi_queue_format_name",
        "administration_multi_queue_format_name",
        "response_multi_queue_format_name",
    )
)
_TRACING: Final = "tracing_requested"
_SOAP: Final = frozenset(("soap_header", "soap_body"))
RARE_PROPERTIES: Final = _SECURITY | _SOAP | _MULTIPLE | {_TRACING}
"""Properties that need one of these headers."""


def header_naming(sender: bytes) -> bytes:
    """The SecurityHeader of an unsigned message that names the SID of its sender."""
    return SecurityHeader(flags=SecurityFlags.of(ST=1, DE=1, AI=1), security_id=sender).write()


def with_rare_headers(
    value: bytes,
    message: "Message",
    sender: bytes | None = None,
    named: Callable[[str], FormatName] = format_name_of_property,
) -> bytes:
    """The stored value of a message with the headers that its rare properties need.

    ``sender`` is the SID that the message names if it is unsigned, or empty; None lets the message say it. ``named``
    gives the queue of a format name the name that the message has for it.
    """
    packet = UserMessage.parse(value[PREFIX_SIZE:])
    changes: dict[str, Any] = {}
    if not message.__dict__.keys().isdisjoint(_SECURITY):
        changes["security_header"] = _security_header(message, sender)
    if any(getattr(message, name) for name in _MULTIPLE):
        changes["multi_queue_format_header"] = _multi_queue_format_header(message, packet.user_header, value, named)
    if message.tracing_requested:
        flags = BaseFlags.TR.put(packet.base_header.flags, 1)
        changes["base_header"] = packet.base_header.replace(flags=flags)
        changes["debug_header"] = DebugHeader(queue_identifier=_or_none(message.tracing_queue_identifier))
    if message.soap_header or message.soap_body:
        changes["soap_header"] = SoapHeader(header=message.soap_header, body=message.soap_body)
    packet = packet.replace(**{name: header for name, header in changes.items() if header is not None})
    for found in violations(packet):
        if found.structure == "SecurityHeader":  # the rest is complete only when the message leaves
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE, f"{found.structure}.{found.field} {found.sentence}"
            )
    version, flags, aborts, moves, _, expires, arrival = PREFIX.unpack_from(value)
    before = [packet.base_header, packet.user_header, packet.transaction_header, packet.security_header]
    offset = PREFIX_SIZE + sum(header.size for header in before if header is not None)
    return PREFIX.pack(version, flags, aborts, moves, offset, expires, arrival) + packet.write()


def _multi_queue_format_header(
    message: "Message", header: UserHeader, value: bytes, named: Callable[[str], FormatName]
) -> MultiQueueFormatHeader:
    """The MultiQueueFormatHeader, 2.2.20.1. A message for one queue lists that one."""
    destinations = message.destination_multi_queue_format_name
    if not destinations:
        names = Names(value, header.source_queue_manager, header.queue_manager_address)
        destinations = names.take(UserFlags.DQ.get(header.flags))
    administration = message.administration_multi_queue_format_name or message.administration_queue_format_name
    response = message.response_multi_queue_format_name or message.response_queue_format_name
    return MultiQueueFormatHeader(
        destination=MQFAddressHeader(format_name_list=_elements(destinations, named)),
        administration=MQFAddressHeader(header_id=ADMIN, format_name_list=_elements(administration, named)),
        response=MQFAddressHeader(header_id=RESPONSE, format_name_list=_elements(response, named)),
    )


def _or_none(identifier: Guid) -> Guid | None:
    return None if identifier == ZERO_GUID else identifier


def _security_header(message: "Message", sender: bytes | None) -> SecurityHeader | None:
    provider = b""
    if message.authentication_provider_name:
        provider = ProviderInfo(
            provider_type=message.authentication_provider_type, provider_name=message.authentication_provider_name
        ).write()
    kind, identifier = int(message.sender_identifier_type), message.sender_identifier
    if sender is not None and not message.signature:
        kind, identifier = int(bool(sender)), sender
    parts = {
        "security_id": identifier,
        "encryption_key": message.symmetric_key,
        "signature": message.signature,
        "sender_cert": message.sender_certificate,
        "provider_info": provider,
    }
    if not any(parts.values()):
        return None
    flags = SecurityFlags.of(ST=kind, EB=int(bool(message.symmetric_key)), DE=int(not provider), AI=1)
    return SecurityHeader(flags=flags, **parts)


def _sender(security: SecurityHeader) -> dict[str, Any]:
    """The sender of a message, as proven on its arrival; else its claimed sender."""
    flags, identifier = security.flags, bytes(security.security_id)
    kind = SecurityFlags.ST.get(flags)
    if SecurityFlags.AU.get(flags) and kind:
        return {
            "authentication_level": SecurityFlags.AS.get(flags),
            "sender_identifier_type": kind,
            "sender_identifier": identifier,
        }
    return {"claimed_sender": identifier}


def _elements(names: str, named: Callable[[str], FormatName]) -> tuple[MQFFormatNameElement, ...]:
    if not names:
        return ()
    return tuple(MQFFormatNameElement(format_name=_element(named(name))) for name in names.split(","))


def _element(name: FormatName) -> Any:
    match name:
        case PublicFormatName():
            return MQFPublicQueueFormatName(public_queue_identifier=name.queue)
        case PrivateFormatName():
            return MQFPrivateQueueFormatName(source_queue_manager=name.computer, private_queue_identifier=name.queue)
        case DirectFormatName():
            return MQFDirectQueueFormatName(direct_format_name=name.without_prefix)
        case DistributionListFormatName():
            return MQFDistributionQueueFormatName(distribution_list_identifier=name.group)
        case _:
            raise ValueError(f"no packet can list the queue name {name}")


def load_rare_headers(attributes: dict[str, Any], packet_bytes: bytes) -> list[str]:
    """Set the properties that come from the rare headers. Return what cannot be read, and why."""
    try:
        packet = UserMessage.parse(packet_bytes)
    except (PacketError, ValueError) as error:
        return [str(error)]
    problems: list[str] = []
    if (security := packet.security_header) is not None:
        attributes.update(_sender(security))
        attributes.update(
            symmetric_key=bytes(security.encryption_key),
            signature=bytes(security.signature),
            sender_certificate=bytes(security.sender_cert),
        )
        several = packet.multi_queue_format_header
        if several is not None and not security.signature:
            attributes["signature"] = bytes(several.signature.signature)
        if security.provider_info:
            try:
                provider = ProviderInfo.parse(bytes(security.provider_info))
            except (PacketError, ValueError) as error:
                problems.append(f"SecurityHeader.ProviderInfo: {error}")
            else:
                attributes["authentication_provider_type"] = provider.provider_type
                attributes["authentication_provider_name"] = provider.provider_name
    if (several := packet.multi_queue_format_header) is not None:
        # A peer may have written an invalid name: that must not make the message unreadable.
        with suppress(ValueError):
            attributes["destination_multi_queue_format_name"] = format_names(several.destination)
        # A single administration or response queue is in the UserHeader too.
        for name, addresses in (("administration", several.administration), ("response", several.response)):
            if len(addresses.format_name_list) > 1:
                with suppress(ValueError):
                    attributes[f"{name}_multi_queue_format_name"] = format_names(addresses)
    if (soap := packet.soap_header) is not None:
        attributes["soap_header"] = soap.header
        attributes["soap_body"] = soap.body
    if (debug := packet.debug_header) is not None:
        attributes["tracing_requested"] = bool(BaseFlags.TR.get(packet.base_header.flags))
        attributes["tracing_queue_identifier"] = debug.queue_identifier or ZERO_GUID
    return problems
