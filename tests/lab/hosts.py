"""Hosts that Ansible can roll out to: a root file system, a real systemd and sshd each, in namespaces of their own.

A host is what an operator gets: ssh, Python, systemd, and nothing of this project. It is an overlay over this machine's
own root or over that of another system, booted with systemd-nspawn.
"""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.network import Network, hierarchies, kill_recorded, record, remove_group, run, why_no_namespaces
from tests.lab.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

START_LIMIT = 180.0
NOT_STARTED = (
    "systemd-timesyncd", "systemd-networkd", "systemd-resolved", "systemd-udevd", "systemd-logind", "console-getty",
    "getty@tty1", "systemd-hwdb-update", "ldconfig", "systemd-ask-password-wall", "systemd-update-utmp",
    "systemd-update-utmp-runlevel", "systemd-machine-id-commit", "systemd-pstore", "getty-static",
)  # fmt: skip
"""Units of the machine's own systemd that a host of the lab has no use for."""
SOCKETS = "/run/qmnode"
"""Where a host's node has its sockets."""
SSHD = """\
Port 22
HostKey /etc/ssh/lab_host_key
AuthorizedKeysFile /etc/ssh/lab_authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
UseDNS no
MaxSessions 50
MaxStartups 100
Subsystem sftp internal-sftp
"""
SSHD_UNIT = """\
[Unit]
Description=sshd of the lab
[Service]
RuntimeDirectory=sshd
RuntimeDirectoryPreserve=yes
ExecStart=/usr/sbin/sshd -D -e
KillMode=process
"""


@cache
def why_no_hosts() -> str | None:
    """Why this machine cannot boot hosts; None if it can. Tried once, with one host."""
    reason = why_no_namespaces()
    if reason is not None:
        return reason
    for program in ("systemd-nspawn", "/usr/sbin/sshd", "ssh-keygen"):
        if shutil.which(program) is None:
            return f"{program} is not installed (packages systemd-container, openssh-server)"
    lab = HostLab({"probe": "probe"})
    try:
        lab.start()
    except AssertionError as error:
        return f"systemd-nspawn does not boot a host here: {str(error)[-300:]}"
    finally:
        lab.close()
    return None


@dataclass(frozen=True)
class System:
    """What a host is made of: the root below its own, the path of its Python, and a folder that is copied into it."""

    base: Path
    python: str
    more: Path | None = None


def own_system() -> System:
    """This machine's. A Python in somebody's home would be closed to the node's account."""
    packaged = Path("/usr/bin/python3.11")
    return System(Path("/"), str(packaged if packaged.exists() else Path(sys.executable).resolve()))


class Host:
    """One of them. It keeps its files when it is powered off."""

    def __init__(self, lab: HostLab, name: str, address: str, system: System) -> None:
        self.name = name
        self.address = address
        self.system = system
        self._lab = lab
        self._folder = lab.network.folder / "hosts" / name
        self._sockets = self._folder / "run"
        self._process: subprocess.Popen[bytes] | None = None
        self._leader = 0

    @property
    def root(self) -> Path:
        """Its file system, as this machine sees it."""
        return self._folder / "root"

    def inside(self, path: str) -> Path:
        """A file of the running host, also in its memory. Its node's sockets keep their paths when it starts anew."""
        if path.startswith(f"{SOCKETS}/"):
            return self._sockets / path.removeprefix(f"{SOCKETS}/")
        return Path(f"/proc/{self._leader}/root") / path.lstrip("/")

    @property
    def console(self) -> str:
        """What it said when it booted."""
        return (self._folder / "console.log").read_text(errors="replace")

    def prepare(self) -> None:
        """Lay its file system over that of its system, without what would be started there."""
        upper, work = self._folder / "upper", self._folder / "work"
        for folder in (upper, work, self.root, self._sockets):
            folder.mkdir(parents=True)
        run("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(self._sockets))
        options = f"lowerdir={self.system.base},upperdir={upper},workdir={work}"
        if run("mount", "-t", "overlay", "overlay", "-o", options, str(self.root), check=False).returncode != 0:
            # The folder may itself be on an overlay, as in a container; memory can always carry one.
            shutil.rmtree(upper)
            shutil.rmtree(work)
            memory = self._folder / "memory"
            memory.mkdir()
            run("mount", "-t", "tmpfs", "tmpfs", str(memory))
            for folder in (memory / "upper", memory / "work"):
                folder.mkdir()
            options = f"lowerdir={self.system.base},upperdir={memory / 'upper'},workdir={memory / 'work'}"
            run("mount", "-t", "overlay", "overlay", "-o", options, str(self.root))
        if self.system.more is not None:
            run("cp", "-a", f"{self.system.more}/.", str(self.root))
        self._configure()

    def _configure(self) -> None:
        etc = self.root / "etc"
        for pattern in ("systemd/system/*.wants/*", "rc?.d/*", "init.d/*", "cron.d/*"):
            for entry in etc.glob(pattern):
                entry.unlink()
        units = etc / "systemd/system"
        for name in NOT_STARTED:
            self._link(units / f"{name}.service", "/dev/null")
        for name in ("ssh.service", "ssh.socket", "sshd.service"):
            (units / name).unlink(missing_ok=True)
        (units / "ssh.service").write_text(SSHD_UNIT)
        (units / "multi-user.target.wants").mkdir(exist_ok=True)
        self._link(units / "multi-user.target.wants/ssh.service", "../ssh.service")
        self._link(units / "default.target", "/lib/systemd/system/multi-user.target")
        (etc / "machine-id").write_text(secrets.token_hex(16) + "\n")
        (etc / "hostname").write_text(self.name + "\n")
        for name in ("fstab", "resolv.conf"):
            (etc / name).unlink(missing_ok=True)
            (etc / name).write_text("")
        (etc / "ssh/sshd_config").write_text(SSHD)
        shutil.copy(self._lab.key.with_suffix(".pub"), etc / "ssh/lab_authorized_keys")
        self.new_key()

    @staticmethod
    def _link(path: Path, target: str) -> None:
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    def new_key(self) -> None:
        """Give it another ssh key, as a host that was installed anew has, and do not tell the controller."""
        key = self.root / "etc/ssh/lab_host_key"
        key.unlink(missing_ok=True)
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", str(key))

    @property
    def public_key(self) -> str:
        """Its ssh key as known_hosts has it."""
        kind, key, *_ = (self.root / "etc/ssh/lab_host_key.pub").read_text().split()
        return f"{kind} {key}"

    def boot(self) -> None:
        """Power it on, and do not wait."""
        (self.root / "etc/hosts").write_text(self._lab.hosts_file())
        # Two systemds in one control group would stop each other's services.
        groups = [hierarchy / self._lab.network.namespace(self.name) for hierarchy in hierarchies()]
        for group in groups:
            group.mkdir(exist_ok=True)
        with (self._folder / "console.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "sh", "-c", 'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs"; shift; done; shift; '
                    'while "$@"; [ $? = 133 ]; do :; done',  # a host that reboots ends so, and begins again
                    "sh", *map(str, groups), "--", "systemd-nspawn",
                    "--quiet", "--register=no", "--keep-unit", "--boot", f"--directory={self.root}",
                    f"--machine={self._lab.network.namespace(self.name)}", f"--hostname={self.name}",
                    f"--network-namespace-path=/run/netns/{self._lab.network.namespace(self.name)}",
                    f"--bind={self._sockets}:{SOCKETS}",
                    "--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=pipe", "--capability=all",
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        record(self._folder / "processes/nspawn", self._process.pid)

    def wait_until_up(self) -> None:
        """Wait until its sshd answers."""

        def answers() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, f"{self.name} did not boot: {self.console[-800:]}"
            try:
                with socket.create_connection((self.address, 22), timeout=1) as connection:
                    return connection.recv(4) == b"SSH-"
            except OSError:
                return False

        wait_until(answers, START_LIMIT, f"{self.name} answers on port 22\n{self.console[-800:]}")
        self._leader = child_of(self._process.pid) if self._process is not None else 0
        record(self._folder / "processes/leader", self._leader)

    def power_off(self) -> None:
        """Cut its power: nothing on it ends in order."""
        kill_recorded(self._folder / "processes/leader")
        if self._process is not None:
            try:
                self._process.wait(240)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        for hierarchy in hierarchies():
            remove_group(hierarchy / self._lab.network.namespace(self.name))

    def do(self, *command: str, check: bool = True, limit: float = 60) -> subprocess.CompletedProcess[str]:
        """A command in the host, past ssh."""
        entering = ("nsenter", "--target", str(self._leader), "--mount", "--uts", "--ipc", "--net", "--pid", "--")
        done = subprocess.run(
            [*entering, *command], capture_output=True, text=True, timeout=limit, check=False, stdin=subprocess.DEVNULL
        )
        assert not check or done.returncode == 0, f"{self.name}: {' '.join(command)}: {done.stdout}{done.stderr}"
        return done


class HostLab:
    """Sites of hosts, and this machine as their controller: ``{"ams-router": "Amsterdam", ...}``.

    A host has this machine's system, unless ``systems`` has another for it.
    """

    def __init__(
        self, hosts: dict[str, str], domain: str = "contoso.test", systems: Mapping[str, System] | None = None
    ) -> None:
        self.domain = domain
        self.network = Network(list(dict.fromkeys(hosts.values())))
        self.key = self.network.folder / "controller_key"
        chosen = dict.fromkeys(hosts, own_system()) | dict(systems or {})
        self.hosts = {
            name: Host(self, name, self.network.add_host(name, site), chosen[name]) for name, site in hosts.items()
        }

    def start(self) -> None:
        """Boot all of them and wait until they can be reached."""
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "controller", "-f", str(self.key))
        for host in self.hosts.values():
            host.prepare()
            host.boot()
        self.write_known_hosts()
        self._write_ssh_config()
        for host in self.hosts.values():
            host.wait_until_up()

    def hosts_file(self) -> str:
        """Who is where: the lab's name service."""
        lines = [f"{host.address} {name}.{self.domain} {name}" for name, host in self.hosts.items()]
        lines += ["127.0.0.1 localhost", f"{self.network.service} directory.{self.domain} directory"]
        return "\n".join(lines) + "\n"

    def write_known_hosts(self) -> None:
        """Believe the keys that the hosts have now."""
        lines = [f"{host.address},{name} {host.public_key}" for name, host in self.hosts.items()]
        (self.network.folder / "known_hosts").write_text("\n".join(lines) + "\n")

    @property
    def ssh_config(self) -> Path:
        """For ``ssh -F``."""
        return self.network.folder / "ssh_config"

    def _write_ssh_config(self) -> None:
        folder = self.network.folder
        names = [f"Host {name}\n  HostName {host.address}\n" for name, host in self.hosts.items()]
        self.ssh_config.write_text(
            "".join(names) + f"Host *\n  User root\n  IdentityFile {self.key}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {folder / 'known_hosts'}\n  GlobalKnownHostsFile /dev/null\n"
            "  StrictHostKeyChecking yes\n  ConnectTimeout 10\n  ServerAliveInterval 5\n  LogLevel ERROR\n"
            f"  ControlMaster auto\n  ControlPersist 30s\n  ControlPath {folder}/%C\n"
        )

    def drop_connections(self) -> None:
        """End the connections that ssh keeps open for the next command."""
        for control in self.network.folder.glob("*"):
            if control.is_socket():
                run("ssh", "-F", str(self.ssh_config), "-o", f"ControlPath={control}", "-O", "exit", "any", check=False)

    def close(self) -> None:
        """Power all off and remove everything."""
        for host in self.hosts.values():
            with suppress(ProcessLookupError):
                host.power_off()
        self.network.close()


def child_of(pid: int) -> int:
    """The first process of the host: what nspawn started in the host's own namespaces."""
    own = Path(f"/proc/{pid}/ns/pid").readlink()
    pending = [pid]
    while pending:
        parent = pending.pop()
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            for child in map(int, task.read_text().split()):
                if Path(f"/proc/{child}/ns/pid").readlink() != own:
                    return child
                pending.append(child)
    raise AssertionError("the host's first process is not there")
