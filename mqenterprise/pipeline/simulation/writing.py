"""Write a simulation: segments as nodes write them, the directory's tables, and the true fate of every message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from mqenterprise.pipeline import directory
from mqenterprise.pipeline.simulation.happenings import KINDS, Happenings, happenings
from mqenterprise.pipeline.simulation.journeys import NEVER
from mqenterprise.pipeline.simulation.network import MICRO
from mqenterprise.topology.names import fold
from qmnode.errors import ConfigurationError
from qmnode.export.events import EventKind, shown
from qmnode.export.places import Place
from qmnode.export.segment import SCHEMA, SUFFIX, Origin, SegmentName, segment_path, write_segment

if TYPE_CHECKING:
    from mqenterprise.pipeline.graph import Integers
    from mqenterprise.pipeline.simulation.run import Outcome

TRUTH: Final = "_truth/message_life.parquet"
"""The path of the truth in the place of the segments. Its name hides it from readers of segments."""
_OWN_NUMBERS: Final = 1 << 40
"""Acknowledgments are messages too, numbered apart from those of applications."""
_UTC: Final = pa.timestamp("us", tz="UTC")


def write(outcome: Outcome, address: str, progress: Callable[[int, int], None] = lambda done, total: None) -> int:
    """Write everything to a directory or bucket, and return the number of events. OSError, ConfigurationError."""
    place = Place.open(address)
    events = happenings(outcome)
    total = len(events.time)
    columns = _Columns(outcome)
    bounds = np.searchsorted(events.node, np.arange(len(outcome.network.names) + 1))
    rows = outcome.traffic.rows_in_segment
    _check_empty(place, columns.paths(events, bounds.tolist(), rows))
    for node, (begin, end) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        for first in range(begin, end, rows):
            last = min(first + rows, end)
            table = columns.table(events.taken(np.arange(first, last)), first - begin + 1)
            write_segment(place, table, columns.origins[node])
            progress(last, total)
    directory.write(place, _directory(outcome))
    _put(place, TRUTH, truth(outcome))
    return total


def _check_empty(place: Place, ours: set[str]) -> None:
    """Raise ConfigurationError if the place has other segments, which would be read too. The same may be rewritten."""
    there = {file.path.removeprefix(f"{place.root}/") for file in place.files(SUFFIX)}
    if others := there - ours:
        raise ConfigurationError(
            f"{shown(place.address)} has other segments, such as {min(others)}: write the simulation to a new place"
        )


class _Columns:
    """Turns events into the columns of segments."""

    def __init__(self, outcome: Outcome) -> None:
        network, self._outcome = outcome.network, outcome
        self.sites = [network.sites[site] for site in network.site_of]
        self.origins = [Origin(*who) for who in zip(network.names, network.identifiers, self.sites, strict=True)]
        self._kinds = pa.array([str(kind) for kind in KINDS])
        self._names, self._identifiers = pa.array(network.names), pa.array(network.identifiers)
        self._destinations = pa.array([queue.format_name for queue in outcome.queues])
        self._paths = pa.array([queue.path for queue in outcome.queues])
        self._quotas = pa.array([queue.quota for queue in outcome.queues], pa.int64())
        self._senders = pa.array([f"S-1-5-21-1-2-3-{1000 + number}" for number in range(len(network.names))])
        self._keys = _Keys(outcome)

    def paths(self, events: Happenings, bounds: Sequence[int], rows: int) -> set[str]:
        """The paths of all segments in the place."""
        found = set()
        for origin, (begin, end) in zip(self.origins, pairwise(bounds), strict=True):
            for first in range(begin, end, rows):
                offsets = first - begin + 1, min(first + rows, end) - begin
                name = SegmentName(origin.node_id, *offsets, origin.node)
                found.add(segment_path(name, int(events.time[first : min(first + rows, end)].min())))
        return found

    def table(self, some: Happenings, first: int) -> pa.Table:
        """Return the rows of one segment; ``first`` is its first offset."""
        messages = self._outcome.messages
        told = some.kind == KINDS.index(EventKind.ACKNOWLEDGMENT)
        sample = some.kind == KINDS.index(EventKind.SAMPLE)
        about = ~sample
        own = about & ~told
        message = np.maximum(some.message, 0)
        sender, receiver, queue = messages.sender[message], messages.receiver[message], messages.queue[message]
        used = some.kind == KINDS.index(EventKind.KEY_USED)
        in_queue = np.isin(some.kind, [KINDS.index(kind) for kind in (EventKind.REACHED, EventKind.RECEIVED)])
        columns: dict[str, Any] = {
            "offset": np.arange(first, first + len(message)),
            "time": _times(some.time),
            "kind": self._kinds.take(pa.array(some.kind)),
            "source_id": _taken(self._identifiers, np.where(told, receiver, sender), about),
            "message_number": _numbers(np.where(told, _OWN_NUMBERS + message, messages.number[message]), about),
            "destination": _taken(self._destinations, queue, own),
            "queue": _taken(self._paths, np.where(sample, some.queue, queue), in_queue | sample),
            "reason": _numbers(some.reason, some.reason >= 0, pa.int32()),
            "message_class": _numbers(np.where(told, some.reason, 0), about, pa.int32()),
            "priority": _numbers(np.full(len(message), 3), own, pa.int32()),
            "recoverable": pa.array(np.ones(len(message), dtype=bool), mask=~own),
            "transactional": pa.array(np.zeros(len(message), dtype=bool), mask=~own),
            "hop_count": _numbers(some.count, own & (some.count >= 0), pa.int32()),
            "size": _numbers(messages.size[message], own),
            "sent_time": _times(np.where(told, some.time, messages.sent[message]) // MICRO * MICRO, about),
            "sender": _taken(self._senders, sender, own),
            "response_queue": _taken(self._destinations, queue, told),
            "about_source_id": _taken(self._identifiers, sender, told),
            "about_message_number": _numbers(messages.number[message], told),
            "peer": _taken(self._names, some.peer, some.peer >= 0),
            "peer_id": _taken(self._identifiers, some.peer, some.peer >= 0),
            "key_fingerprint": _taken(self._keys.fingerprints, self._keys.used(message), used),
            "count": _numbers(some.messages, sample),
            "bytes": _numbers(some.bytes, sample),
            "quota": self._quotas.take(pa.array(some.queue, mask=~sample)),
        }
        node = self.origins[int(some.node[0])]
        columns |= {
            name: pa.repeat(pa.scalar(value), len(message))
            for name, value in (("node_id", node.node_id), ("node", node.node), ("site", node.site))
        }
        arrays = [
            pa.nulls(len(message), field.type) if (column := columns.get(field.name)) is None else pa.array(column)
            for field in SCHEMA
        ]
        return pa.Table.from_arrays(arrays, schema=SCHEMA)


class _Keys:
    """Keys of machines: one each, and a second one after a rotation, which most senders use from then on."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome, network = outcome, outcome.network
        count = len(network.names)
        self.changed = np.full(count, NEVER)
        self._unaware = np.zeros((count, count), dtype=bool)
        for rotation in outcome.traffic.rotations:
            machine = network.machine(rotation.machine)
            self.changed[machine] = network.start + round(rotation.at * MICRO)
            self._unaware[machine, [network.machine(name) for name in rotation.unaware]] = True
        self.fingerprints = pa.array(
            [f"{identifier[:8]}{age}" for age in ("old", "new") for identifier in network.identifiers]
        )

    def used(self, message: Integers) -> Integers:
        """Return the number of the key to which each message is encrypted."""
        messages = self._outcome.messages
        receiver = messages.receiver[message]
        knows = ~self._unaware[receiver, messages.sender[message]]
        new = (messages.sent[message] >= self.changed[receiver]) & knows
        return np.where(new, receiver + len(self.changed), receiver)


def _times(values: Integers, present: Any = None) -> pa.Array:
    return _numbers(values, present).cast(_UTC)


def _numbers(values: Integers, present: Any = None, kind: pa.DataType | None = None) -> pa.Array:
    return pa.array(values, kind or pa.int64(), mask=None if present is None else ~present)


def _taken(names: pa.Array, which: Integers, present: Any) -> pa.Array:
    return names.take(pa.array(which, mask=~present))


def _directory(outcome: Outcome) -> dict[str, list[dict[str, Any]]]:
    """Return the directory of the simulated enterprise as rows of its tables."""
    network, traffic = outcome.network, outcome.traffic
    keys, count = _Keys(outcome), len(network.names)
    published = []
    for number, fingerprint in enumerate(keys.fingerprints.to_pylist()):
        machine, new = number % count, number >= count
        rotated = int(keys.changed[machine]) if keys.changed[machine] < NEVER else None
        if new and rotated is None:
            continue
        published.append(
            {
                "node": network.names[machine],
                "key_fingerprint": fingerprint,
                "provider": "Microsoft Enhanced Cryptographic Provider v1.0",
                "published": rotated if new else network.start,
                "retired": None if new else rotated,
                "expires": None,
            }
        )
    known = {queue.identifier: queue for queue in outcome.queues if queue.declared}
    return {
        "sites": [{"site": site.name, "foreign": False} for site in network.declaration.sites]
        + [{"site": site.name, "foreign": True} for site in network.declaration.foreign_sites],
        "links": [
            {name: getattr(link, name) for name in ("site1", "site2", "cost", "foreign1", "foreign2")}
            for link in network.graph.links
        ],
        "machines": [
            {
                "node_id": network.identifiers[number],
                "node": machine.name,
                "site": network.sites[network.site_of[number]],
                "quota": None if machine.quota is None else machine.quota * 1024,
            }
            for number, machine in enumerate(network.machines)
        ],
        "queues": [
            {
                "queue_id": queue.identifier,
                "queue": queue.path,
                "node": network.names[queue.machine],
                "quota": queue.quota,
            }
            for queue in known.values()
        ],
        "keys": published,
        "certificates": [
            {
                "user": user.name,
                "fingerprint": f"{fold(user.name)}-{number}",
                "subject": f"CN={user.name}",
                "not_before": network.start - 300 * 86_400 * MICRO,
                "not_after": network.start + (traffic.seconds + (number * 40 - 20) * 86_400) * MICRO,
            }
            for number, user in enumerate(network.declaration.users)
        ],
    }


def truth(outcome: Outcome) -> pa.Table:
    """Return one row for each message with its true fate, reported or not. Times after the end are null."""
    messages, network, horizon = outcome.messages, outcome.network, outcome.horizon
    names, sites = pa.array(network.names), pa.array(network.sites)

    def until(times: Integers) -> pa.Array:
        return pa.array(times, pa.int64(), mask=times > horizon).cast(_UTC)

    dead = (outcome.died <= horizon) & ~(outcome.received <= horizon)
    received, reached = outcome.received <= horizon, outcome.reached <= horizon
    status = np.select([received, dead, reached], ["received", "died", "reached"], "under way")
    keys = _Keys(outcome)
    encrypted = np.array([load.encrypted for load in outcome.loads])[messages.load] & reached
    path, times = _paths(outcome)
    columns = {
        "source_id": pa.array(network.identifiers).take(pa.array(messages.sender)),
        "message_number": pa.array(messages.number),
        "destination": pa.array([queue.format_name for queue in outcome.queues]).take(pa.array(messages.queue)),
        "queue": pa.array([queue.path for queue in outcome.queues]).take(pa.array(messages.queue)),
        "origin": names.take(pa.array(messages.sender)),
        "site": sites.take(pa.array(network.site_of[messages.sender])),
        "destination_site": sites.take(pa.array(network.site_of[messages.receiver])),
        "size": pa.array(messages.size),
        "sent": pa.array(messages.sent).cast(_UTC),
        "reached": until(outcome.reached),
        "received": until(outcome.received),
        "died": pa.array(outcome.died, pa.int64(), mask=~dead).cast(_UTC),
        "reason": pa.array(outcome.reason, pa.int32(), mask=~dead),
        "died_at": names.take(pa.array(outcome.died_at, mask=~dead)),
        "died_before": names.take(pa.array(outcome.died_before, mask=~dead | (outcome.died_before < 0))),
        "status": pa.array(status),
        "key_fingerprint": keys.fingerprints.take(pa.array(keys.used(np.arange(len(status))), mask=~encrypted)),
        "path": path,
        "times": times,
    }
    return pa.table(columns)


def _paths(outcome: Outcome) -> tuple[pa.Array, pa.Array]:
    """Return the machines that each message passed until the end, with times, without a queue that refused it."""
    messages, network = outcome.messages, outcome.network
    everything = np.arange(len(messages.sent))
    stops: Sequence[tuple[Integers, Integers, Integers]] = [
        (everything, messages.sender, messages.sent),
        *((hop.message, hop.head, hop.time) for hop in outcome.journeys.hops),
    ]
    message, machine, time = (np.concatenate([stop[index] for stop in stops]) for index in range(3))
    refused = (machine == messages.receiver[message]) & (outcome.reached[message] >= NEVER)
    kept = np.flatnonzero((time <= outcome.horizon) & ~(refused & (machine != messages.sender[message])))
    kept = kept[np.lexsort((time[kept], message[kept]))]
    offsets = pa.array(np.searchsorted(message[kept], np.arange(len(everything) + 1)), pa.int32())
    names = pa.array(network.names).take(pa.array(machine[kept]))
    return (
        pa.ListArray.from_arrays(offsets, names),
        pa.ListArray.from_arrays(offsets, pa.array(time[kept]).cast(_UTC)),
    )


def _put(place: Place, path: str, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd")
    place.put(path, sink.getvalue())
