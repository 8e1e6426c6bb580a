"""Decides which of the outgoing queues with one next hop sends first: the one with the highest priority (MS-MQDMPR
3.1.1.18, 3.1.7.1.28, 3.1.7.3.9; MS-MQQB 3.1.7.16).

The specification keeps all messages in one collection and sends the one with the highest sum of its queue's
BasePriority and its own priority; then the next. Here queues compete, by that sum for the first message that each can
send. The queue with the highest sum sends as much as its window takes. All others together send one message for every
sixteen of the first, a few at a time, so that none starves. Three of four such turns go to the best of them, the fourth
to the one that waited longest. Without competition, nothing is held back or computed.
"""

import asyncio
from typing import Final, Protocol

QUANTUM: Final = 4
"""Messages that a queue may send in its turn while another goes first."""
INTERVAL: Final = 16 * QUANTUM
"""Messages of the leading queues between two turns."""
PATIENCE: Final = 1.0
"""Seconds after which there is a turn, even if the leading queues have sent few messages."""
_LONGEST: Final = 4
"""One of this many turns goes to the queue that waited longest."""


class Sender(Protocol):
    """The sender of an outgoing queue, as precedence sees it."""

    def level(self) -> int | None:
        """BasePriority of the queue plus the priority of the first message that can be sent; None without one."""

    def schedule(self) -> None:
        """Check again which messages can be sent."""


class Precedence:
    """Arbitrates between the senders with sessions to one queue manager."""

    def __init__(self) -> None:
        self._members: set[Sender] = set()
        self.is_shared = False
        """Whether more than one sender competes."""
        self._waiting: dict[Sender, int] = {}
        """Senders that have more to send, with their levels."""
        self._held_back: dict[Sender, None] = {}
        """Senders that are held back, in the order in which they began to wait."""
        self._turn: Sender | None = None
        self._turns = 0
        self._sent = 0
        """Messages sent since the last turn."""
        self._timer: asyncio.TimerHandle | None = None

    def join(self, sender: Sender) -> None:
        """Add a sender whose session has opened."""
        self._members.add(sender)
        self.is_shared = len(self._members) > 1
        for member in self._members:
            member.schedule()

    def leave(self, sender: Sender) -> bool:
        """Remove a sender whose session has closed. Return whether none is left."""
        self._members.discard(sender)
        self.is_shared = len(self._members) > 1
        self.step_aside(sender)
        return not self._members

    def step_aside(self, sender: Sender) -> None:
        """Remove a sender from the competition: it sends nothing now."""
        self._held_back.pop(sender, None)
        if self._turn is sender:
            self._turn = None
        if self._waiting.pop(sender, None) is not None:
            for other in self._held_back:
                other.schedule()
        if not self._held_back and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def room(self, sender: Sender, room: int) -> int:
        """The number of messages that a sender may send now, ``room`` at most."""
        level = sender.level()
        if level is None:
            self.step_aside(sender)
            return room
        self._set_level(sender, level)
        if level >= max(self._waiting.values()):
            self._held_back.pop(sender, None)
            if self._turn is sender:
                self._turn = None
            return room
        if self._turn is not sender:
            self._hold_back(sender)
            return 0
        if room > 0:
            self._turn = None
            del self._held_back[sender]
            self._hold_back(sender)  # behind the others
        return min(room, QUANTUM)

    def sent(self, sender: Sender, count: int) -> None:
        """Record that a sender took ``count`` messages; it may have none left now."""
        level = sender.level()
        if level is None:
            self.step_aside(sender)
        else:
            self._set_level(sender, level)
        if self._held_back and sender not in self._held_back:
            self._sent += count
            if self._sent >= INTERVAL:
                self._give_turn()

    def _set_level(self, sender: Sender, level: int) -> None:
        """Record the level of a sender that has more to send. When it falls, other senders may come first now."""
        before = self._waiting.get(sender, level)
        self._waiting[sender] = level
        if level < before:
            for other in self._held_back:
                other.schedule()

    def _hold_back(self, sender: Sender) -> None:
        self._held_back.setdefault(sender)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._waited_long)

    def _waited_long(self) -> None:
        self._timer = None
        if self._held_back:
            self._give_turn()

    def _give_turn(self) -> None:
        """Give a turn to a held-back sender, usually the one with the highest level."""
        self._sent = 0
        self._turns += 1
        waiting = self._held_back
        longest = self._turns % _LONGEST == 0
        self._turn = next(iter(waiting)) if longest else max(waiting, key=lambda one: self._waiting.get(one, 0))
        self._turn.schedule()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._waited_long)
