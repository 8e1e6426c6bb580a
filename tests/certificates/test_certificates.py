"""Users' certificates: registered, listed, renewed and revoked on both directory servers, and what nodes make of it."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from typer.testing import CliRunner

from mqenterprise.certificates.files import make_internal, read_certificate
from mqenterprise.certificates.registry import CertificateError, CertificateRegistry, fingerprint_of
from mqenterprise.cli import app
from mqenterprise.directory.cache import DirectoryCache
from mqenterprise.directory.port import LdapPort, PortSettings
from qmnode.directory.port import User
from qmnode.security.arrival_checks import Arrival, QueueRules
from qmnode.security.key_stores import FileKeyStore
from qmnode.security.message_security import SecurityService
from qmnode.security.protector import Admitted, Protected, ProtectionRequest, Refused, Signer
from qmnode.settings.security import SecuritySettings
from qmnode.structures.enumerations import AuthenticationLevel, MessageClass, SenderIdentifierType
from tests.lab.directory_objects import create
from tests.security.keys import private_key
from tests.security.messages import DAY, DESTINATION, NOW, SOURCE, certificate, message, on_the_wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from mqenterprise.directory.open_directory import EnterpriseDirectory
    from tests.lab.servers import DirectoryServer

    Named = Callable[[str], str]

pytestmark = pytest.mark.servers
LIFETIME = 60.0


@pytest.fixture
def user(directory: EnterpriseDirectory, fresh_name: Named) -> User:
    name = fresh_name("signer")
    number = int("".join(filter(str.isdigit, name)))
    sid = bytes.fromhex("010500000000000515000000010203040506070809101112") + (5000 + number).to_bytes(4, "little")
    return create(directory, User(name=name, security_identifier=sid))


@pytest.fixture
def registry(directory: EnterpriseDirectory) -> CertificateRegistry:
    return CertificateRegistry(directory)


class TestRegistry:
    def test_a_certificate_is_registered_once_with_its_digest(
        self, registry: CertificateRegistry, user: User, directory: EnterpriseDirectory
    ) -> None:
        encoded = certificate(1024, 1)
        first = registry.register(user.name, encoded)
        assert registry.register(user.name, encoded) == first
        registry.register(user.name, certificate(1024, 2))
        assert [each.certificate and each.certificate.encoded for each in registry.list(user.name)] == [
            encoded,
            certificate(1024, 2),
        ]
        found = directory.users.find(user.name)
        assert found is not None
        assert first.digest in found.certificate_digest_list
        assert len(found.certificate_digest_list) == 2
        registry.revoke(user.name, fingerprint_of(first)[:8])
        registry.revoke(user.name, fingerprint_of(next(registry.list(user.name))))
        assert list(registry.list(user.name)) == []
        found = directory.users.find(user.name)
        assert found is not None
        assert (found.certificates, found.certificate_digest_list) == (None, ())

    def test_a_certificate_belongs_to_one_user(
        self, registry: CertificateRegistry, user: User, directory: EnterpriseDirectory, fresh_name: Named
    ) -> None:
        other = create(directory, User(name=fresh_name("signer")))
        registry.register(user.name, certificate(1024, 3))
        with pytest.raises(CertificateError, match=user.name):
            registry.register(other.name, certificate(1024, 3))

    def test_what_no_message_verifies_with_is_refused(self, registry: CertificateRegistry, user: User) -> None:
        with pytest.raises(CertificateError, match="not a certificate"):
            registry.register(user.name, b"nothing of the kind")
        with pytest.raises(CertificateError, match="no certificate"):
            registry.revoke(user.name, "SHA256:0123")
        with pytest.raises(CertificateError, match="no user"):
            registry.register("nobody", certificate())


class TestNodes:
    """What nodes make of messages while the directory changes; the certificate's own dates are those of the tests."""

    @pytest.fixture
    async def nodes(self, directory_server: DirectoryServer, tmp_path: Path) -> Any:
        port = LdapPort(
            PortSettings(directory=directory_server.settings, fresh_for=0), DirectoryCache(tmp_path / "cache")
        )
        settings = SecuritySettings(user_cert_lifetime=int(LIFETIME * 1000))
        a, b = (
            SecurityService(identifier, settings, port, FileKeyStore(tmp_path / "none"))
            for identifier in (SOURCE, DESTINATION)
        )
        yield a, b
        await a.close()
        await b.close()
        await port.close()

    async def judged(self, nodes: Any, sid: bytes, encoded: bytes, number: int, now: float) -> Any:
        a, b = nodes
        signer = Signer(private_key(1024, number), encoded, SenderIdentifierType.SID, sid)
        request = ProtectionRequest(message(sent_time=now).write(), AuthenticationLevel.SIG20, signer)
        (sent,) = await a.protect([request], now)
        assert isinstance(sent, Protected), sent
        (verdict,) = await b.admission.judge([Arrival(on_the_wire(sent.packet).write(), QueueRules())], now)
        return verdict

    async def test_a_revoked_certificate_is_refused_after_the_caches_lifetime(
        self, nodes: Any, registry: CertificateRegistry, user: User, directory: EnterpriseDirectory
    ) -> None:
        encoded, sid = certificate(1024, 4), directory.users.find(user.name).security_identifier
        assert sid is not None
        verdict = await self.judged(nodes, sid, encoded, 4, NOW)
        assert isinstance(verdict, Refused)
        added = registry.register(user.name, encoded)
        verdict = await self.judged(nodes, sid, encoded, 4, NOW)
        assert isinstance(verdict, Admitted)
        assert verdict.sender.user.write() == sid
        registry.revoke(user.name, fingerprint_of(added))
        assert isinstance(await self.judged(nodes, sid, encoded, 4, NOW + LIFETIME - 1), Admitted)
        verdict = await self.judged(nodes, sid, encoded, 4, NOW + LIFETIME + 1)
        assert isinstance(verdict, Refused)
        assert verdict.message_class is MessageClass.MQMSG_CLASS_NACK_BAD_SIGNATURE
        assert fingerprint_of(added) in verdict.sentence

    async def test_a_sid_counts_only_with_its_own_users_certificate(
        self, nodes: Any, registry: CertificateRegistry, user: User, directory: EnterpriseDirectory, fresh_name: Named
    ) -> None:
        encoded = certificate(1024, 5)
        registry.register(user.name, encoded)
        sid = user.security_identifier or b""
        other = create(directory, User(name=fresh_name("signer"), security_identifier=sid[:-1] + b"\x01"))
        found = directory.users.find(other.name)
        assert found is not None
        verdict = await self.judged(nodes, found.security_identifier or b"", encoded, 5, NOW)
        assert isinstance(verdict, Refused)

    @pytest.mark.parametrize(("begins", "ends"), [(NOW - DAY, NOW - 1), (NOW + DAY, NOW + 2 * DAY)])
    async def test_expired_and_not_yet_valid_ones_are_refused(
        self,
        nodes: Any,
        registry: CertificateRegistry,
        user: User,
        directory: EnterpriseDirectory,
        begins: float,
        ends: float,
    ) -> None:
        encoded = certificate(1024, 6, begins, ends)
        registry.register(user.name, encoded)
        found = directory.users.find(user.name)
        assert found is not None
        a, b = nodes
        signer = Signer(private_key(1024, 6), encoded, SenderIdentifierType.SID, found.security_identifier or b"")
        request = ProtectionRequest(message().write(), AuthenticationLevel.SIG20, signer)
        (sent,) = await a.protect([request], (begins + ends) / 2)
        assert isinstance(sent, Protected), sent
        (verdict,) = await b.admission.judge([Arrival(on_the_wire(sent.packet).write(), QueueRules())], NOW)
        assert isinstance(verdict, Refused)
        registry.revoke(user.name, fingerprint_of(next(registry.list(user.name))))


class TestCommands:
    @pytest.fixture
    def run(self, directory_server: DirectoryServer, tmp_path: Path) -> Any:
        values = directory_server.settings.model_dump(mode="json", exclude_none=True)
        if directory_server.settings.password is not None:
            values["password"] = directory_server.settings.password.get_secret_value()
        file = tmp_path / "directory.yaml"
        file.write_text(yaml.safe_dump(values), "utf-8")

        def run(*words: object, code: int = 0) -> Any:
            result = CliRunner().invoke(app, ["certificate", *map(str, words), "--directory", str(file)])
            assert result.exit_code == code, result.output
            return json.loads(result.stdout) if "--json" in words else result.output

        return run

    def test_an_internal_certificate_lives_and_goes(self, run: Any, user: User, tmp_path: Path) -> None:
        key = tmp_path / "signing.key"
        (added,) = run("register", user.name, "--internal", key, "--days", 20, "--bits", 1024, "--json")
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert serialization.load_der_private_key(key.read_bytes(), None).key_size == 1024  # type: ignore[union-attr]
        (listed,) = run("list", user.name, "--json", code=2)
        assert (listed["fingerprint"], listed["state"]) == (added["fingerprint"], "expires soon")
        assert run("list", user.name, "--ahead", 5, "--json")[0]["state"] == "valid"
        assert "exists already" in run("renew", user.name, added["fingerprint"], "--internal", key, code=1)
        new_key = tmp_path / "next.key"
        both = run("renew", user.name, added["fingerprint"], "--internal", new_key, "--bits", 1024, "--json")
        assert len(both) == 2
        assert "any more" in run("revoke", user.name, added["fingerprint"])
        (left,) = run("list", user.name, "--json")
        assert left["fingerprint"] != added["fingerprint"]
        assert left["not_after"] in run("list", user.name)

    def test_no_key_is_made_for_a_user_that_nobody_knows(self, run: Any, tmp_path: Path) -> None:
        key = tmp_path / "nobody.key"

        run("register", "nobody at all", "--internal", key, code=1)

        assert not key.exists()

    def test_a_given_certificate_replaces_one(self, run: Any, user: User, tmp_path: Path) -> None:
        first, second = tmp_path / "first.pem", tmp_path / "second.der"
        now = time.time()
        one = x509.load_der_x509_certificate(certificate(1024, 7, now - DAY, now + DAY))
        first.write_bytes(one.public_bytes(serialization.Encoding.PEM))
        second.write_bytes(certificate(1024, 8, now - DAY, now + 90 * DAY))
        (added,) = run("register", user.name, "--certificate", first, "--json")
        (left,) = run("renew", user.name, added["fingerprint"], "--certificate", second, "--replace", "--json")
        assert left["state"] == "valid"
        assert run("register", user.name, code=1).startswith("give either")
        run("revoke", user.name, left["fingerprint"])


def test_files_that_hold_no_certificate_are_told(tmp_path: Path) -> None:
    file = tmp_path / "file"
    for content, told in (
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "private key"),
        (b"-----BEGIN NOTHING-----\n", "no certificate"),
    ):
        file.write_bytes(content)
        with pytest.raises(CertificateError, match=told):
            read_certificate(file)
    with pytest.raises(CertificateError, match="cannot be read"):
        read_certificate(tmp_path / "none")
    with pytest.raises(CertificateError, match="weak"):
        make_internal("alice", tmp_path / "key", NOW, 1, 512)
