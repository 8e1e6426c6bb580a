"""The limited slots for incoming connections, and the choice of which one to free when all are taken.

Slots are shared by address block (:mod:`qmnode.shares.blocks`). Silent connections go first, then idle ones of the
block that holds the most; a block over its share gives up its least used connection. An active peer that the node knows
never makes room for a stranger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import nsmallest
from typing import Final

from qmnode.shares.rates import Rates
from qmnode.transport.connection import Connection

GRACE: Final = 3.0
"""Seconds that a connection has to send its first message before others are preferred to it."""
IDLE: Final = 5.0
"""Seconds without a message after which a connection is idle; closing it costs its peer only a reconnection."""
_CONNECTIONS_PER_SECOND: Final = 200
"""New connections per second and block, on average."""
_SLOW_AT_ONCE: Final = 16
"""Silent connections closed at a time, so that not every newcomer costs a search."""
_AGAIN: Final = 0.1
"""Seconds between two searches when no connection could be closed, so that a flood does not cost a search for each."""


class Slot:
    """One incoming connection, from acceptance to end."""

    __slots__ = ("_slots", "block", "cancel", "connection", "since")

    def __init__(self, slots: Slots, block: str, since: float) -> None:
        self._slots = slots
        self.block = block
        self.since = since
        self.connection: Connection | None = None
        """The connection, once its first byte (and the TLS handshake, if any) has been processed."""
        self.cancel: Callable[[], object] = lambda: None
        """Ends the connection before ``connection`` is set."""

    def release(self) -> None:
        """Free the slot after the connection has ended. May be called again."""
        self._slots.remove(self)

    def close(self) -> None:
        """End the connection and free its slot."""
        self.release()
        if self.connection is not None:
            self.connection.abort()
        self.cancel()

    @property
    def silent(self) -> bool:
        """Whether the connection has sent no message yet."""
        return self.connection is None or not self.connection.session.received_count

    @property
    def heard(self) -> float:
        """When the connection last sent a message, or else was accepted."""
        return self.since if self.connection is None else max(self.since, self.connection.heard)

    def is_idle(self, now: float) -> bool:
        """Whether no message has come for a while and none waits for the disk."""
        return now - self.heard > IDLE and (self.connection is None or not self.connection.session.unsettled())


class Slots:
    """``limit`` slots in all, ``per_block`` for each address block."""

    def __init__(
        self, limit: int, per_block: int, is_declared: Callable[[Connection], bool], is_known: Callable[[str], bool]
    ) -> None:
        """``is_declared`` returns whether the node knows the peer of a connection; ``is_known`` whether a known peer
        has an address in this block.
        """
        self._limit = limit
        self._per_block = per_block
        self._is_declared = is_declared
        self._is_known = is_known
        self._blocks: dict[str, dict[Slot, None]] = {}
        self._count = 0
        self._rates = Rates(_CONNECTIONS_PER_SECOND)
        self._fruitless = float("-inf")

    def __len__(self) -> int:
        return self._count

    def take(self, block: str, now: float) -> Slot | None:
        """Return a slot for a new connection, closing another if necessary; None if no slot can be freed."""
        held = len(self._blocks.get(block, ()))
        if held >= self._per_block or self._too_fast(block, now):
            return None
        if self._count >= self._limit and not self._make_room(block, held, now):
            return None
        slot = Slot(self, block, now)
        self._blocks.setdefault(block, {})[slot] = None
        self._count += 1
        return slot

    def _too_fast(self, block: str, now: float) -> bool:
        """Whether a block opens more connections per second than allowed: each costs something, a TLS handshake a lot.
        Refused connections do not count.
        """
        rate = self._rates.of(block, now)
        if rate.take(0, now) > 0.0:
            return True
        rate.take(1, now)
        return False

    def remove(self, slot: Slot) -> None:
        """Remove a slot whose connection has ended."""
        held = self._blocks.get(slot.block)
        if held is not None and slot in held:
            del held[slot]
            self._count -= 1
            if not held:
                del self._blocks[slot.block]

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

    def _victim(self, held: int, known: bool, now: float) -> list[Slot]:
        """The slots to free for a newcomer whose block holds ``held`` slots, and which is ``known`` or a stranger."""
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

    def _all(self) -> Iterator[Slot]:
        for slots in self._blocks.values():
            yield from slots

    def _is_stranger(self, slot: Slot) -> bool:
        return slot.connection is None or not self._is_declared(slot.connection)

    def _slow(self, now: float) -> list[Slot]:
        """Strangers that have been silent for longest and whose grace has expired."""
        slow = [one for one in self._all() if now - one.since > GRACE and one.silent and self._is_stranger(one)]
        return nsmallest(_SLOW_AT_ONCE, slow, key=lambda one: one.since)

    def _over_share(self, fuller: list[dict[Slot, None]], held: int) -> list[dict[Slot, None]]:
        """Blocks that hold more than an equal share, counting the newcomer's block."""
        share = self._limit / (len(self._blocks) + (not held))
        return [slots for slots in fuller if len(slots) > max(held + 1, share)]


def _least_heard(blocks: Iterable[Iterable[Slot]], fits: Callable[[Slot], bool]) -> Slot | None:
    """The least recently heard slot that fits, of the first block that has one."""
    for slots in blocks:
        found = min((one for one in slots if fits(one)), key=lambda one: one.heard, default=None)
        if found is not None:
            return found
    return None
