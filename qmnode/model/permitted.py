"""The checks of a message's properties, which every door of the node makes: their rows have the values.

Values that a peer's packet may have beside these are in the rules of packets (``qmnode.structures.rules``).
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


def fault(name: str, value: object) -> str | None:
    """The sentence with what is allowed, if the property cannot have the value."""
    return MESSAGE[name].fault(value)


def check_values(properties: Mapping[str, Any]) -> None:
    """Raise MQ_ERROR_ILLEGAL_PROPERTY_VALUE if one of the properties of a message has a value that it cannot have."""
    for name in properties:
        if name in PERMITTED and not PERMITTED[name].holds(properties[name]):
            raise MessageQueuingError(ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE, fault(name, properties[name]) or name)
