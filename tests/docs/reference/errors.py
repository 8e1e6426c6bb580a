"""Every error code with its cause and remedy."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

from qmnode.structures.error_codes import ErrorCode
from tests.docs.reference.markdown import table

ROOT: Final = Path(__file__).resolve().parents[3]
REMEDIES: Final = ROOT / "docs/reference/errors.toml"
_NAME: Final = re.compile(r"\bMQ(?:DS)?_[A-Z_]+\b")


def remedies() -> dict[str, dict[str, Any]]:
    """Cause and remedy by the name of the code."""
    found: dict[str, dict[str, Any]] = {}
    for one in tomllib.loads(REMEDIES.read_text())["remedy"]:
        for name in one["codes"]:
            assert name not in found, f"{name} is listed twice in {REMEDIES}"
            found[name] = one
    return found


def returned() -> set[str]:
    """The codes that the programs return: those that their source names."""
    names: set[str] = set()
    for package in ("qmnode", "mqenterprise"):
        for path in (ROOT / package).rglob("*.py"):
            if path.name != "error_codes.py":
                names |= set(_NAME.findall(path.read_text()))
    return names


def page() -> str:
    """First the codes that a node returns, then those that only other software returns."""
    used, found = returned(), remedies()
    lines = [
        "# Error codes",
        "",
        "Every failed operation ends with a code of MS-MQMQ 2.4 and a sentence that says what failed and what to",
        "do. Commands print both and end",
        "with exit code 1, the API has them in its problem document, and Python raises",
        "`qmnode.MessageQueuingError` with `code`, `name` and `sentence`.",
    ]
    for title, text, shown in (
        ("Codes that a node returns", "", True),
        ("Codes of Windows", "A node does not return these. Programs on Windows may show them.", False),
    ):
        rows = []
        for code in ErrorCode:
            if (code.name in used) is shown:
                one = found[code.name]
                cause = " ".join([code.text, *([one["cause"]] if "cause" in one else [])])
                rows.append([f"`{code.name}` `0x{code:08X}`", cause, one["do"]])
        lines += ["", f"## {title}", "", text, "", *table(["code", "cause", "remedy"], rows)]
    return "\n".join(lines) + "\n"
