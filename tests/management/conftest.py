"""A queue manager behind its management API, on a Unix socket and on TCP, and clients for both."""

import hashlib
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import qmnode
from qmnode.management.server import ManagementServer
from qmnode.service import configure_log
from qmnode.settings.node import LogSettings, ManagementSettings, Settings

NAME = r".\private$\orders"
OPERATOR = "operators-secret"
READER = "readers-secret"


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def write_tokens(folder: Path) -> Path:
    """A token for each role."""
    path = folder / "tokens.yaml"
    tokens = [
        {"name": "alice", "role": "operate", "sha256": digest(OPERATOR)},
        {"name": "grafana", "role": "read", "sha256": digest(READER)},
    ]
    path.write_text(json.dumps(tokens))
    path.chmod(0o600)
    return path


def write_certificate(folder: Path, serial: int = 1) -> tuple[Path, Path]:
    """A certificate for the loopback address, which signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths


@dataclass
class Managed:
    """A node with a management API."""

    manager: qmnode.QueueManager
    server: ManagementServer
    folder: Path

    @property
    def settings(self) -> ManagementSettings:
        return self.server.settings

    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.folder / "certificate.pem"))

    def tcp(self, token: str | None = OPERATOR) -> httpx.AsyncClient:
        """A client over TCP with this token."""
        assert self.server.address is not None
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.AsyncClient(
            base_url=f"https://127.0.0.1:{self.server.address[1]}", verify=self.trust(), headers=headers
        )

    def audited(self) -> list[dict[str, Any]]:
        """The audit log."""
        return [json.loads(line) for line in (self.folder / "audit.log").read_text().splitlines()]

    async def fill(self, *bodies: bytes, name: str = NAME) -> None:
        """Send messages to a local queue."""
        async with await self.manager.open_queue(f"DIRECT=OS:{name}", qmnode.Access.SEND) as queue:
            await queue.send_many([qmnode.Message(body, label="l", recoverable=True) for body in bodies])


@pytest.fixture(autouse=True)
def service_log() -> None:
    """Log as the service does: tracebacks of the default log take seconds."""
    configure_log(LogSettings())


@pytest.fixture
async def managed(tmp_path: Path) -> AsyncIterator[Managed]:
    certificate, key = write_certificate(tmp_path)
    settings = ManagementSettings(
        socket=tmp_path / "management.sock",
        listen="127.0.0.1:0",
        tokens=write_tokens(tmp_path),
        certificate=certificate,
        private_key=key,
        audit_log=tmp_path / "audit.log",
        request_size=100_000,
        batch=50,
        waiting_receives=2,
    )
    async with qmnode.QueueManager.open(tmp_path / "store", Settings(computer_name="ALPHA")) as manager:
        server = ManagementServer(manager, settings, lambda: True, operations=manager.operations)
        await server.start()
        yield Managed(manager, server, tmp_path)
        await server.stop()


@pytest.fixture
async def client(managed: Managed) -> AsyncIterator[httpx.AsyncClient]:
    """A client on the Unix socket, which may do everything."""
    transport = httpx.AsyncHTTPTransport(uds=str(managed.settings.socket))
    async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
        yield client
