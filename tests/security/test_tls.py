"""TLS between nodes that both announce it: contexts, handshakes in memory, and who is turned away."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from mqenterprise.console.server import serve
from mqenterprise.directory.authority import load_authority
from mqenterprise.directory.binding import _Tls
from mqenterprise.directory.settings import DirectorySettings
from mqenterprise.operations.errors import OperationsError
from qmnode.amqp.bridges import client_context
from qmnode.amqp.principals import server_context
from qmnode.errors import ConfigurationError
from qmnode.management.server import ManagementServer
from qmnode.security.errors import KeyStoreError
from qmnode.security.rsa_keys import PrivateKey
from qmnode.security.tls import FIRST_BYTE, acceptor_context, initiator_context, is_named
from qmnode.settings.amqp import AmqpSettings
from qmnode.settings.bridges import BridgeSettings
from qmnode.settings.node import ManagementSettings
from qmnode.settings.security import TlsSettings
from tests.security.certificates import linked
from tests.security.keys import private_key

PEM = serialization.Encoding.PEM


def issued(name: str, key: PrivateKey, authority_name: str, authority: PrivateKey, *, is_authority: bool) -> bytes:
    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(named(name)).issuer_name(named(authority_name))
    builder = builder.public_key(key.public_key).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(hours=1))
    builder = builder.add_extension(x509.BasicConstraints(is_authority, None), critical=True)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    builder = linked(builder, key, authority, is_authority)
    return builder.sign(authority.signing_key, hashes.SHA256()).public_bytes(PEM)


def node(directory: Path, name: str, number: int, authority: int = 10, peers: tuple[str, ...] = ("*",)) -> TlsSettings:
    """The files of a node whose certificate that authority issued."""
    place = directory / f"{name}-{authority}"
    place.mkdir()
    root, key = private_key(2048, authority), private_key(2048, number)
    (place / "authorities").write_bytes(issued(f"root {authority}", root, f"root {authority}", root, is_authority=True))
    (place / "certificate").write_bytes(issued(name, key, f"root {authority}", root, is_authority=False))
    encoded = key.signing_key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (place / "key").write_bytes(encoded)
    (place / "key").chmod(0o600)
    return TlsSettings(
        certificate=place / "certificate",
        private_key=place / "key",
        authorities=place / "authorities",
        peers=frozenset(peers),
    )


def shake_hands(initiator: ssl.SSLContext, acceptor: ssl.SSLContext, name: str) -> tuple[str | None, bytes]:
    """Both ends in memory. Returns the version they agreed on, and four bytes that the acceptor then sent."""
    to_acceptor, to_initiator = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = initiator.wrap_bio(to_initiator, to_acceptor, server_hostname=name)
    far = acceptor.wrap_bio(to_acceptor, to_initiator, server_side=True)
    for end in (near, far, near, far):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    far.write(b"LIOR")
    return near.version(), near.read(4)


def test_two_nodes_of_one_authority_speak_tls_1_3(tmp_path: Path) -> None:
    here, there = node(tmp_path, "here.test", 0), node(tmp_path, "there.test", 1)
    assert shake_hands(initiator_context(here), acceptor_context(there), "there.test") == ("TLSv1.3", b"LIOR")


def test_a_node_under_another_name_is_turned_away(tmp_path: Path) -> None:
    here, there = node(tmp_path, "here.test", 0), node(tmp_path, "there.test", 1)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"doesn't match|mismatch"):
        shake_hands(initiator_context(here), acceptor_context(there), "elsewhere.test")


def test_a_node_of_another_authority_is_turned_away(tmp_path: Path) -> None:
    here, stranger = node(tmp_path, "here.test", 0), node(tmp_path, "there.test", 1, authority=11)
    with pytest.raises(ssl.SSLError):
        shake_hands(initiator_context(here), acceptor_context(stranger), "there.test")
    with pytest.raises(ssl.SSLError):
        shake_hands(initiator_context(stranger), acceptor_context(here), "here.test")


def test_a_peer_without_a_certificate_is_turned_away(tmp_path: Path) -> None:
    here = node(tmp_path, "here.test", 0)
    bare = ssl.create_default_context(cafile=str(here.authorities))
    with pytest.raises(ssl.SSLError):
        shake_hands(bare, acceptor_context(here), "here.test")


def test_the_first_byte_tells_tls_from_packets(tmp_path: Path) -> None:
    outgoing = ssl.MemoryBIO()
    end = initiator_context(node(tmp_path, "here.test", 0)).wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="a")
    with pytest.raises(ssl.SSLWantReadError):
        end.do_handshake()
    assert outgoing.read(1)[0] == FIRST_BYTE != 0x10


def test_peers_are_named_by_host_name_and_address() -> None:
    some = ("There.test", "127.0.0.9")
    assert is_named(some, "there.TEST")
    assert is_named(some, "unknown.test", "127.0.0.9")
    assert not is_named(some, "unknown.test", "")
    assert not is_named(("",), "")


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    settings = node(tmp_path, "here.test", 0)
    settings.private_key.chmod(0o644)
    with pytest.raises(KeyStoreError, match="has mode 0644"):
        acceptor_context(settings)
    settings.private_key.unlink()
    with pytest.raises(KeyStoreError, match="is not there"):
        acceptor_context(settings)


def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    settings = node(tmp_path, "here.test", 0)
    settings.certificate.write_text("nothing")
    with pytest.raises(KeyStoreError, match=r"TLS cannot be set up with .*certificate"):
        initiator_context(settings)


def _with_passphrase(key: Path) -> None:
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    how = serialization.BestAvailableEncryption(b"secret")
    key.write_bytes(loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how))


async def _console(certificate: Path, key: Path) -> None:
    await serve(cast("Any", None), cast("Any", None), certificate, key, lambda: None)


@pytest.mark.public_report("tor2web/Tor2web#263", "novnc/websockify#381")
def test_a_key_with_a_passphrase_is_refused_at_every_door_and_nobody_is_asked(tmp_path: Path) -> None:
    settings = node(tmp_path, "here.test", 0)
    certificate, key, authorities = settings.certificate, settings.private_key, settings.authorities
    _with_passphrase(key)
    amqp = AmqpSettings(enabled=True, certificate=certificate, private_key=key, authorities=authorities)
    bridge = BridgeSettings.model_construct(certificate=certificate, private_key=key, authorities=authorities)
    listening = ManagementSettings.model_construct(certificate=certificate, private_key=key)
    directory = DirectorySettings.model_construct(
        ca_file=None, verify=False, client_certificate=certificate, client_key=key, connect_timeout=1.0
    )
    doors: dict[str, Callable[[], object]] = {
        "nodes that we connect to": lambda: initiator_context(settings),
        "nodes that connect to us": lambda: acceptor_context(settings),
        "AMQP": lambda: server_context(amqp),
        "a bridge": lambda: client_context(bridge),
        "management": lambda: ManagementServer._load_certificate(
            cast("Any", SimpleNamespace(settings=listening)), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ),
        "the console": lambda: asyncio.run(_console(certificate, key)),
        "the directory": lambda: _Tls(directory, "here.test").wrap_socket(SimpleNamespace()),
        "the authority": lambda: load_authority(certificate, key),
    }
    for name, opened in doors.items():
        with pytest.raises((OSError, ValueError, KeyStoreError, ConfigurationError, OperationsError)) as refused:
            opened()
        assert "has a passphrase" in str(refused.value), name


@pytest.mark.public_report("letsencrypt/boulder#3557", "1Password/connect#38", "Venafi/vcert#541")
@pytest.mark.parametrize(
    "write",
    [
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: b"subject=CN = here.test\n\n" + text.rstrip(b"\n"),
    ],
    ids=["line ends of Windows", "a byte-order mark", "text before, and no newline at the end"],
)
def test_certificates_as_other_programs_save_them_are_read(tmp_path: Path, write: Callable[[bytes], bytes]) -> None:
    settings = node(tmp_path, "here.test", 0)
    certificate = settings.certificate.read_bytes()
    settings.certificate.write_bytes(write(certificate))
    settings.private_key.write_bytes(write(settings.private_key.read_bytes()))
    assert initiator_context(settings) and acceptor_context(settings)
    settings.private_key.write_bytes(settings.private_key.read_bytes() + b"\n" + certificate)  # the key comes first
    assert acceptor_context(settings.model_copy(update={"certificate": settings.private_key}))
