"""Quotas (MS-MQDMPR 3.1.1.1 and 3.1.1.2, in KB) and the budget for notices: the limits of stored bytes.

Headers and bodies count toward quotas, as in TotalBytes.

Notices are acknowledgments and trace reports, which other queue managers cause. A sender of messages that request
notices fills queues here without owning any of them. So waiting notices have a budget apart from that of messages,
shared among the neighbours that caused them. It is kept in memory: after a restart, older notices no longer count, and
go when their lifetime ends.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final, Protocol

from qmnode.errors import MessageQueuingError
from qmnode.model.message import INFINITE
from qmnode.settings.node import QuotaSettings
from qmnode.shares import NOTICES, OWN, QUOTA, UNKNOWN, Accountant, Kind, Party
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import ZERO_GUID, Guid

_KB: Final = 1024


class Limited(Protocol):
    """A queue with a quota of its own."""

    pathname: str
    quota: int
    total_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True)
class Declared:
    """The values that the directory declares for this queue manager; None for each that it leaves at its default."""

    quota: int | None = None
    """KB of all queues (QueueManagerQuota, 3.1.1.1)."""
    journal_quota: int | None = None
    """KB of all journals (JournalQuota, 3.1.1.1)."""
    time_to_reach_queue: int | None = None
    """Seconds that messages have which name none (DefaultTimeToLive, 3.1.1.6)."""
    weakened_security: bool | None = None
    """Whether the node uses its own credentials for the directory in place of its callers' (3.1.1.6)."""


class Source(StrEnum):
    """Where a value in effect comes from."""

    DIRECTORY = "directory"
    SETTINGS = "settings"
    DEFAULT = "default"


class EnqueueStatus(IntEnum):
    """The result of Enqueue Message (3.1.7.1.9)."""

    ACCEPTED = 0
    QUEUE_QUOTA_EXCEEDED = 1
    QUEUE_MANAGER_QUOTA_EXCEEDED = 2


def _bytes(quota: int) -> float:
    return float("inf") if quota == INFINITE else quota * _KB


class Quotas:
    """The bytes that the queue manager stores, and its limits."""

    def __init__(self, settings: QuotaSettings) -> None:
        self.declared = Declared()
        self._room = float("inf")
        self.apply(settings)
        self.used = 0
        self.journal_used = 0

    def allow(self, room: float) -> None:
        """Take no more than so many bytes more than are stored now, because the disk has no room for them."""
        self._room = self.used + room
        self.limit = min(_bytes(self.settings.queue_manager_quota), self._room)

    def apply(self, settings: QuotaSettings) -> None:
        """Apply other settings; messages already stored above their limits stay."""
        self._own = settings
        self._settle()

    def declare(self, declared: Declared) -> bool:
        """Apply what the directory declares. Return whether that is new."""
        if declared == self.declared:
            return False
        self.declared = declared
        self._settle()
        return True

    @property
    def own(self) -> dict[str, int]:
        """The quotas that the settings set, whether they hold or not, by their names in the directory."""
        names = {"quota": "queue_manager_quota", "journal_quota": "journal_quota"}
        given = self._own.model_fields_set
        return {name: getattr(self._own, setting) for name, setting in names.items() if setting in given}

    def _settle(self) -> None:
        settings = self._own
        self.sources: dict[str, Source] = {}
        """Where each of the two quotas comes from, by its setting."""
        obeyed = self.declared if settings.source == "directory" else Declared()
        changes: dict[str, int] = {}
        for name, value in (("queue_manager_quota", obeyed.quota), ("journal_quota", obeyed.journal_quota)):
            if value is not None:
                changes[name] = value
                self.sources[name] = Source.DIRECTORY
            else:
                self.sources[name] = Source.SETTINGS if name in settings.model_fields_set else Source.DEFAULT
        self.settings = settings = settings.model_copy(update=changes)
        self.limit = min(_bytes(settings.queue_manager_quota), self._room)
        self.journal_limit = _bytes(settings.journal_quota)

    def status(self, queue: Limited, size: int) -> EnqueueStatus:
        """Whether a queue may take ``size`` more bytes."""
        if self.used + size > self.limit:
            return EnqueueStatus.QUEUE_MANAGER_QUOTA_EXCEEDED
        if self.is_over_its_own(queue, size):
            return EnqueueStatus.QUEUE_QUOTA_EXCEEDED
        return EnqueueStatus.ACCEPTED

    @staticmethod
    def is_over_its_own(queue: Limited, size: int) -> bool:
        """Whether ``size`` more bytes would pass the queue's own quota."""
        return queue.quota != INFINITE and queue.total_bytes + queue.reserved_bytes + size > queue.quota * _KB

    def limit_of(self, kind: Kind) -> float:
        """Stored bytes of all parties up to which more messages of a kind of party are taken."""
        if kind is Kind.OWN:
            return self.limit
        return self.limit * (1 - (QUOTA.own if kind is Kind.DECLARED else QUOTA.reserve))

    def has_room(self, queue: Limited, size: int, limit: float) -> bool:
        """Whether a queue may take ``size`` more bytes while all queues hold no more than ``limit``."""
        return self.used + size <= limit and self.status(queue, size) is EnqueueStatus.ACCEPTED

    def check(self, queue: Limited, size: int) -> None:
        """Raise if a queue may not take ``size`` more bytes."""
        status = self.status(queue, size)
        if status is EnqueueStatus.ACCEPTED:
            return
        if status is EnqueueStatus.QUEUE_QUOTA_EXCEEDED:
            sentence = f"the quota of {queue.pathname}, {queue.quota} KB, would be passed"
        elif self.limit == self._room:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
                "the disk of the message store is almost full, and the rest is kept for receiving: receive or purge "
                "messages, or make room",
            )
        else:
            sentence = f"the quota of the queue manager, {self.limit / _KB:.0f} KB, would be passed"
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES, f"{sentence}: receive or purge messages, or raise the quota"
        )

    def journal_has_room(self, journal: Limited, size: int) -> bool:
        """Whether a journal may take ``size`` more bytes, by its own quota and the machine's."""
        if self.journal_used + size > self.journal_limit:
            return False
        return journal.quota == INFINITE or journal.total_bytes + size <= journal.quota * _KB


_PART_OF_QUOTA: Final = 4
"""All notices together use at most a quarter of the queue manager's quota,"""
_PART_OF_NEIGHBOUR: Final = 32
"""those of one neighbour a thirty-second."""


class NoticeBudget:
    """Counts the bytes of waiting notices by the party that causes them, and by queue."""

    def __init__(self, settings: QuotaSettings, shares: Accountant) -> None:
        self._shares = shares
        self.apply(settings)
        self.party_of: Callable[[Guid], Party] = lambda source: OWN
        """The party that pays for notices about messages of a queue manager. Set by the network."""
        self.has_directory: Callable[[], bool] = lambda: False
        """Whether there is a directory that has answered since the start. Set by the network."""
        self._queues: dict[int, dict[Party, int]] = {}

    def apply(self, settings: QuotaSettings) -> None:
        """Apply other limits, also to what waits already."""
        quota = _bytes(settings.queue_manager_quota)
        total = min(settings.notices * _KB, quota / _PART_OF_QUOTA)
        each = min(settings.notices_per_neighbour * _KB, quota / _PART_OF_NEIGHBOUR)
        self.account = self._shares.open(NOTICES, total, each)

    def party(self, source: bytes) -> Party:
        """``party_of`` for the bytes of an identifier."""
        return self.party_of(Guid(source)) if len(source) == len(ZERO_GUID) else UNKNOWN

    def may_have_body(self, party: Party, queues: int) -> bool:
        """Whether the notice for a refused message may include its body, for this number of queues. A stranger who
        could have it sent to sixteen queues would make the node store sixteen times the bytes that it sent.
        """
        return party.kind is not Kind.STRANGER or (not self.has_directory() and queues == 1)

    def entered(self, queue: int, party: Party, size: int) -> None:
        """Charge a notice that was put into a queue."""
        held = self._queues.setdefault(queue, {})
        held[party] = held.get(party, 0) + size
        self.account.charge(party, size)

    def left(self, queue: int, size: int) -> None:
        """Release a notice that left its queue, from the party with the oldest notice there."""
        held = self._queues.get(queue)
        while held and size > 0:
            party = next(iter(held))
            part = min(size, held[party])
            size -= part
            self.account.give_back(party, part)
            held[party] -= part
            if not held[party]:
                del held[party]
        if held is not None and not held:
            del self._queues[queue]

    def forget(self, queue: int) -> None:
        """Release all notices of a queue that was emptied at once or deleted."""
        self.left(queue, sum(self._queues.get(queue, {}).values()))
