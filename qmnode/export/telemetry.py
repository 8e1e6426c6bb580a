"""OpenTelemetry over OTLP: spans of messages and of operations, and the node's metrics, with the extra ``otel``.

Only a node with ``telemetry.endpoint`` loads this module, and the SDK with it. Threads talk with the collector, and
what it does not take in time is dropped.
"""

import asyncio
import contextlib
import gzip
import http.client
import importlib.util
import io
import logging
import os
import socket
import ssl
import time
import zlib
from base64 import b64encode
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import structlog

from qmnode.errors import ConfigurationError
from qmnode.export import otlp
from qmnode.settings.node import TelemetrySettings
from qmnode.version import program_version

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric as OtlpMetric
    from prometheus_client.core import Metric

    from qmnode.administration.job_records import Job

log = structlog.get_logger(__name__)

_WAITING: Final = 4096
"""Spans in memory, beyond which more are dropped."""
_AT_ONCE: Final = 2048
"""Spans in a request: most of a megabyte."""
_DELAY: Final = 5.0
"""Seconds for which spans are collected before they are exported: as long as the SDK does by default."""
_ANSWER: Final = 5.0
"""Seconds for which an answer of the collector is awaited, and the last exports when the node stops."""
_LARGEST_ANSWER: Final = 64 * 1024
"""Bytes of an answer above which it is not read, and its connection not kept."""
_IDLE: Final = 30.0
"""Seconds for which a connection is kept without an export: what is between may forget it, and tell nobody."""
_T = TypeVar("_T")


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
    """The exporters of one node. ConfigurationError if a certificate that the environment names cannot be loaded."""

    def __init__(self, settings: TelemetrySettings, computer_name: str) -> None:
        import opentelemetry.proto.collector.trace.v1.trace_service_pb2  # noqa: F401 (the first export finds it loaded)
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it repeats itself with each batch
        self._settings = settings
        self._failures: dict[str, bool] = {}
        self._resource = Resource.create(
            {
                "service.name": otlp.SCOPE,
                "service.version": program_version(),
                "service.instance.id": computer_name,
                "host.name": computer_name,
            }
        )
        address = settings.endpoint.rstrip("/")
        self._identifiers = RandomIdGenerator()
        self._post = _Posts(f"{address}/v1/traces", "TRACES")
        self._post_metrics = _Posts(f"{address}/v1/metrics", "METRICS")
        self._makers: list[Callable[[], Iterable[bytes]]] = []
        """Called before each export: each makes more spans."""
        self._waiting: deque[bytes] = deque(maxlen=_WAITING)
        """Encoded spans that are to be sent."""
        self._ending = asyncio.Event()
        self._ended = False
        self._sending = asyncio.get_running_loop().create_task(self._send(), name="spans")
        self._task: asyncio.Task[None] | None = None
        self._started = time.time_ns()

    def _note(self, what: str, succeeded: bool, error: Exception | None = None) -> None:
        """Log that exports fail, or succeed again: once, and not for each. An error is a fault of this program."""
        if succeeded is self._failures.get(what, False):
            self._failures[what] = not succeeded
            if succeeded:
                log.info(f"{what} are exported again")
            elif error is None:
                log.warning(f"{what} are not exported: see telemetry.endpoint")
            else:
                log.warning(f"{what} are not exported", exc_info=error)

    def export(self, make: Callable[[], Iterable[bytes]]) -> None:
        """Export soon the spans that this makes, in the form of ``otlp.span``; the oldest are dropped if too many wait.

        A fault in it is logged.
        """
        try:
            self._waiting.extend(make())
        except Exception as error:  # it must not end what the span is about
            self._note("spans", False, error)

    def export_always(self, make: Callable[[], Iterable[bytes]]) -> None:
        """Do so before each export from now on."""
        self._makers.append(make)

    async def _send(self) -> None:
        """Export spans until the node stops, and the rest then."""
        ended = False
        while not ended:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DELAY):
                    await self._ending.wait()
            ended = self._ending.is_set()
            await self.send_spans()

    async def send_spans(self) -> None:
        """Export all spans now; those that the collector does not take are dropped."""
        for make in self._makers:
            self.export(make)
        if self._waiting:
            try:
                await _in_thread(self._post_spans)
            except Exception as error:  # it must not end the exports, nor come out of stop()
                self._note("spans", False, error)

    def _post_spans(self) -> None:
        """Post the waiting spans, in this thread."""
        succeeded = True
        while succeeded and not self._ended:
            batch: list[bytes] = []
            with contextlib.suppress(IndexError):  # no more wait
                while len(batch) < _AT_ONCE:
                    batch.append(self._waiting.popleft())
            if not batch:
                return
            succeeded = self._post(otlp.request(batch, self._resource.attributes))
            self._note("spans", succeeded)

    def operation(self, entry: Mapping[str, Any], began: float = 0.0, traceparent: str = "") -> None:
        """Export a span about a change that the audit log has, as a child of its caller's span."""
        from qmnode.bodies.trace_context import parse

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
        name, trace_id = str(entry.get("action") or "operation")[:200], parent.trace_id if parent else 0
        self._export(name, "SERVER", begin, now, attributes, error, trace_id, parent.span_id if parent else 0)

    def _export(
        self,
        name: str,
        kind: str,
        begin: int,
        end: int,
        attributes: Mapping[str, str | float],
        error: str,
        trace_id: int = 0,
        parent_id: int = 0,
    ) -> None:
        """Export a span, of a new trace without a parent."""
        trace = (trace_id or self._identifiers.generate_trace_id()).to_bytes(16, "big")
        own = self._identifiers.generate_span_id().to_bytes(8, "big")
        parent = parent_id.to_bytes(8, "big") if parent_id else b""
        self.export(
            lambda: [
                otlp.span(
                    trace, own, parent, begin, end,
                    otlp.named(name, kind, bool(parent), attributes), otlp.failed(error),
                )
            ]
        )  # fmt: skip

    def job(self, job: "Job") -> None:
        """Export a span from the beginning to the end of a job, which its operation only began."""
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
        self._export(f"job {job.kind}", "INTERNAL", begin, end, attributes, error)

    # Metrics

    def start(self, families: Callable[[], Awaitable[Iterable["Metric"]]]) -> None:
        """Export the metrics of the management API, too."""
        if self._settings.metrics_seconds:
            self._task = asyncio.get_running_loop().create_task(self._run(families), name="telemetry")

    async def _run(self, families: Callable[[], Awaitable[Iterable["Metric"]]]) -> None:
        while True:
            await asyncio.sleep(self._settings.metrics_seconds)
            try:
                await self._export_metrics(await families())
            except Exception as error:  # as with spans
                self._note("metrics", False, error)

    async def _export_metrics(self, families: Iterable["Metric"]) -> None:
        from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
        from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        scope = ScopeMetrics(InstrumentationScope(otlp.SCOPE, program_version()), list(self._converted(families)), "")
        data = MetricsData([ResourceMetrics(self._resource, [scope], "")])
        self._note("metrics", await _in_thread(lambda: self._post_metrics(encode_metrics(data).SerializeToString())))

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
        """Export the remaining spans if that can be done within 5 seconds, and end."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER):
                self._ending.set()
                await self._sending
        self._ended = True
        self._post.close()
        self._post_metrics.close()


async def _in_thread(call: Callable[[], _T]) -> _T:
    """Await a call in a thread that does not keep the process from ending, as those of asyncio do."""
    result: Future[_T] = Future()
    result.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result.set_result(call())
        except Exception as error:
            result.set_exception(error)

    Thread(target=run, name="telemetry", daemon=True).start()
    return await asyncio.wrap_future(result)


class _InTime(socket.SocketIO):
    """Reads what a collector answers until that takes too long, however often a part of it comes."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__(connected, "r")
        self._connected = connected
        self._deadline = time.monotonic() + _ANSWER

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connected.settimeout(left)
        return super().readinto(buffer)


class _Answer(http.client.HTTPResponse):
    """An answer of which all that is read must come in time."""

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_InTime(sock))


class _Posts:
    """Posts requests to an address from any thread, over connections that are kept: to make one takes most of a post.

    Obeys the variables of OpenTelemetry for headers, certificates and compression, of this signal (``TRACES``) first,
    and those of the system for proxies. ConfigurationError if a certificate cannot be loaded.
    """

    def __init__(self, address: str, signal: str) -> None:
        from opentelemetry.util.re import parse_env_headers

        def asked(name: str) -> tuple[str, str]:
            """The first variable that is set, and its value."""
            variables = f"OTEL_EXPORTER_OTLP_{signal}_{name}", f"OTEL_EXPORTER_OTLP_{name}"
            return next(((one, found) for one in variables if (found := os.environ.get(one))), ("", ""))

        self._headers = {
            "Content-Type": "application/x-protobuf",
            **parse_env_headers(asked("HEADERS")[1], liberal=True),
        }
        coding = asked("COMPRESSION")[1].strip().lower()
        compressions: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}
        self._compress = compressions.get(coding, bytes)
        if coding in compressions:
            self._headers["Content-Encoding"] = coding
        self._kept: list[tuple[http.client.HTTPConnection, float]] = []
        """Connections, and until when each may be used."""
        self._closed = False
        place = urlsplit(address)
        proxy = "" if proxy_bypass(place.netloc) else getproxies().get(place.scheme, "")
        through = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        if through.scheme != "http":
            raise ConfigurationError(
                f"{place.scheme}_proxy: a proxy is spoken to without TLS: write http:// in place of "
                f"{through.scheme}://, or name the collector in no_proxy"
            )
        credentials = f"{unquote(through.username or '')}:{unquote(through.password or '')}"
        own = {"Proxy-Authorization": f"Basic {b64encode(credentials.encode()).decode()}"} if through.username else {}
        host = through.netloc.rpartition("@")[2] or place.netloc
        self._target = place.path
        if place.scheme == "https":
            context = _context(asked)

            def connection() -> http.client.HTTPConnection:
                made = http.client.HTTPSConnection(host, timeout=_ANSWER, context=context)
                if proxy:
                    made.set_tunnel(place.netloc, headers=own)
                return made

            self._connection: Callable[[], http.client.HTTPConnection] = connection
        else:
            self._connection = partial(http.client.HTTPConnection, host, timeout=_ANSWER)
            if proxy:
                self._target = address
                self._headers |= own

    def __call__(self, content: bytes) -> bool:
        """Post, and return whether the collector took it, by the status of its answer. A redirect is a refusal: the
        headers have secrets for this collector only.
        """
        content = self._compress(content)
        while True:
            kept = self._take_kept()
            try:
                return self._post(kept, content)
            except (OSError, ValueError, http.client.HTTPException) as error:
                if kept is None or isinstance(error, TimeoutError):  # a kept one may have ended: TLS says SSLError
                    return False

    def _take_kept(self) -> http.client.HTTPConnection | None:
        while self._kept:
            connection, until = self._kept.pop()
            if time.monotonic() < until:
                return connection
            connection.close()
        return None

    def _post(self, kept: http.client.HTTPConnection | None, content: bytes) -> bool:
        connection = kept or self._connection()
        connection.response_class = _Answer
        is_whole = False
        try:
            if connection.sock is not None:
                connection.sock.settimeout(_ANSWER)
            connection.request("POST", self._target, content, self._headers)
            with connection.getresponse() as answer:
                is_whole = not answer.will_close and answer.length is not None and answer.length <= _LARGEST_ANSWER
                if is_whole:
                    answer.read()
            return 200 <= answer.status < 300
        finally:
            if is_whole and not self._closed:
                self._kept.append((connection, time.monotonic() + _IDLE))
            else:
                connection.close()

    def close(self) -> None:
        """Keep no connection from now on."""
        self._closed = True
        while self._kept:
            self._kept.pop()[0].close()


def _context(asked: Callable[[str], tuple[str, str]]) -> ssl.SSLContext:
    """TLS with the certificates that these variables name. ConfigurationError."""
    authority, own, key = (asked(name) for name in ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"))
    context = _loaded([authority], lambda: ssl.create_default_context(cafile=authority[1] or None))
    if own[1]:
        _loaded([own, key], lambda: context.load_cert_chain(own[1], key[1] or None))
    return context


def _loaded(named: Iterable[tuple[str, str]], load: Callable[[], _T]) -> _T:
    """Return what is loaded from the files that these variables name. ConfigurationError."""
    try:
        return load()
    except OSError as error:  # SSLError, too
        files = " and ".join(f"{variable}={value}" for variable, value in named if variable)
        raise ConfigurationError(
            f"{files or 'the certificates of the system'}: cannot be loaded ({error}): name a readable file in PEM"
        ) from error
