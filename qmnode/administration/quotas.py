"""Quotas as people write and read them. The field counts them in KB of 1024 bytes; all units here do."""

import re
from typing import Final

_WRITTEN: Final = re.compile(r"(\d+(?:\.\d+)?) *(?:([KMGT])(?:i?B)?)?", re.IGNORECASE | re.ASCII)
_POWERS: Final = {"K": 0, "M": 1, "G": 2, "T": 3}
LARGEST: Final = 0xFFFFFFFE
"""KB. One more stands for no quota."""


def quota_from_text(text: str) -> int | None:
    """KB, from a bare number or one with a unit (``10MB``, ``1.5 GiB``); None for ``none``. ValueError otherwise."""
    if text.strip().lower() == "none":
        return None
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not 'none' and no size such as 10MB; the units are KB, MB, GB and TB")
    number, unit = float(found[1]), (found[2] or "K").upper()
    kilobytes = number * 1024 ** _POWERS[unit]
    if not kilobytes.is_integer():
        raise ValueError(f"{text!r} is no whole number of KB")
    if kilobytes > LARGEST:
        raise ValueError(f"{text!r} is more than {LARGEST} KB, the largest quota; 'none' is no limit")
    return int(kilobytes)


def quota_text(quota: int | None) -> str:
    """A quota in KB, in the largest unit that says it exactly."""
    if quota is None:
        return "none"
    for power, unit in ((3, "TiB"), (2, "GiB"), (1, "MiB")):
        if quota and not quota % 1024**power:
            return f"{quota // 1024**power} {unit}"
    return f"{quota} KiB"
