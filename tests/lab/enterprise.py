"""A whole enterprise to roll out to: hosts, a directory, a declaration, an inventory, and Ansible as operators run it.

The hosts are real ones where this machine can have them (:mod:`tests.lab.hosts`), else plain processes on loopback
addresses, without ssh and systemd. Both are rolled out to by the same playbooks.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import yaml

from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.private_slapd import EmbeddedDirectory, EmbeddedSettings
from mqenterprise.keys.publication import Publication
from tests.lab import compiled
from tests.lab.addresses import free_alias, free_port
from tests.lab.hosts import HostLab, System, why_no_hosts
from tests.lab.network import alone, new_folder, remove, remove_leftovers
from tests.lab.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PROJECT = Path(__file__).resolve().parents[2]
PLAYBOOKS = PROJECT / "playbooks"
DIRECTORY_PORT = 6360
MANAGEMENT_PORT = 8443
NODE_PORTS = (1801, 3527, MANAGEMENT_PORT)
KEY_RELOAD_INTERVAL = 5
"""Seconds."""


class Hosts(Protocol):
    """What a lab offers, of either kind."""

    kind: str
    addresses: dict[str, str]
    directory_address: str

    @property
    def folder(self) -> Path:
        """Where the lab has its files; removed with it."""
        ...

    def start(self) -> None:
        """Have all hosts there."""
        ...

    def close(self) -> None:
        """Remove everything."""
        ...

    def inventory(self, host: str) -> dict[str, Any]:
        """How Ansible reaches a host."""
        ...

    def environment(self) -> dict[str, str]:
        """Variables of the environment that Ansible is run with."""
        ...

    def path(self, host: str, path: str) -> Path:
        """A file of a host's node, seen from here: ``/run/qmnode/qmnode.sock``."""
        ...

    @property
    def key_stores(self) -> str:
        """The folders of the nodes' key stores, seen from here, as ``keys.yaml`` has them."""
        ...

    def kill_node(self, host: str) -> None:
        """End the node's process with SIGKILL. Where there is systemd, it is started again."""
        ...

    def stop_node(self, host: str) -> None:
        """Stop the node in order, until it is started."""
        ...

    def start_node(self, host: str) -> None:
        """Start it again."""
        ...

    def node_process(self, host: str) -> str:
        """What names the process of a node: another one has another name."""
        ...


class RealHosts:
    """Hosts with systemd and sshd in network namespaces."""

    kind = "hosts with systemd and ssh, in network namespaces"

    def __init__(self, hosts: Mapping[str, str], systems: Mapping[str, System] | None = None) -> None:
        self.lab = HostLab(dict(hosts), systems=systems)
        self.folder = self.lab.network.folder
        self.addresses = dict(self.lab.network.addresses)
        self.directory_address = self.lab.network.service

    def start(self) -> None:
        self.lab.start()
        for host in self.lab.hosts.values():
            compiled.for_host(host)

    def close(self) -> None:
        self.lab.close()

    def inventory(self, host: str) -> dict[str, Any]:
        python = self.lab.hosts[host].system.python
        return {
            "ansible_host": self.addresses[host],
            "ansible_python_interpreter": python,
            "queue_manager_python": python,
        }

    def environment(self) -> dict[str, str]:
        return {
            "ANSIBLE_REMOTE_USER": "root",
            "ANSIBLE_SSH_ARGS": f"-F {self.lab.ssh_config}",
            "ANSIBLE_TIMEOUT": "10",
        }

    def path(self, host: str, path: str) -> Path:
        return self.lab.hosts[host].inside(path)

    @property
    def key_stores(self) -> str:
        return f"{self.folder}/hosts/{{computer}}/root/var/lib/qmnode"

    def kill_node(self, host: str) -> None:
        self.lab.hosts[host].do("systemctl", "kill", "--signal=KILL", "qmnode")

    def stop_node(self, host: str) -> None:
        machine = self.lab.hosts[host]
        began = time.monotonic()
        machine.do("systemctl", "stop", "qmnode", limit=120)
        took = time.monotonic() - began
        if took > 20:  # the node says in its log what held it up
            log = machine.do("journalctl", "--unit=qmnode", "--lines=40", "--no-pager", check=False).stdout
            warnings.warn(f"{host} took {took:.0f} s to stop:\n{log}", stacklevel=2)

    def start_node(self, host: str) -> None:
        self.lab.hosts[host].do("systemctl", "start", "qmnode")

    def node_process(self, host: str) -> str:
        show = ("systemctl", "show", "--property=MainPID,InvocationID", "qmnode")
        return self.lab.hosts[host].do(*show).stdout


class LoopbackHosts:
    """A folder and a loopback address for each host: no root, no systemd, no ssh."""

    kind = "plain processes on loopback addresses"

    def __init__(self, hosts: Mapping[str, str]) -> None:
        with alone():
            remove_leftovers()
            self.folder = new_folder(f"lo{os.getpid()}")
        self.addresses: dict[str, str] = {}
        for host in hosts:
            self.addresses[host] = free_alias(NODE_PORTS, self.addresses.values())
        self.directory_address = free_alias([DIRECTORY_PORT])

    def start(self) -> None:
        for host in self.addresses:
            (self.folder / host / "var/tmp").mkdir(parents=True)

    def close(self) -> None:
        remove(self.folder)

    def inventory(self, host: str) -> dict[str, Any]:
        return {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "queue_manager_root": str(self.folder / host),
            "queue_manager_service": "process",
            "queue_manager_listen": self.addresses[host],
            "queue_manager_python": sys.executable,
        }

    def environment(self) -> dict[str, str]:
        return {}

    def path(self, host: str, path: str) -> Path:
        return self.folder / host / path.lstrip("/")

    @property
    def key_stores(self) -> str:
        return f"{self.folder}/{{computer}}/var/lib/qmnode"

    def _pid(self, host: str) -> int:
        return int(self.path(host, "/run/qmnode/qmnode.pid").read_text())

    def node_process(self, host: str) -> str:
        return str(self._pid(host))

    def kill_node(self, host: str) -> None:
        os.kill(self._pid(host), signal.SIGKILL)
        self.start_node(host)

    def stop_node(self, host: str) -> None:
        self._service(host, "stop")

    def start_node(self, host: str) -> None:
        self._service(host, "start")

    def _service(self, host: str, action: str) -> None:
        subprocess.run([self.path(host, "/etc/qmnode/service"), action], check=True, timeout=90, capture_output=True)


@dataclass(frozen=True)
class Played:
    """What became of a playbook."""

    code: int
    said: str
    stats: dict[str, dict[str, int]]
    seconds: dict[str, float]
    """Of each task, by its name."""

    @property
    def changed(self) -> int:
        """Changes on all hosts."""
        return sum(each["changed"] for each in self.stats.values())

    @property
    def at_fault(self) -> set[str]:
        """The hosts that the recap marks."""
        return {host for host, each in self.stats.items() if each["failures"] or each["unreachable"]}

    def ok(self) -> Played:
        """Itself; AssertionError with what was said if it failed."""
        assert self.code == 0, self.said[-6000:]
        return self


class LabEnterprise:
    """An enterprise about to be rolled out, on the hosts that ``make`` makes of their names with their sites.

    Otherwise they are real ones where this machine can have them, or all are of the kind that ``real`` says.
    """

    def __init__(
        self,
        declaration: Mapping[str, Any],
        *,
        real: bool | None = None,
        make: Callable[[Mapping[str, str]], Hosts] | None = None,
    ) -> None:
        hosts = {
            host: next(iter(machine.get("sites", ())), "")
            for machine in declaration["machines"]
            for host in machine.get("hosts", (machine["name"],))
        }
        if make is None:
            make = RealHosts if (why_no_hosts() is None if real is None else real) else LoopbackHosts
        self.hosts: Hosts = make(hosts)
        self.folder = self.hosts.folder / "controller"
        self.folder.mkdir(mode=0o711)
        self.desk = self.folder / "desk"
        self._lay_out_desk()
        self._compiled = compiled.for_controller(self.folder / "compiled")
        self.directory = EmbeddedDirectory(self.folder / "directory")
        self.transcripts: list[str] = []
        """What each run of a playbook has said."""
        self.declaration = self._located(declaration)
        self.declared = self.desk / "inventory/contoso.yaml"
        self.inventory = self.desk / "inventory/contoso.msmq.yaml"

    @property
    def is_workgroup(self) -> bool:
        """Whether there is no directory anywhere."""
        return self.declaration.get("directory") == "none"

    @property
    def is_real(self) -> bool:
        """Whether there are hosts with ssh and systemd."""
        return isinstance(self.hosts, RealHosts)

    @property
    def lab(self) -> HostLab:
        """The real hosts."""
        assert isinstance(self.hosts, RealHosts)
        return self.hosts.lab

    def _located(self, declaration: Mapping[str, Any]) -> dict[str, Any]:
        """The declaration with the lab's addresses; on loopback an address is the only name that everybody resolves."""
        located = json.loads(json.dumps(declaration))
        for machine in located["machines"]:
            if "hosts" in machine:
                continue
            address = self.hosts.addresses[machine["name"]]
            machine["addresses"] = [address]
            on_loopback = isinstance(self.hosts, LoopbackHosts)
            machine["dns_name"] = address if on_loopback else f"{machine['name']}.contoso.test"
        return dict(located)

    def start(self) -> None:
        """Hosts and an empty directory."""
        self.hosts.start()
        self.write_declaration()
        if self.is_workgroup:
            self._write_inventory()
            return
        self.directory.create(
            EmbeddedSettings(root="dc=contoso,dc=test", host=self.hosts.directory_address, port=DIRECTORY_PORT)
        )
        self.directory.start()
        settings = self.directory.client_settings()
        with EnterpriseDirectory(settings) as directory:
            directory.prepare()
        values = settings.model_dump(mode="json", exclude_defaults=True, exclude={"password"})
        self.directory_file.write_text(yaml.safe_dump(values))
        self._write_inventory()

    def _lay_out_desk(self) -> None:
        """The project as its README has it, with the inventory of this lab: where the operator works."""
        (self.desk / "inventory").mkdir(parents=True)
        for path in PROJECT.iterdir():
            if path.name != "inventory" and not path.name.startswith("."):
                (self.desk / path.name).symlink_to(path)

    def write_declaration(self) -> None:
        """Declare what :attr:`declaration` says now."""
        self.declared.write_text(yaml.safe_dump(self.declaration, allow_unicode=True, sort_keys=False), "utf-8")

    def _write_inventory(self) -> None:
        plugin = {
            "plugin": "mqenterprise.fleet.directory",
            "directory_file": str(self.directory_file),
            "declared": str(self.declared),
        }
        if self.is_workgroup:
            del plugin["directory_file"]
        self.inventory.write_text(yaml.safe_dump(plugin))
        for host in self.hosts.addresses:
            file = self.host_variables(host)
            file.parent.mkdir(exist_ok=True)
            file.write_text(yaml.safe_dump(self.hosts.inventory(host)))

    def read_keys_often(self) -> None:
        """Nodes that are rolled out from now on find new keys soon, so that nobody waits for them."""
        self.set_for_all(queue_manager_settings={"security": {"key_reload_interval": KEY_RELOAD_INTERVAL}})

    def let_operate(self) -> None:
        """Nodes that are rolled out from now on open their management API to the operator, and permit that token to
        rotate their keys.
        """
        token = secrets.token_urlsafe(24)
        file = self.desk / "my.token"
        file.touch(0o600)
        file.write_text(token)
        digest = hashlib.sha256(token.encode()).hexdigest()
        self.set_for_all(
            queue_manager_management_listen=f"{{{{ queue_manager_listen or ansible_host }}}}:{MANAGEMENT_PORT}",
            queue_manager_tokens=[{"name": "operator", "role": "administer", "sha256": digest}],
            queue_manager_key_rotation=True,
        )
        machines = {host: {"address": address} for host, address in self.hosts.addresses.items()}
        authority = f"{self.variables['XDG_STATE_HOME']}/mqenterprise/rollout/authority/ca.pem"
        nodes = {"authority": authority, "token_file": file.name, "port": MANAGEMENT_PORT, "machines": machines}
        self.nodes_file.write_text(yaml.safe_dump(nodes))
        # The console asks as the person who signs in, and has no token of its own.
        (self.desk / "console.yaml").write_text(
            yaml.safe_dump({name: value for name, value in nodes.items() if name != "token_file"})
        )

    def start_console(self) -> str:
        """Serve the console of this enterprise until the lab is removed. Its address."""
        port = free_port()
        log = self.folder / "console.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [
                    sys.executable, "-m", "mqenterprise", "console", "--listen", f"127.0.0.1:{port}",
                    "--nodes", str(self.desk / "console.yaml"), "--directory", str(self.directory_file),
                    "--declared", str(self.declared),
                ],
                cwd=PROJECT, env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
        wait_until(
            lambda: "The console is at" in log.read_text() or process.poll() is not None, 60, "the console serves"
        )
        if process.poll() is not None:
            raise AssertionError(f"the console ended: {log.read_text()}")
        return f"http://127.0.0.1:{port}/"

    @property
    def token(self) -> str:
        """The operator's token, once :meth:`let_operate` has made it."""
        return (self.desk / "my.token").read_text()

    @property
    def nodes_file(self) -> Path:
        """How the operator reaches the nodes, once :meth:`let_operate` has opened them."""
        return self.desk / "nodes.yaml"

    def set_for_all(self, **variables: object) -> None:
        """Set variables of all nodes in the inventory."""
        file = self.inventory.parent / "group_vars/queue_managers.yaml"
        file.parent.mkdir(exist_ok=True)
        known = yaml.safe_load(file.read_text()) if file.exists() else {}
        file.write_text(yaml.safe_dump(known | variables))

    def host_variables(self, host: str) -> Path:
        """The file of a host's variables."""
        return self.inventory.parent / f"host_vars/{host}.yaml"

    @property
    def directory_file(self) -> Path:
        """How the administrator reaches the directory."""
        return self.folder / "directory.yaml"

    def close(self) -> None:
        """Remove everything."""
        self.hosts.close()

    @property
    def variables(self) -> dict[str, str]:
        """What tells commands of this enterprise from those of another: none depends on the working directory."""
        return {
            "PYTHONPATH": str(PROJECT),
            # In a workgroup, whoever asks for a directory is told that there is none.
            "MQENTERPRISE_DIRECTORY": str(self.declared if self.is_workgroup else self.directory_file),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"),
            "ANSIBLE_INVENTORY": str(self.inventory),
            "ANSIBLE_LOCAL_TEMP": str(self.folder / "ansible"),
            "ANSIBLE_HOME": str(self.folder / "ansible"),
            **self.hosts.environment(),
        }

    @property
    def environment(self) -> dict[str, str]:
        """What commands of the operator are run with."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**os.environ, **self.variables, "PATH": path, "ANSIBLE_NOCOLOR": "1"}

    def write_environment(self, application: str) -> Path:
        """A file to source: after it every command of the README is one of this enterprise.

        ``application`` is the host whose node is meant by commands that name none.
        """
        variables = self.variables | {
            "QMNODE_SOCKET": str(self.socket(application)),
            "MQENTERPRISE_KEYS": str(self.desk / "keys.yaml"),
            "MQENTERPRISE_NODES": str(self.nodes_file),
        }
        lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        programs = shlex.quote(str(Path(sys.executable).parent))
        (self.desk / "directory.yaml").symlink_to(self.directory_file)  # as docs/ name it
        keys = {"directory": self.hosts.key_stores, "reload_interval": KEY_RELOAD_INTERVAL}
        (self.desk / "keys.yaml").write_text(yaml.safe_dump(keys))
        file = self.folder / "env"
        file.write_text("\n".join([*lines, f'export PATH={programs}:"$PATH"', f"cd {shlex.quote(str(self.desk))}", ""]))
        return file

    def play(self, playbook: str, *arguments: str, limit: float = 840, **variables: object) -> Played:
        """Run a playbook as an operator does."""
        stats = self.folder / "stats.json"
        stats.unlink(missing_ok=True)
        command = [
            str(Path(sys.executable).with_name("ansible-playbook")),
            str(PLAYBOOKS / f"{playbook}.yml"),
            *("--extra-vars", json.dumps(variables)),
            *arguments,
        ]
        environment = self.environment | {
            "ANSIBLE_CALLBACKS_ENABLED": "lab_stats",
            "ANSIBLE_CALLBACK_PLUGINS": str(Path(__file__).parent / "callback_plugins"),
            "LAB_STATS": str(stats),
            "PYTHONPATH": f"{self._compiled}:{PROJECT}",
        }
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=limit, check=False, cwd=PROJECT,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        said = done.stdout + done.stderr
        self.transcripts.append(said)
        return Played(
            done.returncode, said, **(json.loads(stats.read_text()) if stats.exists() else {"stats": {}, "seconds": {}})
        )

    @property
    def releases(self) -> Path:
        """Where the controller keeps what hosts install."""
        return self.folder / "state/mqenterprise/rollout/releases"

    def command(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """``mqenterprise`` as the operator runs it."""
        done = subprocess.run(
            [sys.executable, "-m", "mqenterprise", *arguments],
            env=self.environment, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def published_keys(self, host: str) -> frozenset[str]:
        """The fingerprints of the encryption keys that the directory shows for a node."""
        with EnterpriseDirectory(self.directory.client_settings()) as directory:
            publication = Publication(directory)
            (node,) = publication.nodes(computers=[host])
            return publication.read(node).fingerprints

    def socket(self, host: str) -> Path:
        """Where applications reach the node of a host."""
        return self.hosts.path(host, "/run/qmnode/qmnode.sock")
