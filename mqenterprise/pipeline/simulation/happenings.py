"""The events of a simulation, as arrays: the reporting machine, the kind, the message and the time of each."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

import numpy as np

from mqenterprise.pipeline.simulation.journeys import NEVER
from mqenterprise.pipeline.simulation.network import MICRO
from qmnode.export.events import EventKind
from qmnode.structures.enumerations import MessageClass

if TYPE_CHECKING:
    from mqenterprise.pipeline.graph import Integers
    from mqenterprise.pipeline.simulation.run import Outcome

KINDS: Final = tuple(EventKind)
ACKNOWLEDGED_AFTER: Final = 500
"""Microseconds until the next hop's acknowledgment is back."""


@dataclass(slots=True)
class Happenings:
    """Arrays over events. -1 is none; ``message`` is -1 for samples, whose queue and numbers are beside it."""

    time: Integers
    kind: Integers
    node: Integers
    message: Integers
    peer: Integers
    count: Integers
    reason: Integers
    queue: Integers
    messages: Integers
    bytes: Integers

    def taken(self, which: Integers) -> Happenings:
        """Return the events with these indices, in this order."""
        return Happenings(*(getattr(self, one.name)[which] for one in fields(self)))


def happenings(outcome: Outcome) -> Happenings:
    """Return all events until the end, sorted by node and time."""
    parts = [*_of_journeys(outcome), *_of_ends(outcome), *_samples(outcome)]
    joined = Happenings(*(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(Happenings)))
    joined = joined.taken(np.flatnonzero(joined.time <= outcome.horizon))
    order = np.lexsort((joined.queue, joined.kind, joined.message, joined.time, joined.node))
    return joined.taken(order)


def _some(kind: EventKind, time: Integers, node: Integers, **others: Integers) -> Happenings:
    none = np.full(len(time), -1, dtype=np.int64)
    code = np.full(len(time), KINDS.index(kind), dtype=np.int64)
    rest = {one.name: none for one in fields(Happenings)} | others
    return Happenings(**(rest | {"time": time, "kind": code, "node": node}))


def _of_journeys(outcome: Outcome) -> list[Happenings]:
    messages = outcome.messages
    everything = np.arange(len(messages.sent))
    parts = [_some(EventKind.SENT, messages.sent, messages.sender, message=everything, count=np.zeros_like(everything))]
    for hop in outcome.journeys.hops:
        what = {"message": hop.message, "count": hop.count}
        parts.append(_some(EventKind.TRANSFERRED, hop.time + ACKNOWLEDGED_AFTER, hop.tail, peer=hop.head, **what))
        passing = hop.head != messages.receiver[hop.message]
        on = {"message": hop.message[passing], "count": hop.count[passing], "peer": hop.tail[passing]}
        parts.append(_some(EventKind.ACCEPTED, hop.time[passing], hop.head[passing], **on))
    return parts


def _hops(outcome: Outcome) -> Integers:
    hops = np.zeros(len(outcome.messages.sent), dtype=np.int64)
    for hop in outcome.journeys.hops:
        hops[hop.message] = hop.count
    return hops


def _of_ends(outcome: Outcome) -> list[Happenings]:
    messages, hops = outcome.messages, _hops(outcome)
    parts = []

    def tell(kind: EventKind, time: Integers, node: Integers, which: Integers, **others: Integers) -> None:
        chosen = {name: values[which] for name, values in others.items()}
        chosen |= {"message": which, "count": hops[which]}
        parts.append(_some(kind, time[which], node[which], **chosen))

    reached, received = (np.flatnonzero(times < NEVER) for times in (outcome.reached, outcome.received))
    tell(EventKind.REACHED, outcome.reached, messages.receiver, reached)
    tell(EventKind.RECEIVED, outcome.received, messages.receiver, received)
    encrypted = np.array([load.encrypted for load in outcome.loads])[messages.load]
    tell(EventKind.KEY_USED, outcome.reached, messages.receiver, reached[encrypted[reached]])
    dead = np.flatnonzero(outcome.died < NEVER)
    refused = (outcome.journeys.arrived < NEVER) & (outcome.reached >= NEVER)
    what = {"reason": outcome.reason, "peer": outcome.died_before}
    tell(EventKind.REFUSED, outcome.died, outcome.died_at, dead[refused[dead]], **what)
    tell(EventKind.DIED, outcome.died, outcome.died_at, dead[~refused[dead]], **what)
    # The way back takes as long as the way there, or a moment if the message did not get anywhere.
    back = np.where(outcome.journeys.arrived < NEVER, outcome.journeys.arrived - messages.sent, ACKNOWLEDGED_AFTER)
    told = outcome.died + back
    tell(EventKind.DEAD_LETTER, told, messages.sender, dead, reason=outcome.reason)
    asked = np.array([load.acknowledged for load in outcome.loads])[messages.load]
    for which, times, reason in (
        (dead, outcome.died, outcome.reason),
        (reached, outcome.reached, np.full_like(hops, MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE)),
        (received, outcome.received, np.full_like(hops, MessageClass.MQMSG_CLASS_ACK_RECEIVE)),
    ):
        tell(EventKind.ACKNOWLEDGMENT, times + back, messages.sender, which[asked[which]], reason=reason)
    return parts


def _samples(outcome: Outcome) -> list[Happenings]:
    """Sample each queue at regular times: the arrivals until then, less the departures."""
    step = outcome.traffic.sample_every * MICRO
    times = np.arange(outcome.network.start + step, outcome.horizon + 1, step, dtype=np.int64)
    left = np.minimum(outcome.received, outcome.died)
    parts = []
    for index in np.unique(outcome.messages.queue).tolist():
        mine = np.flatnonzero((outcome.messages.queue == index) & (outcome.reached < NEVER))
        sizes = outcome.messages.size[mine]
        came, came_bytes = _until(times, outcome.reached[mine], sizes)
        went, went_bytes = _until(times, left[mine], sizes)
        node, queue = (np.full(len(times), value) for value in (outcome.queues[index].machine, index))
        numbers = {"messages": came - went, "bytes": came_bytes - went_bytes}
        parts.append(_some(EventKind.SAMPLE, times, node, queue=queue, **numbers))
    return parts


def _until(times: Integers, moments: Integers, sizes: Integers) -> tuple[Integers, Integers]:
    """For each of ``times``, return the number of ``moments`` until then, and the sum of their sizes."""
    order = np.argsort(moments)
    counts = np.searchsorted(moments[order], times, side="right")
    return counts, np.concatenate([[0], np.cumsum(sizes[order])])[counts]
