"""The messages that came already: MessageIDHistoryTable (3.1.1.3, 3.1.5.8.1, 3.1.6.7), and the latest messages from
strangers, to recognise one by its content when another stranger delivers it again.

Message identifiers of one queue manager are ordinals, so the history of a source is pages of bits: 1,024 identifiers
cost 128 bytes, and a page that is full costs none. Thirty minutes at 40,000 messages a second fit in a few megabytes,
in memory and on disk, where a list of entries (10,000 by default in other implementations) covers a quarter of a
second.

Entries of recoverable messages become records in the batch of the message. Express messages do not survive a restart,
so their entries are kept in memory only: a receiver that restarted accepts them again.

A source that no neighbour vouches for and that changes its address sends unacknowledged messages again. Identifiers and
numbers do not prove that it is the same message: any peer may copy them. To keep arrival cheap, batches are stored as
they are, and searched only while several strangers speak for one source.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple, Protocol

from qmnode.protocol.commands import Family, Record
from qmnode.protocol.received import ReceivedMessage
from qmnode.settings.protocol import TransferSettings
from qmnode.shares import HISTORY_PAGES, HISTORY_SOURCES, UNKNOWN, Accountant, Kind, Party, Table, declared
from qmnode.structures.guid import GUID_SIZE, Guid, guid_to_text
from qmnode.structures.packet_view import (
    ADDRESS,
    FLAGS_AT,
    NAMES_AT,
    PRIORITY_AT,
    SOURCE,
    Packet,
    Sections,
    user_flags_of,
)
from qmnode.structures.user_message import BaseFlags, SecurityFlags, UserFlags

# ----------------------------------------------------------------------------------------------------------------------
# The content of a message as a digest: the same for each copy of it, whichever neighbour delivers it.

_PRIORITY: Final = BaseFlags.PR.mask
_HOPS: Final = UserFlags.RC.mask
_SECURED: Final = UserFlags.SH.mask
_AUTHOR_FLAGS: Final = SecurityFlags.ST.mask | SecurityFlags.AU.mask | SecurityFlags.AS.mask
"""The flags that name the verified author: a copy without the author is another message."""


def content_of(packet: bytes) -> Guid:
    """The digest of a packet as it is stored, without what changes on its way: hops, and the next hop's address.

    Of a decrypted message, the session key does not count: a source that starts anew encrypts the same message again.
    Whether the signature was verified here does count.
    """
    flags = user_flags_of(packet)
    digest = blake2b(packet[SOURCE], digest_size=16)
    # TimeToBeReceived, SentTime and MessageID: a copy that ends earlier is another message.
    digest.update(bytes((packet[PRIORITY_AT] & _PRIORITY,)) + packet[ADDRESS.stop : FLAGS_AT])
    digest.update((flags & ~_HOPS).to_bytes(4, "little"))
    if not flags & _SECURED:
        digest.update(packet[NAMES_AT:])
        return Guid(digest.digest())
    sections = Sections(packet)
    author = (sections.security_flags & _AUTHOR_FLAGS).to_bytes(2, "little")
    parts = (author, sections.security_id, sections.signature, sections.sender_cert)
    digest.update(packet[NAMES_AT : sections.security_at] + b"".join(b"%d " % len(part) + part for part in parts))
    digest.update(packet[sections.properties_at :])
    return Guid(digest.digest())


PAGE_SHIFT: Final = 10
PAGE_SIZE: Final = 1 << PAGE_SHIFT
_OFFSET: Final = PAGE_SIZE - 1
_FULL: Final = b"\xff" * (PAGE_SIZE // 8)
_NUMBER: Final = Struct(">I")
_TIME: Final = Struct("<I")
_CONTENT: Final = 0xFFFF_FFFF
"""The identifier under which the content of a message is entered, as if it were a source."""
_CONTENT_PAGE: Final = _CONTENT >> PAGE_SHIFT
PAGES_PER_SOURCE: Final = 131_072
"""The most pages of one source queue manager."""
FEW: Final = 32
"""A page with fewer messages costs more than it saves. Sources that number messages in order leave few of those."""
_LEDGERS: Final = 8
"""Pages with few messages for all neighbours together, as a multiple of the limit of one."""


class _Page:
    """1,024 message identifiers. ``time`` is that of the newest entry, so no entry is dropped early."""

    __slots__ = ("bits", "changed", "count", "is_charged", "party", "time")

    def __init__(self, time: int, party: Party, bits: bytearray | bytes | None = None) -> None:
        self.time = time
        self.party = party
        self.is_charged = True
        """Whether its party pays for it. Pages with many messages are free."""
        self.changed = False
        """Whether it is among the pages to be written."""
        self.bits: bytearray | bytes = bytearray(PAGE_SIZE // 8) if bits is None else bits
        self.count = 0 if bits is None else sum(byte.bit_count() for byte in bits)


class _Source:
    """One source queue manager: pages of its durable and of its express messages, oldest page first."""

    __slots__ = ("durable", "party", "volatile")

    def __init__(self, party: Party) -> None:
        self.party = party
        self.durable: dict[int, _Page] = {}
        self.volatile: dict[int, _Page] = {}


_Place = tuple[Guid, int, bool]
"""A page: source, number and whether its messages are durable."""


def _any(entry: object) -> bool:
    return True


class MessageIdHistory:
    """The (source queue manager, message identifier) pairs seen in the last 30 minutes or longer.

    A packet's source and identifier are unproven, and each new pair may cost a page. So sources, and pages with few
    messages, are charged to the party whose session delivered them: a stranger that invents sources and identifiers
    displaces only those of its own address block.
    """

    def __init__(self, parameters: TransferSettings, shares: Accountant) -> None:
        self._parameters = parameters
        self._listed_sources = Table[Guid](shares.open(HISTORY_SOURCES, parameters.history_sources))
        limit = parameters.history_sparse_pages
        self._listed_pages = Table[_Place](shares.open(HISTORY_PAGES, _LEDGERS * limit, limit))
        self._sources: dict[Guid, _Source] = {}
        self._changed: dict[tuple[Guid, int], _Page | None] = {}
        self.party = UNKNOWN
        """The party that pays for the messages that are being added."""
        self.has_contents = False
        """Whether contents were added, or may have been before the start."""

    def knows(self, source: Guid) -> bool:
        """Whether any message of a source came before."""
        return source in self._sources

    def seen(self, source: Guid, message_id: int) -> bool:
        """Whether the message came before."""
        entry = self._sources.get(source)
        if entry is None:
            return False
        number, offset = message_id >> PAGE_SHIFT, message_id & _OFFSET
        byte, mask = offset >> 3, 1 << (offset & 7)
        page = entry.durable.get(number)
        if page is not None and page.bits[byte] & mask:
            return True
        page = entry.volatile.get(number)
        return page is not None and bool(page.bits[byte] & mask)

    def add(self, source: Guid, message_id: int, durable: bool, time: int) -> bool:
        """Enter a message. False for a duplicate, whose time changes. ``durable``: and in the next ``take_records``."""
        entry = self._sources.get(source)
        if entry is None:
            entry = self._new_source(source)
        number, offset = message_id >> PAGE_SHIFT, message_id & _OFFSET
        pages, others = (entry.durable, entry.volatile) if durable else (entry.volatile, entry.durable)
        other = others.get(number)
        byte, mask = offset >> 3, 1 << (offset & 7)
        if other is not None and other.bits[byte] & mask:
            other.time = time
            return False
        page = pages.get(number)
        if page is None:
            page = self._new_page(source, pages, number, durable, time)
        page.time = time
        bits = page.bits
        if bits[byte] & mask:
            return False
        bits[byte] |= mask  # type: ignore[index]  # a full page has every bit set and returned above
        page.count += 1
        if page.count == PAGE_SIZE:
            page.bits = _FULL
        if durable and not page.changed:
            page.changed = True
            self._changed[source, number] = page
        return True

    def add_run(self, source: Guid, first: int, count: int, durable: bool, time: int) -> bool:
        """Enter messages with successive identifiers at once. False, and nothing is entered, if that is not possible:
        if one may be a duplicate, or they are on more than one page.
        """
        number, offset = first >> PAGE_SHIFT, first & _OFFSET
        entry = self._sources.get(source)
        if entry is None or offset + count > PAGE_SIZE:
            return False
        pages, others = (entry.durable, entry.volatile) if durable else (entry.volatile, entry.durable)
        page = pages.get(number)
        if page is None or number in others:
            return False
        before, run = int.from_bytes(page.bits, "little"), (1 << count) - 1 << offset
        if before & run:
            return False
        page.time = time
        page.count += count
        page.bits = _FULL if page.count == PAGE_SIZE else bytearray((before | run).to_bytes(PAGE_SIZE // 8, "little"))
        if durable and not page.changed:
            page.changed = True
            self._changed[source, number] = page
        return True

    def add_content(self, content: Guid, durable: bool, time: int) -> None:
        """Enter the content of a message from a stranger, so that it is known when the source delivers it as well."""
        self.has_contents = True
        self.add(content, _CONTENT, durable, time)

    def seen_content(self, content: Guid) -> bool:
        """Whether a stranger delivered a message of this content."""
        return self.has_contents and self.seen(content, _CONTENT)

    def remove_content(self, content: Guid) -> None:
        """Forget a content whose message was not written."""
        self.remove(content, _CONTENT)

    def remove(self, source: Guid, message_id: int) -> None:
        """Forget a message whose batch was not written, so that it is accepted when it comes again."""
        entry = self._sources.get(source)
        if entry is None:
            return
        number, offset = message_id >> PAGE_SHIFT, message_id & _OFFSET
        for pages in (entry.durable, entry.volatile):
            page = pages.get(number)
            if page is None or not page.bits[offset >> 3] & 1 << (offset & 7):
                continue
            page.bits = bytearray(page.bits)
            page.bits[offset >> 3] &= ~(1 << (offset & 7))
            page.count -= 1
            if pages is entry.durable:
                self._changed[source, number] = page

    def take_records(self) -> list[Record]:
        """Changes since the last call, to be written with the messages that caused them."""
        if not self._changed:
            return []
        changed, self._changed = self._changed, {}
        for page in changed.values():
            if page is not None:
                page.changed = False
        return [
            Record(
                Family.MESSAGE_ID_HISTORY,
                source + _NUMBER.pack(number),
                None if page is None else _TIME.pack(page.time) + page.bits + _block_of(page.party),
            )
            for (source, number), page in changed.items()
        ]

    def clean(self, time: int) -> bool:
        """MessageIDHistory Cleanup Timer Event, 3.1.6.7: whether any is left. Deletions are in ``take_records``."""
        limit = time - self._parameters.history_retention
        contents = False
        for source, entry in list(self._sources.items()):
            for pages, durable in ((entry.durable, True), (entry.volatile, False)):
                for number in _stale(pages, limit):
                    self._drop_page(source, pages, number, durable)
            if not entry.durable and not entry.volatile:
                self._drop_source(source)
            contents |= _CONTENT_PAGE in entry.durable or _CONTENT_PAGE in entry.volatile
        self.has_contents = contents
        return bool(self._sources)

    def load(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Load the records of an opened store: key and value of each, in any order."""
        pages = sorted((_TIME.unpack_from(value)[0], key, value) for key, value in records)
        for time, key, value in pages:
            source, number = Guid(key[:16]), _NUMBER.unpack_from(key, 16)[0]
            bits, block = value[_TIME.size :][: len(_FULL)], value[_TIME.size + len(_FULL) :]
            party = Party(Kind.STRANGER, block.decode()) if block else declared(guid_to_text(source))
            entry = self._sources.get(source)
            if entry is None:
                entry = self._list_source(source, party)
            self.has_contents |= number == _CONTENT_PAGE
            entry.durable[number] = _Page(time, party, _FULL if bits == _FULL else bytearray(bits))
            self._listed_pages.enter((source, number, True), party)

    def __len__(self) -> int:
        """The number of messages remembered."""
        return sum(page.count for entry in self._sources.values() for page in _pages(entry))

    def _new_source(self, source: Guid) -> _Source:
        places, party = self._listed_sources, self.party
        while not places.has_room(party) and (victim := places.victim(party, _any)) is not None:
            self._drop_source(victim)
        return self._list_source(source, party)

    def _list_source(self, source: Guid, party: Party) -> _Source:
        entry = self._sources[source] = _Source(party)
        self._listed_sources.enter(source, party)
        return entry

    def _drop_source(self, source: Guid) -> None:
        entry = self._sources.pop(source)
        self._listed_sources.leave(source, entry.party)
        for pages, durable in ((entry.durable, True), (entry.volatile, False)):
            for number in list(pages):
                self._drop_page(source, pages, number, durable)

    def _new_page(self, source: Guid, pages: dict[int, _Page], number: int, durable: bool, time: int) -> _Page:
        if len(pages) >= PAGES_PER_SOURCE:
            self._drop_page(source, pages, next(iter(pages)), durable)
        places, party = self._listed_pages, self.party
        page = pages[number] = _Page(time, party)
        while not places.has_room(party) and (victim := places.victim(party, _any)) is not None:
            self._shorten(*victim)
        places.enter((source, number, durable), party)
        entry = self._sources[source]
        self._listed_sources.renew(source, entry.party)  # keeps sources in the order of their last new page
        return page

    def _drop_page(self, source: Guid, pages: dict[int, _Page], number: int, durable: bool) -> None:
        page = pages.pop(number)
        if page.is_charged:
            self._listed_pages.leave((source, number, durable), page.party)
        if durable:
            self._changed[source, number] = None

    def _shorten(self, source: Guid, number: int, durable: bool) -> None:
        """Charge for a page no longer. It is forgotten if it never got many messages."""
        entry = self._sources[source]
        pages = entry.durable if durable else entry.volatile
        page = pages[number]
        if page.count >= FEW:
            page.is_charged = False
            self._listed_pages.leave((source, number, durable), page.party)
            return
        self._drop_page(source, pages, number, durable)
        if not entry.durable and not entry.volatile:
            self._drop_source(source)


def _block_of(party: Party) -> bytes:
    """The address block of strangers, behind the bits in the record of a page."""
    return party.name.encode() if party.kind is Kind.STRANGER else b""


def _pages(entry: _Source) -> Iterator[_Page]:
    yield from entry.durable.values()
    yield from entry.volatile.values()


def _stale(pages: dict[int, _Page], limit: int) -> list[int]:
    """The oldest pages whose newest entry is past the limit; the first later one ends the search."""
    stale = []
    for number, page in pages.items():
        if page.time >= limit:
            break
        stale.append(number)
    return stale


_BYTES: Final = 1 << 20
"""Bytes kept per address, beside its last batch."""
_ADDRESSES: Final = 32
_ALL_BYTES: Final = 24 << 20
"""Bytes kept of all addresses: more than a batch of the largest messages. Beyond them digests are kept."""
_OF_DIGEST: Final = 256
"""Bytes of a digest and its key."""
_Key = tuple[Guid, bytes, int, int]
"""Source, destination, sequence and number; without destination and sequence, the message identifier."""


class Stored(Protocol):
    """A message of a stranger, and its packet as it was stored."""

    @property
    def received(self) -> ReceivedMessage:
        """The message as it was received."""

    @property
    def packet(self) -> Packet:
        """Its packet as it was stored."""


class _Batch(NamedTuple):
    messages: Sequence[Stored]
    digests: dict[_Key, Guid]
    """In the place of the messages, what is compared of them (:func:`content_of`)."""
    size: int

    def places(self) -> Iterable[_Key]:
        return self.digests or (_key(message.received) for message in self.messages)

    def contents(self) -> Iterable[tuple[_Key, Packet | Guid]]:
        return self.digests.items() or ((_key(message.received), message.packet) for message in self.messages)


class _Speaker:
    """The messages from one address."""

    __slots__ = ("batches", "index", "indexed", "size")

    def __init__(self) -> None:
        self.batches: deque[_Batch] = deque()
        self.size = 0
        self.index: dict[_Key, Packet | Guid] = {}
        self.indexed = 0
        """The number of batches, from the first, that are in the index."""

    def digest(self) -> int:
        """Keep digests in the place of all packets. Return the bytes that are free now."""
        before = self.size
        for place, batch in enumerate(self.batches):
            if batch.messages:
                digests = {_key(message.received): content_of(bytes(message.packet)) for message in batch.messages}
                self.batches[place] = _Batch((), digests, size := len(digests) * _OF_DIGEST)
                self.size += size - batch.size
        self.index, self.indexed = {}, 0
        return before - self.size


class Latest:
    """The latest messages of all strangers."""

    def __init__(self) -> None:
        self._speakers: OrderedDict[str, _Speaker] = OrderedDict()
        self._size = 0

    def add(self, address: str, messages: Sequence[Stored]) -> None:
        """Add a batch of accepted messages."""
        speaker = self._speakers.get(address)
        if speaker is None:
            speaker = self._speakers[address] = _Speaker()
            if len(self._speakers) > _ADDRESSES:
                self._size -= self._speakers.popitem(last=False)[1].size
        else:
            self._speakers.move_to_end(address)
        size = sum([len(message.packet) for message in messages])
        speaker.batches.append(_Batch(messages, {}, size))
        speaker.size += size
        self._size += size
        while speaker.size > _BYTES and len(speaker.batches) > 1:
            oldest = speaker.batches.popleft()
            speaker.size -= oldest.size
            self._size -= oldest.size
            if speaker.indexed:
                speaker.indexed -= 1
                for key in oldest.places():
                    speaker.index.pop(key, None)
        for one in self._speakers.values():
            if self._size <= _ALL_BYTES:
                break
            if one.size > _BYTES:  # small messages have a limit already, and their digests are as large
                self._size -= one.digest()

    def of_others(self, received: ReceivedMessage, address: str) -> list[Guid]:
        """The contents of messages of strangers elsewhere than ``address`` with this message's position or
        identifier.
        """
        key, found = _key(received), []
        for one, speaker in self._speakers.items():
            if one == address:
                continue
            for batch in list(speaker.batches)[speaker.indexed :]:
                speaker.index.update(batch.contents())
            speaker.indexed = len(speaker.batches)
            packet = speaker.index.get(key)
            if packet is not None:
                found.append(Guid(bytes(packet)) if len(packet) == GUID_SIZE else content_of(bytes(packet)))
        return found


def _key(received: ReceivedMessage) -> _Key:
    headers = received.headers
    if headers.tx_sequence_id is None:
        return headers.source_queue_manager, b"", 0, received.message_id
    name = received.destination
    return headers.source_queue_manager, name.key(), headers.tx_sequence_id, received.tx_sequence_number
