"""The places for connections that others open, and who gives one up when all are taken.

Places are shared by address block (:mod:`qmnode.transport.blocks`). Whoever says nothing goes first, then what is idle,
of the block that holds most; a block that holds more than its share gives up what it uses least. A peer that the node
knows, and that is at work, never goes for a stranger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from qmnode.transport.rate import Rate

if TYPE_CHECKING:
    from qmnode.transport.connection import Connection

GRACE: Final = 3.0
"""Seconds that a connection has to bring its first message before others are preferred to it."""
IDLE: Final = 5.0
"""Seconds without a message after which a connection is idle: its peer only has to connect again."""
_CONNECTIONS_PER_SECOND: Final = 200
"""Of one block, on average."""
_RATES: Final = 4096
_SLOW_AT_ONCE: Final = 16
"""Connections that say nothing are closed so many at a time, so that not each newcomer costs a search."""
_AGAIN: Final = 0.1
"""Seconds between two searches when nobody could be closed: a flood of connections does not cost a search for each."""


class Place:
    """One connection, from its acceptance to its end."""

    __slots__ = ("_places", "block", "cancel", "connection", "since")

    def __init__(self, places: Places, block: str, since: float) -> None:
        self._places = places
        self.block = block
        self.since = since
        self.connection: Connection | None = None
        """There when the first byte, and the TLS handshake if that is what it begins, are through."""
        self.cancel: Callable[[], object] = lambda: None
        """Ends it before that."""

    def release(self) -> None:
        """The connection has ended. May be called again."""
        self._places.remove(self)

    def close(self) -> None:
        """End it, and take its place."""
        self.release()
        if self.connection is not None:
            self.connection.abort()
        self.cancel()

    @property
    def silent(self) -> bool:
        """Whether it has brought no message."""
        return self.connection is None or not self.connection.session.received_count

    @property
    def heard(self) -> float:
        """When it brought a message last, or began."""
        return self.since if self.connection is None else max(self.since, self.connection.heard)

    def is_idle(self, now: float) -> bool:
        """Whether nothing has come for a while, and nothing waits for the disk."""
        return now - self.heard > IDLE and (self.connection is None or not self.connection.session.unsettled())


class Places:
    """``limit`` places in all, ``per_block`` for each address block."""

    def __init__(
        self, limit: int, per_block: int, is_declared: Callable[[Connection], bool], is_known: Callable[[str], bool]
    ) -> None:
        """``is_declared``: whether the node knows the peer of a connection. ``is_known``: whether a peer that it knows
        has an address in this block."""
        self._limit = limit
        self._per_block = per_block
        self._is_declared = is_declared
        self._is_known = is_known
        self._blocks: dict[str, dict[Place, None]] = {}
        self._count = 0
        self._rates: dict[str, Rate] = {}
        self._fruitless = float("-inf")

    def __len__(self) -> int:
        return self._count

    def take(self, block: str, now: float) -> Place | None:
        """A place for a new connection, which another may have to give up; None if there is none for it."""
        held = len(self._blocks.get(block, ()))
        if held >= self._per_block or self._too_fast(block, now):
            return None
        if self._count >= self._limit and not self._make_room(block, held, now):
            return None
        place = Place(self, block, now)
        self._blocks.setdefault(block, {})[place] = None
        self._count += 1
        return place

    def _too_fast(self, block: str, now: float) -> bool:
        """Whether a block makes more connections than a second may bring: each costs something, a TLS handshake much.
        Those that are refused do not count."""
        rate = self._rates.get(block)
        if rate is None:
            if len(self._rates) >= _RATES:
                self._rates.clear()
            rate = self._rates[block] = Rate(_CONNECTIONS_PER_SECOND, now)
        if rate.take(0, now) > 0.0:
            return True
        rate.take(1, now)
        return False

    def remove(self, place: Place) -> None:
        """A place is free."""
        held = self._blocks.get(place.block)
        if held is not None and place in held:
            del held[place]
            self._count -= 1
            if not held:
                del self._blocks[place.block]

    def _make_room(self, block: str, held: int, now: float) -> bool:
        known = self._is_known(block)
        if not known and now - self._fruitless < _AGAIN:
            return False
        victims = self._slow(now) or self._victim(held, known, now)
        if not victims:
            self._fruitless = now
            return False
        for victim in victims:
            victim.close()
        return True

    def _victim(self, held: int, known: bool, now: float) -> list[Place]:
        """Who makes room for a newcomer whose block holds so many already, and which is ``known`` or a stranger."""
        as_full = sorted((one for one in self._blocks.values() if len(one) >= held), key=len, reverse=True)
        fuller = [one for one in as_full if len(one) > held]
        stranger = self._is_stranger
        found = (
            _least_heard(fuller, lambda one: one.is_idle(now) and stranger(one))
            or _least_heard(as_full, lambda one: one.silent and stranger(one))
            or _least_heard(self._over_share(fuller, held), stranger)
            or (_least_heard([self._all()], stranger) if known else None)
            or _least_heard(fuller, lambda one: one.is_idle(now))
        )
        return [] if found is None else [found]

    def _all(self) -> Iterator[Place]:
        for places in self._blocks.values():
            yield from places

    def _is_stranger(self, place: Place) -> bool:
        return place.connection is None or not self._is_declared(place.connection)

    def _slow(self, now: float) -> list[Place]:
        """Strangers that have said nothing for longest, whose time is over."""
        slow = [one for one in self._all() if now - one.since > GRACE and one.silent and self._is_stranger(one)]
        return nsmallest(_SLOW_AT_ONCE, slow, key=lambda one: one.since)

    def _over_share(self, fuller: list[dict[Place, None]], held: int) -> list[dict[Place, None]]:
        """Blocks that have more than each would have by equal shares, the newcomer's too."""
        share = self._limit / (len(self._blocks) + (not held))
        return [places for places in fuller if len(places) > max(held + 1, share)]


def _least_heard(blocks: Iterable[Iterable[Place]], fits: Callable[[Place], bool]) -> Place | None:
    """The place that fits and was heard of least recently, of the first block that has one."""
    for places in blocks:
        found = min((one for one in places if fits(one)), key=lambda one: one.heard, default=None)
        if found is not None:
            return found
    return None
