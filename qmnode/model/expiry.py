"""Time To Be Received Timer: MS-MQDMPR 3.1.2.4 and 3.1.7.2.7. One timer for all messages, and an index on disk.

The index is by second, so no timer per message is needed and a restart finds due messages without reading them. An
expired message is deleted in one batch with its copy for the dead-letter queue and its acknowledgment.

Most messages in transit have four days and need a second, so an entry for each would be written only to be deleted.
Messages with a long time are indexed in groups. One entry covers about 4,096 messages of a queue, of which some may
expire in the four minutes from its second on. When that time comes, messages that still exist get entries of their own.
"""

from typing import TYPE_CHECKING, Final

import structlog

from qmnode.errors import MessageQueuingError
from qmnode.model.ports import TimerHandle
from qmnode.model.stored_message import NEVER, expiry

if TYPE_CHECKING:
    from qmnode.model.context import Context

log = structlog.get_logger(__name__)

_BEGINNING: Final = (0, 0, 0)
_CHUNK: Final = 200
"""Messages that expire in one pass of the event loop; the rest wait for the next."""
FAR: Final = 3600
"""Seconds from which on the time of a message counts as long."""
SECONDS: Final = 256
"""The range of a group, in seconds and in lookup identifiers, from a multiple of each on."""
GROUP_SHIFT: Final = 12
IDENTIFIERS: Final = 1 << GROUP_SHIFT
_SECOND_MASK: Final = ~(SECONDS - 1)
_IDENTIFIER_MASK: Final = ~(IDENTIFIERS - 1)
GROUP: Final = 0x8000_0000
"""Marks the queue number of a group's entry, whose range begins at its lookup identifier."""
_REMEMBERED: Final = 65_536
_GROUP_CHUNK: Final = 256
_GROUP_BYTES: Final = 1024 * 1024

Entry = tuple[int, int, int]
"""Second, queue number and lookup identifier."""


def group_of(when: int, queue_id: int, lookup_identifier: int) -> Entry:
    """The entry of the group that a message belongs to."""
    return when & _SECOND_MASK, queue_id | GROUP, lookup_identifier & _IDENTIFIER_MASK


class Expiry:
    """Knows when the next message expires."""

    def __init__(self, context: "Context") -> None:
        self._context = context
        self._next = NEVER
        self._searched = _BEGINNING
        """The index before this entry has been processed, so that the search does not begin among deleted keys."""
        self._timer: TimerHandle | None = None
        self._groups: set[Entry] = set()
        """Some of the groups that are in the index."""

    def start(self) -> None:
        """Find due messages in the index and set the timer."""
        self._arm_for_next()

    def stop(self) -> None:
        """Stop the expiry timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def add(self, when: int, queue_id: int, lookup_identifier: int) -> bool:
        """Add a message that expires at ``when``. Return whether the rest of its group needs no action."""
        group = group_of(when, queue_id, lookup_identifier)
        if group in self._groups:
            return True
        if group[0] > self._context.clock.time() + FAR:
            if len(self._groups) >= _REMEMBERED:
                self._groups.clear()
            self._groups.add(group)
            self._put(group)
            return True
        self._put((when, queue_id, lookup_identifier))
        return False

    def remove(self, when: int, queue_id: int, lookup_identifier: int) -> bool:
        """Remove a message. Its group stays: others may need it, else it is harmless. Returns as ``add``."""
        group = group_of(when, queue_id, lookup_identifier)
        if group in self._groups or group[0] > self._context.clock.time() + FAR:
            return True
        self._context.store.delete_expiry(when, queue_id, lookup_identifier)
        return False

    def _put(self, entry: Entry) -> None:
        self._context.store.put_expiry(*entry)
        if entry < self._searched:
            self._searched = entry
        if entry[0] < self._next:
            self._arm(entry[0])

    def _arm(self, when: int) -> None:
        self.stop()
        self._next = when
        clock = self._context.clock
        self._timer = clock.call_later(max(0.0, when - clock.time()), self._due)

    def _arm_for_next(self) -> None:
        self.stop()
        self._next = NEVER
        self._context.store.make_visible()
        for entry in self._context.store.read_expiry(self._searched, NEVER - 1, 1):
            self._searched = entry
            self._arm(entry[0])

    def _due(self) -> None:
        self._timer = None
        context = self._context
        now = int(context.clock.time())
        context.store.make_visible()
        due = context.store.read_expiry(self._searched, now, _CHUNK)
        # Messages added meanwhile, even in these seconds, bring the search back.
        self._searched = max(self._searched, due[-1] if len(due) == _CHUNK else (now + 1, 0, 0))
        for entry in due:
            try:
                self._handle(*entry)
            except MessageQueuingError as error:
                context.store.check()
                # It stays in the index for the next start, and keeps no other message from expiring.
                log.error("an expired message cannot be read", queue=entry[1] & ~GROUP, reason=error.sentence)
        context.store.durable()
        self._arm_for_next()

    def _handle(self, when: int, queue_id: int, lookup_identifier: int) -> None:
        """An entry is due."""
        if queue_id & GROUP:
            self._split(when, queue_id, lookup_identifier)
        # The index keeps the second of a locked message: after a power cut it is no longer locked, and due.
        elif not self._expired(queue_id, lookup_identifier):
            return
        self._context.store.delete_expiry(when, queue_id, lookup_identifier)

    def _expired(self, queue_id: int, lookup_identifier: int) -> bool:
        """Time To Be Received Timer Expired (3.1.7.2.7). False if a reader holds the message: it expires on release."""
        queue = self._context.queues.numbered(queue_id)
        if queue is None:
            return True
        if lookup_identifier in queue.locked:
            return False
        value = queue.value_of(lookup_identifier)
        if value is not None:
            queue.take_this(lookup_identifier)
            queue.expire(lookup_identifier, value)
        return True

    def _split(self, when: int, queue_id: int, first: int) -> None:
        """Add entries for the messages of a group; few are left by now, so they are read at once."""
        self._groups.discard((when, queue_id, first))
        last = first | ~_IDENTIFIER_MASK
        entries = self._context.store.read_messages(
            queue_id & ~GROUP, first, last, _GROUP_CHUNK, _GROUP_BYTES, express=True
        )
        for lookup_identifier, value in entries:
            if (second := expiry(value)) & _SECOND_MASK == when:
                self._put((second, queue_id & ~GROUP, lookup_identifier))
        if entries and entries[-1][0] < last:
            self._put((when, queue_id, entries[-1][0] + 1))
