"""One run of the analysis: bring new events of the segments into the tables.

Every table is brought up to date in one commit, which also records how far the table has read. A run can therefore be
killed at any point. The next run continues from the tables: one that is behind catches up, nothing is counted twice.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import compute
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mqenterprise.pipeline import catalogue
from mqenterprise.pipeline.catalogue import Derived, Gathered, Summary
from mqenterprise.pipeline.jobs import queue_names
from mqenterprise.pipeline.jobs.message_life import KEY, UNKNOWN, dated_by
from mqenterprise.pipeline.jobs.ways import ways_of
from mqenterprise.pipeline.progress import Progress
from mqenterprise.pipeline.session import FEW_EVENTS, fit_plans
from mqenterprise.pipeline.sources.quarantine import Quarantine, Record
from mqenterprise.pipeline.sources.reading import Wanted, with_events
from mqenterprise.pipeline.sources.segments import Piece, Segment, Stray, find_segments, kinds_of, pieces_of
from mqenterprise.pipeline.tables import Commit, StoredTable, Tables, as_they_are
from qmnode.errors import ConfigurationError
from qmnode.export.events import FORMAT, shown
from qmnode.export.places import Place, below
from qmnode.export.segment import SegmentError

if TYPE_CHECKING:
    from mqenterprise.pipeline.directory import DirectoryTables

_AT_ONCE: Final = 4
"""Tables that are made side by side: while Spark plans one and starts its tasks, the processors work on others."""
_CANCEL_EVERY: Final = 0.5
"""Seconds between two cancellations of jobs while tables end after an interrupt."""
_AS_OF: Final = "as of"
"""The step that finds the time of the last event, to which summaries refer."""
_EVER: Final = "1970-01-01"
"""A day before any message was sent."""
_MOMENTS: Final = {
    "message_life": {
        "sent": compute.field("sent"),
        "reached": compute.field("reached"),
        "received": compute.field("received"),
        "died": compute.field("death", "time"),
    },
    "queue_sizes": {"last": compute.field("last", "time")},
    "queue_states": {"last": compute.field("time")},
    "heartbeats": {"last": compute.field("time")},
}
"""The columns of tables that hold times of events."""
QUARANTINE: Final = "_quarantine"
"""The folder beside the tables with the list of segments that were set aside."""


@dataclass(slots=True)
class Summed:
    """The result of a run."""

    found: dict[str, int] = field(default_factory=dict)
    """The events of each segment that was new, at least in part, by its path."""
    lost: set[str] = field(default_factory=set)
    """Those of them that a table could not read. They are set aside."""
    tables: dict[str, int] = field(default_factory=dict)
    """The version of each table that was written."""
    aside: list[Record] = field(default_factory=list)
    """All segments that are set aside now."""
    as_of: datetime = datetime.min
    """The time of the last event, to which statements about the present refer."""

    def add(self, other: Summed) -> None:
        """Add the result for other tables."""
        for path, events in other.found.items():
            self.found[path] = max(events, self.found.get(path, 0))
        self.lost |= other.lost
        self.tables |= other.tables

    @property
    def segments(self) -> int:
        """The number of new segments that could be read."""
        return len(self.found.keys() - self.lost)

    @property
    def events(self) -> int:
        """The number of their events."""
        return sum(count for path, count in self.found.items() if path not in self.lost)

    @property
    def unreadable(self) -> int:
        """The number of new segments that could not be read."""
        return len(self.lost)


@dataclass(frozen=True)
class Analysis:
    """An analysis: its sources, and the place of its tables."""

    spark: SparkSession
    sources: Sequence[str]
    target: str
    directory: DirectoryTables
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    say: Callable[[str], None] = lambda step: None
    """Called with a description of each step that has work to do."""
    since: str | None = None
    """The first day (YYYY-MM-DD, UTC) of the tables, which leave out messages that were sent earlier.

    Tables that begin earlier stay as they are; those that begin later are extended back to this day.
    """
    most: int = 0
    """The most segments in one commit, oldest first; 0: all. Otherwise ``run`` is repeated until it finds nothing."""

    _parts: _Parts = field(default_factory=lambda: _Parts(), init=False)
    _kinds: Kinds = field(default_factory=lambda: Kinds(), init=False)
    _interrupted: Event = field(default_factory=Event, init=False)

    @property
    def tables(self) -> Tables:
        return Tables(self.target)

    @property
    def quarantine(self) -> Quarantine:
        """The list of segments that are set aside."""
        return Quarantine(below(self.target, QUARANTINE))

    def _quarantine_of(self, table: str) -> Quarantine:
        """Return the part of the list that the reading for one table set aside: others may read other columns."""
        return Quarantine(below(self.target, f"{QUARANTINE}/{table}"))

    def steps(self, job: str) -> int:
        """Return the number of tables to bring up to date."""
        return len(catalogue.needed(job))

    def run(self, job: str = "all") -> Summed:
        """Bring the tables of a job (``all``: all) up to date. ConfigurationError, OSError, CommitFailedError."""
        wanted, summed = catalogue.needed(job), Summed()
        segments, strays = self._found()
        derived = [one for one in catalogue.DERIVED if one.name in wanted]
        kept = _Kept(self.spark, ways_of if any(one.has_ways for one in derived) else as_they_are)
        gathering = list(self._gathering(wanted, segments))

        def date(_: Summed) -> None:
            summed.as_of = self._as_of(wanted)

        steps = [
            *gathering,
            Step(_AS_OF, date, frozenset(step.name for step in gathering)),
            *(Step(one.name, functools.partial(self._derive, one, kept), frozenset([one.source])) for one in derived),
            *self._summing_up(wanted, summed),
        ]
        try:
            self._side_by_side(summed, steps)
        finally:
            kept.release()
        summed.aside = self._set_aside(strays, summed.lost)
        return summed

    def _gathering(self, wanted: set[str], segments: Sequence[Segment]) -> Iterator[Step]:
        for one in catalogue.GATHERED:
            if one.name in wanted:
                needs = frozenset([catalogue.NAMES] if one.has_queues else [])
                yield Step(one.name, functools.partial(self._gather, one, segments), needs)

    def _summing_up(self, wanted: set[str], summed: Summed) -> Iterator[Step]:
        for one in catalogue.SUMMARIES:
            if one.name in wanted:
                make = functools.partial(self._sum_up, one, lambda: summed.as_of)
                yield Step(one.name, make, frozenset([*one.sources, _AS_OF]))

    def _side_by_side(self, summed: Summed, steps: Iterable[Step]) -> None:
        """Do steps, several at a time, each when those that it needs are done. The first of them come first.

        The first error ends it when those under way are done. An interrupt cancels all jobs of Spark first.
        """
        self._interrupted.clear()
        waiting = list(steps)
        running: dict[Future[Summed], str] = {}
        workers = ThreadPoolExecutor(_AT_ONCE, "tables")

        def made(step: Step) -> Summed:
            part = Summed()
            try:
                step.make(part)
            finally:
                self._parts.end(step.name)
            return part

        try:
            while waiting or running:
                missing = {step.name for step in waiting} | set(running.values())
                ready = [step for step in waiting if missing.isdisjoint(step.needs)][: _AT_ONCE - len(running)]
                for step in ready:
                    waiting.remove(step)
                    running[workers.submit(made, step)] = step.name
                for part in wait(running, return_when=FIRST_COMPLETED).done:
                    summed.add(part.result())
                    del running[part]
        except KeyboardInterrupt:
            self._interrupted.set()
            workers.shutdown(wait=False, cancel_futures=True)
            while wait(running, _CANCEL_EVERY).not_done:  # a table may be between two jobs
                self.spark.sparkContext.cancelAllJobs()
            raise
        finally:
            workers.shutdown(cancel_futures=True)

    def _as_of(self, wanted: set[str]) -> datetime:
        """Return the time of the last event in the tables; without events, and at the latest, now."""
        found = [self.tables[name].latest(times) for name, times in _MOMENTS.items() if name in wanted]
        return min([max((time for time in found if time is not None), default=self.now), self.now])

    def _found(self) -> tuple[list[Segment], list[Stray]]:
        """Return the segments that may be readable. One that was set aside is tried again when its file changes."""
        segments, strays = self._listed()
        known = self.quarantine.records()
        return [one for one in segments if not _is_known(known.get(one.path), one)], strays

    def _listed(self) -> tuple[list[Segment], list[Stray]]:
        """List the sources without the tables, which may lie inside one. ConfigurationError if they are one."""
        roots = [Place.open(address).root for address in self.sources]
        target = Place.open(self.target).root
        if target in roots:
            raise ConfigurationError(f"segments are in {shown(self.target)}: write the tables to a place of their own")
        segments, strays = find_segments(self.sources)
        if not any(target.startswith(f"{root}/") for root in roots):
            return segments, strays
        own = f"{target}/"
        return [one for one in segments if not one.path.startswith(own)], [
            one for one in strays if not one.path.startswith(own)
        ]

    def _set_aside(self, strays: Sequence[Stray], lost: set[str]) -> list[Record]:
        """Return the unreadable segments that still exist, or that this run lost. Repaired ones leave the list."""
        present = {one.path: one.signature for one in self._listed()[0]}
        quarantine = self.quarantine
        kept = []
        for path, record in quarantine.records().items():
            exists = present.get(path) == record.signature
            if exists or path in lost:
                kept.append(record)
            if not exists:
                quarantine.discard(path)
        return sorted([*kept, *(stray.record() for stray in strays)], key=lambda record: record.path)

    # Gathered tables

    def _gather(self, gathered: Gathered, segments: Sequence[Segment], summed: Summed) -> None:
        names = self._names() if gathered.has_queues else None
        gathering = _Gathering(gathered, names)
        table = self.tables[gathered.name]
        last = table.last()
        progress = Progress.of(last.state["progress"] if last else {})
        since = self.since
        if last is not None and (begins := last.state.get("since")) is not None:
            since = None if since is None else min(since, begins)
            if since != begins:
                pieces = pieces_of(segments, progress.had(segments))
                last = self._take(gathering, pieces, last, _Window(since, begins), lambda: progress, summed)
        elif last is not None:
            since = None
        while (pieces := self._next(segments, progress)) or last is None:
            after = functools.partial(self._after, gathered.name, progress, pieces)
            last = self._take(gathering, pieces, last, _Window(since), after, summed)
            progress = Progress.of(last.state["progress"])
            if len(self._readable(gathered.name, pieces)) == len(pieces):
                break  # otherwise other segments may have some events of the broken ones
        if names is not None and last.state.get("names") != names.digest:
            self._rename(table, last, names, summed)

    def _next(self, segments: Sequence[Segment], progress: Progress) -> list[Piece]:
        """Return the pieces of the next commit, without segments that were set aside."""
        known = self.quarantine.records()
        good = [one for one in segments if not _is_known(known.get(one.path), one)]
        pieces = pieces_of(good, progress.wanted(good))
        if not self.most:
            return pieces
        return sorted(pieces, key=lambda piece: (piece.copies[0].modified, piece.copies[0].path))[: self.most]

    def _names(self) -> _Names:
        """Return the names of queues as they are known now."""
        told = self.tables[catalogue.NAMES].arrow()
        rows = [] if told is None else told.select(["destination", "last"]).to_pylist()
        published = self.directory.arrow("queues").to_pylist()
        known = queue_names.lookup(
            ((row["destination"], row["last"]["queue"]) for row in rows),
            ((row["queue_id"], row["queue"]) for row in published),
        )
        rows = sorted(known.items())
        columns = [pa.array([row[place] for row in rows], pa.string()) for place in (0, 1)]
        frame = self.spark.createDataFrame(pa.Table.from_arrays(columns, ["key", "name"]))
        return _Names(frame, hashlib.sha256(repr(rows).encode()).hexdigest())

    def _rename(self, table: StoredTable, last: Commit, names: _Names, summed: Summed) -> None:
        """Give stored rows the names that became known, or changed, since they were written."""
        self.say(f"Naming queues in {table.name}")
        dates = {row["date"] for row in queue_names.misnamed(self._rows(table, None), names.frame).collect()}
        rows = queue_names.named(self._rows(table, dates), names.frame)
        commit = table.replace(rows, dates, lambda: {**last.state, "names": names.digest})
        summed.tables[table.name] = commit.version

    def _take(
        self,
        gathering: _Gathering,
        pieces: Sequence[Piece],
        last: Commit | None,
        window: _Window,
        progress: Callable[[], Progress],
        summed: Summed,
    ) -> Commit:
        """Bring the events of these pieces into the table in one commit."""
        gathered = gathering.table
        self.say(f"Reading events for {gathered.name}")
        table = self.tables[gathered.name]

        def state() -> dict[str, Any]:
            return {"progress": progress().state(), "since": window.since, **gathering.state(last)}

        count = self._kinds.count(pieces, gathered.kinds)
        self._parts.fit(self.spark, gathered.name, count, _events(pieces))

        def write(events: DataFrame) -> Commit:
            partial = gathered.make(window.of(gathered, events))
            if last is None:
                return table.replace(gathering.finish(self._placed(partial, None, window)), None, state)
            return self._join(gathering, count, partial, window, state)

        begin = window.begin if window.since is not None else None
        wanted = Wanted(pieces if count else (), gathered.columns, gathered.kinds, begin)
        aside = self._quarantine_of(gathered.name)
        commit = with_events(self.spark, wanted, aside, write, self._interrupted.is_set)
        new = {piece.copies[0].path: _events([piece]) for piece in pieces}
        summed.found |= {path: max(events, summed.found.get(path, 0)) for path, events in new.items()}
        summed.lost |= new.keys() - {piece.copies[0].path for piece in self._readable(gathered.name, pieces)}
        summed.tables[gathered.name] = commit.version
        return commit

    def _after(self, table: str, progress: Progress, pieces: Sequence[Piece]) -> Progress:
        """Return the table's progress after its rows were written. Segments that it could not read are not in it."""
        return progress.after(self._readable(table, pieces))

    def _readable(self, table: str, pieces: Sequence[Piece]) -> list[Piece]:
        """Return the pieces that the reading for this table did not set aside. Others may have, in the meantime."""
        known = self._quarantine_of(table).records()
        return [piece for piece in pieces if not all(_is_known(known.get(one.path), one) for one in piece.copies)]

    def _join(
        self,
        gathering: _Gathering,
        count: int,
        partial: DataFrame,
        window: _Window,
        state: Callable[[], dict[str, Any]],
    ) -> Commit:
        """Join new rows, from this number of events, with the stored rows of the same dates."""
        table = self.tables[gathering.table.name]
        kept = partial.persist()
        try:
            fresh = self._placed(kept, table, window)
            dates = {row["date"] for row in gathering.table.finish(fresh).select("date").distinct().collect()} | {
                UNKNOWN
            }
            self._parts.fit(self.spark, table.name, count + table.count(dates))
            stored = self._rows(table, dates)  # tables of earlier versions lack later columns
            old = stored.select(*(name for name in partial.columns if name in stored.columns))
            joined = gathering.table.join(fresh.unionByName(old, allowMissingColumns=True))
            return table.replace(gathering.finish(joined), dates, state)
        finally:
            kept.unpersist()

    def _placed(self, lives: DataFrame, table: StoredTable | None, window: _Window) -> DataFrame:
        """Give lives that are known only from acknowledgments the date that the table knows.

        In a table with a first day, the remaining ones belong to messages that were sent earlier.
        """
        if "sent_time" not in lives.columns:
            return lives
        if table is not None and lives.where("sent_time is null").limit(1).count():
            lives = dated_by(lives, self._rows(table, None).select(*KEY, "sent_time"))
        return lives if window.since is None else lives.where("sent_time is not null")

    def _rows(self, table: StoredTable, dates: Iterable[str] | None) -> DataFrame:
        return table.read(self.spark, None if dates is None else set(dates))

    # Tables derived from them

    def _derive(self, derived: Derived, kept: _Kept, summed: Summed) -> None:
        source, table = self.tables[derived.source], self.tables[derived.name]
        there, last = source.last(), table.last()
        if there is None:
            return
        digest = self.directory.digest(derived.directory)
        dates: frozenset[str] | None = None
        if last is not None and last.state["directory"] == digest:
            dates = source.changed_since(last.state["version"])
            if dates is not None and not dates:
                return
        self.say(f"Deriving {derived.name}")
        self._parts.fit(self.spark, table.name, source.count(dates))
        rows = kept.rows(source, there.version, dates)
        made = derived.make(rows, *(self.directory.frame(self.spark, name) for name in derived.directory))
        state = {"version": there.version, "directory": digest}
        commit = table.replace(made, dates if last is not None else None, lambda: state)
        summed.tables[derived.name] = commit.version

    def _sum_up(self, summary: Summary, moment: Callable[[], datetime], summed: Summed) -> None:
        """Make a summary anew as a whole, because it depends on the moment."""
        sources = [self.tables[name] for name in summary.sources]
        versions = {}
        for source in sources:
            last = source.last()
            if last is None:
                return
            versions[source.name] = last.version
        as_of = moment()
        digest, table = self.directory.digest(summary.directory), self.tables[summary.name]
        state = {"versions": versions, "directory": digest, "day": as_of.date().isoformat()}
        before = table.last()
        if before is not None and before.state == state:
            return
        self.say(f"Summing up {summary.name}")
        self._parts.fit(self.spark, table.name, sum(source.count() for source in sources))
        rows = (source.read(self.spark) for source in sources)
        made = summary.make(*rows, *(self.directory.frame(self.spark, name) for name in summary.directory), as_of)
        for name, value in (("date", as_of.date().isoformat()), ("site", UNKNOWN)):
            made = made if name in made.columns else made.withColumn(name, F.lit(value))
        commit = table.replace(made, None, lambda: state)
        summed.tables[summary.name] = commit.version


class _Kept:
    """Rows that several derived tables are made from, read once. They are on the disk where memory is short."""

    def __init__(self, spark: SparkSession, change: Callable[[pa.Table], pa.Table]) -> None:
        self._spark, self._change = spark, change
        self._frames: dict[tuple[str, int, frozenset[str] | None], DataFrame] = {}
        self._changing = Lock()

    def rows(self, source: StoredTable, version: int, dates: frozenset[str] | None) -> DataFrame:
        """The rows of a table, those of some dates or all."""
        key = source.name, version, dates
        with self._changing:
            if key not in self._frames:
                self._frames[key] = source.read(self._spark, dates, self._change).persist()
            return self._frames[key]

    def release(self) -> None:
        """Let go of the rows that were read in memory."""
        for frame in self._frames.values():
            frame.unpersist()
        self._frames.clear()


class Kinds:
    """The kinds of the events in segments. Each segment is looked at once for all tables."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, int]] = {}
        self._looking = Lock()

    def count(self, pieces: Sequence[Piece], kinds: Iterable[str]) -> int:
        """Return the number of events of these kinds, or one that is not less. Many segments, those elsewhere and
        broken ones are not looked at before they are read: the number of all their events.
        """
        whole = _events(pieces)
        segments = [piece.copies[0] for piece in pieces]
        if whole > FEW_EVENTS or not all(Place.open(one.address).is_local for one in segments):
            return whole
        with self._looking, suppress(SegmentError, OSError):
            return min(whole, sum(self._of(one).get(kind, 0) for one in segments for kind in kinds))
        return whole

    def _of(self, segment: Segment) -> dict[str, int]:
        if segment.path not in self._found:
            self._found[segment.path] = kinds_of(segment)
        return self._found[segment.path]


class _Parts:
    """Settings of the session that follow the number of rows: those for the largest table under way."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[int, int]] = {}
        self._changing = Lock()

    def fit(self, spark: SparkSession, table: str, rows: int, read: int = 0) -> None:
        """Fit them to plans about so many rows, selected from those that are read."""
        with self._changing:
            self._rows[table] = rows, read
            fit_plans(spark, *map(max, zip(*self._rows.values(), strict=True)))

    def end(self, table: str) -> None:
        """Forget a table that is done."""
        with self._changing:
            self._rows.pop(table, None)


@dataclass(frozen=True, slots=True)
class Step:
    """Make a table, or say the moment that summaries are for, when the steps that it needs are done."""

    name: str
    make: Callable[[Summed], None]
    needs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of queues by destination, for Spark; ``digest`` changes when one of them does."""

    frame: DataFrame
    digest: str


@dataclass(frozen=True, slots=True)
class _Gathering:
    """A gathered table, with the names that its queues get."""

    table: Gathered
    names: _Names | None

    def finish(self, rows: DataFrame) -> DataFrame:
        """The table's rows as they are written."""
        finished = self.table.finish(rows)
        return finished if self.names is None else queue_names.named(finished, self.names.frame)

    def state(self, last: Commit | None) -> dict[str, str | None]:
        """The state of the names in its rows. Rows that were stored before still have the earlier names."""
        if self.names is None:
            return {}
        return {"names": self.names.digest if last is None else last.state.get("names")}


@dataclass(frozen=True, slots=True)
class _Window:
    """The days of sending that a table covers; None: without a beginning, or without an end."""

    since: str | None
    until: str | None = None

    @property
    def begin(self) -> datetime:
        return _midnight(self.since or _EVER)

    def of(self, gathered: Gathered, events: DataFrame) -> DataFrame:
        """Return the events about messages of these days."""
        if self.since is None and self.until is None:
            return events
        return gathered.within(events, self.begin, None if self.until is None else _midnight(self.until))


def _events(pieces: Iterable[Piece]) -> int:
    return sum(end - begin + 1 for piece in pieces for begin, end in piece.ranges)


def _midnight(day: str) -> datetime:
    return datetime.fromisoformat(day).replace(tzinfo=UTC)


def _is_known(record: Record | None, segment: Segment) -> bool:
    """Return whether this same file was set aside by a reader that knew as many formats as this one."""
    return record is not None and record.lost and record.signature == segment.signature and record.reader >= FORMAT
