"""The latest messages that strangers brought, to know one by what it says when another stranger brings it again.

A source that nobody vouches for and that changes its address sends again what was not acknowledged. Identifiers and
numbers do not tell whether that is the same message: anybody may name them. Nothing is computed for a message that
comes: batches are kept as they are, and looked through only while several strangers speak for one source.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from qmnode.protocol.received import ReceivedMessage
from qmnode.structures.guid import Guid

_BYTES: Final = 1 << 20
"""Bytes kept of one address, beside its last batch."""
_ADDRESSES: Final = 32
_CONTENT_AT: Final = 64
"""Where the bytes of a packet begin that stay the same however often, and by whatever way, it is sent."""

_Key = tuple[Guid, bytes, int, int]
"""Source, destination, sequence and number; without destination and sequence the message identifier."""


class _Batch(NamedTuple):
    messages: Sequence[ReceivedMessage]
    size: int


class _Speaker:
    """What one address brought."""

    __slots__ = ("batches", "index", "indexed", "size")

    def __init__(self) -> None:
        self.batches: deque[_Batch] = deque()
        self.size = 0
        self.index: dict[_Key, bytes] = {}
        self.indexed = 0
        """How many of the batches are in the index, from the first."""


class Latest:
    """Of all strangers."""

    def __init__(self) -> None:
        self._speakers: OrderedDict[str, _Speaker] = OrderedDict()

    def add(self, address: str, messages: Sequence[ReceivedMessage]) -> None:
        """A batch of messages that were taken."""
        speaker = self._speakers.get(address)
        if speaker is None:
            speaker = self._speakers[address] = _Speaker()
            if len(self._speakers) > _ADDRESSES:
                self._speakers.popitem(last=False)
        else:
            self._speakers.move_to_end(address)
        size = sum([len(received.packet) for received in messages])
        speaker.batches.append(_Batch(messages, size))
        speaker.size += size
        while speaker.size > _BYTES and len(speaker.batches) > 1:
            oldest = speaker.batches.popleft()
            speaker.size -= oldest.size
            if speaker.indexed:
                speaker.indexed -= 1
                for received in oldest.messages:
                    speaker.index.pop(_key(received), None)

    def of_others(self, received: ReceivedMessage, address: str) -> list[bytes]:
        """What other strangers than the one at ``address`` brought in this message's place, or by its identifier."""
        key, found = _key(received), []
        for one, speaker in self._speakers.items():
            if one == address:
                continue
            for batch in list(speaker.batches)[speaker.indexed :]:
                speaker.index.update((_key(message), message.packet) for message in batch.messages)
            speaker.indexed = len(speaker.batches)
            packet = speaker.index.get(key)
            if packet is not None:
                found.append(packet)
        return found


def is_the_same(one: bytes, other: bytes) -> bool:
    """Whether two packets say the same, whoever brings them."""
    return one[_CONTENT_AT:] == other[_CONTENT_AT:]


def _key(received: ReceivedMessage) -> _Key:
    headers = received.headers
    if headers.tx_sequence_id is None:
        return headers.source_queue_manager, b"", 0, received.message_id
    name = received.destination
    return headers.source_queue_manager, name.key(), headers.tx_sequence_id, received.tx_sequence_number
