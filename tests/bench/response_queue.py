"""What a response queue costs a message at its sender: encoded with the name of one, and without, in turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qmnode import Message
from qmnode.model.serialization import Destination, serialize
from qmnode.structures.guid import Guid
from qmnode.structures.names import DirectFormatName
from tests.bench import Comparison, bench, medians

if TYPE_CHECKING:
    from collections.abc import Callable

BODY: Final = bytes(1024)
NOW: Final = 1_800_000_000.0
BAR: Final = 2.0
ORDERS, ANSWERS = (rf"DIRECT=TCP:192.0.2.7\private${name}" for name in ("orders", "answers"))


@bench("response queue")
def response_queue() -> list[Comparison]:
    """Seconds for each message."""
    destination = Destination(Guid(bytes(range(16))), DirectFormatName.parse(ORDERS), transit=True)

    def encoding(message: Message) -> Callable[[], object]:
        return lambda: serialize(message, destination, 1, NOW)

    answered = Message(BODY, recoverable=True, response_queue_format_name=ANSWERS)
    seconds, baseline = medians([encoding(answered), encoding(Message(BODY, recoverable=True))])
    return [Comparison("encode with a response queue", seconds, "without", baseline, BAR)]
