"""The standard streams of a program, also where its caller has closed them, as some daemons and cron jobs do."""

import os
import sys
from typing import Final, TextIO

_MODES: Final = (os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)
"""How the null device takes the place of each. Output to it fails, so lost output is never reported as printed."""
_OPENED: Final[list[TextIO]] = []
"""Kept until the end: Python reports what such a stream could not write when it is collected."""


def complete_streams() -> None:
    """Occupy the numbers of closed standard streams. Otherwise the first files that the program opens, such as those of
    a message store, get them, and what libraries print goes into these files.

    Standard input remains None in ``sys``, as commands that read it report.
    """
    for number, mode in enumerate(_MODES):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)  # the lowest free number
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        _OPENED.append(sys.stdout)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
