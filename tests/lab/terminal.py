"""Programs that run at a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def at_a_terminal(
    command: Sequence[str], typed: str = "", environment: Mapping[str, str] | None = None, columns: int = 100
) -> tuple[int, str]:
    """Run a program whose standard streams are a terminal, at which ``typed`` is typed: its exit code and output."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, True)
    values = {**os.environ, "TERM": "dumb", "COLUMNS": str(columns), **(environment or {})}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=values, close_fds=True) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        seen = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the program has closed it
                break
            if not part:
                break
            seen += part
        os.close(ours)
        return process.wait(240), seen.decode("utf-8", "replace").replace("\r\n", "\n")
