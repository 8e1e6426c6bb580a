"""Room for what the queue manager sends about messages: acknowledgments and trace reports, which others cause.

Whoever sends messages that ask for them fills queues here without owning any of it. So notices that wait have a budget
apart from that of messages, shared by who caused them. It is kept in memory: after a restart what is there from before
counts no more, and goes when its life ends.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from qmnode.settings.node import QuotaSettings
from qmnode.structures.guid import ZERO_GUID, Guid

_KB: Final = 1024
_PART_OF_QUOTA: Final = 4
"""All notices take a quarter of the queue manager's quota at most,"""
_PART_OF_NEIGHBOUR: Final = 32
"""those of one neighbour a thirty-second."""


class Account(NamedTuple):
    """Who causes a notice."""

    name: str
    """One for each neighbour."""
    declared: bool
    """Whether the directory has the source of the message."""
    in_workgroup: bool = False
    """Whether there is no directory, so that nobody is declared."""

    def may_have_body(self, queues: int) -> bool:
        """Whether the body of a message that was refused goes back, to so many queues. A stranger who could have it
        sent to sixteen would have sixteen times the bytes stored that it sent."""
        return self.declared or (self.in_workgroup and queues == 1)


OWN: Final = Account("", declared=True)
"""Messages of this machine's applications: their notices are not others' doing."""


class NoticeBudget:
    """Counts bytes of notices that wait, by account and queue."""

    def __init__(self, settings: QuotaSettings) -> None:
        self.settings = settings
        self.account_of: Callable[[Guid], Account] = lambda source: OWN
        """The account of a source queue manager. The network knows."""
        self._accounts: dict[str, int] = {}
        self._queues: dict[int, dict[str, int]] = {}
        self._strangers = 0
        self._names_of_strangers: set[str] = set()
        self.used = 0
        """Bytes."""
        self.dropped = 0
        """Notices for which there was no room."""

    def account(self, source: bytes) -> Account:
        """``account_of`` for the bytes of an identifier; those of no source are nobody's."""
        return self.account_of(Guid(source)) if len(source) == len(ZERO_GUID) else Account("", declared=False)

    def admits(self, account: Account, size: int, quota: float) -> bool:
        """Whether a notice may wait. ``quota``: that of the queue manager, in bytes."""
        if account is OWN:
            return True
        total = min(self.settings.notices * _KB, quota / _PART_OF_QUOTA)
        each = min(self.settings.notices_per_neighbour * _KB, quota / _PART_OF_NEIGHBOUR)
        fits = self.used + size <= total and self._accounts.get(account.name, 0) + size <= each
        if fits and not account.declared and not account.in_workgroup:
            fits = self._strangers + size <= total / 2  # the other half is for those that are known
        self.dropped += not fits
        return fits

    def entered(self, queue: int, account: Account, size: int) -> None:
        """A notice that was admitted is in a queue."""
        name = account.name
        if not account.declared:
            self._names_of_strangers.add(name)
            self._strangers += size
        held = self._queues.setdefault(queue, {})
        held[name] = held.get(name, 0) + size
        self._accounts[name] = self._accounts.get(name, 0) + size
        self.used += size

    def left(self, queue: int, size: int) -> None:
        """A notice has left its queue: that of the account that has had one there for longest."""
        held = self._queues.get(queue)
        while held and size > 0:
            name = next(iter(held))
            part = min(size, held[name])
            size -= part
            self._give_back(name, part)
            held[name] -= part
            if not held[name]:
                del held[name]
        if held is not None and not held:
            del self._queues[queue]

    def forget(self, queue: int) -> None:
        """A queue was emptied at once, or deleted."""
        self.left(queue, sum(self._queues.get(queue, {}).values()))

    def _give_back(self, name: str, size: int) -> None:
        self.used -= size
        self._accounts[name] -= size
        if name in self._names_of_strangers:
            self._strangers -= size
        if not self._accounts[name]:
            del self._accounts[name]
            self._names_of_strangers.discard(name)
