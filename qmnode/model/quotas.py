"""Quotas: MS-MQDMPR 3.1.1.1 and 3.1.1.2, in KB. Headers and bodies count, as in TotalBytes."""

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from qmnode.errors import MessageQueuingError
from qmnode.model.message import INFINITE
from qmnode.settings.node import QuotaSettings
from qmnode.structures.error_codes import ErrorCode

if TYPE_CHECKING:
    from qmnode.model.queue import Queue

_KB: Final = 1024


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
        self.apply(settings)
        self.used = 0
        self.journal_used = 0

    def apply(self, settings: QuotaSettings) -> None:
        """Apply other limits; messages already stored above them stay."""
        self.settings = settings
        self.limit = _bytes(settings.queue_manager_quota)
        self.journal_limit = _bytes(settings.journal_quota)

    def status(self, queue: "Queue", size: int) -> EnqueueStatus:
        """Whether a queue may take ``size`` more bytes."""
        if self.used + size > self.limit:
            return EnqueueStatus.QUEUE_MANAGER_QUOTA_EXCEEDED
        quota = queue.quota
        if quota != INFINITE and queue.total_bytes + queue.reserved_bytes + size > quota * _KB:
            return EnqueueStatus.QUEUE_QUOTA_EXCEEDED
        return EnqueueStatus.ACCEPTED

    def check(self, queue: "Queue", size: int) -> None:
        """Raise if a queue may not take ``size`` more bytes."""
        status = self.status(queue, size)
        if status is EnqueueStatus.ACCEPTED:
            return
        if status is EnqueueStatus.QUEUE_QUOTA_EXCEEDED:
            sentence = f"the quota of {queue.pathname}, {queue.quota} KB, would be passed"
        else:
            sentence = f"the quota of the queue manager, {self.limit / _KB:.0f} KB, would be passed"
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES, f"{sentence}: receive or purge messages, or raise the quota"
        )

    def journal_has_room(self, journal: "Queue", size: int) -> bool:
        """Whether a journal may take ``size`` more bytes, by its own quota and the machine's."""
        if self.journal_used + size > self.journal_limit:
            return False
        return journal.quota == INFINITE or journal.total_bytes + size <= journal.quota * _KB
