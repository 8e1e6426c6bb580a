"""A Samba Active Directory domain controller of our own: provisioned, started on loopback, stopped by its pid."""

from __future__ import annotations

import datetime
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from mqenterprise.directory.authority import create_authority, issue
from mqenterprise.directory.connection import LdapConnection
from mqenterprise.directory.entries import Change, ChangeKind
from mqenterprise.directory.errors import ConditionFailed
from mqenterprise.directory.settings import DirectorySettings
from tests.lab.addresses import free_alias
from tests.lab.waiting import wait_until

PORTS = (53, 88, 135, 389, 464, 636, 3268, 3269)
PASSWORD = "Passw0rd!lab"
# What the tests need of a domain controller; the rest would only open more ports.
SERVICES = "rpc ldap cldap kdc dns"


class DomainController:
    """One domain ``lab.test`` with one controller."""

    realm = "LAB.TEST"
    domain = "lab.test"
    root = "DC=lab,DC=test"
    host = "dc1.lab.test"

    def __init__(self) -> None:
        # Not pytest's own folder: the paths of its sockets must be short.
        self.folder = Path(tempfile.mkdtemp(prefix="qmdc"))
        self.address = free_alias(PORTS)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"ldaps://{self.address}"

    @property
    def ca_file(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def krb5_conf(self) -> Path:
        return self.folder / "krb5.conf"

    def settings(self, **changed: object) -> DirectorySettings:
        """How its administrator reaches it."""
        values: dict[str, object] = {
            "servers": (self.url,),
            "user": f"administrator@{self.domain}",
            "password": PASSWORD,
            "ca_file": self.ca_file,
        }
        return DirectorySettings.model_validate(values | changed)

    def register_service(self, service: str) -> None:
        """Let tickets be asked for to a service that the controller's own account runs: ``service/host``."""
        connection = LdapConnection(self.settings())
        account = f"CN=DC1,OU=Domain Controllers,{self.root}"
        name = Change(ChangeKind.ADD, "servicePrincipalName", (f"ldap/{self.host}".encode(),))
        with suppress(ConditionFailed):
            connection.modify(account, [name])
        connection.close()

    def kinit(self) -> None:
        """A ticket for the administrator, in the cache that KRB5CCNAME names.

        The controller's service that registers its own principals is not among those that we start.
        """
        self.register_service("ldap")
        command = ["kinit", f"administrator@{self.realm}"]
        done = subprocess.run(command, input=PASSWORD.encode(), capture_output=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr.decode()

    def start(self) -> None:
        now = datetime.datetime.now(datetime.UTC)
        authority = create_authority("Lab authority", now)
        authority.save(self.ca_file, self.folder / "ca.key")
        issue(authority, self.host, (self.host, self.address), now).save(
            self.folder / "server.pem", self.folder / "server.key"
        )
        self._provision()
        self.krb5_conf.write_text(
            f"[libdefaults]\n default_realm = {self.realm}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
            f" rdns = false\n dns_canonicalize_hostname = false\n[realms]\n {self.realm} = {{\n"
            f"  kdc = {self.address}\n  admin_server = {self.address}\n }}\n"
            f"[domain_realm]\n .{self.domain} = {self.realm}\n {self.domain} = {self.realm}\n"
        )
        self._run()

    def stop(self) -> None:
        """Stop the process that we started, and remove its folder."""
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def change_by_hand(self, dn: str, kind: str, *lines: str) -> None:
        """Change the database beside LDAP (LDIF, RFC 2849): values may name objects that this server does not hold."""
        text = "\n".join((f"dn: {dn}", f"changetype: {kind}", *lines, ""))
        command = ["ldbmodify", "-H", str(self.folder / "dc/private/sam.ldb"), "--relax"]
        done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=180, check=False)
        assert done.returncode == 0, done.stderr.decode(errors="replace")

    def _provision(self) -> None:
        # Without an empty file the machine's own configuration would be merged in.
        empty = self.folder / "empty.conf"
        empty.touch()
        folders = {
            "pid directory": "run",
            "ncalrpc dir": "ncalrpc",
            "winbindd socket directory": "winbindd",
            "ntp signd socket directory": "ntp",
            "log file": "log",
        }
        done = subprocess.run(
            [
                "samba-tool", "domain", "provision", "-s", str(empty),
                f"--realm={self.realm}", "--domain=LAB", "--server-role=dc", "--dns-backend=SAMBA_INTERNAL",
                f"--targetdir={self.folder / 'dc'}", f"--adminpass={PASSWORD}",
                "--host-name=dc1", f"--host-ip={self.address}",
                f"--option=interfaces={self.address}/8", "--option=bind interfaces only=yes",
                *(f"--option={name}={self.folder / folder}" for name, folder in folders.items()),
            ],
            capture_output=True, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]

    def _run(self) -> None:
        log = (self.folder / "samba.log").open("wb")
        self._process = subprocess.Popen(
            [
                "samba", "-i", "-M", "single", "-s", str(self.folder / "dc/etc/smb.conf"), "--debug-stdout",
                "--option=tls enabled=yes",
                f"--option=tls keyfile={self.folder / 'server.key'}",
                f"--option=tls certfile={self.folder / 'server.pem'}",
                f"--option=tls cafile={self.ca_file}",
                # GSSAPI inside TLS: ldap3 does not sign what it sends.
                "--option=ldap server require strong auth=allow_sasl_over_tls",
                f"--option=server services={SERVICES}",
                "--option=disable netbios=yes", "--option=dns forwarder=",
            ],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env=os.environ | {"PATH": f"{os.environ['PATH']}:/usr/sbin"},
        )  # fmt: skip
        log.close()
        wait_until(self._answers, 60, "Samba answers on its LDAP ports")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "samba.log").read_text(errors="replace")[-2000:]
        for port in (636, 53, 88):
            try:
                socket.create_connection((self.address, port), timeout=1).close()
            except OSError:
                return False
        return True
