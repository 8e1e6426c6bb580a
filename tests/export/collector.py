"""A collector that takes OTLP over HTTP, in a thread: the spans and metrics that nodes export, decoded."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan


@dataclass(frozen=True)
class Span:
    """A span as it was exported."""

    node: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: str
    begin: int
    end: int
    failed: bool
    attributes: dict[str, Any]

    @property
    def step(self) -> str:
        return self.name.partition(" ")[0]


@dataclass
class Collector:
    url: str = ""
    spans: list[Span] = field(default_factory=list)
    metrics: dict[str, list[tuple[str, dict[str, str], float]]] = field(default_factory=dict)
    """By name: node, labels, value."""
    headers: dict[str, str] = field(default_factory=dict)
    """Of the last request."""

    def take_spans(self, content: bytes) -> bytes:
        for resource in ExportTraceServiceRequest.FromString(content).resource_spans:
            node = _attributes(resource.resource.attributes)["service.instance.id"]
            for scope in resource.scope_spans:
                for one in scope.spans:
                    self.spans.append(
                        Span(
                            node, one.name, one.trace_id.hex(), one.span_id.hex(), one.parent_span_id.hex(),
                            OtlpSpan.SpanKind.Name(one.kind).removeprefix("SPAN_KIND_"), one.start_time_unix_nano,
                            one.end_time_unix_nano, one.status.code == 2, _attributes(one.attributes),
                        )
                    )  # fmt: skip
        return ExportTraceServiceResponse().SerializeToString()

    def take_metrics(self, content: bytes) -> bytes:
        for resource in ExportMetricsServiceRequest.FromString(content).resource_metrics:
            node = _attributes(resource.resource.attributes)["service.instance.id"]
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    points = metric.sum.data_points if metric.HasField("sum") else metric.gauge.data_points
                    self.metrics[metric.name] = [(node, _attributes(one.attributes), one.as_double) for one in points]
        return ExportMetricsServiceResponse().SerializeToString()


def _attributes(found: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in found}


@contextmanager
def collector() -> Iterator[Collector]:
    taken = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            taken.headers = dict(self.headers)
            if self.headers.get("Content-Encoding") == "gzip":
                content = gzip.decompress(content)
            answer = {"/v1/traces": taken.take_spans, "/v1/metrics": taken.take_metrics}[self.path](content)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """A node that ends resets its connections."""

    server = Server(("127.0.0.1", 0), Handler)
    taken.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield taken
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
