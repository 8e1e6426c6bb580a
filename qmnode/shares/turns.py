"""Turns of the event loop: strangers' input is handled in slices, and the rest of the time belongs to all others.

The processor time of a stranger's input is measured and charged to its address block. The next turn is that of the
network, and in it of the block, that has used least. So a block that sends little waits for one step of others at most,
and an attacker with a whole /32 of IPv6 gets as much as one IPv4 address. While nobody else is busy, strangers have the
whole loop. Otherwise they pause after each slice, and after what follows from their input, for four times as long.
The input of a declared peer waits only for its own, once it has taken more than its part of some milliseconds. Only
time that the node has counts: not that in which other processes keep it from the processor.
"""

import asyncio
import os
import threading
import time
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final
from weakref import WeakValueDictionary

import structlog

from qmnode.shares.blocks import networks_of
from qmnode.shares.parties import Kind, Party

log = structlog.get_logger(__name__)

Turn = Callable[[], bool]
"""Handles a piece of a connection's input. Returns whether there is more."""

STEP: Final = 8 * 1024
"""Bytes to handle in one turn: some dozens of small messages."""
STEP_OF_PEER: Final = 64 * 1024
"""The same for a declared peer."""
_MILLISECOND: Final = 1_000_000
_NANOSECOND: Final = 1e-9
_SLICE: Final = 2 * _MILLISECOND
"""Nanoseconds of a slice while others are busy. One step may take longer."""
_ALONE: Final = 3 * _MILLISECOND
"""Nanoseconds of a slice while no others are busy, and those for others in a pass of the loop."""
_BUSY: Final = 0.1
"""Seconds for which others count as busy after something has come from one of them."""
_HURRY: Final = _MILLISECOND
"""Nanoseconds between two slices in which urgent input of one network waits for nobody."""
_HURRIES: Final = 8 * _MILLISECOND
"""The same for all networks."""
_PAUSE: Final = 4
"""The pause after a slice while others are busy, as a multiple of the slice."""
_OF_A_BYTE: Final = 4
"""Nanoseconds to count for each byte beside the slice: the disk is shared, too."""
_WINDOW: Final = 0.01
"""Seconds in which a declared peer may take its part at once."""
_PART: Final = 4 * _MILLISECOND
"""Nanoseconds of that part: more than what one session brings with its window."""
_PAUSE_OF_PEER: Final = 1.5
"""The pause of a declared peer after what it took above its part while others are busy, as a multiple of that."""
_PAID_AT_ONCE: Final = 50 * _MILLISECOND
"""The most that one pause is for. Each is followed by a turn, so strangers that cost nothing wait no longer."""
_MOST_OWED: Final = 500 * _MILLISECOND
"""The largest debt that is remembered."""
_DELAYS: Final = "/proc/thread-self/schedstat"
"""Nanoseconds that this thread has run, and that it has waited for a processor."""
_REMEMBERED: Final = 4096
"""Parts of a network above which those are forgotten that have used no more than others."""


class _Waited(threading.local):
    seconds = 0.0
    """In which this thread had waited for a processor when that could last be read."""


_waited = _Waited()


def _had() -> float:
    """Seconds that this thread has had, in which it ran or there was nothing to do. They do not pass while other
    processes keep it from the processor: what others would have done in that time is still to be done.
    """
    with suppress(OSError):  # a kernel that does not count this, or no descriptor is left: it does not jump
        file = os.open(_DELAYS, os.O_RDONLY)
        try:
            _waited.seconds = int(os.read(file, 64).split()[1]) * _NANOSECOND
        finally:
            os.close(file)
    return time.monotonic() - _waited.seconds


class _Network:
    """A network whose parts take turns, or an address block, whose connections do."""

    __slots__ = ("_at", "_order", "_parts", "_waiting", "used", "waits")

    def __init__(self, used: int) -> None:
        self.used = used
        """Nanoseconds of its input, counted from what the last part to have a turn had used when it became known."""
        self.waits = 0
        """Turns that wait, or are being taken."""
        self._at = 0
        self._parts: dict[str, _Network] = {}
        self._order: list[tuple[int, int, str]] = []
        """The parts with waiting turns: the use of each, a number that differs, and its name."""
        self._waiting: deque[Turn] = deque()

    def _part(self, name: str) -> "_Network":
        """A part of it. One that was idle starts where the others are: time is not saved up."""
        found = self._parts.get(name)
        if found is None:
            if len(self._parts) >= _REMEMBERED:
                self._parts = {key: one for key, one in self._parts.items() if one.waits or one.used > self._at}
            found = self._parts[name] = _Network(self._at)
        elif not found.waits:
            found.used = max(found.used, self._at)
        return found

    def add(self, path: Sequence[str], turn: Turn, number: int) -> None:
        """Let a turn wait in the part that a path leads to."""
        self.waits += 1
        if not path:
            self._waiting.append(turn)
            return
        part = self._part(path[0])
        if not part.waits:
            heappush(self._order, (part.used, number, path[0]))
        part.add(path[1:], turn, number)

    def take(self, clock: Callable[[], int]) -> tuple[int, bool]:
        """Take the next turn. Return the nanoseconds that it cost, which are charged, and whether it waits again."""
        if self._waiting:
            turn, began = self._waiting.popleft(), clock()
            try:
                waits = turn()
            except Exception:  # its block would never have a turn again
                log.exception("the input of a connection cannot be handled")
                waits = False
            if waits:
                self._waiting.append(turn)
            cost = max(1, clock() - began)
        else:
            self._at, number, name = heappop(self._order)
            part = self._parts[name]
            cost, waits = part.take(clock)
            part.used += cost
            if part.waits:
                heappush(self._order, (part.used, number, name))
        self.waits -= not waits
        return cost, waits

    def has_waiting(self, path: Sequence[str]) -> bool:
        """Whether turns wait in the part that a path leads to."""
        if not path or not self.waits:
            return self.waits > 0
        part = self._parts.get(path[0])
        return part is not None and part.has_waiting(path[1:])

    def charge(self, path: Sequence[str], cost: int) -> None:
        """Charge the parts that a path leads to for what did not wait."""
        if path:
            part = self._part(path[0])
            part.charge(path[1:], cost)
            part.used += cost
            if not self.waits:  # nobody was kept waiting, so nobody is owed anything
                self._at = part.used


class Peer:
    """A declared peer, whose connections share its part."""

    __slots__ = ("__weakref__", "began", "heard", "next", "pauses_until", "taken", "waiting")

    def __init__(self) -> None:
        self.heard = float("-inf")
        """When something last came from it, by the loop's clock."""
        self.began = float("-inf")
        """When the window of its part began."""
        self.taken = 0
        """Nanoseconds that it has taken since."""
        self.waiting: deque[Turn] = deque()
        self.pauses_until = 0.0
        """When its pause ends, as of :func:`_had`."""
        self.next: asyncio.Handle | None = None
        """The call that begins its next slice."""


class Turns:
    """The turns of all connections of a node."""

    def __init__(self, clock: Callable[[], int] = time.thread_time_ns) -> None:
        """``clock`` returns the nanoseconds that the thread has used."""
        self.heard = float("-inf")
        """When something last came from others than strangers, by the loop's clock. Set by its readers."""
        self.knows_peers = False
        """Whether some peers are declared. Otherwise strangers are the peers that the node is there for, and do not
        pause while only local applications are busy.
        """
        self._clock = clock
        self._strangers = _Network(0)
        self._others: deque[Turn] = deque()
        self._peers: WeakValueDictionary[Party, Peer] = WeakValueDictionary()
        self._own_heard = self.heard
        """When a local application last called, by the loop's clock."""
        self._hurried: dict[str, int] = {}
        """Nanoseconds of urgent input that waited for nobody since the last slice, by widest network."""
        self._numbers = count()
        self._left = _ALONE
        """Nanoseconds that are left for turns at once."""
        self._owed = 0
        """The debt of strangers: nanoseconds of their input and of its consequences, for which no pause was made."""
        self._silence = self.heard
        """When others were last heard before a silence."""
        self._silent_since = 0.0
        """When the silence was noticed, as of :func:`_had`: others are not silent while they are kept from speaking."""
        self._is_silent = True
        self._pauses_until = 0.0
        """When the pause ends, as of :func:`_had`."""
        self._next: asyncio.Handle | None = None
        """The call that begins the next slice."""

    @property
    def are_scarce(self) -> bool:
        """Whether strangers have to wait, and are to be read in small pieces."""
        return self._strangers.waits > 0 or self._is_busy()

    def _is_busy(self) -> bool:
        if asyncio.get_running_loop().time() - self.heard < _BUSY:
            return True
        if self._silence != self.heard:
            self._silence, self._silent_since, self._is_silent = self.heard, _had(), False
        elif not self._is_silent:
            self._is_silent = _had() - self._silent_since >= _BUSY
        return not self._is_silent

    def heard_own(self) -> None:
        """Note that a local application has called."""
        if self.knows_peers:
            self.heard = self._own_heard = asyncio.get_running_loop().time()

    def peer(self, party: Party) -> Peer:
        """The declared peer that a party is. It is kept as long as somebody has it."""
        found = self._peers.get(party)
        if found is None:
            found = self._peers[party] = Peer()
        return found

    def take_of(self, peer: Peer, turn: Turn, now: float) -> bool:
        """Take the turn of a declared peer, now or later. Return whether it waits now."""
        self.heard = peer.heard = now
        if not peer.waiting:
            if now - peer.began > _WINDOW:
                peer.began, peer.taken = now, 0
            while peer.taken < _PART:
                began = self._clock()
                has_more = turn()
                peer.taken += self._clock() - began
                if not has_more:
                    return False
        peer.waiting.append(turn)
        if peer.next is None:
            self._pause_of(peer, peer.taken)
        return True

    def _pause_of(self, peer: Peer, cost: int) -> None:
        """Plan the next slice of a declared peer after it took so many nanoseconds."""
        loop = asyncio.get_running_loop()
        since = loop.time() - _BUSY
        is_busy = self._own_heard > since or any(one.heard > since for one in self._peers.values() if one is not peer)
        pause = _PAUSE_OF_PEER * cost * _NANOSECOND if is_busy else 0.0
        peer.pauses_until = _had() + pause if pause else 0.0
        peer.next = (
            loop.call_later(pause, self._take_slice_of, peer) if pause else loop.call_soon(self._take_slice_of, peer)
        )

    def _take_slice_of(self, peer: Peer) -> None:
        loop = asyncio.get_running_loop()
        peer.next = None
        if peer.pauses_until and (rest := peer.pauses_until - _had()) > 0:
            peer.next = loop.call_later(rest, self._take_slice_of, peer)
            return
        self.heard = peer.heard = loop.time()
        began = self._clock()
        while peer.waiting and self._clock() - began < _SLICE:
            turn = peer.waiting.popleft()
            if turn():
                peer.waiting.append(turn)
        peer.began, peer.taken = peer.heard, self._clock() - began
        if peer.waiting:
            self._pause_of(peer, peer.taken)

    def take(self, address: str, size: int, turn: Turn, *, is_urgent: bool) -> bool:
        """Take the turn of a stranger, which has sent so many bytes, now or later. Return whether it waits now.
        A little urgent input, such as the beginning of a session, waits only for its own block, and for nobody while
        its network has had little of it since the last slice.
        """
        path, strangers = networks_of(address), self._strangers
        is_free = self._left > 0 and not strangers.waits and (not self._is_busy() or (size <= STEP and not self._owed))
        if not is_free and not (is_urgent and size <= STEP and self._may_hurry(path)):
            self._add(path, turn)
            return True
        began = self._clock()
        has_more = turn()
        cost = self._clock() - began
        if not is_free:
            self._hurried[path[0]] = self._hurried.get(path[0], 0) + cost
        strangers.charge(path, cost)
        self._pause(self._left - cost, cost)
        if has_more:
            self._add(path, turn)
        return has_more

    def _may_hurry(self, path: Sequence[str]) -> bool:
        """Whether urgent input of a block need not wait."""
        hurried = self._hurried
        return (
            hurried.get(path[0], 0) < _HURRY
            and sum(hurried.values()) < _HURRIES
            and not self._strangers.has_waiting(path)
        )

    def follow(self, address: str, work: Callable[[], object]) -> None:
        """Do now what follows from the input of a stranger, and charge it."""
        began = self._clock()
        try:
            work()
        finally:
            cost = self._clock() - began
            self._strangers.charge(networks_of(address), cost)
            if self._is_busy():
                self._owe(cost)

    async def steps(self, address: str, work: Coroutine[Any, Any, None]) -> None:
        """Await work that follows from the input of a stranger, and charge each of its steps."""
        await self._steps(address, work)

    @types.coroutine
    def _steps(self, address: str, work: Coroutine[Any, Any, None]) -> Generator[Any, Any, None]:
        waits_for: Any = None
        raised: BaseException | None = None
        ended = False

        def step() -> None:
            nonlocal waits_for, ended
            try:
                waits_for = work.send(None) if raised is None else work.throw(raised)
            except StopIteration:
                ended = True

        while True:
            self.follow(address, step)
            if ended:
                return
            raised = None
            try:
                yield waits_for
            except BaseException as error:  # a cancellation included
                raised = error

    def carry(self, size: int) -> None:
        """Count bytes of a stranger, which the disk may have to write."""
        if self._is_busy():
            self._owe(size * _OF_A_BYTE)

    def wait(self, party: Party, address: str, turn: Turn) -> None:
        """Let the turn of any party wait for the next slice."""
        if party.kind is Kind.STRANGER:
            self._add(networks_of(address), turn)
            return
        self.heard = asyncio.get_running_loop().time()
        if not self._others:
            asyncio.get_running_loop().call_soon(self._take_others)
        self._others.append(turn)

    def _add(self, path: Sequence[str], turn: Turn) -> None:
        self._strangers.add(path, turn, next(self._numbers))
        if self._next is None:
            self._next = asyncio.get_running_loop().call_soon(self._take_slice)

    def _take_others(self) -> None:
        end = self._clock() + _ALONE
        self.heard = asyncio.get_running_loop().time()
        while self._others:
            turn = self._others.popleft()
            if turn():
                self._others.append(turn)
            if self._clock() >= end:
                break
        if self._others:
            asyncio.get_running_loop().call_soon(self._take_others)

    def _take_slice(self) -> None:
        """Take turns of strangers in this pass of the loop."""
        self._next = None
        strangers, is_busy, left = self._strangers, self._is_busy(), _ALONE
        if not is_busy:
            self._owed = 0
        else:
            rest = self._pauses_until - _had()
            if self._pauses_until and rest > 0:
                self._next = asyncio.get_running_loop().call_later(rest, self._take_slice)
                return
            # There is always one turn: otherwise those who send urgent input all the time would keep all others waiting
            # for ever.
            left = max(1, _SLICE - self._owed)
        self._pauses_until = 0.0
        self._hurried.clear()
        self._left = whole = left
        if not strangers.waits and not self._owed:
            return
        while strangers.waits and left > 0:
            left -= strangers.take(self._clock)[0]
        self._pause(left, whole - left)

    def _pause(self, left: int, cost: int) -> None:
        """Plan the next slice after one that took so many nanoseconds."""
        loop = asyncio.get_running_loop()
        if not self._is_busy():
            self._left = left
            if self._next is None:
                self._next = loop.call_soon(self._take_slice)
            return
        self._left = 0
        self._owe(cost)
        if self._next is None:
            paid = min(self._owed, _PAID_AT_ONCE)
            self._owed -= paid
            pause = _PAUSE * paid * _NANOSECOND
            self._pauses_until = _had() + pause
            self._next = loop.call_later(pause, self._take_slice)

    def _owe(self, cost: int) -> None:
        self._owed = min(self._owed + cost, _MOST_OWED)
