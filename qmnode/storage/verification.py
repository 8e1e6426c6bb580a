"""An offline check of a store: records decode, counters and indexes agree with the messages. It changes nothing."""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rocksdict import DBRecoveryMode, Options, Rdict

from qmnode.model.positions import LANE_SHIFT, group_of
from qmnode.model.queue import Counters, Queue
from qmnode.model.stored_message import (
    BROKEN,
    DELAYED,
    FLAGS,
    NEVER,
    PREFIX,
    PREFIX_SIZE,
    VERSION,
    RecordFlag,
    expiry,
    message_from_packet,
    packet_of,
    received_message,
)
from qmnode.storage.errors import WHAT_TO_DO, StoreError
from qmnode.storage.large_messages import DamagedError, number_of, size_of, whole_value
from qmnode.storage.layout import (
    EXPIRY_KEY,
    LARGE,
    LARGE_FILE,
    LAST_KEY,
    MESSAGE_KEY,
    NEWEST_FORMAT,
    QUEUE_KEY,
    Family,
)
from qmnode.storage.log_records import MAY_HAVE_HELD
from qmnode.storage.lost_writes import (
    LOSSES,
    Before,
    damaged_logs,
    examine,
    find_loss,
    needed_log,
    open_to_read,
    recent,
)
from qmnode.storage.records import Gap, readable, scan

MAXIMUM_FINDINGS: Final = 1000
_PROGRESS_EVERY: Final = 1000
_SYSTEM_QUEUES: Final = range(64)
"""Numbers of queues that have no definition, because every node has them."""
_GUARDED: Final = ("private", "public", "system")
"""Queues with a descriptor of their own."""
_SHOWN_LANES: Final = 8


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault that a check found."""

    where: str
    sentence: str


@dataclass(slots=True)
class Report:
    """The result of a check."""

    format_version: int = 0
    queues: int = 0
    messages: int = 0
    findings: list[Finding] = field(default_factory=list)
    descriptors: list[tuple[str, bytes]] = field(default_factory=list)
    """Path names of the queues that users made and of those of the system, and their security descriptors."""
    omitted: int = 0
    """Findings beyond MAXIMUM_FINDINGS, which are only counted."""

    def add(self, where: str, sentence: str) -> None:
        """Add a finding to the report."""
        if len(self.findings) < MAXIMUM_FINDINGS:
            self.findings.append(Finding(where, sentence))
        else:
            self.omitted += 1


class _Counted:
    """The totals of a queue's messages."""

    def __init__(self) -> None:
        self.size = 0
        self.lanes: dict[int, list[int]] = {}
        """Count and first lookup identifier of each lane."""

    def add(self, lookup_identifier: int, size: int) -> None:
        self.size += size
        lane = self.lanes.setdefault(lookup_identifier >> LANE_SHIFT, [0, lookup_identifier])
        lane[0] += 1


def verify(path: Path, progress: Callable[[int, int | None], None] = lambda done, total: None) -> Report:
    """Check the store in this directory, of a stopped node or a backup.

    ``progress`` is called with the number of messages checked, and the expected total. Raises StoreError if the
    directory is no store, is in use, or cannot be read at all. Must not run in a process that has the store open: its
    lock would be released.
    """
    if not (path / "CURRENT").is_file():
        raise StoreError(f"{path} is no message store: there is no file CURRENT in it; name a node's data, or a backup")
    with not_in_use(path):
        before = examine(path)
        with _opened(path) as (database, families, damaged):
            check = _Check(path, families, progress)
            for log, size in damaged.items():
                check.report.add(log, f"its last {size} bytes begin with a damaged record, and {MAY_HAVE_HELD}")
            check.losses(database, before)
            check.run()
            return check.report


@contextmanager
def not_in_use(path: Path) -> Iterator[None]:
    """Hold RocksDB's lock during the check, so that no process can open the store."""
    lock = path / "LOCK"
    if not lock.exists():  # a backup has none
        yield
        return
    try:
        file = os.open(lock, os.O_RDWR)
    except OSError as error:
        raise StoreError(f"{lock} cannot be opened: {error.strerror}") from error
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except (BlockingIOError, PermissionError) as error:
        raise StoreError(f"{path} is in use: stop the node, or check a backup of it") from error
    finally:
        os.close(file)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Rdict, dict[Family, Rdict], dict[str, int]]]:
    """The store, its families, and what is damaged at the ends of its logs if the node does not read it."""
    damaged: dict[str, int] = {}
    try:
        names = set(Rdict.list_cf(str(path), Options(raw_mode=True)))
        # A start drops the family of express messages and recreates it: if killed in between, there is none.
        needed = set(Family) - {Family.EXPRESS}
        missing = [family.value for family in Family if family in needed and family.value not in names]
        if missing:
            raise StoreError(f"{path} has no {', '.join(missing)}: it is no message store, or was written only in part")
        try:
            database = open_to_read(path)
        except Exception as error:  # RocksDB's exceptions have no common class
            if not (damaged := damaged_logs(path) if "Corrupt" in str(error) else {}):
                raise
            database = open_to_read(path, DBRecoveryMode.point_in_time())
    except StoreError:
        raise
    except Exception as error:
        raise StoreError(f"the message store {path} cannot be opened: {error}: {WHAT_TO_DO}", damaged=True) from error
    families = {family: database.get_column_family(family) for family in needed}
    try:
        yield database, families, damaged
    finally:
        for one in families.values():
            one.close()
        database.close()


class _Check:
    def __init__(self, path: Path, families: dict[Family, Rdict], progress: Callable[[int, int | None], None]) -> None:
        self._path = path
        self._families = families
        self._progress = progress
        self._queues: dict[int, str] = {}
        self._counted: dict[int, _Counted] = {}
        self._expected = 0
        self._large: dict[bytes, tuple[int, ...]] = {}
        """Number of the file and bytes of each large message, by its key."""
        self.report = Report()

    def losses(self, database: Rdict, before: Before) -> None:
        """Losses of synced writes: current ones, and those that recent starts found."""
        loss = find_loss(before, database.latest_sequence_number(), lambda: needed_log(database))
        try:
            known = recent(self._families[Family.META].get(LOSSES.encode()))
        except Exception as error:  # as below
            self.report.add("meta", f"what was lost before cannot be read: {error}")
            known = []
        for one in known if loss is None else [*known, loss]:
            self.report.add("write-ahead log", one.sentence)

    def run(self) -> None:
        """Check everything, family by family."""
        try:
            if not self._version():
                return
        except Exception as error:  # as below
            self.report.add("meta", f"cannot be read: {error}")
            return
        steps = (
            self._definitions,
            self._counters_decode,
            self._large_messages,
            self._messages,
            self._counters,
            self._transactions,
            self._others,
        )
        for step in steps:
            try:
                step()
            except Exception as error:  # RocksDB reports a damaged block, with no common class
                self.report.add(step.__name__.strip("_"), f"cannot be read to the end: {error}")

    def _records(self, family: Family) -> Iterator[tuple[bytes, bytes]]:
        iterator = self._families[family].iter()
        iterator.seek_to_first()
        while iterator.valid():
            yield iterator.key(), iterator.value()
            iterator.next()
        iterator.status()  # raises if it ended at an unreadable record

    def _version(self) -> bool:
        record = self._families[Family.META].get(b"format_version")
        if not isinstance(record, bytes) or len(record) != QUEUE_KEY.size:
            self.report.add("meta", "there is no format version")
            return False
        self.report.format_version = QUEUE_KEY.unpack(record)[0]
        if self.report.format_version > NEWEST_FORMAT:
            sentence = f"format {self.report.format_version} is newer than this program, which reads {NEWEST_FORMAT}"
            self.report.add("meta", sentence)
            return False
        return True

    # Queues

    def _definitions(self) -> None:
        for key, record in self._records(Family.QUEUES):
            where = f"queue {key.hex()}"
            try:
                queue_id = QUEUE_KEY.unpack(key)[0]
                attributes = Queue.read_definition(record)
                self._queues[queue_id] = attributes["pathname"]
                self.report.queues += 1
                parent = attributes["parent"]
                if queue_id & 1 and attributes["queue_type"] != "system":
                    self._odd_number(queue_id, attributes["pathname"])
                if not parent and attributes["queue_type"] in _GUARDED:
                    self.report.descriptors.append((attributes["pathname"], attributes["security"]))
            except (ValueError, KeyError, TypeError, Exception) as error:
                self.report.add(where, f"the definition does not decode: {error!r}")
                continue
            if parent and parent not in self._queues:
                self.report.add(attributes["pathname"], f"a subqueue of queue {parent}, which is not there")

    def _odd_number(self, queue_id: int, pathname: str) -> None:
        """Report a queue with the number of a journal, which early versions gave after a journal was changed."""
        if (owner := self._queues.get(queue_id & ~1)) is None:
            shared, advice = "its own journal", "move its messages to another queue, then delete it and create it again"
        else:
            shared = f"the journal of {owner}"
            advice = "copy its messages out of that journal, then delete it and create it again"
        self.report.add(pathname, f"its number {queue_id} is odd and also that of {shared}; {advice}")

    def _name(self, queue_id: int) -> str | None:
        """The name of the queue or journal with this number; None if no queue has it."""
        owner = queue_id & ~1
        if owner not in self._queues and queue_id in self._queues:
            return self._queues[queue_id]
        name = self._queues.get(owner) or (f"system queue {owner}" if owner in _SYSTEM_QUEUES else None)
        return f"{name};JOURNAL" if name is not None and queue_id & 1 else name

    # Messages

    def _counters_decode(self) -> None:
        for _, counters in self._stored_counters():
            self._expected += sum(count for _, count, _ in counters.lanes)

    def _stored_counters(self) -> Iterator[tuple[int, Counters]]:
        for key, record in self._records(Family.COUNTERS):
            try:
                yield QUEUE_KEY.unpack(key)[0], Counters.unpack(record)
            except Exception as error:  # struct.error, which says enough
                self.report.add(f"counters {key.hex()}", f"do not decode: {error}")

    def _large_messages(self) -> None:
        for key, value in scan(self._families[Family.META], LARGE, LARGE + LAST_KEY):
            self._large[key.removeprefix(LARGE)] = LARGE_FILE.unpack(value)

    def _messages(self) -> None:
        for found in readable(self._families[Family.MESSAGES], MESSAGE_KEY.size):
            if isinstance(found, Gap):
                self.report.add(self._between(found), f"cannot be read: {found.reason}")
                continue
            key, value = found
            self.report.messages += 1
            if self.report.messages % _PROGRESS_EVERY == 0:
                self._progress(self.report.messages, max(self._expected, self.report.messages))
            if len(key) != MESSAGE_KEY.size:
                self.report.add(f"message {key.hex()}", "the key does not decode")
                continue
            queue_id, lookup_identifier = MESSAGE_KEY.unpack(key)
            name = self._name(queue_id)
            where = f"message {lookup_identifier:#x} in {name or f'queue {queue_id}'}"
            if name is None:
                self.report.add(where, "there is no such queue")
            try:
                size = size_of(value)
                self._counted.setdefault(queue_id, _Counted()).add(lookup_identifier, size - PREFIX_SIZE)
                whole = whole_value(self._path, key, value)
            except DamagedError as error:
                self.report.add(where, str(error))
                self._large.pop(key, None)
                continue
            self._message(where, queue_id, lookup_identifier, whole)
            if (number := number_of(value)) and self._large.pop(key, None) != (number, size):
                self.report.add(where, "the index of large messages does not know its file")
        for key in self._large:
            self.report.add(f"large message {key.hex()}", "the index has it, and it is not there")
        self._progress(self.report.messages, self.report.messages)

    def _between(self, gap: Gap) -> str:
        ends = []
        for word, key in (("behind", gap.after), ("before", gap.before)):
            if len(key) == MESSAGE_KEY.size:
                queue_id, lookup_identifier = MESSAGE_KEY.unpack(key)
                ends.append(f"{word} {lookup_identifier:#x} in {self._name(queue_id) or f'queue {queue_id}'}")
        return f"messages {', '.join(ends)}"

    def _others(self) -> None:
        """Read the families of which nothing else is checked, because their tables may be damaged."""
        for family in (Family.META, Family.EXPIRY, Family.INCOMING, Family.OUTGOING, Family.HISTORY, Family.EVENTS):
            try:
                for _ in self._records(family):
                    pass
            except Exception as error:
                self.report.add(family, f"cannot be read to the end: {error}")

    def _message(self, where: str, queue_id: int, lookup_identifier: int, value: bytes) -> None:
        if len(value) < PREFIX_SIZE or PREFIX.unpack_from(value)[0] not in (VERSION, DELAYED):
            self.report.add(where, "the record does not begin as records do")
            return
        if value[FLAGS] & RecordFlag.EXPRESS:
            self.report.add(where, "an express message among the recoverable ones")
        if lookup_identifier >> LANE_SHIFT >= _SHOWN_LANES:
            self.report.add(where, "a priority above 7")
        try:
            message_from_packet(packet_of(value))
        except BROKEN as error:
            self.report.add(where, f"the packet does not decode: {error}")
        else:
            if reason := received_message(lookup_identifier, value).unreadable:
                self.report.add(where, f"unreadable in part, and listed as that: {reason}")
        if (when := expiry(value)) != NEVER:
            # The reverse is no fault: entries of express messages outlive them, and so do groups.
            entries = (when, queue_id, lookup_identifier), group_of(when, queue_id, lookup_identifier)
            index = self._families[Family.EXPIRY]
            if all(index.get(EXPIRY_KEY.pack(*entry)) is None for entry in entries):
                self.report.add(where, f"it expires at {when}, and the index of expiry does not know it")

    # Counters

    def _counters(self) -> None:
        stored = dict(self._stored_counters())
        for queue_id in sorted(stored.keys() | self._counted.keys()):
            self._compare(queue_id, stored.get(queue_id, Counters(0, 0, ())), self._counted.get(queue_id, _Counted()))

    def _compare(self, queue_id: int, stored: Counters, counted: _Counted) -> None:
        where = f"counters of {self._name(queue_id) or f'queue {queue_id}'}"
        if stored.size != counted.size:
            self.report.add(where, f"{stored.size} bytes are counted, and {counted.size} are there")
        lanes = {lane: (count, head) for lane, count, head in stored.lanes}
        for lane in sorted(lanes.keys() | counted.lanes.keys()):
            count, head = lanes.get(lane, (0, 0))
            found, first = counted.lanes.get(lane, [0, 0])
            if count != found:
                self.report.add(where, f"{count} messages of priority {7 - lane} are counted, and {found} are there")
            elif found and head > first:
                self.report.add(where, f"priority {7 - lane} begins at {first:#x}, before its head {head:#x}")

    # Transactions

    def _transactions(self) -> None:
        for key, record in self._records(Family.TRANSACTIONS):
            where = f"transaction {key.hex()}"
            try:
                length = int.from_bytes(record[:4], "big")
                operations = json.loads(record[4 : 4 + length])
                size = 4 + length + sum(operation["size"] for operation in operations)
            except (ValueError, KeyError, TypeError) as error:
                self.report.add(where, f"does not decode: {error!r}")
                continue
            if size != len(record):
                self.report.add(where, f"{len(record)} bytes, and its operations need {size}")
            for operation in operations:
                self._operation(where, operation)

    def _operation(self, where: str, operation: dict[str, Any]) -> None:
        queue_id = operation["queue"]
        if self._name(queue_id) is None:
            self.report.add(where, f"{operation['kind']} in queue {queue_id}, which is not there")
