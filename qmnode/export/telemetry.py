"""OpenTelemetry over OTLP: spans of messages and of operations, and the node's metrics, with the extra ``otel``.

Only a node with ``telemetry.endpoint`` loads this module, and the SDK with it. Exports are made by threads of the SDK
and never hold the event loop; what a collector does not take in time is dropped.
"""

import asyncio
import contextlib
import importlib.util
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import structlog

from qmnode.errors import ConfigurationError
from qmnode.settings.node import TelemetrySettings
from qmnode.version import program_version

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric as OtlpMetric
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from prometheus_client.core import Metric

    from qmnode.administration.job_records import Job
    from qmnode.export.spans import Span

log = structlog.get_logger(__name__)

_WAITING: Final = 4096
"""Spans in memory, beyond which more are dropped."""
_AT_ONCE: Final = 512
_DELAY: Final = 1000.0
"""Milliseconds for which spans are collected before they are exported."""
_ANSWER: Final = 5.0
"""Seconds for which an answer of the collector is awaited, and the last exports when the node stops."""
_SCOPE: Final = "qmnode"


def check_telemetry(settings: TelemetrySettings) -> None:
    """Raise ConfigurationError if what the settings ask for is not installed."""
    if importlib.util.find_spec("opentelemetry.exporter") is None:
        raise ConfigurationError(
            "telemetry.endpoint is set, and OpenTelemetry is not installed: pip install 'qmnode[otel]'"
        )
    if not settings.endpoint.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"telemetry.endpoint {settings.endpoint!r} is no address such as http://collector:4318"
        )


class Telemetry:
    """The exporters of one node."""

    def __init__(self, settings: TelemetrySettings, computer_name: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it repeats itself with each batch
        self._settings = settings
        self._failures: dict[str, bool] = {}
        self._resource = Resource.create(
            {
                "service.name": _SCOPE,
                "service.version": program_version(),
                "service.instance.id": computer_name,
                "host.name": computer_name,
            }
        )
        address = settings.endpoint.rstrip("/")
        self._identifiers = RandomIdGenerator()
        self._scope = InstrumentationScope(_SCOPE, program_version())
        self._spans = BatchSpanProcessor(
            self._span_exporter(f"{address}/v1/traces"),
            max_queue_size=_WAITING,
            schedule_delay_millis=_DELAY,
            max_export_batch_size=_AT_ONCE,
        )
        self._metrics = OTLPMetricExporter(f"{address}/v1/metrics", timeout=_ANSWER)
        self._task: asyncio.Task[None] | None = None
        self._started = time.time_ns()

    def _span_exporter(self, address: str) -> "SpanExporter":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import SpanExportResult

        note = self._note

        class Noted(OTLPSpanExporter):  # type: ignore[misc]
            def export(self, spans: "Sequence[ReadableSpan]") -> SpanExportResult:
                result = super().export(spans)
                note("spans", result is SpanExportResult.SUCCESS)
                return result

        return Noted(address, timeout=_ANSWER)

    def _note(self, what: str, succeeded: bool) -> None:
        """Log that exports fail, or succeed again: once, and not for each."""
        if succeeded is self._failures.get(what, False):
            self._failures[what] = not succeeded
            report = log.info if succeeded else log.warning
            report(f"{what} are exported again" if succeeded else f"{what} are not exported: see telemetry.endpoint")

    def export(self, span: "Span") -> None:
        """Export a span soon; it is dropped if too many wait."""
        # The tracer of the SDK makes the same of it, for several times the processor: it counts on spans that change.
        from opentelemetry import trace
        from opentelemetry.sdk.trace import ReadableSpan

        sampled = trace.TraceFlags(trace.TraceFlags.SAMPLED)
        attributes, status = span.attributes, trace.Status()
        if span.error:
            attributes = {**attributes, "error.type": span.error}
            status = trace.Status(trace.StatusCode.ERROR, span.error)
        parent = trace.SpanContext(span.trace_id, span.parent_id, is_remote=True, trace_flags=sampled)
        self._spans.on_end(
            ReadableSpan(
                span.name,
                trace.SpanContext(span.trace_id, span.span_id, is_remote=False, trace_flags=sampled),
                parent if span.parent_id else None,
                self._resource,
                attributes,
                kind=trace.SpanKind[span.kind],
                status=status,
                start_time=span.begin,
                end_time=span.end,
                instrumentation_scope=self._scope,
            )
        )

    def operation(self, entry: Mapping[str, Any], began: float = 0.0, traceparent: str = "") -> None:
        """Export a span about a change that the audit log has, as a child of its caller's span."""
        from qmnode.bodies.trace_context import parse
        from qmnode.export.spans import Span

        now = time.time_ns()
        begin = now - int((time.monotonic() - began) * 1e9) if began else now
        parent = parse(traceparent)
        attributes = {
            "messaging.system": "msmq",
            "qmnode.operation.channel": str(entry.get("channel") or ""),
            "qmnode.operation.outcome": str(entry.get("outcome") or ""),
            **{
                f"qmnode.operation.target.{name}": str(value)[:200]
                for name, value in (entry.get("target") or {}).items()
            },
        }
        if parent is not None and not parent.is_sampled:
            return
        error = "" if entry.get("outcome") == "done" else str(entry.get("outcome"))
        trace_id = parent.trace_id if parent else self._identifiers.generate_trace_id()
        self.export(
            Span(
                str(entry.get("action") or "operation")[:200], trace_id, self._identifiers.generate_span_id(),
                parent.span_id if parent else 0, "SERVER", begin, now, attributes, error,
            )
        )  # fmt: skip

    def job(self, job: "Job") -> None:
        """Export a span from the beginning to the end of a job, which its operation only began."""
        from qmnode.export.spans import Span

        attributes = {
            "messaging.system": "msmq",
            "qmnode.operation.channel": job.channel,
            "qmnode.operation.outcome": job.state.value,
            "qmnode.job.number": job.number,
            "qmnode.job.done": job.done,
            "qmnode.job.failed": job.failed,
        }
        begin, end = (int(at * 1e6) * 1000 for at in (job.created, job.ended))
        error = "" if job.state == "done" and not job.failed else job.reason or f"{job.failed} messages failed"
        trace_id, span_id = self._identifiers.generate_trace_id(), self._identifiers.generate_span_id()
        self.export(Span(f"job {job.kind}", trace_id, span_id, 0, "INTERNAL", begin, end, attributes, error))

    # Metrics

    def start(self, families: Callable[[], Awaitable[Iterable["Metric"]]]) -> None:
        """Export the metrics of the management API, too."""
        if self._settings.metrics_seconds:
            self._task = asyncio.get_running_loop().create_task(self._run(families), name="telemetry")

    async def _run(self, families: Callable[[], Awaitable[Iterable["Metric"]]]) -> None:
        while True:
            await asyncio.sleep(self._settings.metrics_seconds)
            await self._export_metrics(await families())

    async def _export_metrics(self, families: Iterable["Metric"]) -> None:
        from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, ResourceMetrics, ScopeMetrics

        scope = ScopeMetrics(self._scope, list(self._converted(families)), "")
        data = MetricsData([ResourceMetrics(self._resource, [scope], "")])
        result = await asyncio.to_thread(self._metrics.export, data)
        self._note("metrics", result is MetricExportResult.SUCCESS)

    def _converted(self, families: Iterable["Metric"]) -> "Iterable[OtlpMetric]":
        """Return each family as the metric of that name: counters as sums, the rest as gauges."""
        from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Metric, NumberDataPoint, Sum

        now = time.time_ns()
        for family in families:
            points = [
                NumberDataPoint(sample.labels, self._started, now, float(sample.value))
                for sample in family.samples
                if not sample.name.endswith("_created")
            ]
            data = (
                Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
                if family.type == "counter"
                else Gauge(points)
            )
            yield Metric(family.name, family.documentation, family.unit, data)

    async def stop(self) -> None:
        """Export the remaining spans if that can be done soon, and end."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER):
                await asyncio.to_thread(self._spans.shutdown)
                await asyncio.to_thread(self._metrics.shutdown)
