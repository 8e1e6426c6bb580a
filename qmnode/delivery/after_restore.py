"""Ranges that a restored copy of a store cannot know of by itself, as peers show them in the first week.

``identifiers``: messages of this node that may exist elsewhere. ``received``: messages that a peer sent, has
acknowledgments of, and that are not here. ``sent``: messages that a peer has received already: those here that are sent
again, and those that this store does not know of.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import structlog

from qmnode.model.ports import MessageStore
from qmnode.protocol.incoming_sequences import Gap, IncomingSequence
from qmnode.protocol.outgoing_sequences import OutgoingSequence
from qmnode.protocol.received import DestinationName
from qmnode.storage.origin import RANGES, copied
from qmnode.structures.guid import Guid, guid_to_text
from qmnode.structures.names import DirectFormatName

if TYPE_CHECKING:
    from qmnode.model.queue import Queue
    from qmnode.model.queue_manager import QueueManager

log: Final = structlog.stdlib.get_logger(__name__)

_MOST: Final = 64
"""Ranges of a kind that are kept. Peers cause them, so they are bounded; the oldest leave first."""
_CHANGES: Final = 1_000
"""Changes of the ranges, each with a line in the log, that are noted in one run."""


class AfterRestore:
    """The ranges of a store that was restored lately; without any for other stores."""

    def __init__(self, manager: "QueueManager") -> None:
        self._store, self._manager = manager.store, manager
        self._left = _CHANGES
        self.ranges = saved_ranges(manager.store)
        manager.after_restore = self.ranges

    def missed(self, gaps: Mapping[IncomingSequence, Gap]) -> None:
        """Sources go on behind messages that are not here: they have acknowledgments of them."""
        for sequence, queue in sequences_of(None, self._manager, gaps):
            gap = gaps[sequence]
            self._note("received", sequence.source, queue, gap.sequence_id, gap.first, gap.last, "lost")

    def acknowledged(self, sequence: OutgoingSequence, queue: str, number: int) -> None:
        """A destination has received up to this number of a sequence that began before the restore."""
        last = sequence.next_number - 1 if sequence.active_id == sequence.next_id else sequence.sent
        if number > last:
            of = sequence.destination, queue, sequence.active_id
            self._note("sent", *of, sequence.acknowledged + 1, last, "again")
            self._note("sent", *of, last + 1, number, "unknown")

    def _note(self, kind: str, peer: Guid, queue: str, sequence: int, first: int, last: int, state: str) -> None:
        if first > last or not self._left or copied(self._store) is None:
            return
        found = {"peer": guid_to_text(peer), "queue": queue, "sequence": hex(sequence), "state": state}
        known = self.ranges.setdefault(kind, [])
        same = [one for one in known if all(one[name] == value for name, value in found.items())]
        if any(one["first"] <= first and last <= one["last"] for one in same):
            return
        first, last = min([first, *(one["first"] for one in same)]), max([last, *(one["last"] for one in same)])
        self._left -= 1
        known[:] = [*(one for one in known if one not in same), found | {"first": first, "last": last}][-_MOST:]
        kept = {name: ranges for name, ranges in self.ranges.items() if name != "identifiers"}
        self._store.put_meta(RANGES, json.dumps(kept).encode())
        log.warning(f"after the restore: {_SENTENCES[kind, state]}", first=first, last=last, **found)


_SENTENCES: Final = {
    ("received", "lost"): "the peer sent messages that were received and are not in this copy: they are lost here",
    ("sent", "again"): "messages are sent again that the peer has received already: it drops them",
    ("sent", "unknown"): "the peer has received messages that this copy does not know of",
}


def saved_ranges(store: MessageStore) -> dict[str, list[dict[str, Any]]]:
    """The ranges by kind; none for a store that was not restored within the last week."""
    copy = copied(store)
    if copy is None:
        return {}
    ranges = json.loads(store.get_meta(RANGES) or b"{}")
    own = {"peer": "", "queue": "", "sequence": "", "state": "unknown", "first": copy.last + 1, "last": copy.fresh}
    return {"identifiers": [own], "received": ranges.get("received", []), "sent": ranges.get("sent", [])}


def sequences_of(
    queue: "Queue | None", manager: "QueueManager", sequences: Iterable[IncomingSequence]
) -> Iterator[tuple[IncomingSequence, str]]:
    """The sequences of ``queue`` under all its names, or of any queue, each with the name."""
    names: dict[bytes, str | None] = {}
    for sequence in sequences:
        key = sequence.destination
        if key not in names:
            name = DestinationName(manager.identifier, key[0], key[1:]).format_name()
            local = None if name is None else manager.names.local(name)
            if isinstance(name, DirectFormatName) and local is not None:  # the key has no small letters
                name = replace(name, path=replace(name.path, queue=manager.names.path(local.pathname).queue))
            names[key] = None if queue not in (None, local) else str(name or "")
        found = names[key]
        if found is not None:
            yield sequence, found
