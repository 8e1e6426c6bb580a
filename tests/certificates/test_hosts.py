"""Certificates of hosts name their queue manager, and are issued again when that is another one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from mqenterprise.certificates.hosts import Authority, issue_for_host, why_due
from mqenterprise.certificates.registry import CertificateError
from qmnode.security.tls import queue_manager_in
from qmnode.structures.guid import Guid, guid_to_text, new_guid


def test_a_host_certificate_names_its_queue_manager(tmp_path: Path) -> None:
    authority, now, machine = Authority(tmp_path / "authority"), datetime.now(UTC), new_guid()
    authority.create("Contoso", now)
    certificate, key = tmp_path / "host" / "certificate.pem", tmp_path / "host" / "key.pem"
    names = ["ams-shop", "10.0.0.7", f"urn:uuid:{guid_to_text(machine)}"]
    issue_for_host(authority, certificate, key, "ams-shop", names, now)
    assert queue_manager_in(x509.load_pem_x509_certificate(certificate.read_bytes())) == machine

    ahead = timedelta(days=30)
    assert why_due(authority, certificate, key, names, now, ahead) is None
    other = [*names[:2], f"urn:uuid:{guid_to_text(new_guid())}"]
    assert why_due(authority, certificate, key, other, now, ahead) == "the host's names have changed"
    assert why_due(authority, certificate, key, names[:2], now, ahead) == "the host's names have changed"
    assert "it expires on" in str(why_due(authority, certificate, key, names, now + timedelta(days=820), ahead))


def test_a_host_gets_no_certificate_for_the_queue_manager_of_another(tmp_path: Path) -> None:
    """In a workgroup the host itself says which queue manager it has."""
    authority, now, victim = Authority(tmp_path / "authority"), datetime.now(UTC), new_guid()
    authority.create("Fleet", now)

    def ask(host: str, manager: Guid, at: datetime = now) -> None:
        folder = tmp_path / "hosts" / host
        names = [host, f"urn:uuid:{guid_to_text(manager)}".upper()]
        issue_for_host(authority, folder / "certificate.pem", folder / "key.pem", host, names, at)

    ask("sales", victim)
    ask("sales", victim)
    ask("ops", new_guid())
    before = (tmp_path / "hosts/ops/certificate.pem").read_bytes()
    with pytest.raises(CertificateError, match="is the one of sales"):
        ask("ops", victim)
    assert (tmp_path / "hosts/ops/certificate.pem").read_bytes() == before
    ask("ops", victim, now + timedelta(days=2000))
