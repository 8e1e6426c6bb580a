"""The other side of a session, and what is believed of messages that it brings."""

from collections import OrderedDict
from hashlib import blake2b
from typing import Final

from qmnode.structures.guid import Guid

_SOURCES: Final = 4_096
"""Sources of one session that are remembered."""
_SPEAKERS: Final = 4_096
"""Pairs of a source and an address that are remembered."""
_NOBODY: Final[set[str]] = set()
_CONTENT_AT: Final = 64
"""Where the bytes of a packet begin that stay the same however often, and by whatever way, it is sent."""
_IDENTIFIER: Final = slice(56, 60)
_PASSING: Final = b"passing"


class Brought:
    """Messages of one source that come through one neighbour."""

    __slots__ = ("bringer", "history_source", "is_own", "speakers")

    def __init__(self, source: Guid, bringer: str, is_own: bool) -> None:
        self.bringer = bringer
        """Empty if the neighbour is known to speak for the source; else its address."""
        self.is_own = is_own
        """Whether they claim to be this queue manager's."""
        self.history_source = source
        """Under which source their identifiers are remembered: those that a stranger names are its own."""
        if bringer:
            self.history_source = Guid(blake2b(source + bringer.encode(), digest_size=16).digest())
        self.speakers: set[str] = set()
        """The addresses of the strangers that speak for the source."""


class Neighbour:
    """One session's peer. ``known`` is filled in by whoever can tell."""

    __slots__ = ("_brought", "address", "ask_again", "elsewhere", "itself", "known")

    def __init__(self, address: str) -> None:
        self.address = address
        self.known: dict[Guid, bool] = {}
        """By source: whether this neighbour is known to speak for it."""
        self.elsewhere: set[Guid] = set()
        """Sources that are known to be at other addresses. Nothing of theirs is passed on for this neighbour: the next
        hop would take it for theirs."""
        self.ask_again = float("inf")
        """When that is to be asked again."""
        self.itself: Guid | None = None
        """This queue manager, if it opened the session itself: by a name of its own that it does not know."""
        self._brought: dict[Guid, Brought] = {}

    @property
    def is_known(self) -> bool:
        """Whether it is known to speak for every source that it brought messages of."""
        return bool(self.known) and all(self.known.values())

    def forget(self) -> None:
        """The enterprise is another: ask again."""
        self.known.clear()
        self.elsewhere.clear()
        self._brought.clear()
        self.ask_again = float("inf")

    def speaks_for(self, source: Guid) -> bool:
        """Whether it is known to speak for a queue manager."""
        return source == self.itself or self.known.get(source, False)

    def brought(self, source: Guid, own: Guid, speakers: "Speakers") -> Brought:
        """What is believed of messages of ``source`` that it brings to the queue manager ``own``."""
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
    """The strangers that bring messages of each source."""

    def __init__(self) -> None:
        self._latest: OrderedDict[tuple[Guid, str], None] = OrderedDict()
        self._of_source: dict[Guid, set[str]] = {}

    def of(self, source: Guid) -> set[str]:
        """Their addresses."""
        return self._of_source.get(source, _NOBODY)

    def join(self, source: Guid, address: str) -> None:
        """A stranger brings messages of a source."""
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
    """Under which source and identifier a message is remembered that ended here on its way.

    By what it says: anybody may send another's identifier through here, and have it end.
    """
    content = blake2b(packet[_IDENTIFIER] + packet[_CONTENT_AT:], digest_size=4).digest()
    return Guid(blake2b(source + _PASSING, digest_size=16).digest()), int.from_bytes(content, "little")
