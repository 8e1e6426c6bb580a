"""Collectors that answer slowly, without end or with the address of another, and faults of the exports themselves."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from base64 import b64encode
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from qmnode.errors import ConfigurationError
from qmnode.export import otlp, telemetry
from qmnode.export.telemetry import Telemetry
from qmnode.settings.node import TelemetrySettings
from tests.export.collector import collector
from tests.lab.waiting import eventually, wait_until
from tests.security.certificates import tls_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from prometheus_client.core import Metric

SPAN = otlp.span(b"1" * 16, b"2" * 8, b"3" * 8, 4, 5, otlp.named("send orders", "PRODUCER", True, {}))
LONG = 15.0
"""Seconds for which a collector makes a node wait that lets it."""


class Odd:
    """A collector with an answer of its own."""

    def __init__(
        self,
        answer: Callable[[BaseHTTPRequestHandler, Odd], None],
        version: str = "HTTP/1.0",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.answer = answer
        self.version, self.tls = version, tls
        self.over = threading.Event()
        """Set when the test is over, or the collector was heard to the end."""
        self.url = ""
        self.heard: list[str] = []
        """The paths of requests."""
        self.ports: set[int] = set()
        """Those of their connections."""

    @contextmanager
    def listening(self) -> Iterator[Odd]:
        odd = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = odd.version

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def do_CONNECT(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                odd.ports.add(self.client_address[1])
                odd.heard.append(self.path)
                odd.answer(self, odd)

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def get_request(self) -> tuple[socket.socket, Any]:
                taken, address = super().get_request()
                if odd.tls is not None:
                    taken = odd.tls.wrap_socket(taken, server_side=True)
                return taken, address

            def handle_error(self, *_: Any) -> None:
                """Who asks hangs up."""

        server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http{'s' * (self.tls is not None)}://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.over.set()
            server.shutdown()
            server.server_close()
            thread.join()


def drips(asked: BaseHTTPRequestHandler, odd: Odd) -> None:
    """Send something again and again, for as long as it is taken."""
    for _ in range(int(LONG / 0.02)):
        asked.wfile.write(b"x")
        if odd.over.wait(0.02):
            return
    odd.over.set()


def drips_headers(asked: BaseHTTPRequestHandler, odd: Odd) -> None:
    asked.wfile.write(b"HTTP/1.0 200 OK\r\nX: ")
    drips(asked, odd)


def drips_content(asked: BaseHTTPRequestHandler, odd: Odd) -> None:
    asked.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
    drips(asked, odd)


def drips_short_content(asked: BaseHTTPRequestHandler, odd: Odd) -> None:
    asked.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n")
    drips(asked, odd)


def takes(asked: BaseHTTPRequestHandler, odd: Odd) -> None:
    asked.send_response(200)
    asked.end_headers()


def takes_and_stays(asked: BaseHTTPRequestHandler, odd: Odd) -> None:
    asked.send_response(200)
    asked.send_header("Content-Length", "2")
    asked.end_headers()
    asked.wfile.write(b"{}")


def takes_and_leaves(asked: BaseHTTPRequestHandler, odd: Odd) -> None:
    takes_and_stays(asked, odd)
    asked.close_connection = True


def asked_of(url: str, metrics_seconds: float = 0.0) -> TelemetrySettings:
    return TelemetrySettings(endpoint=url, sampling=0, metrics_seconds=metrics_seconds)


def export(odd: Odd, spans: int = 1) -> None:
    """Export spans as a program does that ends as soon as the collector is asked."""

    async def program() -> None:
        exporters = Telemetry(asked_of(odd.url), "NODE1")

        def asked() -> bool:
            for _ in range(0 if odd.heard else spans):
                exporters.export(lambda: [SPAN])
            return bool(odd.heard)

        await eventually(asked, "a request")
        await exporters.stop()

    asyncio.run(program())


def threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("telemetry")]


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "_ANSWER", 0.5)
    monkeypatch.setattr(telemetry, "_DELAY", 0.01)


@pytest.mark.parametrize("answer", [drips_headers, drips_content, drips_short_content])
@pytest.mark.usefixtures("hasty")
def test_a_collector_that_never_ends_its_answer_keeps_no_node_from_ending(
    answer: Callable[[BaseHTTPRequestHandler, Odd], None],
) -> None:
    with Odd(answer).listening() as odd:
        export(odd)
        assert not odd.over.is_set(), "the node heard the answer to its end"
        assert all(one.daemon for one in threads())
        wait_until(lambda: not threads(), LONG, "no answer is awaited for ever")
        assert not odd.over.is_set()


@pytest.mark.usefixtures("hasty")
def test_a_node_that_ends_does_not_wait_for_each_of_many_slow_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def takes_slowly(asked: BaseHTTPRequestHandler, odd: Odd) -> None:
        odd.over.wait(0.2)
        takes(asked, odd)

    monkeypatch.setattr(telemetry, "_AT_ONCE", 1)
    with Odd(takes_slowly).listening() as odd:
        export(odd, 100)
        wait_until(lambda: not threads(), LONG, "the exports end")
        assert 0 < len(odd.heard) < 100


@pytest.mark.parametrize(("answer", "connections"), [(takes_and_stays, 1), (takes_and_leaves, 5), (takes, 5)])
async def test_a_connection_is_kept_for_as_long_as_the_collector_keeps_it(
    answer: Callable[[BaseHTTPRequestHandler, Odd], None], connections: int
) -> None:
    with Odd(answer, "HTTP/1.1").listening() as odd, capture_logs() as logs:
        exporters = Telemetry(asked_of(odd.url), "NODE1")
        for _ in range(5):
            exporters.export(lambda: [SPAN])
            await exporters.send_spans()
        await exporters.stop()
    assert (len(odd.heard), len(odd.ports), logs) == (5, connections, [])


async def test_no_span_is_lost_when_a_collector_ends_a_connection_with_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tls_of(tmp_path, "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(files.certificate), str(files.private_key))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(files.authorities))
    with Odd(takes_and_leaves, "HTTP/1.1", context).listening() as odd, capture_logs() as logs:
        exporters = Telemetry(asked_of(odd.url), "NODE1")
        for _ in range(5):
            exporters.export(lambda: [SPAN])
            await exporters.send_spans()
        await exporters.stop()
    assert (len(odd.heard), len(odd.ports), logs) == (5, 5, [])


async def test_a_connection_that_rested_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(asked: BaseHTTPRequestHandler, odd: Odd) -> None:
        """As a firewall between does: what comes over a connection that rested gets no answer, and no end."""
        if odd.heard.count(asked.path) > len(odd.ports):
            odd.over.wait(LONG)
        else:
            takes_and_stays(asked, odd)

    monkeypatch.setattr(telemetry, "_IDLE", 0.0)
    with Odd(forgets, "HTTP/1.1").listening() as odd, capture_logs() as logs:
        exporters = Telemetry(asked_of(odd.url), "NODE1")
        for _ in range(3):
            exporters.export(lambda: [SPAN])
            await exporters.send_spans()
        await exporters.stop()
    assert (len(odd.heard), len(odd.ports), logs) == (3, 3, [])


@pytest.mark.parametrize(
    ("endpoint", "heard"),
    [
        ("http://collector.invalid:4318", "http://collector.invalid:4318/v1/traces"),
        ("https://collector.invalid", "collector.invalid:443"),
    ],
)
async def test_the_proxy_that_the_environment_names_is_asked(
    endpoint: str, heard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorizations = []

    def refuses(asked: BaseHTTPRequestHandler, odd: Odd) -> None:
        authorizations.append(asked.headers["Proxy-Authorization"])
        asked.send_error(403)

    with Odd(refuses).listening() as odd, capture_logs() as logs:
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, odd.url.replace("://", "://ann:pass%40word@"))
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        exporters = Telemetry(asked_of(endpoint), "NODE1")
        exporters.export(lambda: [SPAN])
        await exporters.stop()
    assert (odd.heard, len(logs)) == ([heard], 1)
    assert authorizations == [f"Basic {b64encode(b'ann:pass@word').decode()}"]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_would_have_to_be_spoken_to_over_tls_is_an_error(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(f"{scheme}_proxy", "https://ann:password@proxy.invalid:3128")
    with pytest.raises(ConfigurationError, match=f"^{scheme}_proxy: .* http:// .* https://") as refused:
        Telemetry(asked_of(f"{scheme}://collector.invalid:4318"), "NODE1")
    assert "password" not in str(refused.value)


@pytest.mark.parametrize("status", [302, 307])
async def test_a_redirect_is_a_refusal_and_its_host_hears_nothing(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret")
    with Odd(takes).listening() as other:

        def redirects(asked: BaseHTTPRequestHandler, odd: Odd) -> None:
            asked.send_response(status)
            asked.send_header("Location", other.url + asked.path)
            asked.end_headers()

        async def families() -> list[Metric]:
            return []

        with Odd(redirects).listening() as odd, capture_logs() as logs:
            exporters = Telemetry(asked_of(odd.url, 0.01), "NODE1")
            exporters.export(lambda: [SPAN])
            exporters.start(families)
            await eventually(lambda: len(logs) == 2, "both failures in the log")
            await exporters.stop()
        assert other.heard == []
    assert {one["event"] for one in logs} == {
        f"{what} are not exported: see telemetry.endpoint" for what in ("spans", "metrics")
    }
    assert set(odd.heard) == {"/v1/traces", "/v1/metrics"}


@pytest.mark.parametrize("name", ["TRACES_CERTIFICATE", "METRICS_CERTIFICATE", "CLIENT_CERTIFICATE"])
async def test_a_certificate_that_cannot_be_loaded_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable, file = f"OTEL_EXPORTER_OTLP_{name}", tmp_path / "authority.pem"
    monkeypatch.setenv(variable, str(file))
    sentence = f"{variable}={file}: .*name a readable file in PEM"
    with pytest.raises(ConfigurationError, match=sentence):
        Telemetry(asked_of("https://127.0.0.1:1"), "NODE1")
    file.write_text("PEM")
    with pytest.raises(ConfigurationError, match=sentence):
        Telemetry(asked_of("https://127.0.0.1:1"), "NODE1")


async def test_a_fault_in_the_exports_ends_neither_them_nor_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = otlp.request
    faults = iter([KeyError("kind"), ValueError()])

    def fail_twice(*arguments: Any) -> bytes:
        for fault in faults:
            raise fault
        return encode(*arguments)

    monkeypatch.setattr(otlp, "request", fail_twice)
    monkeypatch.setattr(telemetry, "_DELAY", 0.01)
    with collector() as found, capture_logs() as logs:
        exporters = Telemetry(asked_of(found.url), "NODE1")

        def taken() -> bool:
            exporters.export(lambda: [SPAN])
            return bool(found.spans)

        await eventually(taken, "spans after those that could not be encoded")
        await exporters.stop()
    assert [one["event"] for one in logs] == ["spans are not exported", "spans are exported again"]
    assert isinstance(logs[0]["exc_info"], KeyError)
