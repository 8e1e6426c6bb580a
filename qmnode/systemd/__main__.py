"""``python -m qmnode.systemd``: print the unit, with this installation's ``qmnode`` in it."""

import shutil
import sys
from importlib.resources import files
from pathlib import Path

_PACKAGED = "/usr/bin/qmnode"


def unit(command: str | None = None) -> str:
    """The unit's text, with another command in the place of the packaged one."""
    text = (files("qmnode.systemd") / "qmnode.service").read_text(encoding="utf-8")
    return text.replace(_PACKAGED, command) if command else text


if __name__ == "__main__":
    beside = Path(sys.executable).with_name("qmnode")
    sys.stdout.write(unit(str(beside) if beside.exists() else shutil.which("qmnode")))
