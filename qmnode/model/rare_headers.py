"""The headers of a UserMessage packet that few messages have: security, several destinations, tracing, SOAP.

They are put in and taken out by the declared structures (:mod:`qmnode.structures.user_message`); what every message
has is in :mod:`qmnode.model.packet`.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from qmnode.model.format_names import format_name_of_property
from qmnode.model.packet_parts import Names
from qmnode.model.record import PREFIX, PREFIX_SIZE
from qmnode.structures.base_header import BaseFlags
from qmnode.structures.debug_header import DebugHeader
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import ZERO_GUID, Guid
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
)
from qmnode.structures.security_header import ProviderInfo, SecurityFlags, SecurityHeader
from qmnode.structures.soap_header import SoapHeader
from qmnode.structures.user_header import UserFlags, UserHeader
from qmnode.structures.user_message import UserMessage

if TYPE_CHECKING:
    from qmnode.model.message import Message

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


def with_rare_headers(value: bytes, message: "Message") -> bytes:
    """The stored value of a message with the headers that its rare properties need."""
    packet = UserMessage.parse(value[PREFIX_SIZE:])
    changes: dict[str, Any] = {}
    if not message.__dict__.keys().isdisjoint(_SECURITY):
        changes["security_header"] = _security_header(message)
    if any(getattr(message, name) for name in _MULTIPLE):
        changes["multi_queue_format_header"] = _multi_queue_format_header(message, packet.user_header, value)
    if message.tracing_requested:
        flags = BaseFlags.TR.put(packet.base_header.flags, 1)
        changes["base_header"] = packet.base_header.replace(flags=flags)
        changes["debug_header"] = DebugHeader(queue_identifier=_or_none(message.tracing_queue_identifier))
    if message.soap_header or message.soap_body:
        changes["soap_header"] = SoapHeader(header=message.soap_header, body=message.soap_body)
    packet = packet.replace(**{name: header for name, header in changes.items() if header is not None})
    version, flags, aborts, moves, _, expires, arrival = PREFIX.unpack_from(value)
    before = [packet.base_header, packet.user_header, packet.transaction_header, packet.security_header]
    offset = PREFIX_SIZE + sum(header.size for header in before if header is not None)
    return PREFIX.pack(version, flags, aborts, moves, offset, expires, arrival) + packet.write()


def _multi_queue_format_header(message: "Message", header: UserHeader, value: bytes) -> MultiQueueFormatHeader:
    """2.2.20.1. A message for one queue lists that one."""
    destinations = message.destination_multi_queue_format_name
    if not destinations:
        names = Names(value, header.source_queue_manager, header.queue_manager_address)
        destinations = names.take(UserFlags.DQ.get(header.flags))
    administration = message.administration_multi_queue_format_name or message.administration_queue_format_name
    response = message.response_multi_queue_format_name or message.response_queue_format_name
    return MultiQueueFormatHeader(
        destination=MQFAddressHeader(format_name_list=_elements(destinations)),
        administration=MQFAddressHeader(header_id=ADMIN, format_name_list=_elements(administration)),
        response=MQFAddressHeader(header_id=RESPONSE, format_name_list=_elements(response)),
    )


def _or_none(identifier: Guid) -> Guid | None:
    return None if identifier == ZERO_GUID else identifier


def _security_header(message: "Message") -> SecurityHeader | None:
    provider = b""
    if message.authentication_provider_name:
        provider = ProviderInfo(
            provider_type=message.authentication_provider_type, provider_name=message.authentication_provider_name
        ).write()
    parts = {
        "security_id": message.sender_identifier,
        "encryption_key": message.symmetric_key,
        "signature": message.signature,
        "sender_cert": message.sender_certificate,
        "provider_info": provider,
    }
    if not any(parts.values()):
        return None
    flags = SecurityFlags.of(
        ST=int(message.sender_identifier_type), EB=int(bool(message.symmetric_key)), DE=int(not provider), AI=1
    )
    return SecurityHeader(flags=flags, **parts)


def _elements(names: str) -> tuple[MQFFormatNameElement, ...]:
    if not names:
        return ()
    return tuple(MQFFormatNameElement(format_name=_element(format_name_of_property(name))) for name in names.split(","))


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
    """Fill in the properties that come from these headers. Returns what cannot be read, and why."""
    try:
        packet = UserMessage.parse(packet_bytes)
    except (PacketError, ValueError) as error:
        return [str(error)]
    problems: list[str] = []
    if (security := packet.security_header) is not None:
        flags = security.flags
        attributes.update(
            authentication_level=SecurityFlags.AS.get(flags) if SecurityFlags.AU.get(flags) else 0,
            sender_identifier_type=security.flags & 0xF,
            sender_identifier=bytes(security.security_id),
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
        # A peer may have written what is no name: that must not make the message unreadable.
        with suppress(ValueError):
            attributes["destination_multi_queue_format_name"] = format_names(several.destination)
        # One administration or response queue is in the UserHeader too.
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
