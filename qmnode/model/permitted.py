"""The values that properties of a message may have: one table, which every door of the node checks with.

Values that a peer's packet may have beside these are in the rules of packets (``qmnode.structures.rules``).
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from qmnode.errors import MessageQueuingError
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.message_classes import is_permitted
from qmnode.structures.message_security import (
    AuthenticationLevel,
    EncryptionAlgorithm,
    HashAlgorithm,
    PrivacyLevel,
    SenderIdentifierType,
)


class Permitted(NamedTuple):
    """The values of one property: a test, and the list of them in words."""

    holds: Callable[[Any], bool]
    words: str


def _up_to(most: int, words: str) -> Permitted:
    return Permitted(lambda value: isinstance(value, int) and 0 <= value <= most, words)


def _one_of(kind: type[IntEnum]) -> Permitted:
    numbers = frozenset(map(int, kind))
    listed = [f"{_number(member)} ({member.name})" for member in kind]
    words = f"{', '.join(listed[:-1])} or {listed[-1]} ({kind.__name__})"
    return Permitted(lambda value: isinstance(value, int) and value in numbers, words)


def _bytes(count: int) -> Permitted:
    return Permitted(lambda value: isinstance(value, bytes) and len(value) == count, f"{count} bytes")


def _number(value: Any) -> str:
    if not isinstance(value, int):
        return f"{value!r:.80}"
    return f"{int(value):#x}" if value >= 0x1000 else str(int(value))


_NUMBER: Final = _up_to(0xFFFFFFFF, "a number from 0 to 0xFFFFFFFF")
_SECONDS: Final = _up_to(0xFFFFFFFF, "seconds, from 0 to 0xFFFFFFFF, which is for ever")

PERMITTED: Final[Mapping[str, Permitted]] = {
    "acknowledgements_requested": _up_to(
        15, "0 to 15, the sum of 1 (arrived), 2 (received), 4 (did not arrive) and 8 (was not received)"
    ),
    "app_specific": _NUMBER,
    "authentication_level": _one_of(AuthenticationLevel),
    "authentication_provider_type": _NUMBER,
    "body_type": _up_to(0xFFFFFFFF, "a number from 0 to 0xFFFFFFFF, such as 31 (VT_LPWSTR)"),
    "connector_type_identifier": _bytes(16),
    "correlation_identifier": _bytes(20),
    "encryption_algorithm": _one_of(EncryptionAlgorithm),
    "hash_algorithm": _one_of(HashAlgorithm),
    "message_class": Permitted(
        lambda value: isinstance(value, int) and value >= 0 and is_permitted(value),
        "one of MessageClass, or bits of 0xE1FF",
    ),
    "priority": _up_to(7, "0 to 7"),
    "privacy_level": _one_of(PrivacyLevel),
    "sender_identifier_type": _one_of(SenderIdentifierType),
    "time_to_be_received": _SECONDS,
    "time_to_reach_queue": _SECONDS,
    "tracing_queue_identifier": _bytes(16),
}
"""Properties whose values have limits, apart from those of text (``qmnode.model.serialization``)."""


def fault(name: str, value: object) -> str | None:
    """The sentence with what is allowed, if the property cannot have the value."""
    permitted = PERMITTED[name]
    return None if permitted.holds(value) else f"{name} {_number(value)}: use {permitted.words}"


def check_values(properties: Mapping[str, Any]) -> None:
    """Raise MQ_ERROR_ILLEGAL_PROPERTY_VALUE if one of the properties of a message has a value that it cannot have."""
    for name in properties:
        if name in PERMITTED and not PERMITTED[name].holds(properties[name]):
            raise MessageQueuingError(ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE, fault(name, properties[name]) or name)
