"""The space budget for notices: acknowledgments and trace reports, which other queue managers cause.

A sender of messages that request notices fills queues here without owning any of them. So waiting notices have a budget
apart from that of messages, shared among the neighbours that caused them. It is kept in memory: after a restart, older
notices no longer count, and go when their lifetime ends.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from qmnode.settings.node import QuotaSettings
from qmnode.structures.guid import ZERO_GUID, Guid

_KB: Final = 1024
_PART_OF_QUOTA: Final = 4
"""All notices together use at most a quarter of the queue manager's quota,"""
_PART_OF_NEIGHBOUR: Final = 32
"""those of one neighbour a thirty-second."""


class Account(NamedTuple):
    """The account of the neighbour that causes a notice."""

    name: str
    """The name of the account, one for each neighbour."""
    declared: bool
    """Whether the directory has the source of the message."""
    has_directory: bool = True
    """Whether there is a directory, and it has answered since the start; otherwise no neighbour can be declared."""

    def may_have_body(self, queues: int) -> bool:
        """Whether the notice for a refused message may include its body, for this number of queues. A stranger who
        could have it sent to sixteen queues would make the node store sixteen times the bytes that it sent.
        """
        return self.declared or (not self.has_directory and queues == 1)


OWN: Final = Account("", declared=True)
"""Messages of this machine's applications, whose notices are charged to no neighbour."""


class NoticeBudget:
    """Counts the bytes of waiting notices by account and queue."""

    def __init__(self, settings: QuotaSettings) -> None:
        self.settings = settings
        self.account_of: Callable[[Guid], Account] = lambda source: OWN
        """The account of a source queue manager. Set by the network."""
        self._accounts: dict[str, int] = {}
        self._queues: dict[int, dict[str, int]] = {}
        self._strangers = 0
        self._names_of_strangers: set[str] = set()
        self.used = 0
        """Bytes of all waiting notices."""
        self.dropped = 0
        """Notices dropped for lack of space."""

    def account(self, source: bytes) -> Account:
        """``account_of`` for the bytes of an identifier; a missing source has an account of no neighbour."""
        return self.account_of(Guid(source)) if len(source) == len(ZERO_GUID) else Account("", declared=False)

    def admits(self, account: Account, size: int, quota: float) -> bool:
        """Whether a notice may wait. ``quota`` is that of the queue manager, in bytes."""
        if account is OWN:
            return True
        total = min(self.settings.notices * _KB, quota / _PART_OF_QUOTA)
        each = min(self.settings.notices_per_neighbour * _KB, quota / _PART_OF_NEIGHBOUR)
        fits = self.used + size <= total and self._accounts.get(account.name, 0) + size <= each
        if fits and not account.declared and account.has_directory:
            fits = self._strangers + size <= total / 2  # the other half is for known neighbours
        self.dropped += not fits
        return fits

    def entered(self, queue: int, account: Account, size: int) -> None:
        """Charge a notice that was put into a queue."""
        name = account.name
        if not account.declared:
            self._names_of_strangers.add(name)
            self._strangers += size
        held = self._queues.setdefault(queue, {})
        held[name] = held.get(name, 0) + size
        self._accounts[name] = self._accounts.get(name, 0) + size
        self.used += size

    def left(self, queue: int, size: int) -> None:
        """Release a notice that left its queue, from the account with the oldest notice there."""
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
        """Release all notices of a queue that was emptied at once or deleted."""
        self.left(queue, sum(self._queues.get(queue, {}).values()))

    def _give_back(self, name: str, size: int) -> None:
        self.used -= size
        self._accounts[name] -= size
        if name in self._names_of_strangers:
            self._strangers -= size
        if not self._accounts[name]:
            del self._accounts[name]
            self._names_of_strangers.discard(name)
