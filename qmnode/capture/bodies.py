"""The body and the headers of a captured message, decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qmnode.bodies.choice import Decoded, Headers, decode, read_headers, undecoded
from qmnode.bodies.values_as_json import plain
from qmnode.structures.conformance import Kind

if TYPE_CHECKING:
    from qmnode.capture.explain import Explained


def decoded_message(explained: Explained) -> tuple[Decoded, Headers] | None:
    """The body and headers of a message; None for a packet that is no message, or whose body is encrypted."""
    if explained.kind is not Kind.USER_MESSAGE or explained.packet is None:
        return None
    properties = explained.packet.message_properties_header
    if properties.privacy_level:
        return None
    headers = read_headers(bytes(properties.extension_data))
    return decode(bytes(properties.message_body), properties.body_type, headers=headers.values), headers


def decoded_keys(explained: Explained) -> dict[str, Any]:
    """The keys that they add to a packet's JSON document: those of messages elsewhere."""
    found = decoded_message(explained)
    if found is None:
        return {}
    decoded, headers = found
    return {
        "format": decoded.format or None,
        "decoded": plain(decoded.value),
        "undecoded": undecoded(decoded, headers) or None,
        "headers": plain(dict(headers.values)) if headers.format else None,
        "headers_format": headers.format or None,
    }
