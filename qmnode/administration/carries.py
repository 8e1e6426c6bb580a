r"""Carries: messages of another queue manager, taken over with all their properties, each once.

A carrier (``mqenterprise carry``) reads a message at its source without ending the read, has it held here, ends the
read, and then confirms it. A held message is in no queue: nobody sees it, and it survives a restart. It is in the
ledger before the source may let go of it. So a carrier that was killed finds here what it has to look for at the
source: a message that is still there was not ended, and is read again.

The messages of one request are held in one record, with their digests. That record is their place in the ledger until
each is confirmed or dropped, which gives it an entry of its own.

A confirmed message gets the next place of a range of lookup identifiers that was set aside when the carry began.
Everything sent to the queue since comes behind. Its packet stays as it is. The source has reported its receipt, so no
second acknowledgment is sent from here; an express message is kept on disk like any other.
"""

import asyncio
import hashlib
import json
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any, Final, NamedTuple

from qmnode.administration.carry_exchange import (
    CarryExchange,
    key_from_text,
    key_of,
    key_text,
    lookup_of_key,
    read_messages,
    write_messages,
)
from qmnode.administration.promises import QueueRole, kind_of
from qmnode.administration.queue_names import queue_name
from qmnode.errors import MessageQueuingError
from qmnode.model.message import INFINITE
from qmnode.model.ports import Entry
from qmnode.model.positions import insert_many, lookup_identifier_of
from qmnode.model.queue import Queue
from qmnode.model.queue_manager import QueueManager
from qmnode.model.stored_message import (
    BROKEN,
    EXPRESS,
    FLAGS,
    NEVER,
    PREFIX_SIZE,
    PRIORITY,
    REPORT,
    TRANSACTIONAL,
    TransferredMessage,
    expiry,
    received_message,
    with_prefix,
)
from qmnode.storage.layout import Family
from qmnode.storage.store import Store
from qmnode.structures.enumerations import QueuePrivacyLevel
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import PublicFormatName, fold

_CARRY: Final = "carry/"
_HELD: Final = "carry-held/"
_LEDGER: Final = "carry-ledger/"
_PLACES: Final = 1 << 32
"""Lookup identifiers that are set aside for one carry: more than four billion messages."""
_ENTRY: Final = struct.Struct(">B32sIQQ")
"""State, digest, size of the packet, lookup identifier here, milliseconds since 1970."""
_RECORD: Final = struct.Struct(">QI")
"""Before the digests and the messages of a held record: milliseconds since 1970, and how many they are."""
_DIGEST_SIZE: Final = 32
_PAGE: Final = 1000
_RECENT: Final = 4 * 1024 * 1024
"""Bytes of messages that are kept in memory until they are confirmed."""
_STEP: Final = 32
"""Messages after which others have a turn of the loop."""
HELD, CARRIED, DROPPED = 0, 1, 2
STATES: Final = ("held", "carried", "dropped")


class _Held(NamedTuple):
    """A held message, ready for its queue."""

    value: bytes
    """As it is stored in the queue."""
    digest: bytes
    """SHA-256 of its packet."""


class _New(NamedTuple):
    """The new ones of the messages that a request has held."""

    messages: list[TransferredMessage]
    held: dict[bytes, _Held]
    """The same messages, by key."""
    again: list[bytes]
    """Keys that the ledger may have as dropped."""
    states: list[str]
    """The state of each message of the request."""


@dataclass(slots=True, eq=False)
class _Batch:
    """The messages that one request had held, and their record in the store."""

    name: bytes
    """Key of the record."""
    time: int
    """The time of the request, in milliseconds since 1970."""
    size: int
    """Bytes of the messages."""
    left: int
    """Messages that wait to be confirmed."""
    messages: dict[bytes, _Held] | None = None
    """All of them, by key; None while they are in the store alone."""


@dataclass(slots=True)
class Carry:
    """One source queue, and the queue of this node that its messages come to."""

    number: int
    source: str
    """Format name of the queue at the source, as its carrier names it."""
    target: str
    """Path name of that queue, for people."""
    queue_id: int
    first: int
    """The first sequential identifier that was set aside."""
    created: float
    epoch: int = 0
    """The number of its last carrier: an earlier one may do nothing more."""
    carried: int = 0
    carried_bytes: int = 0
    dropped: int = 0
    places: int = 0
    """Sequential identifiers that have been used."""
    batches: int = 0
    """Requests that have had messages held."""
    last: str = ""
    """The highest key of all messages that were ever held, in hexadecimal digits: one above it is new."""
    held: dict[bytes, _Batch] = field(default_factory=dict)
    """The messages that wait to be confirmed, by key; not in its record."""

    def write(self) -> bytes:
        """The stored form: the record without the messages."""
        return json.dumps({name: getattr(self, name) for name in _RECORDED}).encode()

    def describe(self) -> dict[str, Any]:
        """The carry as JSON."""
        names = ("source", "target", "created", "epoch", "carried", "carried_bytes", "dropped")
        return {"carry": self.number} | {name: getattr(self, name) for name in names} | {"held": len(self.held)}


_RECORDED: Final = tuple(one.name for one in fields(Carry) if one.name != "held")


class Carries:
    """The carries into one queue manager, and their ledgers."""

    def __init__(self, manager: QueueManager, store: Store) -> None:
        self._manager = manager
        self._store = store
        self._carries: dict[int, Carry] = {}
        self._turns = asyncio.Lock()
        """The lock of the call that changes carries, which takes several turns of the loop."""
        self._loaded: _Batch | None = None
        """The batch that was last read from the store."""

    def start(self) -> None:
        """Read the carries, and reserve the room of the messages that are held."""
        self._store.make_visible()
        first = _CARRY.encode()
        for _, record in self._store.scan(Family.META, first, _end(first)):
            carry = Carry(**json.loads(record))
            self._carries[carry.number] = carry
            sizes: dict[bytes, int] = {}
            batches: list[_Batch] = []
            prefix, ledger = _prefix(_HELD, carry), _prefix(_LEDGER, carry)
            for name, held in self._store.scan(Family.META, prefix, _end(prefix)):
                time, _, messages = _read_record(held)
                packets = {key_of(one): len(one.packet) for one in messages}
                waiting = {
                    key: size for key, size in packets.items() if self._store.get(Family.META, ledger + key) is None
                }
                batches.append(_Batch(name, time, sum(packets.values()), 0))
                carry.held.update(dict.fromkeys(waiting, batches[-1]))  # one that was dropped may be held again since
                sizes |= waiting
            left = Counter(carry.held.values())
            for batch in batches:
                batch.left = left[batch]
                if not batch.left:
                    self._store.delete(Family.META, batch.name)
            size = sum(sizes.values())
            if (queue := self._queue_of(carry)) is not None:
                queue.reserve_bytes(size)
            else:
                self._manager.quotas.used += size

    def all(self) -> list[Carry]:
        """All carries, the latest first."""
        return sorted(self._carries.values(), key=lambda carry: -carry.number)

    def ledger(self, number: int, after: str) -> tuple[list[dict[str, Any]], str]:
        """A page of the ledger, in the order of the lookup identifiers of the source; and the key to go on after."""
        carry = self._find(number)
        prefix, first = _prefix(_LEDGER, carry), key_from_text(after) + b"\0" if after else b""
        self._store.make_visible()
        settled = (
            (name[len(prefix) :], record)
            for name, record in self._store.scan(Family.META, prefix + first, _end(prefix))
        )
        found = merge(settled, self._held_from(carry, first), key=itemgetter(0))
        page = [_plain(key, record) for key, record in islice(found, _PAGE)]
        return page, page[-1]["key"] if len(page) == _PAGE else ""

    def _held_from(self, carry: Carry, first: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys of held messages from one on, with what would be their entries."""
        for key in sorted(key for key in carry.held if key >= first):
            value, digest = self._messages(batch := carry.held[key])[key]
            yield key, _ENTRY.pack(HELD, digest, len(value) - PREFIX_SIZE, 0, batch.time)

    async def begin(self, source: str, target: str, *, dry_run: bool) -> dict[str, Any]:
        """Begin or go on with the carry from a source into a queue: ``held`` has the keys that wait to be confirmed.

        Raises MQ_ERROR_ACCESS_DENIED if messages cannot be put into this queue, MQ_ERROR_TRANSACTION_SEQUENCE if
        another carry into it has not ended. Messages that are held for a deleted queue go to one of the same name.
        """
        async with self._turns:
            return await self._begin(source, target, dry_run)

    async def _begin(self, source: str, target: str, dry_run: bool) -> dict[str, Any]:
        elsewhere = self._elsewhere(target)
        if elsewhere is not None:
            if dry_run:
                return await self._describe_elsewhere(source, elsewhere)
            await self._manager.published.take_over(elsewhere)
        queue = self._manager.names.find(queue_name(target))
        if kind_of(queue) in (QueueRole.OUTGOING, QueueRole.REMOTE) or queue.is_delayed or queue.is_internal:
            raise _error(ErrorCode.MQ_ERROR_ACCESS_DENIED, f"{queue.pathname} is no queue to carry into: name another")
        queue.check_open()
        of_queue = [carry for carry in self.all() if carry.queue_id == queue.queue_id or self._is_for(carry, queue)]
        for carry in of_queue:
            if carry.source != source and carry.held:
                raise _error(
                    ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE,
                    f"a carry from {carry.source} into {queue.pathname} has {len(carry.held)} unconfirmed messages: "
                    "finish that first, with the name that it began with",
                )
        found = next((carry for carry in of_queue if carry.source == source), None)
        now = self._manager.clock.time()
        room = _room(self._manager, queue)
        facts = {"transactional": (queue.parent or queue).transactional, "now": now, "room": room}
        facts["plain"] = kind_of(queue) in (QueueRole.PLAIN, QueueRole.TRANSACTIONAL)
        if dry_run:
            described = found.describe() if found else {"carry": 0, "source": source, "target": queue.pathname}
            return described | facts | {"unconfirmed": await self._unconfirmed(found) if found else []}
        if found is None:
            number = max(self._carries, default=0) + 1
            first = self._manager.sequence.reserve(_PLACES)
            found = Carry(number, source, queue.pathname, queue.queue_id, first, now)
            self._carries[number] = found
        if found.queue_id != queue.queue_id:
            found.queue_id = queue.queue_id
            queue.reserved_bytes += sum(
                len(self._messages(batch)[key].value) - PREFIX_SIZE for key, batch in found.held.items()
            )
        found.epoch += 1
        self._put(found)
        await self._store.durable()
        return found.describe() | facts | {"unconfirmed": await self._unconfirmed(found)}

    async def exchange(self, number: int, exchange: CarryExchange) -> dict[str, Any]:
        """Confirm messages, in this order, drop others, and hold more; all stays as it is if these cannot be held.
        ``states`` has a state for each message of ``hold``: ``held``, or that of an earlier time.

        Raises MQ_ERROR_TRANSACTION_SEQUENCE for a carrier that another has replaced, MQ_ERROR_INSUFFICIENT_RESOURCES
        if the messages pass a quota, MQ_ERROR_TRANSACTION_USAGE if they do not fit the queue,
        MQ_ERROR_INVALID_PARAMETER if one is to be dropped, and confirmed or held.
        """
        async with self._turns:
            return await self._exchange(number, *exchange)

    async def _exchange(
        self,
        number: int,
        epoch: int,
        confirm: Sequence[bytes],
        drop: Sequence[bytes],
        hold: Sequence[TransferredMessage],
    ) -> dict[str, Any]:
        carry = self._find(number)
        if epoch != carry.epoch:
            raise _error(
                ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE,
                f"another carrier goes on with carry {number}: let it finish, or begin again",
            )
        queue = self._open_queue_of(carry)
        new = await self._new(carry, queue, hold)
        queue = self._open_queue_of(carry)
        if drop and not {*drop}.isdisjoint((*confirm, *map(key_of, hold))):
            raise _error(
                ErrorCode.MQ_ERROR_INVALID_PARAMETER, "a message to be dropped is also to be confirmed, or held"
            )
        size = sum([len(one.packet) for one in new.messages])
        self._check_room(queue, size)
        self._store.check()
        left = [*((key, CARRIED) for key in confirm), *((key, DROPPED) for key in drop)]
        for first in range(0, len(left), _STEP):
            if first:
                await asyncio.sleep(0)
            queue = self._open_queue_of(carry)
            self._settle(carry, queue, left[first : first + _STEP])
            self._put(carry)  # with the places that are used by now
        if new.messages:
            self._hold(carry, new, size)
        queue.reserve_bytes(size)
        await self._store.durable()
        return {"states": new.states} | {name: carry.describe()[name] for name in ("carried", "carried_bytes", "held")}

    async def delete(self, number: int) -> None:
        """Delete a carry with its ledger. A message that comes from its source again is then carried again.

        Raises MQ_ERROR_TRANSACTION_SEQUENCE while messages are held, MQ_ERROR_INVALID_PARAMETER for an unknown number.
        """
        async with self._turns:
            carry = self._find(number)
            if carry.held:
                raise _error(
                    ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE,
                    f"carry {number} has {len(carry.held)} unconfirmed messages: carry again, then delete it",
                )
            for prefix in (_prefix(_LEDGER, carry), _prefix(_HELD, carry)):  # a next carry may get its number
                self._store.delete_range(Family.META, prefix, _end(prefix))
            self._store.delete(Family.META, f"{_CARRY}{number:010}".encode())
            del self._carries[number]
            await self._store.durable()

    # Parts

    def _elsewhere(self, name: str) -> PublicFormatName | None:
        """The PUBLIC= name of a queue that the directory still has elsewhere; None for another name."""
        if not name.upper().startswith("PUBLIC="):
            return None
        parsed = self._manager.names.parse(name)
        return parsed if isinstance(parsed, PublicFormatName) and not self._manager.names.is_local(parsed) else None

    async def _describe_elsewhere(self, source: str, name: PublicFormatName) -> dict[str, Any]:
        """The facts for a carrier about a queue of the directory, before it is taken over."""
        found, quotas = await self._manager.published.to_take_over(name), self._manager.context.quotas
        room = quotas.limit - quotas.used
        if found.quota != INFINITE:
            room = min(room, found.quota * 1024)
        return {
            "carry": 0, "source": source, "target": found.pathname, "transactional": found.transactional,
            "now": self._manager.clock.time(), "room": max(0, int(min(room, 1 << 53))), "plain": True,
            "unconfirmed": [],
        }  # fmt: skip

    def _queue_of(self, carry: Carry) -> Queue | None:
        """The queue of a carry, which may be a journal; None if it was deleted."""
        queue = self._manager.queue_collection.get(carry.queue_id & ~1)
        return queue.journal if queue is not None and carry.queue_id & 1 else queue

    def _open_queue_of(self, carry: Carry) -> Queue:
        queue = self._queue_of(carry)
        if queue is None:
            raise _error(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND, f"{carry.target} was deleted: create it, and begin again")
        return queue

    def _is_for(self, carry: Carry, queue: Queue) -> bool:
        """Whether the queue of a carry was deleted, and this is another of its name."""
        return self._queue_of(carry) is None and fold(carry.target) == fold(queue.pathname)

    async def _unconfirmed(self, carry: Carry) -> list[dict[str, Any]]:
        """The messages that wait to be confirmed, in the order of the source, with the second of their expiry."""
        found = []
        for index, key in enumerate(sorted(carry.held)):
            if index % _STEP == _STEP - 1:
                await asyncio.sleep(0)
            value, digest = self._messages(carry.held[key])[key]
            end = expiry(value)
            found.append({"key": key_text(key), "digest": digest.hex(), "expires": None if end == NEVER else end})
        return found

    def _find(self, number: int) -> Carry:
        carry = self._carries.get(number)
        if carry is None:
            raise _error(ErrorCode.MQ_ERROR_INVALID_PARAMETER, f"there is no carry {number}: list them")
        return carry

    def _put(self, carry: Carry) -> None:
        self._store.operations_recorded()
        self._store.put_meta(f"{_CARRY}{carry.number:010}", carry.write())

    def _messages(self, batch: _Batch) -> dict[bytes, _Held]:
        """The messages of a batch."""
        if batch.messages is None:
            if self._loaded is not None:
                self._loaded.messages = None
            self._loaded = batch
            self._store.make_visible()
            record = self._store.get(Family.META, batch.name)
            assert record is not None, "a held message is in the store"
            _, digests, messages = _read_record(record)
            batch.messages = {
                key_of(one): _Held(_stored(one), digest) for one, digest in zip(messages, digests, strict=True)
            }
        return batch.messages

    async def _new(self, carry: Carry, queue: Queue, hold: Sequence[TransferredMessage]) -> _New:
        """The messages that are not known yet, and the state of each message."""
        new = _New([], {}, [], [])
        last, prefix = bytes.fromhex(carry.last), _prefix(_LEDGER, carry)
        for index, one in enumerate(hold):
            if index % _STEP == _STEP - 1:
                await asyncio.sleep(0)
            key = key_of(one)
            if key in carry.held or key in new.held:
                new.states.append(STATES[HELD])
                continue
            if key <= last:
                self._store.make_visible()
                entry = self._store.get(Family.META, prefix + key)
                if entry is not None and entry[0] != DROPPED:
                    new.states.append(STATES[entry[0]])
                    continue
                new.again.append(key)
            new.states.append(STATES[HELD])
            new.messages.append(one)
            new.held[key] = _Held(_stored(one), hashlib.sha256(one.packet).digest())
        _check_fit(queue, [value for value, _ in new.held.values()])
        return new

    def _hold(self, carry: Carry, new: _New, size: int) -> None:
        """Put new messages of so many bytes into the store, all in one record."""
        now, number = int(self._manager.clock.time() * 1000), carry.batches
        carry.batches += 1
        batch = _Batch(_prefix(_HELD, carry) + b"%016x" % number, now, size, len(new.held))
        digests = [digest for _, digest in new.held.values()]
        record = b"".join((_RECORD.pack(now, len(digests)), *digests, write_messages(new.messages)))
        self._store.put(Family.META, batch.name, record)
        for key in new.again:  # dropped earlier
            self._store.delete(Family.META, _prefix(_LEDGER, carry) + key)
        others = [one for one in {*carry.held.values()} if one.messages is not None]
        if size + sum(one.size for one in others) > _RECENT:
            for one in others:
                one.messages = None
        batch.messages = new.held if size <= _RECENT else None
        carry.held.update(dict.fromkeys(new.held, batch))
        carry.last = max(carry.last, max(new.held).hex())
        self._put(carry)

    def _check_room(self, queue: Queue, size: int) -> None:
        if size > _room(self._manager, queue):
            raise _error(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
                f"the quota of {queue.pathname}, or of all queues, would be passed: raise it, and begin again",
            )

    def _settle(self, carry: Carry, queue: Queue, left: Sequence[tuple[bytes, int]]) -> None:
        """Put held messages into the queue, or drop them: all of it is in one batch."""
        now, freed = int(self._manager.clock.time() * 1000), 0
        put, prefix = self._store.put, _prefix(_LEDGER, carry)
        entries: list[Entry] = []
        # All are read before anything changes: a read may write the changes that were made before it.
        messages = {key: self._messages(batch)[key] for key, _ in left if (batch := carry.held.get(key)) is not None}
        for key, state in left:
            batch = carry.held.pop(key, None)
            if batch is None:
                continue
            value, digest = messages[key]
            lookup, size = 0, len(value) - PREFIX_SIZE
            if state == CARRIED:
                priority = value[PRIORITY] if len(value) > PRIORITY else 0  # of a packet that is cut off
                lookup = lookup_identifier_of(priority, carry.first + carry.places)
                entries.append((lookup, value))
                carry.places += 1
                carry.carried += 1
                carry.carried_bytes += size
            else:
                carry.dropped += 1
            put(Family.META, prefix + key, _ENTRY.pack(state, digest, size, lookup, now))
            freed += size
            batch.left -= 1
            if not batch.left:
                self._store.delete(Family.META, batch.name)
        queue.reserve_bytes(-freed)
        insert_many(queue, entries)


def _prefix(family: str, carry: Carry) -> bytes:
    """The beginning of the keys of a carry."""
    return f"{family}{carry.number:010}/".encode()


def _end(prefix: bytes) -> bytes:
    """Behind all keys with a prefix."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))


def _read_record(record: bytes) -> tuple[int, list[bytes], list[TransferredMessage]]:
    """Time, digests and messages of a held record."""
    time, count = _RECORD.unpack_from(record)
    end = _RECORD.size + count * _DIGEST_SIZE
    digests = [record[at : at + _DIGEST_SIZE] for at in range(_RECORD.size, end, _DIGEST_SIZE)]
    return time, digests, read_messages(record, end, count)


def _stored(message: TransferredMessage) -> bytes:
    """The value of a message in a queue."""
    value = message.value()
    flags = value[FLAGS]
    return with_prefix(value, flags=flags & ~(EXPRESS | REPORT)) if flags & (EXPRESS | REPORT) else value


def _plain(key: bytes, record: bytes) -> dict[str, Any]:
    """An entry of the ledger as JSON."""
    state, digest, size, lookup, when = _ENTRY.unpack(record)
    text = key_text(key)
    return {
        "key": text,
        "state": STATES[state],
        "source_lookup": lookup_of_key(key),
        "identifier": text.partition("-")[2],
        "digest": digest.hex(),
        "size": size,
        "lookup": lookup,
        "time": when / 1000,
    }


def _room(manager: QueueManager, queue: Queue) -> int:
    """The bytes for which a queue has room."""
    quotas = manager.context.quotas
    if queue.is_journal:
        limit = quotas.journal_limit - quotas.journal_used - queue.reserved_bytes
    else:
        limit = quotas.limit - quotas.used
    if queue.quota != INFINITE:
        limit = min(limit, queue.quota * 1024 - queue.total_bytes - queue.reserved_bytes)
    return max(0, int(min(limit, 1 << 53)))


def _check_fit(queue: Queue, values: Sequence[bytes]) -> None:
    """Whether a queue takes messages of their kind. Journals and dead-letter queues take any."""
    if kind_of(queue) not in (QueueRole.PLAIN, QueueRole.TRANSACTIONAL):
        return
    owner = queue.parent or queue
    wanted = TRANSACTIONAL if owner.transactional else 0
    if any(value[FLAGS] & TRANSACTIONAL != wanted for value in values):
        here, there = ("transactional", "not") if owner.transactional else ("not transactional", "transactional")
        raise _error(
            ErrorCode.MQ_ERROR_TRANSACTION_USAGE,
            f"{owner.pathname} is {here}, and messages at the source are {there}: create the queue like its source",
        )
    if owner.privacy_level == QueuePrivacyLevel.BODY and not all(map(_is_private, values)):
        raise _error(
            ErrorCode.MQ_ERROR_ACCESS_DENIED,
            f"{owner.pathname} takes encrypted messages only, and messages at the source are in clear: "
            "let it take both until the carry has ended",
        )


def _is_private(value: bytes) -> bool:
    """Whether a message is encrypted; one that is broken counts as such."""
    try:
        return bool(received_message(0, value).privacy_level)
    except BROKEN:
        return True


def _error(code: ErrorCode, sentence: str) -> MessageQueuingError:
    return MessageQueuingError(code, sentence)
