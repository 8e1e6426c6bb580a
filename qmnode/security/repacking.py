"""A packet with another security header or body: sizes, padding and flags that follow, and nothing else touched.

``Structure.replace`` works all of that out from the declarations, and takes several times as long as the cryptography.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmnode.structures.user_header import UserFlags

if TYPE_CHECKING:
    from qmnode.structures.fields import Octets
    from qmnode.structures.message_properties_header import MessagePropertiesHeader
    from qmnode.structures.security_header import SecurityHeader
    from qmnode.structures.user_message import UserMessage


def padding_of(size: int) -> bytes:
    """The zero bytes that bring ``size`` to a multiple of four."""
    return bytes(-size % 4)


def with_body(header: MessagePropertiesHeader, body: Octets, **numbers: int) -> MessagePropertiesHeader:
    """The header with another body, and other values of some of its numbers."""
    bare = header.put(message_body=body, padding=b"", **numbers)
    return bare.put(padding=padding_of(bare.size))


def repacked(packet: UserMessage, security: SecurityHeader | None, properties: MessagePropertiesHeader) -> UserMessage:
    """The packet with these two headers in the place of those it had."""
    old_security, old_properties = packet.security_header, packet.message_properties_header
    base, user = packet.base_header, packet.user_header
    size = base.packet_size
    if security is not old_security and security is not None:
        size += security.size - (0 if old_security is None else old_security.size)
    if properties is not old_properties:
        size += properties.size - old_properties.size
    flags = user.flags if security is None else user.flags | UserFlags.SH.mask
    return packet.put(
        base_header=base if size == base.packet_size else base.put(packet_size=size),
        user_header=user if flags == user.flags else user.put(flags=flags),
        security_header=security,
        message_properties_header=properties,
    )
