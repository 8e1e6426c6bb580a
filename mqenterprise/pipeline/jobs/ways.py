"""The way of each message, from its hops in the table ``message_life``: the queue managers that it passed, and when.

Spark would call a function for each element of each array. Arrow and numpy compare the hops of thousands of messages at
once.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import compute
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from qmnode.export.events import EventKind

_TIME: Final = pa.timestamp("us", tz="UTC")
_STEP: Final = (
    pa.field("hop", pa.int32()),
    *(pa.field(name, pa.string()) for name in ("from_node", "from_site", "to_node", "to_site")),
    *(pa.field(name, _TIME) for name in ("came", "left", "arrived")),
)
_USED: Final = ("time", "kind", "node", "site", "peer", "hop_count")
_UNCOUNTED, _SENT = (pa.scalar(count, pa.int32()) for count in (-2, -1))
"""Counts of hops of a node that reported none, and of the first node, which come before all others."""
_STOPS: Final = pa.array([EventKind.SENT, EventKind.ACCEPTED, EventKind.REACHED], pa.string())


def with_ways(lives: DataFrame) -> DataFrame:
    """Return lives with their ways, as ``ways_of`` makes them, unless they have them already."""
    if "steps" in lives.columns:
        return lives
    schema = to_arrow_schema(lives.schema, timezone="UTC")

    def add(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from ways_of(pa.Table.from_batches([batch], batch.schema)).to_batches()

    return lives.mapInArrow(add, from_arrow_schema(ways_of(schema.empty_table()).schema))


def ways_of(lives: pa.Table) -> pa.Table:
    """Return lives with these columns in place of ``hops``.

    ``path`` has the nodes in order: by the count that travels in the message, then by the clocks, which may differ.
    ``sites`` has their sites without repetitions, ``last_site`` the last of them, and ``hop_us`` the microseconds from
    node to node. ``steps`` has the hops from node to node, and one without an arrival if a message left its last node.
    """
    hops = lives.column("hops").combine_chunks()
    events = pa.table(
        {
            "row": compute.list_parent_indices(hops),
            **{name: compute.struct_field(compute.list_flatten(hops), name) for name in _USED},
        }
    )
    stops, place = _stops(events)
    count, row = len(lives), stops.column("row").to_numpy()
    times = stops.column("time").cast(pa.int64()).to_numpy()
    is_later = place > 0
    is_other_site = ~is_later | _differs(stops.column("site"))
    last = np.flatnonzero(np.diff(row, append=count))
    columns = {
        "path": _lists(stops.column("node"), row, count),
        "sites": _lists(stops.column("site").filter(is_other_site), row[is_other_site], count),
        "last_site": stops.column("site").take(_places(row[last], last, count)),
        "hop_us": _lists(pa.array(np.diff(times, prepend=0)[is_later], pa.int64()), row[is_later], count),
        "steps": _steps(stops, place, events.filter(compute.equal(events["kind"], EventKind.TRANSFERRED)), count),
    }
    made = lives.drop_columns(["hops"])
    for name, column in columns.items():
        made = made.append_column(name, column)
    return made


def _stops(events: pa.Table) -> tuple[pa.Table, Any]:
    """Return the events at which a message came to a node, in order, and the place of each on its way from 0 on."""
    there = events.filter(compute.is_in(events["kind"], value_set=_STOPS))
    hop_count = compute.fill_null(there["hop_count"], _UNCOUNTED)
    count = compute.if_else(compute.equal(there["kind"], EventKind.SENT), _SENT, hop_count)
    there = pa.table({"row": there["row"], "count": count, **{name: there[name] for name in ("time", "node", "site")}})
    keys = [(name, "ascending") for name in there.column_names]
    there = there.take(compute.sort_indices(there, sort_keys=keys))
    row = there["row"].to_numpy()
    # A node may report several stops, such as sent and reached: take the first.
    stops = there.filter((np.diff(row, prepend=-1) != 0) | _differs(there["node"]))
    row = stops["row"].to_numpy()
    return stops, np.arange(len(row)) - np.searchsorted(row, row)


def _differs(values: pa.ChunkedArray) -> Any:
    """Return for each value whether it is another than the one before. A missing value is no other."""
    if not len(values):
        return np.zeros(0, bool)
    values = values.combine_chunks()
    return np.append(False, compute.fill_null(compute.not_equal(values[1:], values[:-1]), False).to_numpy(False))


def _lists(values: pa.Array | pa.ChunkedArray, row: Any, count: int) -> pa.Array:
    """Return a list for each of so many rows, with those of the values that belong to it."""
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    ends = np.cumsum(np.bincount(row, minlength=count), dtype=np.int64)
    return pa.ListArray.from_arrays(pa.array(np.append(0, ends), pa.int32()), values)


def _places(at: Any, places: Any, count: int) -> pa.Array:
    """Return an index for each of so many rows: these places at those rows, null elsewhere."""
    found, is_missing = np.zeros(count, np.int64), np.ones(count, bool)
    found[at], is_missing[at] = places, False
    return pa.array(found, pa.int64(), mask=is_missing)


def _steps(stops: pa.Table, place: Any, departures: pa.Table, count: int) -> pa.Array:
    """Return the hops of each message."""
    row, whole = stops["row"].to_numpy(), len(stops)
    at, left = _departures(stops, departures)
    departed = _places(at, left, whole)
    followed = np.flatnonzero(np.diff(row, append=-1) == 0)
    heads = _places(followed, followed + 1, whole)
    is_step = compute.or_(compute.is_valid(departed), compute.is_valid(heads))
    to_node = compute.coalesce(stops["node"].take(heads), departures["peer"].take(departed))
    columns = {
        "hop": pa.array(place + 1, pa.int32()),
        "from_node": stops["node"],
        "from_site": stops["site"],
        "to_node": to_node,
        "to_site": stops["site"].take(heads),
        "came": stops["time"],
        "left": departures["time"].take(departed),
        "arrived": stops["time"].take(heads),
    }
    steps = pa.table({field.name: columns[field.name] for field in _STEP}).filter(is_step)
    arrays = [steps[field.name].combine_chunks().cast(field.type) for field in _STEP]
    return _lists(pa.StructArray.from_arrays(arrays, fields=list(_STEP)), row[is_step.to_numpy(False)], count)


def _departures(stops: pa.Table, departures: pa.Table) -> tuple[Any, Any]:
    """Return the stops that a message left, and the departure from each: the first from this node with this count.

    A message that comes by twice has another count the second time.
    """
    whole = len(stops)
    nodes = pa.chunked_array([*stops["node"].chunks, *departures["node"].chunks], pa.string())
    node = compute.fill_null(compute.rank(nodes, tiebreaker="dense"), 0).to_numpy()
    row, other = stops["row"].to_numpy(), departures["row"].to_numpy()
    begin = np.searchsorted(other, row)
    many = np.searchsorted(other, row, "right") - begin
    stop = np.repeat(np.arange(whole), many)
    departure = np.arange(len(stop)) - np.repeat(np.cumsum(many) - many, many) + np.repeat(begin, many)
    own = np.maximum(stops["count"].to_numpy(), 0)
    count = compute.fill_null(departures["hop_count"], _UNCOUNTED).to_numpy()
    is_same = (count[departure] < 0) | (count[departure] == own[stop])
    is_same &= node[stop] == node[whole:][departure]
    at, first = np.unique(stop[is_same], return_index=True)
    return at, departure[is_same][first]
