r"""Carries: messages of another queue manager, taken over with all their properties, each once.

A carrier (``mqenterprise carry``) reads a message at its source without ending the read, has it held here, ends the
read, and then confirms it. A held message is in no queue: nobody sees it, and it survives a restart. Its entry in the
ledger is written with it, before the source may let go of it. So a carrier that was killed finds here what it has to
look for at the source: a message that is still there was not ended, and is read again.

A confirmed message gets the next place of a range of lookup identifiers that was set aside when the carry began.
Everything sent to the queue since comes behind. Its packet stays as it is. The source has reported its receipt, so no
second acknowledgment is sent from here; an express message is kept on disk like any other.
"""

import asyncio
import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

from qmnode.administration.names import queue_name
from qmnode.administration.promises import QueueRole, kind_of
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
    SOURCE,
    TRANSACTIONAL,
    expiry,
    received_message,
    value_of_any_packet,
    with_prefix,
)
from qmnode.storage.layout import Family
from qmnode.storage.store import Store
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.names import PublicFormatName, fold
from qmnode.structures.packet_view import IDENTIFIER
from qmnode.structures.queue_attributes import QueuePrivacyLevel

AT_ONCE: Final = 500
"""Messages of one call."""
_CARRY: Final = "carry/"
_HELD: Final = "carry-held/"
_LEDGER: Final = "carry-ledger/"
_PLACES: Final = 1 << 32
"""Lookup identifiers that are set aside for one carry: more than four billion messages."""
_ENTRY: Final = struct.Struct(">B32sIQQ")
"""State, digest, size of the packet, lookup identifier here, milliseconds since 1970."""
_PAGE: Final = 1000
_RECENT: Final = 4 * 1024 * 1024
"""Bytes of messages that are kept in memory until they are confirmed."""
_STEP: Final = 32
"""Messages after which others have a turn of the loop."""
HELD, CARRIED, DROPPED = 0, 1, 2
STATES: Final = ("held", "carried", "dropped")


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
    held: dict[str, int] = field(default_factory=dict)
    """Bytes of the messages that wait to be confirmed, by key; not in its record."""
    recent: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)
    """Values and ledger's entries of those that were held last: the next call mostly confirms them."""

    def write(self) -> bytes:
        """The stored form: the record without the messages."""
        return json.dumps({name: getattr(self, name) for name in _RECORDED}).encode()

    def describe(self) -> dict[str, Any]:
        """The carry as JSON."""
        names = ("source", "target", "created", "epoch", "carried", "carried_bytes", "dropped")
        return {"carry": self.number} | {name: getattr(self, name) for name in names} | {"held": len(self.held)}


_RECORDED: Final = tuple(one.name for one in fields(Carry) if one.name not in ("held", "recent"))


class _New(NamedTuple):
    """A message to be held."""

    key: str
    value: bytes
    entry: bytes


class Carries:
    """The carries into one queue manager, and their ledgers."""

    def __init__(self, manager: QueueManager, store: Store) -> None:
        self._manager = manager
        self._store = store
        self._carries: dict[int, Carry] = {}
        self._turns = asyncio.Lock()
        """The lock of the call that changes carries, which takes several turns of the loop."""

    def start(self) -> None:
        """Read the carries, and reserve the room of the messages that are held."""
        self._store.make_visible()
        for _, record in self._store.scan(Family.META, _CARRY.encode(), _after(_CARRY)):
            carry = Carry(**json.loads(record))
            self._carries[carry.number] = carry
            prefix = f"{_HELD}{carry.number:010}/"
            for key, value in self._store.scan(Family.META, prefix.encode(), _after(prefix)):
                carry.held[key.decode()[len(prefix) :]] = len(value) - PREFIX_SIZE
            size = sum(carry.held.values())
            if (queue := self._queue_of(carry)) is not None:
                queue.reserve_bytes(size)
            else:
                self._manager.quotas.used += size

    def all(self) -> list[Carry]:
        """All carries, the latest first."""
        return sorted(self._carries.values(), key=lambda carry: -carry.number)

    def ledger(self, number: int, after: str) -> tuple[list[dict[str, Any]], str]:
        """A page of the ledger, in the order of the lookup identifiers of the source; and the key to go on after."""
        prefix = f"{_LEDGER}{self._find(number).number:010}/"
        self._store.make_visible()
        page: list[dict[str, Any]] = []
        first = f"{prefix}{after}".encode() + (b"\0" if after else b"")
        for key, record in self._store.scan(Family.META, first, _after(prefix)):
            page.append(_plain(key.decode()[len(prefix) :], record))
            if len(page) == _PAGE:
                return page, str(page[-1]["key"])
        return page, ""

    async def begin(self, source: str, target: str, *, dry_run: bool) -> dict[str, Any]:
        """Begin or go on with the carry from a source into a queue: ``held`` has the keys that wait to be confirmed.

        Raises MQ_ERROR_ACCESS_DENIED if messages cannot be put into this queue, MQ_ERROR_TRANSACTION_SEQUENCE if
        another carry into it has not ended. Messages that are held for a deleted queue go to one of the same name.
        """
        async with self._turns:
            return await self._begin(source, target, dry_run)

    async def _begin(self, source: str, target: str, dry_run: bool) -> dict[str, Any]:
        queue = await self._target(target, dry_run=dry_run)
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
            queue.reserved_bytes += sum(found.held.values())
        found.epoch += 1
        found.recent.clear()
        self._put(found)
        await self._store.durable()
        return found.describe() | facts | {"unconfirmed": await self._unconfirmed(found)}

    async def exchange(
        self,
        number: int,
        epoch: int,
        *,
        confirm: Sequence[str] = (),
        drop: Sequence[str] = (),
        hold: Sequence[Mapping[str, Any]] = (),
    ) -> dict[str, Any]:
        """Confirm messages, in this order, drop others, and hold more; all stays as it is if these cannot be held.
        ``states`` has a state for each message of ``hold``: ``held``, or that of an earlier time.

        Raises MQ_ERROR_TRANSACTION_SEQUENCE for a carrier that another has replaced, MQ_ERROR_INSUFFICIENT_RESOURCES
        if the messages pass a quota, MQ_ERROR_TRANSACTION_USAGE if they do not fit the queue,
        MQ_ERROR_INVALID_PARAMETER if one is to be dropped, and confirmed or held.
        """
        async with self._turns:
            return await self._exchange(number, epoch, confirm, drop, hold)

    async def _exchange(
        self, number: int, epoch: int, confirm: Sequence[str], drop: Sequence[str], hold: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        carry = self._find(number)
        if epoch != carry.epoch:
            raise _error(
                ErrorCode.MQ_ERROR_TRANSACTION_SEQUENCE,
                f"another carrier goes on with carry {number}: let it finish, or begin again",
            )
        queue = self._open_queue_of(carry)
        self._store.make_visible()
        new, states, keys = await self._new(carry, queue, hold)
        queue = self._open_queue_of(carry)
        if not {*drop}.isdisjoint((*confirm, *keys)):
            raise _error(
                ErrorCode.MQ_ERROR_INVALID_PARAMETER, "a message to be dropped is also to be confirmed, or held"
            )
        size = sum(len(one.value) - PREFIX_SIZE for one in new)
        self._check_room(queue, size)
        self._store.check()
        left = [*((key, CARRIED) for key in confirm), *((key, DROPPED) for key in drop)]
        for first in range(0, len(left), _STEP):
            if first:
                await asyncio.sleep(0)
            queue = self._open_queue_of(carry)
            self._settle(carry, queue, left[first : first + _STEP])
            self._put(carry)  # with the places that are used by now
        if size + sum(len(value) for value, _ in carry.recent.values()) > _RECENT:
            carry.recent.clear()
        if size <= _RECENT:
            carry.recent.update((one.key, (one.value, one.entry)) for one in new)
        for one in new:
            self._store.put_meta(f"{_HELD}{carry.number:010}/{one.key}", one.value)
            self._store.put_meta(f"{_LEDGER}{carry.number:010}/{one.key}", one.entry)
            carry.held[one.key] = len(one.value) - PREFIX_SIZE
        queue.reserve_bytes(size)
        if new:
            self._put(carry)
        await self._store.durable()
        return {"states": states} | {name: carry.describe()[name] for name in ("carried", "carried_bytes", "held")}

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
            prefix = f"{_LEDGER}{number:010}/"
            self._store.delete_range(Family.META, prefix.encode(), _after(prefix))
            self._store.delete(Family.META, f"{_CARRY}{number:010}".encode())
            del self._carries[number]
            await self._store.durable()

    # Parts

    async def _target(self, name: str, *, dry_run: bool) -> Queue:
        """The queue to carry into. One of a PUBLIC= name that the directory still has elsewhere is created."""
        if name.upper().startswith("PUBLIC=") and not dry_run:
            parsed = self._manager.names.parse(name)
            if isinstance(parsed, PublicFormatName) and not self._manager.names.is_local(parsed):
                await self._manager.published.take_over(parsed)
        return self._manager.names.find(queue_name(name))

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
        self._store.make_visible()
        found = []
        for index, key in enumerate(sorted(carry.held)):
            if index % _STEP == _STEP - 1:
                await asyncio.sleep(0)
            value, entry = self._held_value(carry, key)
            end = expiry(value)
            found.append(
                {"key": key, "digest": _ENTRY.unpack(entry)[1].hex(), "expires": None if end == NEVER else end}
            )
        return found

    def _find(self, number: int) -> Carry:
        carry = self._carries.get(number)
        if carry is None:
            raise _error(ErrorCode.MQ_ERROR_INVALID_PARAMETER, f"there is no carry {number}: list them")
        return carry

    def _put(self, carry: Carry) -> None:
        self._store.operations_recorded()
        self._store.put_meta(f"{_CARRY}{carry.number:010}", carry.write())

    def _held_value(self, carry: Carry, key: str) -> tuple[bytes, bytes]:
        value = self._store.get_meta(f"{_HELD}{carry.number:010}/{key}")
        assert value is not None, "a held message is in the store"
        return value, self._entry(carry, key)

    def _entry(self, carry: Carry, key: str) -> bytes:
        entry = self._store.get_meta(f"{_LEDGER}{carry.number:010}/{key}")
        assert entry is not None, "a held message is in the ledger"
        return entry

    async def _new(
        self, carry: Carry, queue: Queue, hold: Sequence[Mapping[str, Any]]
    ) -> tuple[list[_New], list[str], list[str]]:
        """The messages that are not known yet, and the state and the key of each message."""
        now, new, states, keys, seen = self._manager.clock.time(), [], [], [], set(carry.held)
        for index, item in enumerate(hold):
            if index % _STEP == _STEP - 1:
                await asyncio.sleep(0)
            packet = bytes(item["packet"])
            value = value_of_any_packet(packet, float(item["arrival"]))
            aborts, moves = item.get("aborts"), item.get("moves")
            if aborts or moves or value[FLAGS] & (EXPRESS | REPORT):
                value = with_prefix(value, flags=value[FLAGS] & ~(EXPRESS | REPORT), aborts=aborts, moves=moves)
            key = key_of(int(item["lookup"]), packet)
            keys.append(key)
            known = None if key in seen else self._store.get_meta(f"{_LEDGER}{carry.number:010}/{key}")
            if known is not None and known[0] != DROPPED:
                states.append(STATES[known[0]])
                continue
            states.append(STATES[HELD])
            if key not in seen:
                _check_fits(queue, value)
                digest = hashlib.sha256(packet).digest()
                seen.add(key)
                new.append(_New(key, value, _ENTRY.pack(HELD, digest, len(packet), 0, int(now * 1000))))
        return new, states, keys

    def _check_room(self, queue: Queue, size: int) -> None:
        if size > _room(self._manager, queue):
            raise _error(
                ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES,
                f"the quota of {queue.pathname}, or of all queues, would be passed: raise it, and begin again",
            )

    def _settle(self, carry: Carry, queue: Queue, left: Sequence[tuple[str, int]]) -> None:
        """Put held messages into the queue, or drop them: all of it is in one batch."""
        now, freed = int(self._manager.clock.time() * 1000), 0
        entries: list[Entry] = []
        for key, state in left:
            if key not in carry.held:
                continue
            value, entry = carry.recent.pop(key) if key in carry.recent else self._held_value(carry, key)
            _, digest, size, _, _ = _ENTRY.unpack(entry)
            lookup = 0
            if state == CARRIED:
                lookup = lookup_identifier_of(value[PRIORITY], carry.first + carry.places)
                entries.append((lookup, value))
                carry.places += 1
                carry.carried += 1
                carry.carried_bytes += len(value) - PREFIX_SIZE
            else:
                carry.dropped += 1
            self._store.put_meta(f"{_LEDGER}{carry.number:010}/{key}", _ENTRY.pack(state, digest, size, lookup, now))
            self._store.delete(Family.META, f"{_HELD}{carry.number:010}/{key}".encode())
            freed += carry.held.pop(key)
        queue.reserve_bytes(-freed)
        insert_many(queue, entries)


def key_of(lookup: int, packet: bytes) -> str:
    """The key of a message in the ledger: its lookup identifier at the source, and its identifier."""
    source = packet[SOURCE.start - PREFIX_SIZE : SOURCE.stop - PREFIX_SIZE]
    return f"{lookup:016x}-{source.hex()}{packet[IDENTIFIER].hex()}"


def _plain(key: str, record: bytes) -> dict[str, Any]:
    state, digest, size, lookup, when = _ENTRY.unpack(record)
    source_lookup, _, identifier = key.partition("-")
    return {
        "key": key,
        "state": STATES[state],
        "source_lookup": int(source_lookup, 16),
        "identifier": identifier,
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


def _check_fits(queue: Queue, value: bytes) -> None:
    """Whether a queue takes a message of this kind. Journals and dead-letter queues take any."""
    if kind_of(queue) not in (QueueRole.PLAIN, QueueRole.TRANSACTIONAL):
        return
    owner = queue.parent or queue
    if bool(value[FLAGS] & TRANSACTIONAL) is not owner.transactional:
        here, there = ("transactional", "not") if owner.transactional else ("not transactional", "transactional")
        raise _error(
            ErrorCode.MQ_ERROR_TRANSACTION_USAGE,
            f"{owner.pathname} is {here}, and messages at the source are {there}: create the queue like its source",
        )
    if owner.privacy_level == QueuePrivacyLevel.BODY and not _is_private(value):
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


def _after(prefix: str) -> bytes:
    return prefix[:-1].encode() + bytes((ord(prefix[-1]) + 1,))
