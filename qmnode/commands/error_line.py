"""Why a command failed, in a line on standard error, with the entry of ``docs/troubleshooting.md`` that says more."""

import os
import sys
from typing import Final

from qmnode.structures.text import printable_lines

PAGE: Final = "docs/troubleshooting.md"
ENTRIES: Final = {
    "pip install": "an-extra-is-missing",
    "the extra": "an-extra-is-missing",
    "is in use: stop the node": "the-node-does-not-start",
    "MQ_ERROR_SERVICE_NOT_AVAILABLE": "no-node-answers",
    "MQ_ERROR_QUEUE_NOT_FOUND": "no-such-queue",
    "MQ_ERROR_ACCESS_DENIED": "access-denied",
    "MQ_ERROR_INSUFFICIENT_RESOURCES": "a-quota-is-full",
    "MQ_ERROR_TRANSACTION_USAGE": "transactional-or-not",
    "MQ_ERROR_MESSAGE_STORAGE_FAILED": "the-disk-is-full",
    "MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE": "a-remote-machine-does-not-answer",
    "MQ_ERROR_NO_DS": "the-directory-is-down",
    "DirectoryNotConnected": "the-directory-is-down",
    "the private directory in": "the-directory-is-down",
    "no directory is named": "the-directory-is-down",
}
"""Headings of the page, by a part of the sentence or by the code. The first that fits counts."""


def complain(sentence: str, code: str = "") -> None:
    """Say why a command failed: on standard error, red if that is a terminal. ``code``: one that it lacks."""
    entry = next((anchor for part, anchor in ENTRIES.items() if part in sentence or part == code), None)
    text = printable_lines(f"{sentence} (see {PAGE}#{entry})" if entry else sentence)
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR"):
        text = f"\x1b[31m{text}\x1b[0m"
    print(text, file=sys.stderr)
