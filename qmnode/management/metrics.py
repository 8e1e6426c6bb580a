"""Prometheus metrics: gauges read from the queue manager when they are asked for, in a registry of their own."""

import heapq
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Final

from cryptography import x509
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from qmnode.administration.operation_rights import GuardedQueueManager
from qmnode.management.request_context import Context
from qmnode.model.administration import NodeStatus
from qmnode.model.queue import OutgoingQueue, Queue
from qmnode.model.queue_manager import QueueManager
from qmnode.model.traffic import OTHERS, Amount, Histogram, Label, Tally
from qmnode.shares import Kind
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


def _store_failed(status: NodeStatus) -> bool:
    return bool(status.storage_failure)


_TOTALS: Final[dict[str, tuple[str, Callable[[NodeStatus], float]]]] = {
    "qmnode_queues": ("Queues that somebody created", lambda status: status.queue_count),
    "qmnode_outgoing_queues": ("Outgoing queues", lambda status: status.outgoing_queue_count),
    "qmnode_messages": ("Messages in all queues and journals", lambda status: status.message_count),
    "qmnode_message_bytes": ("Bytes of all messages", lambda status: status.total_bytes),
    "qmnode_dead_letters": ("Messages in the dead-letter queues", lambda status: status.dead_letter_count),
    "qmnode_quota_bytes": ("Bytes that may be stored", lambda status: _limit(status.quota)),
    "qmnode_quota_used_bytes": ("Bytes that count for the quota", lambda status: status.quota_used),
    "qmnode_journal_quota_bytes": ("Bytes that journals may store", lambda status: _limit(status.journal_quota)),
    "qmnode_journal_quota_used_bytes": ("Bytes in journals", lambda status: status.journal_quota_used),
    "qmnode_journal_copies_dropped": (
        "Copies that no journal had room for, since start",
        lambda status: status.journal_copies_dropped,
    ),
    "qmnode_transactions": ("Transactions that have not ended", lambda status: status.transaction_count),
    "qmnode_transactions_in_doubt": ("Transactions that wait for an outcome", lambda status: status.in_doubt_count),
    "qmnode_online": ("Whether messages go to other machines", lambda status: status.online),
    "qmnode_store_failed": ("Whether nothing can be stored: a full disk, or one that fails", _store_failed),
    "qmnode_disk_free_bytes": ("Bytes free on the disk of the store", lambda status: status.disk_free_bytes),
    "qmnode_disk_bytes": ("Bytes of the disk of the store", lambda status: status.disk_bytes),
    "qmnode_lost_writes": (
        "Synced records that were gone at a start of the last week",
        lambda status: status.lost_writes,
    ),
    "qmnode_throttled": ("Whether no queue takes messages", lambda status: status.throttled),
}
_QUEUES: Final[dict[str, tuple[str, Callable[[Queue], float | None]]]] = {
    "qmnode_queue_messages": ("Messages in a queue", lambda queue: queue.message_count),
    "qmnode_queue_bytes": ("Bytes of the messages in a queue", lambda queue: queue.total_bytes),
    "qmnode_queue_journal_messages": (
        "Messages in a queue's journal",
        lambda queue: queue.journal_queue.message_count if queue.journal_queue is not None else 0,
    ),
    "qmnode_queue_oldest_message_timestamp_seconds": (
        "When the message that has waited longest arrived, since 1970 (UTC)",
        lambda queue: queue.oldest_arrival,
    ),
    "qmnode_queue_journal_oldest_message_timestamp_seconds": (
        "When the oldest message in a queue's journal arrived, since 1970 (UTC)",
        lambda queue: queue.journal_queue.oldest_arrival if queue.journal_queue is not None else None,
    ),
    "qmnode_queue_open_handles": ("How often a queue is open", lambda queue: len(queue.descriptors)),
    "qmnode_queue_locked_messages": ("Messages that transactions hold", lambda queue: len(queue.locked)),
}


def _limit(quota: int) -> float:
    return float("inf") if quota == 0xFFFFFFFF else quota * 1024


class _Snapshot(Collector):
    def __init__(self, context: Context, status: NodeStatus) -> None:
        self._context = context
        self._status = status

    def collect(self) -> Iterable[Metric]:
        """The metrics as they are now."""
        for name, (text, value) in _TOTALS.items():
            yield GaugeMetricFamily(name, text, value=value(self._status))
        yield GaugeMetricFamily(
            "qmnode_waiting_requests", "Requests that wait for a message", value=self._context.waiting
        )
        yield from self._amqp()
        connections = self._context.connection_list
        yield GaugeMetricFamily(
            "qmnode_connections",
            "Connections to other queue managers",
            value=len(connections.connections()) if connections is not None else 0,
        )
        yield GaugeMetricFamily("qmnode_time_seconds", "The node's clock, since 1970 (UTC)", value=time.time())
        troubles = GaugeMetricFamily("qmnode_trouble", "What does not work now", labels=("what",))
        for warning in self._status.warnings:
            troubles.add_metric((warning.partition(":")[0],), 1)
        yield troubles
        yield from self._probes()
        yield from self._copy()
        yield from self._peers()
        yield from self._shares()
        yield self._certificate()
        yield self._keys()
        queues = self._context.manager.queue_collection.values()
        shown = heapq.nlargest(self._context.settings.metrics_queues, queues, key=lambda queue: queue.message_count)
        yield from self._queues(shown)
        yield from self._outgoing([queue for queue in shown if isinstance(queue, OutgoingQueue)])
        yield self._waiting(shown)
        yield from traffic_metrics(self._context.manager, self._context.settings.metrics_queues)

    def _probes(self) -> Iterator[Metric]:
        """The results of probes that have ended once; nothing without probes."""
        up = GaugeMetricFamily("qmnode_probe_up", "Whether the last heartbeat came through", labels=("probe",))
        failing = GaugeMetricFamily(
            "qmnode_probe_failing_since_timestamp_seconds",
            "When the heartbeats of a probe began to be missed, since 1970 (UTC)",
            labels=("probe", "queue", "reason"),
        )
        success = GaugeMetricFamily(
            "qmnode_probe_last_success_timestamp_seconds", "When a heartbeat came through, since 1970 (UTC)",
            labels=("probe",),
        )  # fmt: skip
        seconds = GaugeMetricFamily(
            "qmnode_probe_seconds", "Seconds that the last heartbeat which came through took", labels=("probe",)
        )
        for one in self._status.probes:
            if one["healthy"] is None:
                continue
            up.add_metric((one["name"],), one["healthy"])
            if not one["healthy"]:
                failing.add_metric((one["name"], one["queue"], one["reason"]), one["since"])
            if one["last_success"]:
                success.add_metric((one["name"],), one["last_success"])
                seconds.add_metric((one["name"],), one["seconds"])
        yield from (up, failing, success, seconds)

    def _copy(self) -> Iterator[Metric]:
        """The lag of the copy of the store elsewhere; nothing without one."""
        copy = self._status.remote_copy
        seconds = GaugeMetricFamily(
            "qmnode_copy_lag_seconds", "Seconds of accepted work that the copy elsewhere does not give back"
        )
        size = GaugeMetricFamily("qmnode_copy_lag_bytes", "Bytes of the log that are not in the copy elsewhere")
        if copy:
            seconds.add_metric((), copy["lag_seconds"])
            size.add_metric((), copy["lag_bytes"])
        yield from (seconds, size)

    def _peers(self) -> Iterator[Metric]:
        """Plain peers and connections, and the end of the node's own certificate."""
        plain = GaugeMetricFamily("qmnode_plain_peer", "A machine that is declared to speak in clear", labels=("peer",))
        for peer in self._status.plain_peers:
            plain.add_metric((peer,), 1)
        yield plain
        connections = self._context.connection_list
        yield GaugeMetricFamily(
            "qmnode_plain_connections",
            "Connections to other queue managers that are not TLS",
            value=sum(not one.encrypted for one in connections.connections()) if connections is not None else 0,
        )
        yield self._expiry(
            "qmnode_tls_certificate_expiry_timestamp_seconds",
            "When the certificate for other queue managers ends, since 1970 (UTC); 0 if it cannot be read",
            self._context.manager.transport_security.certificate,
        )

    def _shares(self) -> Iterator[Metric]:
        """The use of each bounded resource by kind of party."""
        used = GaugeMetricFamily(
            "qmnode_share_used",
            "Units of a bounded resource in use (docs/reference/shares.md)",
            labels=("resource", "party"),
        )
        refused = CounterMetricFamily(
            "qmnode_share_refused", "Refusals for lack of a bounded resource", labels=("resource", "party")
        )
        for account in self._context.manager.context.shares:
            for kind in Kind:
                used.add_metric((account.resource.name, kind.value), account.used[kind])
                refused.add_metric((account.resource.name, kind.value), account.refused[kind])
        yield from (used, refused)

    def _certificate(self) -> Metric:
        return self._expiry(
            "qmnode_certificate_expiry_timestamp_seconds",
            "When the certificate of the management API ends, since 1970 (UTC); 0 if it cannot be read",
            self._context.settings.certificate,
        )

    @staticmethod
    def _expiry(name: str, text: str, file: Path | None) -> Metric:
        family = GaugeMetricFamily(name, text)
        if file is not None:
            try:
                certificate = x509.load_pem_x509_certificate(file.read_bytes())
            except (OSError, ValueError):
                family.add_metric((), 0)
            else:
                family.add_metric((), certificate.not_valid_after_utc.timestamp())
        return family

    def _amqp(self) -> Iterator[Metric]:
        counts = self._context.manager.amqp
        yield GaugeMetricFamily("qmnode_amqp_connections", "Connections to the AMQP door", value=counts.connections)
        yield GaugeMetricFamily("qmnode_amqp_links", "Links of programs to queues over AMQP", value=counts.links)
        messages = CounterMetricFamily("qmnode_amqp_messages", "Messages through the AMQP door", labels=("outcome",))
        for outcome in ("accepted", "rejected", "delivered", "taken"):
            messages.add_metric((outcome,), getattr(counts, outcome))
        yield messages
        yield CounterMetricFamily(
            "qmnode_amqp_duplicates",
            "Messages accepted over AMQP and dropped, as their queue had one with the same message id",
            value=self._context.manager.context.duplicates.dropped,
        )
        yield CounterMetricFamily(
            "qmnode_amqp_refused_connections", "Connections that the AMQP door closed", value=counts.refused_connections
        )
        yield from self._bridges()

    def _bridges(self) -> Iterator[Metric]:
        bridges = self._status.bridges
        connected = GaugeMetricFamily(
            "qmnode_bridge_connected", "Whether a bridge is connected to its AMQP peer", labels=("bridge", "direction")
        )
        messages = CounterMetricFamily(
            "qmnode_bridge_messages",
            "Messages of a bridge: carried, rejected, and copies that may be duplicates (repeated)",
            labels=("bridge", "outcome"),
        )
        failures = CounterMetricFamily("qmnode_bridge_failures", "Interruptions of a bridge", labels=("bridge",))
        for bridge in bridges:
            connected.add_metric((bridge.name, bridge.direction), int(bridge.connected))
            for outcome in ("carried", "repeated", "rejected"):
                messages.add_metric((bridge.name, outcome), getattr(bridge, outcome))
            failures.add_metric((bridge.name,), bridge.failures)
        yield from (connected, messages, failures)

    def _keys(self) -> Metric:
        family = GaugeMetricFamily(
            "qmnode_encryption_key_published_timestamp_seconds",
            "When the encryption key was published to which others encrypt now, since 1970 (UTC)",
            labels=("provider",),
        )
        reader = self._context.key_reader
        for provider, published in reader.status.published if reader is not None else ():
            family.add_metric((provider,), published)
        return family

    @staticmethod
    def _outgoing(queues: list[OutgoingQueue]) -> Iterator[Metric]:
        oldest = GaugeMetricFamily(
            "qmnode_outgoing_oldest_message_timestamp_seconds",
            "When the message came that waits longest to leave, since 1970 (UTC)",
            labels=("queue",),
        )
        for queue in queues:
            if (arrived := queue.oldest_arrival) is not None:
                oldest.add_metric((queue.pathname,), arrived)
        yield oldest

    def _waiting(self, queues: list[Queue]) -> Metric:
        """The reasons why messages wait, by queue; the queue is empty for those of the whole node."""
        family = GaugeMetricFamily(
            "qmnode_waiting_since_timestamp_seconds",
            "Since when messages of a queue wait for a reason, since 1970 (UTC)",
            labels=("queue", "reason", "machine"),
        )
        for group in self._status.waiting:
            if not group["queues"]:
                family.add_metric(("", group["reason"], group["machine"]), group["since"])
        for queue in queues:
            if (found := queue.waits_for) is not None:
                family.add_metric((found.queue, found.reason.value, found.machine), found.since)
        return family

    @staticmethod
    def _queues(shown: list[Queue]) -> Iterator[Metric]:
        for name, (text, value) in _QUEUES.items():
            family = GaugeMetricFamily(name, text, labels=("queue", "kind"))
            for queue in shown:
                if (figure := value(queue)) is not None:
                    family.add_metric((queue.pathname, queue.queue_type.value), figure)
            yield family


async def registry_of(context: Context) -> CollectorRegistry:
    """All metrics, as they are now."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(context, await context.manager.status()))
    ProcessCollector(registry=registry)
    return registry


async def exposition(context: Context) -> bytes:
    """All metrics in the text format."""
    return generate_latest(await registry_of(context))
