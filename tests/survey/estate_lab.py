"""An estate to survey: directories, queue managers that are not ours to change, messages, and machines that are down.

The queue managers are nodes, of which a survey sees only what MS-MQMR and RemoteRead show. What they hold is counted
here while it is made, and never asked of the code under test.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from typer.testing import CliRunner

from mqenterprise.commands.survey import app
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.private_slapd import EmbeddedDirectory
from mqenterprise.topology.apply import apply_declared
from mqenterprise.topology.check import load
from mqenterprise.topology.ldap_target import LdapTarget
from qmnode import Access, Message
from qmnode.structures.security_descriptor import EVERYONE, SecurityDescriptor, Sid, allow
from tests.lab.addresses import free_alias
from tests.lab.nodes import PROJECT, NodeProcess
from tests.lab.servers import start_slapd
from tests.lab.waiting import wait_until
from tests.remote_read.conftest import random_port

if TYPE_CHECKING:
    from types import TracebackType

    from click.testing import Result

SURVEYOR, PASSWORD = "HOME\\survey", "Secret-1"
SURVEYOR_SID: Final = "S-1-5-21-1-2-3-1001"
OPEN: Final = SecurityDescriptor().with_dacl(allow(EVERYONE, 0xF003F)).write()
"""A descriptor that lets everybody do everything."""
CLOSED: Final = SecurityDescriptor().with_dacl(allow(Sid.from_text(f"S-1-22-1-{os.getuid()}"), 0xF003F)).write()
"""A descriptor that lets a user of the machine do everything, and nobody elsewhere."""

BODIES: Final[dict[str, Message]] = {
    "xml": Message.from_value("order", format="xml"),
    "VT_I4": Message.from_value(7, format="VT_I4"),
    "VT_BSTR": Message.from_value("order", format="VT_BSTR"),
    "VT_R8": Message.from_value(1.5, format="VT_R8"),
    "VT_UI1": Message.from_value(3, format="VT_UI1"),
    "wcf": Message.from_value(
        {"action": "urn:order", "to": "net.msmq://shop/private/a", "body": {"Put": {"@xmlns": "urn:a", "n": 1}}},
        format="wcf",
    ),
    "json": Message.from_value({"a": 1}, format="json"),
    "text": Message.from_value("plain words", format="text"),
    "nservicebus json": Message.from_value({"a": 1}, format="nservicebus", headers={"NServiceBus.MessageId": "1"}),
    "rebus json": Message.from_value({"a": 1}, format="rebus", headers={"rbs2-msg-id": "1"}),
    "binary": Message(b"\0\1\0\0\0\xff\xff\xff\xff\1\0\0\0\0\0\0\0", body_type=768),
    "unknown": Message(b"\xff\xfe\xfd\x80" * 4),
}
"""Twelve formats of bodies, by the names that a report has for them."""


def certificate(days: float) -> str:
    """A certificate in PEM that ends in so many days."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"ends in {days:g}")])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - datetime.timedelta(days=400)).not_valid_after(
        now + datetime.timedelta(days=days)
    )
    return made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


@dataclass
class Made:
    """What is in a queue, as it was put there."""

    machine: str
    name: str
    private: bool
    bodies: list[str] = field(default_factory=list)
    """Formats of its messages, in their order."""
    transactional: bool = False
    peekable: bool = True

    @property
    def path(self) -> str:
        return f"{self.machine}\\{'private$' + chr(92) if self.private else ''}{self.name}"

    def seen(self, sample: int) -> Counter[str]:
        """The formats in the front half of a sample and in the back half."""
        if not self.peekable:
            return Counter()
        number = min(sample, len(self.bodies))
        front = (number + 1) // 2
        back = number - front
        return Counter(self.bodies[:front] + (self.bodies[-back:] if back else []))


class WindowsMachine(NodeProcess):
    """A queue manager at an address of its own, which an administrator may look at and read."""

    def __init__(
        self, folder: Path, name: str, address: str, mapper: int, directory: dict[str, Any] | None, *, readable: bool
    ) -> None:
        self.name, self.address = name, address
        folder.mkdir(parents=True, exist_ok=True)
        users = folder / "users"
        users.write_text(f"HOME:survey:{PASSWORD}\nHOME:stranger:{PASSWORD}\n")
        users.chmod(0o600)
        more = {} if directory is None else {"directory": {"name": "ldap", "settings": {"directory": directory}}}
        super().__init__(
            folder,
            computer_name=name,
            security={
                "account_security_identifiers": {"survey": SURVEYOR_SID, "stranger": "S-1-5-21-1-2-3-1002"},
                "administrators": ["uid:0", "node", SURVEYOR_SID],
            },
            remote_read={
                "enabled": readable, "management": True, "address": address, "port": 0, "endpoint_mapper_port": mapper,
                "users": str(users),
            },
            **more,
        )  # fmt: skip


class EstateLab:
    """Directories and machines. ``domains`` are declarations by the root of their directory."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.folder = Path(tempfile.mkdtemp(prefix="qmestate"))
        self.folder.chmod(0o711)
        self.mapper = random_port()
        self.directories: dict[str, EmbeddedDirectory] = {}
        self.machines: dict[str, WindowsMachine] = {}
        self.made: list[Made] = []
        self.addresses: dict[str, str] = {}
        self.password = self.folder / "password"
        self.password.write_text(PASSWORD + "\n")
        self.password.chmod(0o600)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: type[BaseException] | BaseException | TracebackType | None) -> None:
        for machine in self.machines.values():
            if machine.running:
                machine.process.terminate()
        for machine in self.machines.values():
            if machine.running:
                machine.process.wait(60)
        self._stack.close()
        for directory in self.directories.values():
            directory.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def address(self, name: str) -> str:
        """An address for a machine, on which its ports are free."""
        self.addresses[name] = free_alias([self.mapper], self.addresses.values())
        return self.addresses[name]

    def add_directory(self, root: str, declared: dict[str, Any]) -> Path:
        """A directory with this content. The file that names it for ``--directory``."""
        directory = self.directories[root] = start_slapd(self.folder / root.partition("=")[2].partition(",")[0], root)
        file = self.folder / f"{len(self.directories)}.yaml"
        file.write_text(yaml.safe_dump(declared, allow_unicode=True), "utf-8")
        with EnterpriseDirectory(directory.client_settings()) as opened:
            opened.prepare()
            apply_declared(load(file), LdapTarget(opened), _Quiet(), prune=False, patience=30)
        return directory.write_client_settings()

    def log_operations(self) -> None:
        """Start the directories again with a log that has each operation."""
        for root, directory in self.directories.items():
            directory.stop()
            settings = directory.settings
            urls = f"{directory.url(settings)} ldapi://{str(directory.paths.socket).replace('/', '%2F')}"
            log = (self.folder / f"operations-{root}").open("wb")
            account = {} if os.getuid() else {"user": "openldap", "group": "openldap", "extra_groups": []}
            process = subprocess.Popen(
                ["/usr/sbin/slapd", "-d", "256", "-F", str(directory.paths.configuration), "-h", urls],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, **account,
            )  # fmt: skip
            log.close()
            self._stack.callback(process.wait)
            self._stack.callback(process.terminate)
            wait_until(directory.answering, 60, "slapd answers")

    def operations(self) -> Counter[str]:
        """The operations that directories have logged, by their kind."""
        found: Counter[str] = Counter()
        for root in self.directories:
            for line in (self.folder / f"operations-{root}").read_text("utf-8", "replace").splitlines():
                words = line.partition(" op=")[2].split()
                if len(words) > 1:
                    found[words[1]] += 1
        return found

    def add_machine(self, name: str, root: str | None = None, *, readable: bool = True) -> WindowsMachine:
        """A queue manager that begins to run; :meth:`ready` waits for it. ``readable``: it has RemoteRead."""
        directory = None
        if root is not None:
            directory = self.directories[root].client_settings().model_dump(mode="json", exclude_defaults=True)
        address = self.addresses.get(name) or self.address(name)
        machine = self.machines[name] = WindowsMachine(
            self.folder / name, name, address, self.mapper, directory, readable=readable
        )
        machine.launch()
        return machine

    def ready(self) -> None:
        """Wait until all machines run."""
        for machine in self.machines.values():
            machine.wait_for("ready")

    async def fill(self, made: Made, *, create: bool = True) -> None:
        """Put messages of these bodies into a queue, which a private one is made for."""
        async with await self.machines[made.machine].connect() as node:
            name = f"DIRECT=OS:{made.path}"
            if create:
                await node.create_queue(
                    made.path, transactional=made.transactional, security=OPEN if made.peekable else CLOSED
                )
            if made.bodies:
                async with await node.open_queue(name, Access.SEND) as queue:
                    await self._send(node, queue, made)
        self.made.append(made)

    async def _send(self, node: Any, queue: Any, made: Made) -> None:
        for begin in range(0, len(made.bodies), 500):
            messages = [BODIES[one].copy(recoverable=True) for one in made.bodies[begin : begin + 500]]
            if made.transactional:
                async with node.transaction() as transaction:
                    await queue.send_many(messages, transaction=transaction)
            else:
                await queue.send_many(messages)

    def silent_address(self, name: str) -> str:
        """An address that takes connections and answers nothing."""
        address = self.address(name)
        listener = self._stack.enter_context(socket.create_server((address, self.mapper)))
        listener.listen(64)
        return address

    def ask(self, *arguments: object, code: int = 0) -> Result:
        """``mqenterprise survey`` in this process."""
        done = CliRunner().invoke(app, [*map(str, arguments)])
        assert done.exit_code == code, done.output
        return done

    def survey(self, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        """``mqenterprise survey`` as the operator runs it, in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "mqenterprise", "survey", *map(str, arguments)],
            env=os.environ | {"PYTHONPATH": str(PROJECT), "XDG_DATA_HOME": str(self.folder / "home")},
            capture_output=True, text=True, timeout=600, check=False, cwd=self.folder,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done

    @property
    def account(self) -> tuple[object, ...]:
        """The options that name the surveyor and the ports."""
        return ("--user", SURVEYOR, "--password-file", self.password, "--port", self.mapper)


class _Quiet:
    """An observer that says nothing."""

    def waiting(self, holder: str) -> None:
        pass

    def begin(self, total: int) -> None:
        pass

    def step(self) -> None:
        pass


def run_all(*work: Any) -> None:
    """Run coroutines side by side."""

    async def together() -> None:
        await asyncio.gather(*work)

    asyncio.run(together())
