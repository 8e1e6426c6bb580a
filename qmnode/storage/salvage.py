"""Bringing every whole message out of a damaged store, which is only read.

RocksDB opens a copy: links to the tables, and the other files as they are, with what is whole of damaged logs. If the
manifest does not lead to the tables, RocksDB makes another from them.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rocksdict import Options, Rdict

from qmnode.model.queue import Counters, Queue
from qmnode.model.queue_collection import system_queue_name
from qmnode.model.stored_message import BROKEN, message_from_packet, packet_of
from qmnode.storage.errors import StoreError
from qmnode.storage.large_messages import DamagedError, whole_value
from qmnode.storage.layout import MESSAGE_KEY, QUEUE_KEY, Family
from qmnode.storage.log_records import damaged_ends, damaged_record, rebuild_log
from qmnode.storage.lost_writes import damaged_logs, open_to_read, sentences
from qmnode.storage.records import Gap, readable
from qmnode.storage.verification import Finding, not_in_use

_LEFT_OUT: Final = ("LOCK", "LOG")
_NEEDED: Final = (Family.META, Family.MESSAGES, Family.QUEUES, Family.COUNTERS, Family.TRANSACTIONS)
_BROUGHT_OUT: Final = (Family.MESSAGES, Family.QUEUES, Family.COUNTERS)
_LEFT_OUT_OF_LOG: Final = (
    "{} of its batches: changes behind the damage may be the contents of a message, and stay behind"
)
_FIRST_DUMMY: Final = 10_000_000
"""Number of the first table that tells RocksDB of a family that only a log has."""


@dataclass(frozen=True, slots=True)
class Salvaged:
    """A whole message of a damaged store."""

    queue: str
    """Path name, made up if the definition of the queue cannot be read."""
    lookup_identifier: int
    value: bytes


@dataclass(slots=True)
class Salvage:
    """The contents of a damaged store. ``rest`` is complete once ``messages`` has come to its end."""

    path: Path
    rest: list[Finding] = field(default_factory=list)
    """Damage, and messages that are not whole."""
    missing: int = 0
    """Messages that the queues' counters have, and that were not found."""
    _names: dict[int, str] = field(default_factory=dict)
    _found: dict[int, int] = field(default_factory=dict)

    def messages(self, workplace: Path, progress: Callable[[int, int | None], None]) -> Iterator[Salvaged]:
        """All whole messages. ``workplace`` is a directory for a copy of the logs. Raises StoreError if nothing can be
        read.
        """
        with not_in_use(self.path), tempfile.TemporaryDirectory(prefix=".salvage-", dir=workplace) as folder:
            self.rest += [Finding(text.partition(" ")[0], text) for text in sentences(self._damage())]
            with self._opened(Path(folder)) as families:
                self._read_names(families)
                expected = self._expected(families)
                yield from self._each(families, Path(folder), lambda count: progress(count, sum(expected.values())))
                self._compare(expected)
                self._transactions(families)
                for at, one in enumerate(self.rest):  # of the copy nobody knows
                    self.rest[at] = Finding(one.where, one.sentence.replace(f"{folder}/copy", str(self.path)))

    def _damage(self) -> dict[str, int]:
        return damaged_ends(self.path) | damaged_logs(self.path)

    # Opening a copy

    @contextmanager
    def _opened(self, folder: Path) -> Iterator[dict[Family, Rdict]]:
        copy = folder / "copy"
        try:
            self._copy(copy)
            database = self._database(copy, folder)
        except OSError as error:
            raise StoreError(f"{error.filename} cannot be read or written: {error.strerror}") from error
        families: dict[Family, Rdict] = {}
        for family in _NEEDED:
            with contextlib.suppress(Exception):  # a family that is missing has no records
                families[family] = database.get_column_family(family)
        try:
            yield families
        finally:
            for one in families.values():
                one.close()
            database.close()

    def _copy(self, copy: Path) -> None:
        copy.mkdir(mode=0o700)
        for file in sorted(self.path.iterdir()):
            if not file.is_file() or file.name.startswith(_LEFT_OUT):
                continue
            if file.suffix == ".sst":
                (copy / file.name).symlink_to(file.resolve())
            elif file.suffix == ".log" and damaged_record(file) is not None:
                if left_out := rebuild_log(file, copy / file.name):
                    self.rest.append(Finding(file.name, _LEFT_OUT_OF_LOG.format(left_out)))
            else:
                shutil.copyfile(file, copy / file.name)

    def _database(self, copy: Path, folder: Path) -> Rdict:
        if not any(name.startswith("MANIFEST") for name in damaged_ends(self.path)):
            try:
                return open_to_read(copy)
            except Exception as error:  # RocksDB's exceptions have no common class
                self.rest.append(
                    Finding("store", f"it does not open: {error}; its tables are read without its manifest")
                )
        else:
            self.rest.append(
                Finding("store", "its tables are read without its manifest: received messages may be there")
            )
        try:
            _add_families(copy, folder)
            _repair(copy)
            return open_to_read(copy)
        except Exception as error:
            raise StoreError(f"nothing of {self.path} can be read: {error}") from error

    # Reading it

    def _read_names(self, families: dict[Family, Rdict]) -> None:
        for record in self._records(families, Family.QUEUES, QUEUE_KEY.size):
            with contextlib.suppress(Exception):  # its messages are listed without a name
                key, definition = record
                self._names[QUEUE_KEY.unpack(key)[0]] = Queue.read_definition(definition)["pathname"]

    def _expected(self, families: dict[Family, Rdict]) -> dict[int, int]:
        counts = {}
        for key, record in self._records(families, Family.COUNTERS, QUEUE_KEY.size):
            with contextlib.suppress(Exception):
                counts[QUEUE_KEY.unpack(key)[0]] = sum(count for _, count, _ in Counters.unpack(record).lanes)
        return counts

    def _records(self, families: dict[Family, Rdict], family: Family, width: int) -> Iterator[tuple[bytes, bytes]]:
        if family not in families:
            self.rest.append(Finding(family, "is missing"))
            return
        for record in readable(families[family], width):
            if isinstance(record, Gap):
                self.rest.append(Finding(family, f"records cannot be read: {record.reason}"))
            elif len(record[0]) == width:
                yield record

    def _name(self, queue_id: int) -> str:
        name = self._names.get(queue_id & ~1) or system_queue_name(queue_id & ~1)
        return f"{name};JOURNAL" if name and queue_id & 1 else name

    def _where(self, key: bytes) -> str:
        queue_id, lookup_identifier = MESSAGE_KEY.unpack(key)
        return f"message {lookup_identifier:#x} in {self._name(queue_id) or f'queue {queue_id}'}"

    def _each(self, families: dict[Family, Rdict], folder: Path, progress: Callable[[int], None]) -> Iterator[Salvaged]:
        if Family.MESSAGES not in families:
            self.rest.append(Finding(Family.MESSAGES, "is missing"))
            return
        gaps = []
        for record in readable(families[Family.MESSAGES], MESSAGE_KEY.size):
            if isinstance(record, Gap):
                gaps.append(record)
                self.rest.append(Finding(self._between(record), f"cannot be read: {record.reason}"))
            elif (found := self._whole(*record)) is not None:
                progress(sum(self._found.values()))
                yield found
        if gaps:
            yield from self._behind(gaps, folder)

    def _between(self, gap: Gap) -> str:
        begin = f"behind {self._where(gap.after)}" if len(gap.after) == MESSAGE_KEY.size else "from the first message"
        end = f"before {self._where(gap.before)}" if len(gap.before) == MESSAGE_KEY.size else "to the end"
        return f"messages {begin}, {end}"

    def _whole(self, key: bytes, record: bytes) -> Salvaged | None:
        if len(key) != MESSAGE_KEY.size:
            return None
        queue_id, lookup_identifier = MESSAGE_KEY.unpack(key)
        where = self._where(key)
        self._found[queue_id] = self._found.get(queue_id, 0) + 1
        try:
            value = whole_value(self.path, key, record)
            message_from_packet(packet_of(value))
        except DamagedError as error:
            self.rest.append(Finding(where, str(error)))
            return None
        except BROKEN as error:
            self.rest.append(Finding(where, f"the packet does not decode: {error}"))
            return None
        return Salvaged(self._name(queue_id) or self._new_name(queue_id), lookup_identifier, value)

    def _new_name(self, queue_id: int) -> str:
        name = self._names[queue_id & ~1] = f".\\private$\\salvaged-{queue_id & ~1}"
        what = f"its name cannot be read: its messages go as of {name}; create that queue, or import them with --to"
        self.rest.append(Finding(f"queue {queue_id}", what))
        return self._name(queue_id)

    def _behind(self, gaps: list[Gap], folder: Path) -> Iterator[Salvaged]:
        """Whole messages of other tables, which a damaged place of one table hides: each table alone."""
        seen: set[bytes] = set()
        for number, table in enumerate(sorted(self.path.glob("*.sst"), reverse=True)):
            alone = folder / f"table{number}"
            alone.mkdir(mode=0o700)
            (alone / table.name).symlink_to(table.resolve())
            database = family = None
            with contextlib.suppress(Exception):  # it is damaged, or of another family
                _repair(alone)
                database = open_to_read(alone)
                family = database.get_column_family(Family.MESSAGES)
            if database is None or family is None:
                continue
            for gap in gaps:
                iterator = family.iter()
                iterator.seek(gap.after)
                while iterator.valid() and not (gap.before and iterator.key() >= gap.before):
                    key = iterator.key()
                    if key > gap.after and key not in seen:
                        seen.add(key)
                        if (found := self._whole(key, iterator.value())) is not None:
                            what = "is hidden by damage, and brought out: it may have been received already"
                            self.rest.append(Finding(self._where(key), what))
                            yield found
                    iterator.next()
            family.close()
            database.close()

    def _compare(self, expected: dict[int, int]) -> None:
        for queue_id in sorted(expected.keys() | self._found.keys()):
            count, found = expected.get(queue_id, 0), self._found.get(queue_id, 0)
            if count > found:
                self.missing += count - found
                name = self._name(queue_id) or f"queue {queue_id}"
                self.rest.append(Finding(name, f"{count} messages are counted, and {found} were found"))

    def _transactions(self, families: dict[Family, Rdict]) -> None:
        for key, _ in self._records(families, Family.TRANSACTIONS, 0) if Family.TRANSACTIONS in families else ():
            self.rest.append(Finding(f"transaction {key.hex()}", "it was prepared, and stays behind"))


def _repair(copy: Path) -> None:
    """Have RocksDB make a manifest from the tables and logs of a copy."""
    Rdict.repair(str(copy), Options(raw_mode=True))


def _add_families(copy: Path, folder: Path) -> None:
    """Add a table with one meaningless record for each family that has none: the logs know families by their numbers
    only.
    """
    tables = folder / "tables"
    tables.mkdir(mode=0o700)
    for table in copy.glob("*.sst"):
        (tables / table.name).symlink_to(table.resolve())
    _repair(tables)
    there = set(Rdict.list_cf(str(tables), Options(raw_mode=True)))
    missing = [family for family in _BROUGHT_OUT if family not in there]
    if not missing:
        return
    folder /= "families"
    families = {family.value: Options(raw_mode=True) for family in Family}
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    database = Rdict(str(folder), options=options, column_families=families)
    for at, family in enumerate(missing):
        before = set(folder.glob("*.sst"))
        one = database.get_column_family(family)
        one.put(b"\0", b"")
        one.flush()
        one.close()
        for table in set(folder.glob("*.sst")) - before:
            shutil.copyfile(table, copy / f"{_FIRST_DUMMY + at:06}.sst")
    database.close()
