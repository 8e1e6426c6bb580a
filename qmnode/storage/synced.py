"""The file ``SYNCED`` (qmnode.storage.writer), as the next start reads it."""

import json
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from qmnode.storage.writer import COMPLEMENT, DETAILS, DETAILS_AT, MARK, SYNCED_FILE, SYNCED_SIZE, Moment


@dataclass(frozen=True, slots=True)
class Synced:
    """The contents of the file."""

    mark: Moment
    history: tuple[Moment, ...] = ()
    logs: dict[int, int] = field(default_factory=dict)
    """Sizes of the logs that were complete, and synced."""
    newest_log: int = 0
    """The log that was being written; 0 if unknown."""
    closed: bool = True
    """Whether the store was closed after that, as far as is known."""

    def at(self, number: int) -> Moment | None:
        """The approximate time when this number was written; None if it is older than the recorded history."""
        before = None
        for moment in (*self.history, self.mark):
            if moment.number < number:
                before = moment
                continue
            if before is None:
                return moment if moment.number == number else None
            part = (number - before.number) / (moment.number - before.number)
            return Moment(
                number,
                before.messages + round(part * (moment.messages - before.messages)),
                before.time + part * (moment.time - before.time),
            )
        return None


def read_synced(path: Path) -> Synced | None:
    """The contents of the file in this store's directory. None if it is missing or torn."""
    try:
        content = (path / SYNCED_FILE).read_bytes()
    except OSError:
        return None
    if len(content) != SYNCED_SIZE:
        return None
    number, complement, messages, when = MARK.unpack_from(content)
    if number ^ complement != COMPLEMENT:
        return None
    mark = Moment(number, messages, when)
    length, check = DETAILS.unpack_from(content, DETAILS_AT)
    text = content[DETAILS_AT + DETAILS.size :][:length]
    if zlib.crc32(text) != check:
        return Synced(mark)
    try:
        details = json.loads(text)
        history = tuple(Moment(*moment) for moment in details["history"])
        logs = {int(name): size for name, size in details["logs"].items()}
        return Synced(mark, history, logs, details["newest_log"], details.get("closed", True))
    except (ValueError, TypeError, KeyError, AttributeError):
        return Synced(mark)
