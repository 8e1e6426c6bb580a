"""The checks of a message's properties, which every door of the node makes: their rows have the values.

Values that a peer's packet may have beside these are in the rules of packets (``qmnode.structures.conformance``).
"""

from collections.abc import Mapping
from typing import Any, Final

from qmnode.errors import MessageQueuingError
from qmnode.objects.message_table import BYTES, LABEL, MESSAGE, NAMES, TEXT
from qmnode.objects.rows import FLAG, Changes, Form
from qmnode.structures.error_codes import ErrorCode

PERMITTED: Final[Mapping[str, Form]] = {
    row.name: row.form
    for row in MESSAGE.values()
    if row.changes is not Changes.NEVER and row.form not in (FLAG, TEXT, NAMES, BYTES, LABEL)
}
"""Properties whose values have limits, apart from those of text (``qmnode.model.serialization``)."""

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    row.name: (bytes, bytearray, memoryview) if row.form is BYTES else (str, type(None))
    for row in MESSAGE.values()
    if row.changes is not Changes.NEVER and row.form in (TEXT, NAMES, BYTES)
}
"""Properties that are texts or bytes, whose contents are checked where they are written, as labels are altogether."""


def fault(name: str, value: object) -> str | None:
    """The sentence with what is allowed, if the property cannot have the value."""
    return MESSAGE[name].fault(value)


def check_values(properties: Mapping[str, Any]) -> None:
    """Raise MQ_ERROR_ILLEGAL_PROPERTY_VALUE if one of the properties of a message has a value that it cannot have;
    TypeError if it is no text, or no bytes, where it has to be.
    """
    for name in properties:
        if name in PERMITTED:
            if not PERMITTED[name].holds(properties[name]):
                raise MessageQueuingError(
                    ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE, fault(name, properties[name]) or name
                )
        elif name in _TYPES and not isinstance(properties[name], _TYPES[name]):
            what = "bytes" if bytes in _TYPES[name] else "a text"
            raise TypeError(f"{name}={properties[name]!r:.80}: expected {what}, not {type(properties[name]).__name__}")
