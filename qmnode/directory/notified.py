"""The notification queue of a node in a directory: the server side of MS-MQCN.

A notification is a hint from anybody. It only makes the node read the directory, no more often than a setting allows:
its content is not believed, and the server that it names is not asked.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from qmnode.model.queue_manager import QueueManager
from qmnode.model.stored_message import received_message
from qmnode.structures.change_notification import parse_notification
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import Guid

log = structlog.get_logger(__name__)

MOST: Final = 100
"""Notifications in one reading. More of them say that anything may have changed, as on Windows (appendix A <3>)."""


@dataclass(slots=True)
class Notified:
    """The content of the notifications that came since the last reading."""

    objects: set[Guid] = field(default_factory=set)
    everything: bool = False
    """Whether anything may have changed."""
    unreadable: int = 0
    count: int = 0


class NotificationQueue:
    """Collects the notifications that have come, and says when the directory is to be read for them."""

    def __init__(self, manager: QueueManager, interval: float, clock: Callable[[], float]) -> None:
        """Open the queue, 3.2.3. ``interval``: the least time in seconds between two readings."""
        self._manager = manager
        self._queue = manager.queue_collection.notify
        self._queue.takes_notifications = True
        self._interval = interval
        self._clock = clock
        self._due = clock()

    def take(self) -> Notified | None:
        """Dequeue all notifications; None if there are none, or if the last reading was too short a time ago."""
        count = self._queue.message_count
        if not count or self._clock() < self._due:
            return None
        self._due = self._clock() + self._interval
        full = self._queue.total_bytes > self._queue.quota * 1024 // 2  # the queue may have refused some
        notified = Notified(count=count, everything=count >= MOST or full)
        while (entry := self._queue.take()) is not None:
            if not notified.everything:
                self._read(bytes(received_message(*entry).body), notified)
            self._queue.delete(*entry)
        log.info("changes were notified", notifications=count, objects=len(notified.objects),
                 everything=notified.everything, unreadable=notified.unreadable)  # fmt: skip
        return notified

    @staticmethod
    def _read(body: bytes, notified: Notified) -> None:
        try:
            found = parse_notification(body)
        except PacketError:
            notified.unreadable += 1
            return
        if found is None:  # its updates have values, which would have to be believed
            notified.everything = True
        else:
            notified.objects.add(found.object_guid)
