"""The peer of a session, and the trust in messages that it delivers."""

from collections import OrderedDict
from hashlib import blake2b
from typing import Final

from qmnode.shares.parties import declared, stranger
from qmnode.structures.guid import Guid, guid_to_text
from qmnode.structures.packet_view import IDENTIFIER, NAMES_AT

_SOURCES: Final = 4_096
"""Sources remembered for one session."""
_SPEAKERS: Final = 4_096
"""Remembered pairs of a source and an address."""
_NOBODY: Final[set[str]] = set()
_PASSING: Final = b"passing"


class Brought:
    """Messages of one source that one neighbour delivers."""

    __slots__ = ("bringer", "history_source", "is_own", "party", "speakers")

    def __init__(self, source: Guid, bringer: str, is_own: bool) -> None:
        self.bringer = bringer
        """Empty if the neighbour is known to speak for the source; else its address."""
        self.is_own = is_own
        """Whether the messages claim this queue manager as their source."""
        self.party = stranger(bringer) if bringer else declared(guid_to_text(source))
        """The party that pays for what is remembered of them."""
        self.history_source = source
        """The source under which their identifiers are remembered: a stranger's claims get a source of their own."""
        if bringer:
            self.history_source = Guid(blake2b(source + bringer.encode(), digest_size=16).digest())
        self.speakers: set[str] = set()
        """The addresses of the strangers that speak for the source."""


class Neighbour:
    """The peer of one session. The delivery room fills in ``known``."""

    __slots__ = ("_brought", "address", "ask_again", "elsewhere", "is_unsettled", "itself", "known", "unanswered")

    def __init__(self, address: str) -> None:
        self.address = address
        self.known: dict[Guid, bool] = {}
        """By source: whether this neighbour is known to speak for it."""
        self.elsewhere: set[Guid] = set()
        """Sources known to be elsewhere: not forwarded for this neighbour, whom the next hop would believe."""
        self.unanswered: set[Guid] = set()
        """Sources whose addresses were not found in time. Their messages wait there: this neighbour may not be them."""
        self.is_unsettled = False
        """Whether the directory or the name service could not tell in time who it is."""
        self.ask_again = float("inf")
        """The time at which to check again."""
        self.itself: Guid | None = None
        """This queue manager, if it opened the session to itself, by one of its own names that it did not recognise."""
        self._brought: dict[Guid, Brought] = {}

    @property
    def is_known(self) -> bool:
        """Whether it is known to speak for every source whose messages it delivered."""
        return bool(self.known) and all(self.known.values())

    def forget(self) -> None:
        """Check again, because the topology has changed."""
        self.known.clear()
        self.elsewhere.clear()
        self.unanswered.clear()
        self.is_unsettled = False
        self._brought.clear()
        self.ask_again = float("inf")

    def speaks_for(self, source: Guid) -> bool:
        """Whether it is known to speak for a queue manager."""
        return source == self.itself or self.known.get(source, False)

    def is_doubted(self, source: Guid) -> bool:
        """Whether it may be speaking for a queue manager that is elsewhere."""
        return source in self.elsewhere or source in self.unanswered

    def brought(self, source: Guid, own: Guid, speakers: "Speakers") -> Brought:
        """The trust in messages of ``source`` that it delivers to the queue manager ``own``."""
        found = self._brought.get(source)
        if found is None:
            if len(self._brought) >= _SOURCES:
                self._brought.clear()
            bringer = "" if self.speaks_for(source) else self.address
            found = self._brought[source] = Brought(source, bringer, source == own and self.itself is None)
            if bringer:
                speakers.join(source, bringer)
        found.speakers = speakers.of(source)
        return found


class Speakers:
    """The strangers that deliver messages of each source."""

    def __init__(self) -> None:
        self._latest: OrderedDict[tuple[Guid, str], None] = OrderedDict()
        self._of_source: dict[Guid, set[str]] = {}

    def of(self, source: Guid) -> set[str]:
        """The addresses of a source's strangers."""
        return self._of_source.get(source, _NOBODY)

    def join(self, source: Guid, address: str) -> None:
        """Record a stranger that delivers messages of a source."""
        self._latest[source, address] = None
        self._latest.move_to_end((source, address))
        self._of_source.setdefault(source, set()).add(address)
        if len(self._latest) > _SPEAKERS:
            self._drop(next(iter(self._latest)))

    def _drop(self, key: tuple[Guid, str]) -> None:
        del self._latest[key]
        source, address = key
        others = self._of_source[source]
        others.discard(address)
        if not others:
            del self._of_source[source]


def passing(source: bytes, packet: bytes) -> tuple[Guid, int]:
    """The source and identifier under which to remember a forwarded message that ended here.

    The identifier depends on the content, because any peer may send a message with another's identifier through here.
    """
    content = blake2b(packet[IDENTIFIER] + packet[NAMES_AT:], digest_size=4).digest()
    return Guid(blake2b(source + _PASSING, digest_size=16).digest()), int.from_bytes(content, "little")
