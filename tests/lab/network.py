"""Sites as networks: a namespace for each host, a bridge for each site, and one namespace that routes between them.

The router is the wide area: what it drops, no site hears of. The test itself is the *controller*, reached over a pair
of interfaces of this machine. Everything bears the lab's name, so that a later run removes what a killed one left.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDERS = Path("/var/tmp")
PREFIX = "qmlab."
RANGE = IPv4Network("198.18.0.0/15")
"""For tests of network equipment (RFC 2544): nobody's own network is in it."""
NETNS = Path("/run/netns")
SITE_BITS = 27
CONTROLLER_SITE = 7


def run(*command: str, check: bool = True, limit: float = 240) -> subprocess.CompletedProcess[str]:
    """A command of the machine; AssertionError with what it said when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done


@cache
def why_no_namespaces() -> str | None:
    """Why this machine cannot have networks of the lab's own; None if it can."""
    if os.getuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "the package iproute2 is not installed"
    name = f"qmprobe{os.getpid()}"
    try:
        run("ip", "netns", "add", name)
        try:
            run("ip", "-n", name, "link", "add", "probe", "type", "bridge")
            run("ip", "-n", name, "link", "add", "one", "type", "veth", "peer", "name", "two")
            run("ip", "-n", name, "rule", "add", "blackhole", "from", "192.0.2.1", "to", "192.0.2.2")
        finally:
            run("ip", "netns", "del", name, check=False)
    except AssertionError as error:
        return f"no network namespaces here: {error}"
    return None


@dataclass
class Site:
    """One network of the lab."""

    name: str
    network: IPv4Network
    bridge: str
    hosts: list[str] = field(default_factory=list)

    @property
    def gateway(self) -> IPv4Address:
        return self.network[1]


class Network:
    """The namespaces of one lab, in a folder that says whose they are."""

    def __init__(self, sites: list[str]) -> None:
        with alone():
            remove_leftovers()
            number = _free_number()
            self.name = f"qm{number:03d}"
            self.folder = new_folder(self.name)
        block = list(RANGE.subnets(new_prefix=24))[number]
        subnets = list(block.subnets(new_prefix=SITE_BITS))
        self.sites = {name: Site(name, subnets[place], f"site{place}") for place, name in enumerate(sites)}
        self._wide_area = self.name
        self._outside = subnets[CONTROLLER_SITE]
        self.controller = str(self._outside[2])
        """This machine, as the hosts see it."""
        self.service = str(self._outside[3])
        """This machine as well, for a service that a site can be cut from without losing its controller."""
        self.addresses: dict[str, str] = {}
        self._build(block)

    def _build(self, block: IPv4Network) -> None:
        area, inside = self._wide_area, f"{self.name}in"
        run("ip", "netns", "add", area)
        run("ip", "-n", area, "link", "set", "lo", "up")
        run("ip", "netns", "exec", area, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        for site in self.sites.values():
            run("ip", "-n", area, "link", "add", site.bridge, "type", "bridge")
            run("ip", "-n", area, "addr", "add", f"{site.gateway}/{SITE_BITS}", "dev", site.bridge)
            run("ip", "-n", area, "link", "set", site.bridge, "up")
        run("ip", "link", "add", self.name, "type", "veth", "peer", "name", inside)
        run("ip", "link", "set", inside, "netns", area)
        run("ip", "-n", area, "addr", "add", f"{self._outside[1]}/{SITE_BITS}", "dev", inside)
        run("ip", "-n", area, "link", "set", inside, "up")
        for address in (self.controller, self.service):
            run("ip", "addr", "add", f"{address}/{SITE_BITS}", "dev", self.name)
        run("ip", "link", "set", self.name, "up")
        run("ip", "route", "add", str(block), "via", str(self._outside[1]))

    def namespace(self, host: str) -> str:
        """The network namespace of a host."""
        return f"{self.name}-{host}"

    def add_host(self, host: str, site: str) -> str:
        """A namespace with one interface in a site; its address."""
        place = self.sites[site]
        address = str(place.network[10 + len(place.hosts)])
        place.hosts.append(host)
        namespace, area = self.namespace(host), self._wide_area
        port = f"h{len(self.addresses)}"
        run("ip", "netns", "add", namespace)
        run("ip", "-n", area, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        run("ip", "-n", area, "link", "set", port, "master", place.bridge, "up")
        run("ip", "-n", namespace, "link", "set", "lo", "up")
        run("ip", "-n", namespace, "addr", "add", f"{address}/{SITE_BITS}", "dev", "eth0")
        run("ip", "-n", namespace, "link", "set", "eth0", "up")
        run("ip", "-n", namespace, "route", "add", "default", "via", str(place.gateway))
        self.addresses[host] = address
        return address

    # Partitions: what goes between the two is dropped without a word to either

    def cut(self, one: str, other: str) -> None:
        """Nothing gets from one site to the other any more. A site may also be the address of a service."""
        self._rules("add", one, other)

    def mend(self, one: str, other: str) -> None:
        """Let it pass again."""
        self._rules("del", one, other)

    def _rules(self, action: str, one: str, other: str) -> None:
        ends = [str(self.sites[name].network) if name in self.sites else name for name in (one, other)]
        for source, sink in (ends, reversed(ends)):
            run("ip", "-n", self._wide_area, "rule", action, "blackhole", "from", source, "to", sink)

    def unplug(self, host: str) -> None:
        """Take a host's interface down."""
        run("ip", "-n", self.namespace(host), "link", "set", "eth0", "down")

    def plug(self, host: str) -> None:
        """Bring it up again."""
        namespace = self.namespace(host)
        run("ip", "-n", namespace, "link", "set", "eth0", "up")
        gateway = next(site.gateway for site in self.sites.values() if host in site.hosts)
        run("ip", "-n", namespace, "route", "replace", "default", "via", str(gateway))

    def close(self) -> None:
        """Remove all of it."""
        remove(self.folder)


@contextmanager
def alone() -> Iterator[None]:
    """While no other process looks at the labs or makes one: what is half made looks like what a killed run left."""
    with (FOLDERS / ".qmlab-lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def new_folder(name: str) -> Path:
    """A folder for a lab, which says whose it is. Its path is short, as sockets are in it."""
    folder = FOLDERS / f"{PREFIX}{name}"
    folder.mkdir(mode=0o711)
    (folder / "owner.json").write_text(json.dumps({"pid": os.getpid(), "started": _started(os.getpid())}))
    return folder


def hand_over(folder: Path) -> None:
    """Nobody's any more: it stays until :func:`remove` is called."""
    (folder / "owner.json").write_text(json.dumps({"pid": 1, "started": _started(1)}))


def remove_leftovers() -> None:
    """Remove the labs of runs that were killed."""
    for folder in FOLDERS.glob(f"{PREFIX}*"):
        try:
            owner = json.loads((folder / "owner.json").read_text())
        except (OSError, ValueError):
            owner = {"pid": 0, "started": ""}
        if _started(owner["pid"]) != owner["started"]:
            remove(folder)


def remove(folder: Path) -> None:
    """Remove a lab: processes, mounts, namespaces, files. What is gone already does not matter."""
    name = folder.name.removeprefix(PREFIX)
    for file in folder.glob("hosts/*/processes/*"):
        kill_recorded(file)
    _kill_all_of(folder)
    if os.getuid() == 0 and shutil.which("ip"):
        _remove_networks(name)
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for mount in sorted((each for each in mounts if each.startswith(f"{folder}/")), reverse=True):
        run("umount", "-l", mount, check=False)
    for hierarchy in hierarchies():
        for group in hierarchy.glob(f"{name}-*"):
            remove_group(group)
    shutil.rmtree(folder, ignore_errors=True)


def _kill_all_of(folder: Path) -> None:
    """Kill what was started with a path of the lab: its directory, its nodes."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if process.name != str(os.getpid()) and any(f"{folder}/".encode() in word for word in words):
                os.kill(int(process.name), 9)


def _remove_networks(name: str) -> None:
    for namespace in [each.name for each in NETNS.glob(f"{name}*")] if NETNS.is_dir() else []:
        for pid in run("ip", "netns", "pids", namespace, check=False).stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), 9)
        run("ip", "netns", "del", namespace, check=False)
    run("ip", "link", "del", name, check=False)


def hierarchies() -> list[Path]:
    """Where systemd keeps its control groups: the unified hierarchy, the one of its own name, or both."""
    found: list[Path] = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mounted, _, kind = line.partition(" - ")
        name, _, options = kind.split()[:3]
        if name == "cgroup2" or (name == "cgroup" and "name=systemd" in options):
            found.append(Path(mounted.split()[4]))
    return found


def remove_group(group: Path) -> None:
    """Remove a control group whose processes have ended, and those in it."""
    for folder in [*(found for found, _, _ in os.walk(group, topdown=False))]:
        with suppress(OSError):
            Path(folder).rmdir()


def record(file: Path, pid: int) -> None:
    """Write down a process that belongs to the lab."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"pid": pid, "started": _started(pid)}))


def kill_recorded(file: Path) -> None:
    """Kill the process that was written down, if it is still that one."""
    with suppress(OSError, ValueError):
        noted = json.loads(file.read_text())
        if _started(noted["pid"]) == noted["started"]:
            os.kill(noted["pid"], 9)
    file.unlink(missing_ok=True)


def _started(pid: int) -> str:
    """When a process began, in the kernel's ticks: with its number this names it. Empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except OSError:
        return ""


def _free_number() -> int:
    used = run("ip", "-o", "route", "show", "table", "all").stdout
    start = os.getpid() % 500
    for step in range(500):
        number = (start + step) % 500
        block = list(RANGE.subnets(new_prefix=24))[number]
        name = f"qm{number:03d}"
        free = not (FOLDERS / f"{PREFIX}{name}").exists() and f"{block.network_address}/24" not in used
        if free and not (NETNS / name).exists():
            return number
    raise AssertionError("no free network for the lab")


if __name__ == "__main__":
    for given in sys.argv[1:]:
        remove(Path(given))
