"""The one accountant of a node: the shares of own, declared and unknown parties in each bounded resource.

Nothing here does input or output, and only the turns read a clock. To bound a resource:

1. Declare it as a :class:`Resource`: what one unit is, which setting gives the total, the part that strangers cannot
   take, the part of one party, what makes room, and the answer to the refused.
2. Open its account with the total in force: ``account = context.shares.open(RESOURCE, total)``. Opening it again, after
   a change of settings, changes its limits.
3. Find the party that pays: ``OWN`` for local applications and administrators,
   ``declared(name)`` for a peer that has proven who it is, ``stranger(address)`` for everybody else.
4. ``account.take(party, amount)`` returns whether it may, and charges it; ``account.give_back(party, amount)`` when the
   unit is free again. ``account.room(party)`` is the amount that it may take now.

The processor is shared by :class:`Turns`: each door takes a turn for the input of a connection.

Some limits are no accounts, and count by address block where they are:

- Places for connections (:mod:`qmnode.transport.listener`): what makes room depends on who was heard last, not on the
  order of arrival. The limit of a block is a setting of its own.
- Packets that are not believed (:mod:`qmnode.delivery.strangers`): they hold nothing but a number, for a minute.
- Branches of a sequence (:mod:`qmnode.protocol.incoming_sequences`): at most sixteen of each position, which has an
  account.
- Windows of sessions: agreed with each peer. The bytes behind them are held bytes, which have an account.
- The quota: what is stored does not keep its payer over a restart, so strangers share it, without parts for blocks.

Status, metrics and the table in ``docs/reference/shares.md`` come from the rows and the open accounts.
"""

import asyncio
import ipaddress
import os
import threading
import time
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Hashable, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum, unique
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count, islice
from typing import Any, Final, Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import structlog

# ----------------------------------------------------------------------------------------------------------------------
# Address blocks: the smallest set of addresses that one attacker controls and shares with no honest peer; and the
# networks around them, which one attacker may also control.


_NETWORK: Final = 64
_WIDER: Final = (32, 48)
"""Lengths of the prefixes of a provider and of a customer."""


@lru_cache(maxsize=4096)
def block_of(address: str) -> str:
    """The block of an address: an IPv4 address itself, or the /64 of an IPv6 address, in which a machine chooses its
    address freely.
    """
    if ":" not in address:
        return address
    try:
        known = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    return str(ipaddress.IPv6Network((known, _NETWORK), strict=False))


@lru_cache(maxsize=4096)
def networks_of(address: str) -> tuple[str, ...]:
    """The networks of an address, the widest first, the last one its block: for IPv4 the block alone."""
    block = block_of(address)
    if ":" not in block:
        return (block,)
    known = ipaddress.IPv6Network(block)
    return (*(str(known.supernet(new_prefix=length)) for length in _WIDER), block)


# ----------------------------------------------------------------------------------------------------------------------
# The parties that use resources: own, declared, and strangers by address block.


@unique
class Kind(StrEnum):
    """The identity that a party has proven."""

    OWN = "own"
    """Local applications and administrators."""
    DECLARED = "declared"
    """Machines of the directory at their addresses, TLS identities, and plain peers of the settings."""
    STRANGER = "stranger"


class Party(NamedTuple):
    """One payer. ``name`` identifies a declared peer, or is the address block of strangers."""

    kind: Kind
    name: str


OWN: Final = Party(Kind.OWN, "")
UNKNOWN: Final = Party(Kind.STRANGER, "unknown")
"""Strangers whose address block is no longer known."""


def declared(name: str) -> Party:
    """The party of a peer that has proven its identity, such as the text of its QueueManager.Identifier."""
    return Party(Kind.DECLARED, name)


def stranger(address: str) -> Party:
    """The party of all unproven peers in the block of an address."""
    return Party(Kind.STRANGER, block_of(address))


# ----------------------------------------------------------------------------------------------------------------------
# The bounded resources of a node, one row each.
#
# ``docs/reference/shares.md`` shows these rows as a table: ``python -m tests.docs.shares_table`` writes it.


class Resource(NamedTuple):
    """One bounded resource, and how it is shared."""

    name: str
    """Its name in status and metrics."""
    what: str
    """One unit of it, for the table: 'messages that wait for an unknown machine'."""
    unit: str
    """The unit of the total, such as bytes or places."""
    setting: str
    """The setting from which the total follows."""
    refused: str
    """The answer to a party that gets no more, for the table."""
    reserve: float = 0.5
    """The part of the total that strangers cannot take."""
    own: float = 0.0
    """The part of the reserve that only local applications and administrators can take."""
    block: float = 0.25
    """The part of the total that one block of strangers may hold."""
    times_free: float = 0.25
    """The most that a block may hold, as a multiple of the units that are free for strangers."""
    peer: float = 1.0
    """The part of the total that one declared peer may hold, and at most three times what it leaves free."""
    evicted: str = "nothing"
    """The holdings that make room for a party that may have more."""


INCOMING_SEQUENCES: Final = Resource(
    "incoming_sequences",
    "positions of incoming transactional sequences: pairs of a source and a destination",
    "places",
    "transfer.incoming_sequences",
    "the message waits at its source",
    evicted="positions of strangers without a message for an hour",
)
HISTORY_SOURCES: Final = Resource(
    "history_sources",
    "sources in the history of message identifiers",
    "places",
    "transfer.history_sources",
    "nothing: the message is accepted",
    times_free=1.0,
    evicted="the oldest of the same party, then of the block with the most",
)
HISTORY_PAGES: Final = Resource(
    "history_sparse_pages",
    "pages with few messages in this history: eight times the setting",
    "places",
    "transfer.history_sparse_pages",
    "nothing: the message is accepted",
    times_free=1.0,
    evicted="the oldest of the same party, then of the block with the most",
)
UNKNOWN_MACHINE_MESSAGES: Final = Resource(
    "unknown_machine_messages",
    "passing messages that wait for a machine which the directory does not show",
    "places",
    "transfer.unknown_machine_messages",
    "a negative acknowledgment: no such queue",
    block=1 / 8,
    times_free=1.0,
    peer=1 / 8,
)
UNKNOWN_MACHINE_BYTES: Final = Resource(
    "unknown_machine_bytes",
    "the bytes of these messages",
    "bytes",
    "transfer.unknown_machine_bytes",
    "the same",
    block=1 / 8,
    times_free=1.0,
    peer=1 / 8,
)
OUTGOING_QUEUES: Final = Resource(
    "outgoing_queues",
    "outgoing queues for messages of others: for messages that pass, and for answers; half of all outgoing queues",
    "places",
    "quotas.outgoing_queues",
    "passing messages wait at the peer; answers are not sent",
    block=1 / 8,
    evicted="queues that are empty",
)
QUOTA: Final = Resource(
    "quota",
    "stored messages: strangers' are taken while all together leave the reserve free, whoever stored them",
    "bytes",
    "quotas.queue_manager_quota",
    "the session is closed, and the messages wait at the peer; refused copies for the dead-letter queue are discarded",
    reserve=1 / 4,
    own=1 / 8,
    block=3 / 4,
)
DELAYED_BYTES: Final = Resource(
    "delayed_bytes",
    "messages that wait for their delivery time: half of the quota; strangers' are taken while all together leave the "
    "reserve free, whoever sent them",
    "bytes",
    "quotas.queue_manager_quota",
    "the message is refused",
    reserve=1 / 2,
    own=1 / 4,
    block=1.0,
    times_free=1.0,
)
HELD_BYTES: Final = Resource(
    "held_bytes",
    "incomplete packets, and received messages that wait for a verification, the directory or the disk",
    "bytes",
    "transport.incomplete_bytes",
    "its connections are not read until some of its messages are stored",
    reserve=5 / 8,
    block=3 / 16,
    peer=1 / 4,
    evicted="incomplete packets of the same peer that do not grow",
)
NOTICES: Final = Resource(
    "notices",
    "waiting acknowledgments and trace reports that messages of others cause",
    "bytes",
    "quotas.notices",
    "its acknowledgments and reports are not sent",
)
AMQP_PARTIAL_BYTES: Final = Resource(
    "amqp_partial_bytes",
    "messages over AMQP that have begun and are not whole; who logs in is a declared peer",
    "bytes",
    "amqp.partial_bytes",
    "its connection is closed",
    block=0.5,
    times_free=1.0,
)
AMQP_ATTACHED_BYTES: Final = Resource(
    "amqp_attached_bytes",
    "the frames that open AMQP connections and attach their links, also refused ones",
    "bytes",
    "amqp.attached_bytes",
    "its connection is closed",
    times_free=1.0,
)
AMQP_TRANSACTION_BYTES: Final = Resource(
    "amqp_transaction_bytes",
    "messages that AMQP clients have sent in transactions that have not ended",
    "bytes",
    "amqp.transaction_bytes",
    "the message is refused, and the transaction rolled back",
    times_free=1.0,
)
AMQP_TEMPORARY_QUEUES: Final = Resource(
    "amqp_temporary_queues",
    "temporary queues of AMQP clients; who logs in is a declared peer",
    "places",
    "amqp.temporary_queues",
    "its link is refused",
    times_free=1.0,
)
RPC_ANSWER_BYTES: Final = Resource(
    "rpc_answer_bytes",
    "answers to remote procedure calls that the clients have not read; a client that authenticated is a declared peer",
    "bytes",
    "remote_read.answer_bytes",
    "its connection is closed; messages that it was sent return to their queue",
    times_free=1.0,
)


# ----------------------------------------------------------------------------------------------------------------------
# Turns of the event loop: strangers' input is handled in slices, and the rest of the time belongs to all others.
#
# The processor time of a stranger's input is measured and charged to its address block. The next turn is that of the
# network, and in it of the block, that has used least. So a block that sends little waits for one step of others at
# most, and an attacker with a whole /32 of IPv6 gets as much as one IPv4 address. While nobody else is busy, strangers
# have the whole loop. Otherwise they pause after each slice, and after what follows from their input, for four times as
# long. The input of a declared peer waits only for its own, once this and what follows from it have taken more than its
# part of some milliseconds.
# Only time that the node has counts: not that in which other processes keep it from the processor.


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
_LITTLE: Final = _MILLISECOND
"""Nanoseconds in a window of a declared peer that leave no debt."""
_MOST_OWED_BY_PEER: Final = 300 * _MILLISECOND
"""The largest debt of a declared peer that is remembered."""
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

    __slots__ = (
        "__weakref__", "began", "had", "has_little_room", "heard", "next", "owed", "pauses_until", "taken", "waiting",
    )  # fmt: skip

    def __init__(self) -> None:
        self.heard = float("-inf")
        """When something last came from it, by the loop's clock."""
        self.began = float("-inf")
        """When the window of its part began."""
        self.taken = 0
        """Nanoseconds that it has taken since."""
        self.owed = 0
        """Its debt: nanoseconds of consequences of its input, for which it has not waited yet. They count while other
        declared peers are busy: an application that receives what this one sends is no reason to slow it down.
        """
        self.had = 0.0
        """When its debt was last made smaller, as of :func:`_had`; 0 for a peer without one."""
        self.has_little_room = False
        """Whether it holds almost all bytes that it may, so that little is to be read at a time."""
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
        self._last_peer: Peer | None = None
        """The declared peer from which something last came."""
        self._before_last = self.heard
        """When something last came from another declared peer than that one, by the loop's clock."""
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
        if peer is not self._last_peer:
            self._before_last = float("-inf") if self._last_peer is None else self._last_peer.heard
            self._last_peer = peer
        self.heard = peer.heard = now
        if not peer.waiting:
            if now - peer.began > _WINDOW:
                self._begin_window(peer, now)
            owed = peer.owed if self._is_other_busy(peer, now) else 0
            while peer.taken + owed < _PART:
                began = self._clock()
                has_more = turn()
                peer.taken += self._clock() - began
                if not has_more:
                    return False
        peer.waiting.append(turn)
        if peer.next is None:
            self._pause_of(peer, peer.taken)
        return True

    def _is_other_busy(self, peer: Peer, now: float) -> bool:
        """Whether another declared peer is busy."""
        last = self._last_peer
        heard = self._before_last if last is peer or last is None else last.heard
        return now - heard < _BUSY

    def _begin_window(self, peer: Peer, now: float) -> None:
        """Begin the next window of a declared peer: what it used above its part of the time between is its debt."""
        used = peer.taken + peer.owed
        if used < _LITTLE:
            used, peer.had = 0, 0.0
        else:
            had = _had()
            since = had - peer.had if peer.had else now - peer.began
            used, peer.had = max(0, used - int(_PART * since / _WINDOW)), had
        peer.began, peer.taken, peer.owed = now, 0, min(used, _MOST_OWED_BY_PEER)

    def _pause_of(self, peer: Peer, cost: int) -> None:
        """Plan the next slice of a declared peer after it took so many nanoseconds."""
        loop, pause = asyncio.get_running_loop(), 0.0
        now = loop.time()
        if self._is_other_busy(peer, now):
            paid = min(peer.owed, _PAID_AT_ONCE)
            peer.owed -= paid
            pause = _PAUSE_OF_PEER * (cost + paid) * _NANOSECOND
        else:
            peer.owed = 0
            if now - self._own_heard < _BUSY:
                pause = _PAUSE_OF_PEER * cost * _NANOSECOND
        peer.pauses_until = _had() + pause if pause else 0.0
        peer.next = (
            loop.call_later(pause, self._take_slice_of, peer) if pause else loop.call_soon(self._take_slice_of, peer)
        )

    def _take_slice_of(self, peer: Peer) -> None:
        loop = asyncio.get_running_loop()
        peer.next = None
        if peer.pauses_until:
            peer.had = _had()
            if (rest := peer.pauses_until - peer.had) > 0:
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

    def follow(self, payer: str | Peer, work: Callable[[], object]) -> None:
        """Do now what follows from the input of a stranger at an address, or of a declared peer, and charge it."""
        began = self._clock()
        try:
            work()
        finally:
            cost = self._clock() - began
            if isinstance(payer, Peer):
                payer.owed = min(payer.owed + cost, _MOST_OWED_BY_PEER)
            else:
                self._strangers.charge(networks_of(payer), cost)
                if self._is_busy():
                    self._owe(cost)

    async def steps(self, payer: str | Peer, work: Coroutine[Any, Any, None]) -> None:
        """Await work that follows from the input of a stranger or a declared peer, and charge each of its steps."""
        await self._steps(payer, work)

    @types.coroutine
    def _steps(self, payer: str | Peer, work: Coroutine[Any, Any, None]) -> Generator[Any, Any, None]:
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
            self.follow(payer, step)
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


# ----------------------------------------------------------------------------------------------------------------------
# The use of resources by party, and the decision whether a party may use more.
#
# Strangers together stay out of the reserve, and each block within its part. The more of the strangers' part is taken,
# the less a block may add, and the same holds among declared peers. So there is always room for the next party, however
# many came before, and parties that are active for long end up with equal shares. A party that holds nothing may take
# one message of the largest size as long as that fits at all, so no total should be below a few of these.


Entry = TypeVar("Entry", bound=Hashable)
_DECLARED_TIMES_FREE: Final = 3.0
"""A declared peer may hold three times as much as it leaves free: three quarters if it is the only one."""
_LOOKS: Final = 16
"""Entries of a table that one newcomer has looked at."""
_OWN: Final = Kind.OWN
_DECLARED: Final = Kind.DECLARED
_STRANGER: Final = Kind.STRANGER


class Account:
    """The use of one resource. Amounts are integers in the resource's unit."""

    __slots__ = ("_block", "_for_strangers", "_held", "_not_own", "_peer", "refused", "resource", "total", "used")

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.used: dict[Kind, int] = dict.fromkeys(Kind, 0)
        """Units in use, by kind of party."""
        self.refused: dict[Kind, int] = dict.fromkeys(Kind, 0)
        """Refusals since the start, by kind of party."""
        self._held: dict[Party, int] = {}

    def limit(self, total: float, each: float | None = None) -> None:
        """Set the total; ``each`` is the most of one peer if a setting gives it, and not the resource's row."""
        self.total = total
        self._for_strangers = total * (1 - self.resource.reserve)
        self._not_own = total * (1 - self.resource.own)
        self._block = max(1, total * self.resource.block) if each is None else each
        self._peer = max(1, total * self.resource.peer) if each is None else each

    def held(self, party: Party) -> int:
        """The units that a party holds."""
        return self._held.get(party, 0)

    def room(self, party: Party) -> float:
        """The units that a party may take now; below zero if it holds too much."""
        used, kind = self.used, party.kind
        strangers = used[_STRANGER]
        taken = used[_OWN] + used[_DECLARED] + strangers
        if kind is _OWN:
            return self.total - taken
        free, each, times = self._not_own - taken, self._peer, _DECLARED_TIMES_FREE
        if kind is _STRANGER:
            free, each = min(free, self._for_strangers - strangers), self._block
            times = self.resource.times_free
        held = self._held.get(party)
        return min(free, each) if held is None else min(free, times * free - held, each - held)

    def admits(self, party: Party, amount: int = 1) -> bool:
        """Whether a party may take so much. Otherwise its refusal counts."""
        if amount <= self.room(party):
            return True
        self.refused[party.kind] += 1
        return False

    def take(self, party: Party, amount: int = 1) -> bool:
        """Charge a party if it may take so much."""
        if not self.admits(party, amount):
            return False
        self.charge(party, amount)
        return True

    def charge(self, party: Party, amount: int = 1) -> None:
        """Charge a party that may take it, or holds it in any case, such as since before a restart."""
        self.used[party.kind] += amount
        self._held[party] = self._held.get(party, 0) + amount

    def give_back(self, party: Party, amount: int = 1) -> None:
        """Release what a party held."""
        self.used[party.kind] -= amount
        left = self._held[party] - amount
        if left:
            self._held[party] = left
        else:
            del self._held[party]


class Table(Generic[Entry]):
    """The entries of a table, each charged to its party, and those that make room for others."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._entries: dict[Party, dict[Entry, None]] = {}

    def enter(self, entry: Entry, party: Party) -> None:
        """Add an entry, which is the newest of its party."""
        self._account.charge(party)
        self._entries.setdefault(party, {})[entry] = None

    def renew(self, entry: Entry, party: Party) -> None:
        """Make an entry the newest of its party again."""
        entries = self._entries[party]
        del entries[entry]
        entries[entry] = None

    def leave(self, entry: Entry, party: Party) -> None:
        """Remove an entry that its party no longer pays for."""
        entries = self._entries[party]
        del entries[entry]
        if not entries:
            del self._entries[party]
        self._account.give_back(party)

    def has_room(self, party: Party) -> bool:
        """Whether a party may add an entry."""
        return self._account.room(party) >= 1

    def admits(self, party: Party) -> bool:
        """Whether a party may add an entry, once all is done that makes room. Otherwise its refusal counts."""
        return self._account.admits(party)

    def victim(self, party: Party, may_go: Callable[[Entry], bool]) -> Entry | None:
        """The entry to remove so that a party may add one: an old one of its own, else of the block with the most, else
        of the party with the most. Strangers make room for a stranger only if it holds less.
        """
        own = self._entries.get(party, {})
        found = _oldest(own, may_go)
        if found is not None:
            return found
        blocks = [entries for one, entries in self._entries.items() if one.kind is _STRANGER and one != party]
        if party.kind is not _STRANGER:
            blocks = blocks or [*self._entries.values()]
        fullest = max(blocks, key=len, default={})
        if party.kind is _STRANGER and len(fullest) <= len(own):
            return None
        return _oldest(fullest, may_go)


def _oldest(entries: dict[Entry, None], may_go: Callable[[Entry], bool]) -> Entry | None:
    """The first entry that may go, among the first few. Those that may not become the newest."""
    for entry in [*islice(entries, _LOOKS)]:
        if may_go(entry):
            return entry
        del entries[entry]
        entries[entry] = None
    return None


class Accountant:
    """All accounts of a node, in the order in which they were opened, and its turns."""

    def __init__(self) -> None:
        self.turns = Turns()
        self._accounts: dict[str, Account] = {}

    def open(self, resource: Resource, total: float, each: float | None = None) -> Account:
        """The account of a resource, from now on with these limits."""
        account = self._accounts.get(resource.name)
        if account is None:
            account = self._accounts[resource.name] = Account(resource)
        account.limit(total, each)
        return account

    def __iter__(self) -> Iterator[Account]:
        return iter(self._accounts.values())

    def summary(self) -> dict[str, dict[str, Any]]:
        """Each account by the name of its resource: unit, total, reserve, and use and refusals by kind of party."""
        return {
            account.resource.name: {
                "unit": account.resource.unit,
                "total": int(account.total),
                "reserve": int(account.total * account.resource.reserve),
                "used": {kind.value: amount for kind, amount in account.used.items()},
                "refused": {kind.value: count for kind, count in account.refused.items()},
            }
            for account in self
        }


# ----------------------------------------------------------------------------------------------------------------------
# Use over time: how fast a party may go on, by what it has cost.


"""Names above which those are forgotten that may use a whole second again."""


class Rate:
    """Allows ``limit`` units per second on average, with bursts of one second's worth."""

    __slots__ = ("_last", "_limit", "_tokens")

    def __init__(self, limit: float, now: float) -> None:
        self._limit = limit
        self._tokens = limit
        self._last = now

    def take(self, count: float, now: float) -> float:
        """Charge units that were used. Return the seconds for which to take nothing more; 0 for none."""
        self._tokens = min(self._limit, self._tokens + (now - self._last) * self._limit) - count
        self._last = now
        return max(0.0, -self._tokens / self._limit)

    def is_rested(self, now: float) -> bool:
        """Whether nothing of the last second's use is left to remember."""
        return self._tokens + (now - self._last) * self._limit >= self._limit


class Rates:
    """One rate for each name, such as an address block. A debt outlives the connections that made it."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._rates: dict[str, Rate] = {}
        self._cleaned_at = _REMEMBERED

    def of(self, name: str, now: float) -> Rate:
        """The rate of one name."""
        rate = self._rates.get(name)
        if rate is None:
            if len(self._rates) >= self._cleaned_at:
                self._rates = {one: known for one, known in self._rates.items() if not known.is_rested(now)}
                self._cleaned_at = max(_REMEMBERED, 2 * len(self._rates))
            rate = self._rates[name] = Rate(self._limit, now)
        return rate
