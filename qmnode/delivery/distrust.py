"""Counts packets that the node did not believe, and logs them without letting a peer fill the log."""

from collections import Counter
from enum import StrEnum, unique
from typing import Final

import structlog

from qmnode.shares.blocks import block_of
from qmnode.structures.guid import Guid, guid_to_text

log = structlog.get_logger(__name__)

_REPEAT: Final = 60.0
"""Seconds between two log lines of the same kind about one address."""
_SPOKEN_OF: Final = 256
"""Pairs of kind and address that are remembered."""
_MISSES: Final = 200
"""Acknowledgments from one block in one interval that match nothing, after which those of strangers are dropped."""


@unique
class Doubt(StrEnum):
    """The kinds of packet that were not believed."""

    OWN_NAME = "own_name"
    CONTESTED = "contested"
    ELSEWHERE = "elsewhere"
    FUTURE = "future_sequence"
    ORDER_ACK = "order_acknowledgment"
    FINAL_ACK = "final_acknowledgment"


_TEXTS: Final = {
    Doubt.OWN_NAME: "packets in this node's own name are dropped: a stranger sends them, or a copy of this node runs "
    "elsewhere; stop what is at that address",
    Doubt.CONTESTED: "two addresses send transactional messages as one queue manager: those of the address that the "
    "directory does not give it wait. If it is right, register it; see `qmnode sequence list`",
    Doubt.ELSEWHERE: "a session is closed that brought messages to be passed on, or encrypted and unsigned ones, of a "
    "queue manager which the directory has at other addresses. If they are right, register the name of that machine, "
    "or of the routing server there, at this address as well, or see transfer.only_registered_addresses",
    Doubt.FUTURE: "transactional messages of a sequence that begins in the future are dropped: set the clock of their "
    "source right, or raise transfer.sequence_clock_tolerance; setting the clock does not change sequences already "
    "begun",
    Doubt.ORDER_ACK: "order acknowledgments are not believed: they do not come from where the messages went. If they "
    "are the destination's, register its name at this address as well, or see transfer.only_registered_addresses",
    Doubt.FINAL_ACK: "final acknowledgments are not believed: they do not come from where the messages went. If they "
    "are the destination's, register its name at this address as well, or see transfer.only_registered_addresses",
}


class Distrust:
    """Counts disbelieved packets by kind."""

    def __init__(self, counts: Counter[str]) -> None:
        """``counts`` are the node's counters, for its metrics."""
        self._counts = counts
        self._logged: dict[tuple[Doubt, str], float] = {}
        self._misses: Counter[str] = Counter()
        self._misses_since = float("-inf")

    def note(self, kind: Doubt, address: str, now: float, source: Guid | None = None, count: int = 1) -> None:
        """Count packets from an address that were not believed, and log them if it is time."""
        self._counts[kind] += count
        if now < self._logged.get((kind, address), float("-inf")) + _REPEAT:
            return
        if len(self._logged) >= _SPOKEN_OF:
            self._logged = {key: logged for key, logged in self._logged.items() if now < logged + _REPEAT}
        if len(self._logged) < _SPOKEN_OF:
            self._logged[kind, address] = now
            named = {} if source is None else {"source": guid_to_text(source)}
            log.warning(_TEXTS[kind], address=address, **named)

    def missed(self, kind: Doubt, address: str, now: float) -> None:
        """Count an acknowledgment that was not believed."""
        self._misses[block_of(address)] += 1
        self.note(kind, address, now)

    def is_noisy(self, address: str, now: float) -> bool:
        """Whether so many packets from an address were not believed that this kind is ignored for a while."""
        if now >= self._misses_since + _REPEAT:
            self._misses.clear()
            self._misses_since = now
        return bool(self._misses) and self._misses[block_of(address)] >= _MISSES
