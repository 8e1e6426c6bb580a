"""The tables: the function that makes each, and its sources.

A *gathered* table grows with the events. A *derived* table follows, date by date, from another table. A *summary* is
made anew from whole tables, because it describes the present.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pyspark.sql import DataFrame

from mqenterprise.pipeline.jobs import (
    capacity,
    dead_letters,
    heartbeats,
    journals,
    keys,
    link_costs,
    message_life,
    paths,
    queue_names,
    routes,
    service_levels,
    waiting,
)


@dataclass(frozen=True, slots=True)
class Gathered:
    """``make`` turns events into partial rows, ``join`` joins the rows of one object, ``finish`` makes the columns."""

    name: str
    kinds: tuple[str, ...]
    columns: tuple[str, ...]
    """The columns of events that are read."""
    make: Callable[[DataFrame], DataFrame]
    join: Callable[[DataFrame], DataFrame]
    finish: Callable[[DataFrame], DataFrame]
    within: Callable[[DataFrame, datetime, datetime | None], DataFrame]
    """Select the events from one day on and before another: those that a table with that later first day lacks."""
    has_queues: bool = False
    """Whether its rows have a ``destination`` and a ``queue``. The queue's name is filled in on writing."""


@dataclass(frozen=True, slots=True)
class Derived:
    """``make`` takes rows of the table ``source`` and the directory's tables."""

    name: str
    source: str
    directory: tuple[str, ...]
    make: Callable[..., DataFrame]
    has_ways: bool = False
    """Whether it needs the way of each message (``ways.with_ways``)."""


@dataclass(frozen=True, slots=True)
class Summary:
    """``make`` takes the tables ``sources``, the directory's tables, and the moment it is for."""

    name: str
    sources: tuple[str, ...]
    directory: tuple[str, ...]
    make: Callable[..., DataFrame]


def _as_they_are(rows: DataFrame) -> DataFrame:
    return rows


NAMES: Final = "queue_names"
"""The table that has to be up to date before those with names of queues are made."""
GATHERED: Final = (
    Gathered(
        NAMES,
        queue_names.KINDS,
        queue_names.COLUMNS,
        queue_names.told_names,
        queue_names.join_names,
        _as_they_are,
        queue_names.within,
    ),
    Gathered(
        "message_life",
        message_life.KINDS,
        message_life.COLUMNS,
        message_life.lives_of,
        message_life.join_lives,
        message_life.finished,
        message_life.within,
        has_queues=True,
    ),
    Gathered(
        "queue_sizes",
        capacity.KINDS,
        capacity.COLUMNS,
        capacity.sizes_of,
        capacity.join_sizes,
        _as_they_are,
        capacity.within,
    ),
    Gathered(
        "journal",
        journals.KINDS,
        journals.COLUMNS,
        journals.journal,
        journals.join,
        _as_they_are,
        journals.within,
    ),
    Gathered(
        "traces",
        journals.TRACE_KINDS,
        journals.TRACE_COLUMNS,
        journals.traces,
        journals.join,
        _as_they_are,
        journals.within,
    ),
    Gathered(
        "queue_states",
        waiting.KINDS,
        waiting.COLUMNS,
        waiting.queue_states,
        journals.join,
        _as_they_are,
        journals.within,
    ),
    Gathered(
        "heartbeats",
        heartbeats.KINDS,
        heartbeats.COLUMNS,
        heartbeats.heartbeats,
        journals.join,
        _as_they_are,
        journals.within,
    ),
)
DERIVED: Final = (
    Derived("link_use", "message_life", ("machines",), link_costs.link_use, has_ways=True),
    Derived("key_use", "message_life", ("keys",), keys.key_use),
    Derived("routes", "message_life", ("links",), routes.routes, has_ways=True),
    Derived("message_path", "message_life", (), paths.message_path, has_ways=True),
    Derived("hops", "message_life", (), paths.hops, has_ways=True),
    Derived("service_levels", "message_life", (), service_levels.service_levels),
    Derived("latencies", "message_life", (), service_levels.latencies),
    Derived("backlog", "message_life", (), service_levels.backlog),
    Derived("dead_letters", "message_life", (), dead_letters.dead_letters),
)


def _capacity(sizes: DataFrame, now: datetime) -> DataFrame:
    del now  # it is as of the last sample
    return capacity.capacity(sizes)


def _link_costs(use: DataFrame, links: DataFrame, now: datetime) -> DataFrame:
    del now
    return link_costs.link_costs(use, links)


SUMMARIES: Final = (
    Summary("link_costs", ("link_use",), ("links",), _link_costs),
    Summary("keys", ("key_use",), ("keys",), keys.keys),
    Summary("certificates", (), ("certificates",), keys.certificates),
    Summary("capacity", ("queue_sizes",), (), _capacity),
    Summary("waiting", ("queue_states",), (), waiting.waiting),
    Summary("probes", ("heartbeats",), (), heartbeats.probes),
)

JOBS: Final[Mapping[str, tuple[str, ...]]] = {
    "message-life": ("message_life",),
    "routes": ("routes", "message_path", "hops"),
    "service-levels": ("service_levels", "latencies", "backlog"),
    "dead-letters": ("dead_letters",),
    "journals-and-traces": ("journal", "traces"),
    "waiting": ("waiting",),
    "heartbeats": ("probes",),
    "link-costs": ("link_costs",),
    "keys": ("keys", "certificates"),
    "capacity": ("capacity",),
}
"""The jobs that an operator can ask for, and the tables of each."""


def needed(job: str) -> set[str]:
    """Return the tables of a job (``all``: of every job), and all that they are made from."""
    wanted = {table for name, tables in JOBS.items() if job in (name, "all") for table in tables}
    for summary in SUMMARIES:
        wanted |= set(summary.sources) if summary.name in wanted else set()
    for derived in DERIVED:
        wanted |= {derived.source} if derived.name in wanted else set()
    for gathered in GATHERED:
        wanted |= {NAMES} if gathered.has_queues and gathered.name in wanted else set()
    return wanted
