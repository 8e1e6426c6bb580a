"""Decoded values in JSON, and for people."""

import base64
import json
import math
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from qmnode.bodies.dates import duration_text

_MICROSECOND: Final = timedelta(microseconds=1)


def plain(value: Any) -> Any:
    """A value for JSON: half a surrogate pair becomes U+FFFD, bytes base64; dates, decimals and identifiers text;
    infinite numbers their names.
    """
    if type(value) is dict:
        return {
            name if type(name) is str and name.isascii() else str(plain(name)): held
            if type(held) is str and held.isascii()
            else plain(held)
            for name, held in value.items()
        }
    match value:
        case str():
            if value.isascii():
                return value
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else {math.inf: "INF", -math.inf: "-INF"}.get(value, "NaN")
        case dict():
            return {str(plain(key)): plain(held) for key, held in value.items()}
        case list() | tuple():
            return [plain(one) for one in value]
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case datetime():
            return value.isoformat()
        case timedelta():
            return duration_text(value // _MICROSECOND * 10)
        case Decimal() | UUID():
            return str(value)
    return str(value)


def plain_body(value: Any, format: str) -> Any:
    """The value of a body for JSON. Dictionaries of XML have only text, None and lists, and stay as they are."""
    return value if format == "xml" and type(value) is dict else plain(value)


def shown(value: Any, *, indent: bool = True) -> str:
    """Text unchanged, other values as JSON: indented over several lines, or on one, which is ten times as fast."""
    return (
        value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False, indent=2 if indent else None)
    )
