"""The console over an enterprise: two nodes that run, one that is down, a directory that knows them, a token a role."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import ssl
import subprocess
import sys
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import qmnode
from mqenterprise.directory.admission import SETTINGS_FILE, admit
from mqenterprise.directory.connection import LdapConnection
from mqenterprise.directory.errors import ObjectAlreadyExists
from mqenterprise.directory.open_directory import EnterpriseDirectory
from qmnode.directory.port import QueueManager, RoutingLink, Site
from qmnode.structures.guid import Guid
from tests.directory.test_commands import written_settings
from tests.lab.addresses import HOST, free_alias, free_port
from tests.lab.directory_objects import create
from tests.lab.nodes import PROJECT, NodeProcess
from tests.lab.waiting import wait_until
from tests.management.conftest import write_certificate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mqenterprise.directory.private_slapd import EmbeddedDirectory
    from mqenterprise.directory.settings import DirectorySettings

TOKENS = {role: f"{role}-token" for role in ("read", "bodies", "operate", "administer")}
PEOPLE = {"alice": ("Queue operators", "Staff"), "bob": ("Staff",), "carol": ("Visitors",)}
"""People who sign in by LDAP or the provider, with their groups."""
ROLES = {"Queue operators": "operate", "staff": "read"}
PASSWORD = "a *(pass)word\\ of äll"
CLIENT_SECRET = "the secret: 100% & more"
DOWN = "127.0.0.1:9"
HERE = socket.gethostname().partition(".")[0]


def write_tokens(folder: Path) -> Path:
    """A token for each role, whose holder has the role's name."""
    path = folder / "tokens.yaml"
    digests = {role: hashlib.sha256(token.encode()).hexdigest() for role, token in TOKENS.items()}
    path.write_text(json.dumps([{"name": role, "role": role, "sha256": digest} for role, digest in digests.items()]))
    path.chmod(0o600)
    return path


def write_consoles(folder: Path) -> Path:
    """The console's key, and what nodes know of it."""
    key = Ed25519PrivateKey.generate()
    private = folder / "console.key"
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    private.chmod(0o600)
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    path = folder / "consoles.yaml"
    path.write_text(json.dumps([{"name": "console", "public_key": public.decode(), "roles": ROLES}]))
    path.chmod(0o644)
    return path


def add_people(settings: DirectorySettings) -> None:
    """The people in the directory, each with the same password, and their groups; once for all tests of a process."""
    with closing(LdapConnection(settings)) as connection:
        root = connection.root
        try:
            connection.add(f"ou=people,{root}", ["organizationalUnit"], {"ou": [b"people"]})
        except ObjectAlreadyExists:
            return
        connection.add(f"ou=teams,{root}", ["organizationalUnit"], {"ou": [b"teams"]})
        members: dict[str, list[bytes]] = {}
        for name, groups in PEOPLE.items():
            dn = f"uid={name},ou=people,{root}"
            names = {"uid": [name.encode()], "cn": [name.encode()], "sn": [name.encode()]}
            connection.add(dn, ["person", "uidObject"], names | {"userPassword": [PASSWORD.encode()]})
            for group in groups:
                members.setdefault(group, []).append(dn.encode())
        for group, dns in members.items():
            connection.add(f"cn={group},ou=teams,{root}", ["groupOfNames"], {"cn": [group.encode()], "member": dns})


def write_sign_in(folder: Path, directory_file: Path, url: str, provider: str) -> Path:
    """The ways to sign in beside tokens."""
    secret = folder / "client.secret"
    secret.write_text(CLIENT_SECRET)
    secret.chmod(0o600)
    path = folder / "sign-in.yaml"
    path.write_text(
        json.dumps(
            {
                "signing_key": "console.key",
                "groups_age": 1,
                "ldap": {"directory": str(directory_file)},
                "openid": {
                    "issuer": provider, "client_id": "console", "client_secret_file": "client.secret", "url": url,
                },
            }
        )
    )  # fmt: skip
    return path


def write_declaration(folder: Path) -> Path:
    """A declaration that differs from the directory: a link of another cost, and a queue."""
    sites = {"ALPHA": "Amsterdam", "BETA": "Berlin"}
    path = folder / "enterprise.yaml"
    path.write_text(
        json.dumps(
            {
                "enterprise": {"name": "Contoso"},
                "sites": [{"name": name} for name in sites.values()],
                "routing_links": [{"sites": list(sites.values()), "cost": 3, "site_gates": list(sites)}],
                "machines": [
                    {"name": name, "sites": [site], "roles": ["routing_server"]} for name, site in sites.items()
                ],
                "queues": [
                    {"machine": "ALPHA", "name": "orders", "label": "Orders", "transactional": True},
                    {"machine": "ALPHA", "name": "wanted", "label": "Wanted", "private": True},
                ],
            }
        )
    )
    return path


@dataclass
class ConsoleLab:
    """An enterprise, and the console that serves it."""

    folder: Path
    nodes: dict[str, NodeProcess]
    url: str = ""
    process: subprocess.Popen[str] | None = None
    ports: dict[str, int] = field(default_factory=dict)
    provider: int = 0
    """The port of the OpenID Connect provider, when it runs."""

    def start(self, directory_file: Path, *options: object) -> None:
        """Start the console at the address in ``url``, with the certificate and ``nodes.yaml`` of the folder."""
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "mqenterprise", "console", "--listen", httpx.URL(self.url).netloc.decode(),
                "--certificate", str(self.folder / "certificate.pem"), "--private-key", str(self.folder / "key.pem"),
                "--nodes", str(self.folder / "nodes.yaml"), "--directory", str(directory_file), *map(str, options),
            ],
            cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert self.url in said, said

        def answers() -> bool:
            with self.browser() as client:
                try:
                    return client.get("session").status_code == 200
                except httpx.TransportError:
                    return False

        wait_until(answers, 60, "the console answers")

    def stop(self) -> None:
        """Stop the console, if it runs."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(240)

    def trust(self) -> ssl.SSLContext:
        """What makes the certificate of all of them believed."""
        return ssl.create_default_context(cafile=str(self.folder / "certificate.pem"))

    def browser(self, origin: str | None = None) -> httpx.Client:
        """A client with the headers of a browser on a page of the console, or of another origin."""
        origin = origin or self.url.rstrip("/")
        return httpx.Client(base_url=f"{self.url}api/", verify=self.trust(), headers={"Origin": origin}, timeout=60)

    @contextmanager
    def signed_in(self, role: str) -> Iterator[httpx.Client]:
        """The same, signed in with the token of a role."""
        with self.browser() as client:
            answer = client.post("session", json={"method": "token", "token": TOKENS[role]})
            assert answer.status_code == 200, answer.text
            client.headers["X-CSRF-Token"] = answer.json()["csrf"]
            yield client

    def fill(self, queue: str, *messages: qmnode.Message, at: str = "ALPHA") -> None:
        """A queue with these messages."""

        async def do() -> None:
            async with await self.nodes[at].connect() as qm:
                await qm.create_queue(rf".\private$\{queue}")
                async with await qm.open_queue(rf"DIRECT=OS:.\private$\{queue}", qmnode.Access.SEND) as opened:
                    if messages:
                        await opened.send_many(list(messages))

        asyncio.run(do())

    def keys(self, machine: str) -> dict[str, str]:
        """The state of each key by its fingerprint, as the node says."""
        url = f"https://{HOST}:{self.ports[machine]}/v1/keys"
        answer = httpx.get(url, headers={"Authorization": f"Bearer {TOKENS['read']}"}, verify=self.trust())
        return {key["fingerprint"]: key["state"] for key in answer.raise_for_status().json()["keys"]}

    def count(self, queue: str, at: str = "ALPHA") -> int:
        """Messages in a queue, as the node says."""

        async def do() -> int:
            async with await self.nodes[at].connect() as qm:
                return (await qm.queue(rf".\private$\{queue}")).message_count

        return asyncio.run(do())

    def audit(self, machine: str) -> list[dict[str, Any]]:
        """The audit log of a node."""
        return [json.loads(line) for line in (self.nodes[machine].folder / "audit.log").read_text().splitlines()]


def declare(directory: EnterpriseDirectory, machines: dict[str, str]) -> None:
    """Two sites with a link between them, and these machines with their sites."""
    sites = {}
    for name in ("Amsterdam", "Berlin"):
        sites[name] = create(directory, Site(name=name)).identifier
    managers = {
        name: directory.queue_managers.add(
            QueueManager(computer_name=name, site_identifier_list=(_known(sites[site]),), routing_server=True)
        )
        for name, site in machines.items()
    }
    create(
        directory,
        RoutingLink(
            site1_identifier=_known(sites["Amsterdam"]),
            site2_identifier=_known(sites["Berlin"]),
            actual_cost=5,
            site_gate_identifier_list=tuple(_known(managers[name].identifier) for name in ("ALPHA", "BETA")),
        ),
    )


def _known(identifier: Guid | None) -> Guid:
    assert identifier is not None
    return identifier


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, slapd: EmbeddedDirectory) -> Iterator[ConsoleLab]:
    folder = tmp_path_factory.mktemp("console")
    certificate, key = write_certificate(folder)
    tokens, consoles = write_tokens(folder), write_consoles(folder)
    lab = ConsoleLab(folder, {})
    addresses: dict[str, Any] = {"GAMMA": {"address": DOWN}}
    with EnterpriseDirectory(slapd.client_settings()) as directory:
        declare(directory, {"ALPHA": "Amsterdam", "BETA": "Berlin", "GAMMA": "Berlin"})
        for name in ("ALPHA", "BETA"):
            admit(directory, name, folder / f"admitted-{name}")
    # BETA has keys, publishes them with an account of its own, and lets administrators rotate them.
    address = free_alias((1801, 3527))
    try:
        for name in ("ALPHA", "BETA"):
            home = folder / name
            home.mkdir()
            lab.ports[name] = free_port()
            lab.nodes[name] = node = NodeProcess(
                home,
                computer_name=name,
                security={"key_reload_interval": 1},
                management={
                    "socket": str(home / "management.sock"),
                    "listen": f"{HOST}:{lab.ports[name]}",
                    "tokens": str(tokens),
                    "consoles": str(consoles),
                    "certificate": str(certificate),
                    "private_key": str(key),
                    "audit_log": str(home / "audit.log"),
                    "console": name == "ALPHA",
                    "key_rotation": {"enabled": name == "BETA", "modulus_length": 2048},
                },
                transport={"enabled": True, "address": address} if name == "BETA" else {"enabled": False},
                failover={"hosts": [HERE, "cor-b"], "lease": 3600} if name == "BETA" else {},
                directory={"name": "ldap", "settings": {"file": str(folder / f"admitted-{name}" / SETTINGS_FILE)}},
            )
            node.launch()
            addresses[name] = {"address": f"{HOST}:{lab.ports[name]}"}
        for node in lab.nodes.values():
            node.wait_for("ready")
        settings = {"authority": "certificate.pem", "connect_timeout": 2, "timeout": 10, "machines": addresses}
        (folder / "nodes.yaml").write_text(json.dumps(settings))
        directory_file = written_settings(slapd.client_settings(), folder)
        add_people(slapd.client_settings())
        lab.provider, lab.url = free_port(), f"https://{HOST}:{free_port()}/"
        sign_in = write_sign_in(folder, directory_file, lab.url, f"http://{HOST}:{lab.provider}")
        lab.start(directory_file, "--sign-in", sign_in, "--declared", write_declaration(folder))
        yield lab
    finally:
        lab.stop()
        for node in lab.nodes.values():
            if node.running:
                node.stop()
