"""Counters and histograms of messages, as Prometheus takes them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from qmnode.administration.guarded import GuardedQueueManager
from qmnode.model.queue_manager import QueueManager
from qmnode.model.traffic import OTHERS, Amount, Histogram, Label, Tally
from qmnode.structures.enumerations import MessageClass

_COUNTS: Final[dict[str, tuple[str, Callable[[Tally], Amount]]]] = {
    "arrived": ("put into a queue", lambda tally: (tally.arrived, tally.arrived_bytes)),
    "received": ("received by applications", lambda tally: (tally.received, tally.received_bytes)),
    "sent": ("sent to the next hop for the first time", lambda tally: (tally.sent, tally.sent_bytes)),
    "resent": ("sent to the next hop again", lambda tally: (tally.resent, tally.resent_bytes)),
    "acknowledged": (
        "acknowledged by the next hop, or by the destination if they are transactional",
        lambda tally: (tally.acknowledged, tally.acknowledged_bytes),
    ),
    "expired": ("whose time to reach the queue or to be received had passed", lambda tally: tally.expired),
}
_REASONS: Final[dict[str, tuple[str, Callable[[Tally], tuple[Mapping[int, int], Mapping[int, int]]]]]] = {
    "died": (
        "that left a queue and were neither received nor acknowledged",
        lambda tally: (tally.died, tally.died_bytes),
    ),
    "rejected": ("refused when they arrived", lambda tally: (tally.rejected, tally.rejected_bytes)),
}
_UNITS: Final = {"messages": "Messages", "bytes": "Bytes of messages"}
_PREFIXES: Final = ("MQMSG_CLASS_NACK_", "MQMSG_CLASS_")


def traffic_metrics(manager: QueueManager | GuardedQueueManager, limit: int) -> Iterator[Metric]:
    """Counters of messages since the node started, for up to ``limit`` queues that the caller may see."""
    manager.traffic.settle()
    whole = manager.manager if isinstance(manager, GuardedQueueManager) else manager
    tallies = list(manager.traffic.collect(whole.queue_collection.values(), limit))
    if whole is not manager:
        seen = {(queue.pathname, queue.queue_type.value) for queue in manager.queue_collection.values()}
        tallies = [(label, tally) for label, tally in tallies if label in seen or label == (OTHERS, OTHERS)]
    for name, (text, amount) in _COUNTS.items():
        amounts = [(label, amount(tally)) for label, tally in tallies]
        for place, (unit, what) in enumerate(_UNITS.items()):
            family = CounterMetricFamily(f"qmnode_queue_{name}_{unit}", f"{what} {text}", labels=("queue", "kind"))
            for label, values in amounts:
                family.add_metric(label, values[place])
            yield family
    for name, (text, counts) in _REASONS.items():
        found = [(label, counts(tally)) for label, tally in tallies]
        for place, (unit, what) in enumerate(_UNITS.items()):
            yield _by_reason(
                f"qmnode_queue_{name}_{unit}", f"{what} {text}", ((label, one[place]) for label, one in found)
            )
    distrusted = CounterMetricFamily("qmnode_distrusted_packets", "Packets that were not believed", labels=("kind",))
    for kind, number in manager.traffic.distrusted.items():
        distrusted.add_metric((kind,), number)
    yield distrusted
    denied = CounterMetricFamily(
        "qmnode_access_denied_messages",
        "Messages of other machines that no access list let in, by what their sender was taken for",
        labels=("sender",),
    )
    for standing, number in manager.traffic.refusals.denied.items():
        denied.add_metric((standing,), number)
    yield denied
    yield from _histograms(manager)


def _by_reason(name: str, text: str, counts: Iterable[tuple[Label, Mapping[int, int]]]) -> Metric:
    family = CounterMetricFamily(name, text, labels=("queue", "kind", "reason"))
    for label, by_reason in counts:
        for reason, count in by_reason.items():
            family.add_metric((*label, _name_of(reason)), count)
    return family


def _name_of(reason: int) -> str:
    """A class of MS-MQMQ 2.2.20.1 as a label; an application's own is a number."""
    try:
        name = MessageClass(reason).name
    except ValueError:
        return f"{reason:#x}"
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name.lower()


def _histograms(manager: QueueManager | GuardedQueueManager) -> Iterator[Metric]:
    writes = HistogramMetricFamily(
        "qmnode_store_write_duration_seconds", "From the first change of a batch until it is on disk", labels=()
    )
    _add(writes, (), manager.store.write_durations)
    yield writes
    trips = HistogramMetricFamily(
        "qmnode_acknowledgment_duration_seconds",
        "From sending a message to the next hop until the session acknowledges it",
        labels=(),
    )
    _add(trips, (), manager.traffic.round_trips)
    yield trips
    waits = HistogramMetricFamily(
        "qmnode_queue_wait_duration_seconds",
        "From a message's arrival on this node until it is received, or acknowledged if it is outgoing",
        labels=("kind",),
    )
    for kind, histogram in manager.traffic.waits.items():
        _add(waits, (kind.value,), histogram)
    yield waits


def _add(family: HistogramMetricFamily, labels: tuple[str, ...], histogram: Histogram) -> None:
    bounds = [*(f"{bound:g}" for bound in histogram.bounds), "+Inf"]
    counts = accumulate(histogram.counts)
    family.add_metric(labels, list(zip(bounds, map(float, counts), strict=True)), histogram.total)
