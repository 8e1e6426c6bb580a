"""Sizes and quotas in the notation of people. Quotas are in KB of 1024 bytes, as in the field; all units are binary."""

import re
from typing import Final

_WRITTEN: Final = re.compile(r"(\d+(?:\.\d+)?) *(?:([KMGT])(?:i?B)?)?", re.IGNORECASE | re.ASCII)
_BARE: Final = re.compile(r"[+-]?\d+", re.ASCII)
_POWERS: Final = {"K": 0, "M": 1, "G": 2, "T": 3}
UNLIMITED: Final = 0xFFFFFFFF
"""The value for no quota (MS-MQDMPR 3.1.7.1.33)."""
LARGEST: Final = UNLIMITED - 1
"""The largest quota in KB."""


def quota_from_text(text: str) -> int | None:
    """KB from a number with or without a unit (``10MB``, ``1.5 GiB``); None for ``none``. Raises ValueError."""
    if text.strip().lower() == "none":
        return None
    kilobytes = _kilobytes(text, "not 'none' and no size")
    if not kilobytes.is_integer():
        raise ValueError(f"{text!r} is no whole number of KB")
    if kilobytes > LARGEST:
        raise ValueError(f"{text!r} is more than {LARGEST} KB, the largest quota; 'none' is no limit")
    return int(kilobytes)


def quota_value(value: object) -> object:
    """A quota in a file: a size, ``none`` or nothing becomes its number of KB; other values stay as they are."""
    if value is None:
        return UNLIMITED
    if not isinstance(value, str):
        return value
    if _BARE.fullmatch(value.strip()):
        return int(value)
    quota = quota_from_text(value)
    return UNLIMITED if quota is None else quota


def size_value(value: object) -> object:
    """A size in a file: text with a unit becomes its number of bytes; other values stay as they are."""
    if not isinstance(value, str) or _BARE.fullmatch(value.strip()):
        return value
    size = _kilobytes(value, "no size") * 1024
    if "." in value and value.strip()[-1].isdecimal():
        raise ValueError(f"{value!r} has no unit: write one, such as 1.5MB, or a whole number of bytes")
    if not size.is_integer():
        raise ValueError(f"{value!r} is no whole number of bytes")
    return int(size)


def quota_text(quota: int | None) -> str:
    """A quota in KB, in the largest unit that is exact."""
    if quota is None or quota == UNLIMITED:
        return "none"
    for power, unit in ((3, "TiB"), (2, "GiB"), (1, "MiB")):
        if quota and not quota % 1024**power:
            return f"{quota // 1024**power} {unit}"
    return f"{quota} KiB"


def _kilobytes(text: str, otherwise: str) -> float:
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is {otherwise} such as 10MB; the units are KB, MB, GB and TB")
    return float(found[1]) * 1024.0 ** _POWERS[(found[2] or "K").upper()]
