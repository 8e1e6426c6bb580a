"""The latest messages from strangers, to recognise one by its content when another stranger delivers it again.

A source that no neighbour vouches for and that changes its address sends unacknowledged messages again. Identifiers and
numbers do not prove that it is the same message: any peer may copy them. To keep arrival cheap, batches are stored as
they are, and searched only while several strangers speak for one source.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from qmnode.protocol.content import content_of
from qmnode.protocol.received import ReceivedMessage
from qmnode.structures.guid import Guid

_BYTES: Final = 1 << 20
"""Bytes kept per address, beside its last batch."""
_ADDRESSES: Final = 32
_Key = tuple[Guid, bytes, int, int]
"""Source, destination, sequence and number; without destination and sequence, the message identifier."""


class Stored(Protocol):
    """A message of a stranger, and its packet as it was stored."""

    @property
    def received(self) -> ReceivedMessage:
        """The message as it was received."""

    @property
    def packet(self) -> bytes:
        """Its packet as it was stored."""


class _Batch(NamedTuple):
    messages: Sequence[Stored]
    size: int


class _Speaker:
    """The messages from one address."""

    __slots__ = ("batches", "index", "indexed", "size")

    def __init__(self) -> None:
        self.batches: deque[_Batch] = deque()
        self.size = 0
        self.index: dict[_Key, bytes] = {}
        self.indexed = 0
        """The number of batches, from the first, that are in the index."""


class Latest:
    """The latest messages of all strangers."""

    def __init__(self) -> None:
        self._speakers: OrderedDict[str, _Speaker] = OrderedDict()

    def add(self, address: str, messages: Sequence[Stored]) -> None:
        """Add a batch of accepted messages."""
        speaker = self._speakers.get(address)
        if speaker is None:
            speaker = self._speakers[address] = _Speaker()
            if len(self._speakers) > _ADDRESSES:
                self._speakers.popitem(last=False)
        else:
            self._speakers.move_to_end(address)
        size = sum([len(message.packet) for message in messages])
        speaker.batches.append(_Batch(messages, size))
        speaker.size += size
        while speaker.size > _BYTES and len(speaker.batches) > 1:
            oldest = speaker.batches.popleft()
            speaker.size -= oldest.size
            if speaker.indexed:
                speaker.indexed -= 1
                for message in oldest.messages:
                    speaker.index.pop(_key(message.received), None)

    def of_others(self, received: ReceivedMessage, address: str) -> list[bytes]:
        """Messages from strangers at other addresses than ``address`` at this message's position, or with its
        identifier.
        """
        key, found = _key(received), []
        for one, speaker in self._speakers.items():
            if one == address:
                continue
            for batch in list(speaker.batches)[speaker.indexed :]:
                speaker.index.update((_key(message.received), message.packet) for message in batch.messages)
            speaker.indexed = len(speaker.batches)
            packet = speaker.index.get(key)
            if packet is not None:
                found.append(packet)
        return found


def is_the_same(one: bytes, other: bytes) -> bool:
    """Whether two packets have the same content, whichever neighbour delivers them."""
    return content_of(one) == content_of(other)


def _key(received: ReceivedMessage) -> _Key:
    headers = received.headers
    if headers.tx_sequence_id is None:
        return headers.source_queue_manager, b"", 0, received.message_id
    name = received.destination
    return headers.source_queue_manager, name.key(), headers.tx_sequence_id, received.tx_sequence_number
