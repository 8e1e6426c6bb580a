"""Malformed messages in transit that a neighbour would refuse: early versions accepted and stored such packets."""

from collections.abc import Iterable
from typing import Final

import structlog

from qmnode.model.outcomes import kept
from qmnode.model.outgoing import OutgoingQueue
from qmnode.model.queue_manager import QueueManager
from qmnode.model.stored_message import FLAGS, NEGATIVE_JOURNAL, PREFIX_SIZE, SOURCE, TRANSACTIONAL, with_class
from qmnode.structures.conformance import violation
from qmnode.structures.errors import PacketError
from qmnode.structures.message_classes import MessageClass
from qmnode.structures.user_message import UserMessage

log = structlog.get_logger(__name__)

_REASON: Final = MessageClass.MQMSG_CLASS_NACK_DELETED


def set_aside(manager: QueueManager, queue: OutgoingQueue, lookup_identifiers: Iterable[int]) -> None:
    """Move malformed messages of other queue managers from an outgoing queue, where they are locked, to the dead-letter
    queue.

    Called when a session broke with these under way. The neighbour closes every session that brings such a packet
    (MS-MQQB 3.1.5.1.3), so all messages behind it would wait for ever.
    """
    for lookup_identifier in lookup_identifiers:
        value = queue.locked[lookup_identifier].value
        if value[SOURCE] == manager.identifier or (problem := _problem(value[PREFIX_SIZE:])) is None:
            continue
        log.warning(
            "a malformed message goes to the dead-letter queue: the next hop would refuse it, and those behind it",
            queue=queue.pathname, lookup_identifier=lookup_identifier, reason=problem,
        )  # fmt: skip
        queue.unlock(lookup_identifier)
        if value[FLAGS] & TRANSACTIONAL or not value[FLAGS] & NEGATIVE_JOURNAL:  # else deletion makes it
            manager.queue_collection.dead_letter.insert(lookup_identifier, with_class(kept(value), _REASON))
        queue.delete(lookup_identifier, value, _REASON)


def _problem(packet: bytes) -> str | None:
    try:
        found = violation(UserMessage.parse(packet))
    except PacketError as error:
        return str(error)
    return f"{found.structure}.{found.field}: {found.sentence}" if found is not None else None
