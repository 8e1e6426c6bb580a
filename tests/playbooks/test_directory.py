"""Two directory servers, set up as an operator does it: check first, run, run again, and what they are good for.

The tests are the chapters of a story, in order; the whole one, of ``make soak``, has the check.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import socket
import ssl
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from mqenterprise.certificates.hosts import Authority, issue_for_host
from mqenterprise.directory.chosen_directory import load_settings
from mqenterprise.directory.open_directory import EnterpriseDirectory
from qmnode.directory.port import Site
from tests.lab import compiled
from tests.lab.directory_objects import create
from tests.lab.enterprise import DIRECTORY_PORT, PLAYBOOKS, PROJECT, LoopbackHosts, RealHosts
from tests.lab.hosts import why_no_hosts
from tests.lab.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(600)]
ONE, TWO = "dir-one", "dir-two"
ROOT = "dc=contoso,dc=test"
CHANGED = re.compile(r"ok=\d+ +changed=(\d+)")


class Servers:
    """Two hosts and the operator's folder."""

    def __init__(self) -> None:
        sites = {ONE: "Amsterdam", TWO: "Boston"}
        self.real = RealHosts(sites) if why_no_hosts() is None else None
        self.hosts = self.real or LoopbackHosts(sites)
        self.port = 636 if self.real else DIRECTORY_PORT
        self.folder = self.hosts.folder / "controller"
        self.folder.mkdir(mode=0o711)
        self.state = self.folder / "mqenterprise/directory_server"
        self._compiled = compiled.for_controller(self.folder / "compiled")
        self.foretold = 0
        """How many changes a check said that there would be."""

    def start(self) -> None:
        self.hosts.start()
        hosts = {name: self.variables(name) for name in (ONE, TWO)}
        self.inventory.write_text(yaml.safe_dump({"directory_servers": {"hosts": hosts}}))

    @property
    def inventory(self) -> Path:
        return self.folder / "hosts.yaml"

    def variables(self, host: str) -> dict[str, Any]:
        found = self.hosts.inventory(host) | {"ansible_host": self.hosts.addresses[host]}
        if self.real is None:
            found |= {
                "directory_server_path": str(self.hosts.path(host, "/directory")),
                "directory_server_service": "process",
                "directory_server_listen": self.hosts.addresses[host],
                "directory_server_user": "openldap" if os.getuid() == 0 else "",
            }
        return found

    def play(self, *arguments: str, **variables: object) -> tuple[int, str]:
        """How much was changed on all hosts, and what was said."""
        given = {"directory_server_root": ROOT, "directory_server_port": self.port, **variables}
        done = subprocess.run(
            [
                str(Path(sys.executable).with_name("ansible-playbook")),
                "--inventory", str(self.inventory), str(PLAYBOOKS / "directory.yml"),
                "--extra-vars", json.dumps(given), *arguments,
            ],
            env={
                **os.environ,
                "PYTHONPATH": f"{self._compiled}:{PROJECT}",
                "XDG_STATE_HOME": str(self.folder),
                "ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"),
                "ANSIBLE_HOME": str(self.folder / "ansible"),
                "ANSIBLE_NOCOLOR": "1",
                **self.hosts.environment(),
            },
            capture_output=True, text=True, timeout=540, check=False, cwd=PROJECT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        said = done.stdout + done.stderr
        assert done.returncode == 0, said[-6000:]
        return sum(map(int, CHANGED.findall(said))), said

    def path(self, host: str, path: str = "") -> Path:
        """A file of the server."""
        return self.hosts.path(host, ("/var/lib/msmq-directory" if self.real else "/directory") + path)

    def open(self, host: str) -> EnterpriseDirectory:
        """The directory as this server has it."""
        settings = load_settings(self.state / "directory.yaml")
        url = f"ldaps://{self.hosts.addresses[host]}:{self.port}"
        assert url in settings.servers
        return EnterpriseDirectory(settings.model_copy(update={"servers": (url,)}))

    def pid(self, host: str) -> int:
        return int(self.path(host, "/run/slapd.pid").read_text())

    def stop_slapd(self, host: str) -> None:
        if self.real:
            self.real.lab.hosts[host].do("systemctl", "stop", "msmq-directory")
            return
        os.kill(self.pid(host), 15)
        wait_until(lambda: not self.path(host, "/run/slapd.pid").exists(), 30, "slapd ends")

    def close(self) -> None:
        if self.real is None:
            for host in (ONE, TWO):
                if self.path(host, "/run/slapd.pid").exists():
                    self.stop_slapd(host)
        self.hosts.close()


@pytest.fixture(scope="module")
def servers(whole: bool) -> Iterator[Servers]:
    del whole  # each story has hosts of its own
    found = Servers()
    try:
        found.start()
        yield found
    finally:
        found.close()


def is_seen(servers: Servers, host: str, name: str) -> bool:
    with servers.open(host) as directory:
        return directory.sites.find(name) is not None


def add(servers: Servers, host: str, name: str) -> None:
    with servers.open(host) as directory:
        create(directory, Site(name=name))


def test_a_host_with_an_unknown_package_manager_is_refused(servers: Servers) -> None:
    known = {"zypper": {"package": "openldap2", "account": "ldap", "schema": "/etc/openldap/schema", "modules": "/"}}
    with pytest.raises(
        AssertionError, match="dir-one has the package manager apt, and slapd is set up on hosts with zypper"
    ):
        servers.play(directory_server_systems=known)
    assert not servers.path(ONE).exists()
    assert not servers.state.exists()


@pytest.mark.soak
def test_a_check_tells_what_will_be_done_and_does_nothing(servers: Servers) -> None:
    servers.foretold, _ = servers.play("--check", "--diff")
    assert not servers.path(ONE).exists()
    assert not servers.state.exists()


def test_servers_are_set_up_as_a_check_foretold_and_no_secret_is_said(servers: Servers, whole: bool) -> None:
    done, said = servers.play("-vvv", "--diff")

    assert done > 0
    assert not whole or done == servers.foretold
    assert (servers.state / "admin.password").read_text().strip() not in said
    assert "PRIVATE KEY" not in said
    for host in servers.real.lab.hosts.values() if servers.real else ():
        journal = host.do("journalctl", "--no-pager", "--all", "--output=verbose").stdout
        assert "Invoked with" in journal
        assert (servers.state / "admin.password").read_text().strip() not in journal
        assert "PRIVATE KEY" not in journal


def test_again_nothing_is_changed(servers: Servers) -> None:
    changed, said = servers.play()
    assert changed == 0, said


def test_what_is_written_at_one_is_seen_at_the_other(servers: Servers) -> None:
    add(servers, ONE, "Written at one")
    wait_until(lambda: is_seen(servers, TWO, "Written at one"), 60, "the second has it")
    add(servers, TWO, "Written at two")
    wait_until(lambda: is_seen(servers, ONE, "Written at two"), 60, "the first has it")


def test_secrets_are_for_their_owner_alone(servers: Servers) -> None:
    for secret in (
        servers.state / "admin.password",
        servers.state / "directory.yaml",
        servers.path(ONE, "/config.ldif"),
        servers.path(ONE, "/tls/server.key"),
    ):
        assert not secret.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO), secret
    assert stat.S_IMODE(servers.path(ONE).stat().st_mode) == 0o700


def test_a_nodes_certificate_is_good_for_no_directory_server(servers: Servers, tmp_path: Path) -> None:
    """A node has itself named as a directory server is, and answers in that server's place."""
    nodes = Authority(servers.folder / "mqenterprise/rollout/authority")
    if not nodes.exists:
        nodes.create("Nodes", datetime.datetime.now(datetime.UTC))
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    issue_for_host(nodes, certificate, key, ONE, [ONE, "127.0.0.1"], datetime.datetime.now(datetime.UTC))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    trust = ssl.create_default_context(cafile=str(load_settings(servers.state / "directory.yaml").ca_file))
    here, there = socket.socketpair()
    answering = threading.Thread(target=handshake, args=(context, there))
    answering.start()

    with here, pytest.raises(ssl.SSLCertVerificationError):
        trust.wrap_socket(here, server_hostname=ONE)

    answering.join()


def handshake(context: ssl.SSLContext, side: socket.socket) -> None:
    with side, contextlib.suppress(OSError):
        context.wrap_socket(side, server_side=True)


def test_nothing_is_said_in_clear(servers: Servers) -> None:
    address = servers.hosts.addresses[ONE]
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((address, 389), timeout=5)
    anonymous_bind = bytes.fromhex("300c020101600702010304008000")
    with socket.create_connection((address, servers.port), timeout=30) as connection:
        connection.sendall(anonymous_bind)
        try:
            answer = connection.recv(100)
        except ConnectionResetError:
            answer = b""
    # A TLS alert or nothing: never an LDAP message.
    assert answer[:1] in (b"", b"\x15")


def test_one_that_was_away_catches_up_and_certificates_are_renewed(servers: Servers) -> None:
    servers.stop_slapd(TWO)
    add(servers, ONE, "Written meanwhile")
    certificate = servers.path(ONE, "/tls/server.pem").read_bytes()
    process = servers.pid(ONE)

    servers.play(directory_server_renew_before=3000)

    assert servers.path(ONE, "/tls/server.pem").read_bytes() != certificate
    assert servers.pid(ONE) != process, "slapd reads certificates when it starts"
    wait_until(lambda: is_seen(servers, TWO, "Written meanwhile"), 60, "the second has caught up")
