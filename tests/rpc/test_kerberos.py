"""Kerberos against a real domain controller: tickets instead of passwords, every PDU sealed."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from qmnode.rpc.authentication import initiator_authentication
from qmnode.rpc.kerberos import initiator_context
from qmnode.rpc.protection import AuthenticationError, AuthenticationLevel
from qmnode.rpc_settings import RemoteReadSettings
from qmnode.structures.names import parse_single_format_name
from tests.rpc.conftest import THERE, serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.samba import DomainController

pytestmark = pytest.mark.servers


async def test_a_ticket_says_who_reads(
    domain_controller: DomainController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5_CONFIG", str(domain_controller.krb5_conf))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'tickets'}")
    domain_controller.kinit()
    keytab = tmp_path / "keytab"
    configuration = str(domain_controller.folder / "dc/etc/smb.conf")
    tool = shutil.which("samba-tool")
    assert tool is not None
    subprocess.run(
        [tool, "domain", "exportkeytab", str(keytab), "-s", configuration],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    keytab.chmod(0o600)
    settings = RemoteReadSettings(
        account=f"administrator@{domain_controller.realm}",
        mechanism="kerberos",
        service="ldap",
        service_host=domain_controller.host,
    )
    async with serving(tmp_path, keytab=keytab, service="ldap") as remote:
        body = bytes(range(256)) * 100
        await remote.send(body, b"two")
        async with await remote.connect(security=initiator_authentication(settings)) as node:
            queue = await node.open_queue(parse_single_format_name(THERE))
            (opened,) = remote.server.queues._by_number.values()
            assert opened.opener.principal.casefold() == f"administrator@{domain_controller.realm}".casefold()
            assert (await queue.receive(0)).body == body

        def with_integrity(host: str) -> object:
            return initiator_context("ldap", domain_controller.host, settings.account, AuthenticationLevel.INTEGRITY)

        async with await remote.connect(security=with_integrity) as node:
            queue = await node.open_queue(parse_single_format_name(THERE))
            assert (await queue.receive(0)).body == b"two"
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'none'}")
    with pytest.raises(AuthenticationError, match="Kerberos"):
        with_integrity("anywhere")
