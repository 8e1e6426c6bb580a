"""What the properties of a queue may be (MS-MQDMPR 3.1.1.2)."""

from typing import Any, Final, cast

from qmnode.errors import MessageQueuingError
from qmnode.model.api import QueueProperties
from qmnode.model.queue import DEFAULT_PROPERTIES
from qmnode.structures.error_codes import ErrorCode

_FLAGS: Final = ("journaling", "authentication", "transactional")
_QUOTAS: Final = ("quota", "journal_quota")


def _is_text(value: str) -> bool:
    """Half of a surrogate pair can be written to no terminal and in no JSON: with one, no list could be shown."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def check_properties(properties: QueueProperties) -> None:
    """Raise MQ_ERROR_ILLEGAL_PROPERTY_VALUE for what a queue cannot be (MS-MQDMPR 3.1.1.2)."""
    values = cast("dict[str, Any]", properties)
    for name, value in values.items():
        if name not in DEFAULT_PROPERTIES:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_PROPERTY, f"a queue has no property {name!r}")
        fault = None
        if name in _FLAGS and not isinstance(value, bool):
            fault = "True or False"
        elif name in _QUOTAS and not (isinstance(value, int) and 0 <= value <= 0xFFFFFFFF):
            fault = "KB, from 0 to 0xFFFFFFFF"
        elif name == "label" and not (isinstance(value, str) and len(value) <= 124 and _is_text(value)):
            fault = "text of at most 124 characters"
        elif name == "privacy_level" and value not in (0, 1, 2):
            fault = "0 (none), 1 (optional) or 2 (body)"
        elif name == "base_priority" and not (isinstance(value, int) and -0x8000 <= value <= 0x7FFF):
            fault = "from -32768 to 32767"
        elif name == "type" and not (isinstance(value, bytes) and len(value) == 16):
            fault = "a GUID of 16 bytes"
        if fault:
            raise MessageQueuingError(ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE, f"{name}={value!r}: expected {fault}")
