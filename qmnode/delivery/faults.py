"""Internal errors while processing a received message: each place in the code is logged once, with its traceback.

The sender of such a message can repeat it at will, and must not fill the log.
"""

import traceback
from typing import Final

import structlog

log = structlog.get_logger(__name__)

_MOST: Final = 1000


class Faults:
    """The places in the code that were logged."""

    def __init__(self) -> None:
        self._places: set[tuple[str, int | None]] = set()

    def log(self, error: BaseException, address: str, message_id: object = None) -> None:
        """Log an unexpected error unless one from the same place was logged before."""
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = (last.filename, last.lineno)
        if place in self._places or len(self._places) >= _MOST:
            return
        self._places.add(place)
        log.error(
            "a received message is refused, since the node fails at it unexpectedly: please report this",
            address=address, message_id=message_id, exc_info=error,
        )  # fmt: skip
