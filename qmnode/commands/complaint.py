"""Why a command failed, in a line on standard error."""

import os
import sys

from qmnode.structures.text import printable_lines


def complain(sentence: str) -> None:
    """Say why a command failed: on standard error, red if that is a terminal."""
    text = printable_lines(sentence)
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR"):
        text = f"\x1b[31m{text}\x1b[0m"
    print(text, file=sys.stderr)
