"""Two hosts of the lab as a real cluster: Corosync, Pacemaker, fencing, and one store on a device that both can mount.

Each host has a loop device of its own over one file, so each has its own page cache, as hosts on shared storage have.
Fencing is the lab's: what a host asks of it goes over its file system, as over a second network. A fenced host loses
what it has not written: its file system is shut down before its processes end, as in a power cut.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.lab.hosts import Host, HostLab
from tests.lab.network import run
from tests.lab.nodes import PROJECT
from tests.lab.waiting import wait_until

SITE: Final = "Cork"
NAMES: Final = ("cor-a", "cor-b")
STORE: Final = "/var/lib/qmnode"
DEVICE: Final = "/dev/qm-shared"
FENCE: Final = "/run/lab-fence"
LEASE: Final = 5
SETTLED: Final = 10.0
"""Seconds after which a pause that has ended fences nobody any more: the token, the consensus, and the decision."""
RUNS: Final = b"from qmnode.cli import main; main()"
_SHUT_DOWN: Final = 0x8004587D
"""FS_IOC_SHUTDOWN; 2: without what is in the log's memory."""

COROSYNC = """\
totem {{
  version: 2
  cluster_name: lab
  transport: udpu
  token: 1000
  consensus: 1200
  crypto_cipher: none
  crypto_hash: none
}}
nodelist {{
{nodes}
}}
quorum {{
  provider: corosync_votequorum
  two_node: 1
}}
system {{
  sched_rr: no
  move_to_root_cgroup: no
}}
logging {{
  to_syslog: yes
  to_logfile: no
}}
"""
FENCE_AGENT = """\
#!/bin/sh
# The lab's fencing: a question in a file, and the answer when the host is off. A host that reaches nobody asks nothing.
while read -r line; do case $line in action=*) action=${line#action=};; port=*|plug=*) port=${line#*=};;
nodename=*) node=${line#nodename=};; esac; done
port=${port:-$node}
case $action in
metadata) cat <<'XML'
<?xml version="1.0" ?>
<resource-agent name="fence_lab" shortdesc="Fencing of the lab"><longdesc>The lab.</longdesc>
<vendor-url>http://localhost</vendor-url><parameters>
<parameter name="action" required="1"><content type="string" default="reboot"/><shortdesc>a</shortdesc></parameter>
<parameter name="port" required="0"><content type="string"/><shortdesc lang="en">a</shortdesc></parameter>
</parameters><actions><action name="on"/><action name="off"/><action name="reboot"/><action name="status"/>
<action name="monitor"/><action name="metadata"/><action name="list"/></actions></resource-agent>
XML
exit 0;;
monitor|status|list) exit 0;;
off|reboot)
  ping -c 1 -W 1 -n GATEWAY >/dev/null 2>&1 || exit 1
  mkdir -p FENCE; id=$$.$(date +%s%N)
  echo "$action $port" >FENCE/$id.new; mv FENCE/$id.new FENCE/$id.question
  for _ in $(seq 600); do [ -e FENCE/$id.answer ] && exit 0; sleep 0.05; done; exit 1;;
*) exit 0;;
esac
"""
DISK_UNIT = """\
[Unit]
Description=The shared device
Before=corosync.service
DefaultDependencies=no
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c '[ -b {device} ] || mknod {device} b 7 {minor}'
"""
CIB = """\
<configuration>
<crm_config><cluster_property_set id="o">
<nvpair id="o1" name="stonith-enabled" value="true"/>
<nvpair id="o2" name="no-quorum-policy" value="stop"/>
<nvpair id="o3" name="stonith-action" value="reboot"/>
<nvpair id="o4" name="load-threshold" value="100000%"/>
<nvpair id="o5" name="cluster-recheck-interval" value="20s"/>
</cluster_property_set></crm_config>
<nodes/>
<resources>
<primitive id="fence" class="stonith" type="fence_lab">
<instance_attributes id="fi"><nvpair id="fi1" name="pcmk_host_list" value="cor-a cor-b"/></instance_attributes>
</primitive>
<group id="queue-manager">
<primitive id="store" class="ocf" provider="heartbeat" type="Filesystem">
<instance_attributes id="si">
<nvpair id="si1" name="device" value="{device}"/><nvpair id="si2" name="directory" value="{store}"/>
<nvpair id="si3" name="fstype" value="ext4"/><nvpair id="si4" name="force_unmount" value="safe"/>
</instance_attributes>
<operations><op id="so" name="monitor" interval="20s" timeout="20s"/></operations>
</primitive>
<primitive id="address" class="ocf" provider="heartbeat" type="IPaddr2">
<instance_attributes id="ai"><nvpair id="ai1" name="ip" value="{address}"/>
<nvpair id="ai2" name="cidr_netmask" value="27"/>
<nvpair id="ai3" name="nic" value="eth0"/></instance_attributes>
<operations><op id="ao" name="monitor" interval="20s" timeout="20s"/></operations>
</primitive>
<primitive id="node" class="ocf" provider="qmnode" type="qmnode">
<instance_attributes id="ni"><nvpair id="ni1" name="lease" value="{lease}"/></instance_attributes>
<operations><op id="no" name="monitor" interval="1s" timeout="20s"/>
<op id="ns" name="start" interval="0" timeout="120s"/><op id="np" name="stop" interval="0" timeout="90s"/>
<op id="nr" name="monitor" role="Stopped" interval="15s" timeout="20s"/></operations>
<meta_attributes id="nm"><nvpair id="nm1" name="migration-threshold" value="1000000"/></meta_attributes>
</primitive>
</group>
</resources>
<constraints/>
<rsc_defaults><meta_attributes id="rd"><nvpair id="rd1" name="resource-stickiness" value="100"/></meta_attributes>
</rsc_defaults>
</configuration>
"""


def why_no_cluster() -> str | None:
    """Why this machine cannot have a cluster; None if it can."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    missing = [name for name in ("pacemakerd", "corosync", "nft", "ping") if not shutil.which(name, path=path)]
    if not Path("/usr/lib/ocf/resource.d/heartbeat/Filesystem").exists():
        missing.append("the resource agents")
    packages = "pacemaker, pacemaker-cli-utils, corosync, resource-agents, nftables, iputils-ping, iputils-arping"
    return f"{', '.join(missing)} not installed (packages {packages})" if missing else None


class Cluster:
    """The two hosts, their device and their fencing; started by :meth:`start`, removed by :meth:`close`."""

    def __init__(self) -> None:
        self.lab = HostLab(dict.fromkeys(NAMES, SITE))
        self.network = self.lab.network
        self.hosts = self.lab.hosts
        self.address = str(self.network.sites[SITE].network[20])
        """The address that moves."""
        self.image = self.network.folder / "device"
        self.fenced: list[tuple[float, str, str]] = []
        """What the fencing did: time, by whom, whom."""
        self.boots = dict.fromkeys(NAMES, 0)
        """How often each was booted anew."""
        self._loops: dict[str, str] = {}
        self._ended = threading.Event()
        self._busy = {name: threading.Lock() for name in NAMES}
        self._fencing = threading.Thread(target=self._serve_fencing, daemon=True)

    def start(self, settings: dict[str, object], store: Path | None = None, size: int = 3 << 30) -> None:
        """Make the device, with a copy of a store; boot both, and wait until the node is active."""
        with self.image.open("wb") as file:
            file.truncate(size)
        run("mkfs.ext4", "-q", "-F", str(self.image))
        for name in NAMES:
            self._loops[name] = run("losetup", "-f", "--show", str(self.image)).stdout.strip()
        mounted = self.network.folder / "mounted"
        mounted.mkdir()
        run("mount", self._loops[NAMES[0]], str(mounted))
        if store is not None:
            shutil.copytree(store, mounted, dirs_exist_ok=True)
        run("chown", "-R", "65000:65000", str(mounted))
        run("umount", str(mounted))
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "controller", "-f", str(self.lab.key))
        for host in self.hosts.values():
            host.prepare()
            self._install(host, settings)
            host.boot()
        for host in self.hosts.values():
            host.wait_until_up()
        self._fencing.start()
        wait_until(lambda: "partition with quorum" in self.status(NAMES[0]), 120, "a quorum")
        wait_until(lambda: self.status(NAMES[0]).count('online="true"') >= 2, 120, "two hosts")
        values = {"device": DEVICE, "store": STORE, "address": self.address, "lease": LEASE}
        self.hosts[NAMES[0]].inside("/run/cib.xml").write_text(CIB.format(**values))
        self.hosts[NAMES[0]].do("cibadmin", "--replace", "--scope", "configuration", "--xml-file", "/run/cib.xml")
        self.wait_until_active(300)

    def _install(self, host: Host, settings: dict[str, object]) -> None:
        root = host.root
        nodes = "\n".join(
            f"  node {{\n    ring0_addr: {self.hosts[name].address}\n    name: {name}\n    nodeid: {number}\n  }}"
            for number, name in enumerate(NAMES, 1)
        )
        (root / "etc/corosync/corosync.conf").write_text(COROSYNC.format(nodes=nodes))
        gateway = str(self.network.sites[SITE].gateway)
        agent = root / "usr/sbin/fence_lab"
        agent.write_text(FENCE_AGENT.replace("GATEWAY", gateway).replace("FENCE", FENCE))
        agent.chmod(0o755)
        loader = root / "usr/sbin/modprobe"  # the kernel has what is needed, and no modules
        loader.write_text("#!/bin/sh\nexit 0\n")
        loader.chmod(0o755)
        provider = root / "usr/lib/ocf/resource.d/qmnode"
        provider.mkdir(exist_ok=True)
        shutil.copy(PROJECT / "qmnode/systemd/qmnode.ocf", provider / "qmnode")
        with (root / "etc/passwd").open("a") as file:
            file.write("qmnode:x:65000:65000::/nonexistent:/usr/sbin/nologin\n")
        with (root / "etc/group").open("a") as file:
            file.write("qmnode:x:65000:\n")
        packages = next((PROJECT / ".venv/lib").glob("python3*/site-packages"))
        command = root / "usr/bin/qmnode"
        command.write_text(
            f"#!/bin/sh\nexport PYTHONPATH={PROJECT}:{packages} PYTHONDONTWRITEBYTECODE=1\n"
            "exec /usr/bin/python3 -P -c 'from qmnode.cli import main; main()' \"$@\"\n"
        )
        command.chmod(0o755)
        units = root / "etc/systemd/system"
        (units / "qmnode.service").write_text((PROJECT / "qmnode/systemd/qmnode.service").read_text())
        minor = os.minor(Path(self._loops[host.name]).stat().st_rdev)
        (units / "lab-disk.service").write_text(DISK_UNIT.format(device=DEVICE, minor=minor))
        wanted = units / "multi-user.target.wants"
        for unit in ("lab-disk.service",):
            (wanted / unit).symlink_to(f"../{unit}")
        for unit in ("corosync.service", "pacemaker.service"):
            (wanted / unit).symlink_to(f"/lib/systemd/system/{unit}")
        folder = root / "etc/qmnode"
        folder.mkdir(exist_ok=True)
        values = {
            "computer_name": "ALPHA",
            "addresses": [self.address],
            "failover": {
                "hosts": list(NAMES), "lease": LEASE, "lease_file": "/run/qmnode-cluster/lease",
                "ledger": "/var/log/qmnode/takeovers",
            },
        }  # fmt: skip
        (folder / "node.yaml").write_text(json.dumps(values | settings))
        (folder / "node.yaml").chmod(0o644)

    # What is seen

    def status(self, name: str) -> str:
        """The cluster as one host sees it, as XML; empty if it does not answer."""
        with suppress(AssertionError, subprocess.TimeoutExpired, OSError):
            found = self.hosts[name].do("crm_mon", "-1", "--output-as=xml", check=False, limit=10).stdout
            partition = 'with_quorum="true"' in found
            return found + ("\npartition with quorum" if partition else "")
        return ""

    def running(self) -> list[str]:
        """The hosts on which a process of the node runs."""
        return [name for name in NAMES if self.main_process(name)]

    def main_process(self, name: str) -> int:
        """The node's process on a host, as this machine numbers it; 0 if there is none."""
        with suppress(OSError):
            leader = self.hosts[name]._leader
            own = Path(f"/proc/{leader}/ns/pid").readlink()
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    words = (process / "cmdline").read_bytes().split(b"\0")
                    runs = b"run" in words and RUNS in words and b"--check" not in words
                    if runs and (process / "ns/pid").readlink() == own:
                        return int(process.name)
        return 0

    def socket(self, name: str) -> Path:
        """The socket of the applications of a host's node."""
        return Path(f"/proc/{self.hosts[name]._leader}/root/run/qmnode/qmnode.sock")

    def node_status(self, name: str) -> dict[str, object]:
        """The node's status on a host; empty if none answers."""
        from qmnode.local.asking import ask

        with suppress(Exception):
            if self.main_process(name):
                return dict(ask(self.socket(name), "status", 0))
        return {}

    def active(self) -> str:
        """The host whose node is ready; empty if none is."""
        for name in NAMES:
            found = self.node_status(name)
            if found.get("ready"):
                return name
        return ""

    def wait_until_active(self, limit: float = 120) -> str:
        """The host whose node is ready."""
        return wait_until(self.active, limit, "a node is ready", pause=0.1)

    def log(self, name: str) -> str:
        """The journal of a host's node, over all boots that the overlay kept."""
        return self.hosts[name].do("journalctl", "-u", "qmnode", "-o", "cat", "--no-pager", check=False).stdout

    # What happens to it

    def power_off(self, name: str) -> None:
        """Cut a host's power: what it has not written is lost, and its device is free when this returns."""
        host = self.hosts[name]
        mount = Path(f"/proc/{host._leader}/root{STORE}")
        with suppress(OSError):
            if os.path.ismount(mount) or mount.stat().st_dev != mount.parent.stat().st_dev:
                place = os.open(mount, os.O_RDONLY)
                try:
                    fcntl.ioctl(place, _SHUT_DOWN, (2).to_bytes(4, "little"))
                finally:
                    os.close(place)
        host.power_off()
        # Its network namespace stays: the address that moves would be found there by the next boot, and answer before.
        taken = ("addr", "del", f"{self.address}/27", "dev", "eth0")
        run("ip", "netns", "exec", self.network.namespace(name), "ip", *taken, check=False)
        loop = Path(self._loops[name]).name
        wait_until(lambda: not self._is_mounted(loop), 60, f"{name} has let go of the device", pause=0.01)

    @staticmethod
    def _is_mounted(loop: str) -> bool:
        # An exclusive open is refused while a file system, in whatever namespace, has the device.
        try:
            os.close(os.open(f"/dev/{loop}", os.O_RDONLY | os.O_EXCL))
        except OSError:
            return True
        return False

    def lose(self, name: str) -> None:
        """Cut a host's power without a word to anybody."""
        with self._busy[name]:
            self.power_off(name)

    def is_whole(self) -> bool:
        """Whether both hosts are in the cluster, and the node is active on one of them."""
        # A host that was paused still believes for a second that nothing happened: both are asked.
        return all(self._sees_both(self.status(name)) for name in NAMES) and bool(self.active())

    @staticmethod
    def _sees_both(found: str) -> bool:
        wrong = ('pending="true"', 'unclean="true"')
        return found.count('online="true"') == len(NAMES) and not any(one in found for one in wrong)

    def wait_until_settled(self, limit: float = 240) -> str:
        """The active host, when the cluster has been whole for so long that no fencing can come any more."""
        since: tuple[float, int, str] | None = None

        def is_settled() -> bool:
            nonlocal since
            now = len(self.fenced), self.active() if self.is_whole() else ""
            if since is None or since[1:] != now:
                since = (time.monotonic(), *now)
            return bool(now[1]) and time.monotonic() - since[0] > SETTLED

        wait_until(is_settled, limit, "the cluster is settled", pause=0.2)
        assert since is not None
        return since[2]

    def tokens(self) -> list[tuple[int, str, float]]:
        """Number, host and time of all take-overs, from the ledgers of both hosts."""
        found = []
        for name, host in self.hosts.items():
            ledger = host.root / "var/log/qmnode/takeovers"
            for line in ledger.read_text().splitlines() if ledger.exists() else ():
                token = json.loads(line)
                assert token["host"] == name
                found.append((token["number"], name, token["time"]))
        return sorted(found)

    def boot(self, name: str) -> None:
        """Power it on again with its network mended, and wait for its sshd."""
        self.boots[name] += 1
        self.mend(name)
        self.hosts[name].boot()
        self.hosts[name].wait_until_up()

    def cut(self, name: str) -> None:
        """Drop everything that a host sends or gets."""
        rules = (
            "table inet lab { chain i { type filter hook input priority 0; iif eth0 drop; }; "
            "chain o { type filter hook output priority 0; oif eth0 drop; }; }"
        )
        run("ip", "netns", "exec", self.network.namespace(name), "nft", rules)

    def mend(self, name: str) -> None:
        """Let it pass again."""
        run("ip", "netns", "exec", self.network.namespace(name), "nft", "delete table inet lab", check=False)

    def processes(self, name: str) -> list[int]:
        """All processes of a host."""
        found = []
        with suppress(OSError):
            own = Path(f"/proc/{self.hosts[name]._leader}/ns/pid").readlink()
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    if (process / "ns/pid").readlink() == own:
                        found.append(int(process.name))
        return found

    def pause(self, name: str) -> None:
        """Stop all processes of a host, as a virtual machine that is paused."""
        for number in self.processes(name):
            with suppress(OSError):
                os.kill(number, 19)

    def resume(self, name: str) -> None:
        """Let them go on."""
        for number in self.processes(name):
            with suppress(OSError):
                os.kill(number, 18)

    def _serve_fencing(self) -> None:
        while not self._ended.wait(0.03):
            for name, host in self.hosts.items():
                folder = Path(f"/proc/{host._leader}/root{FENCE}")
                with suppress(OSError):
                    for question in folder.glob("*.question"):
                        action, target = question.read_text().split()
                        self._fence(name, action, target)
                        question.with_suffix(".answer").write_text("done")
                        question.unlink()

    def _fence(self, by: str, action: str, target: str) -> None:
        if target not in self.hosts:
            return
        with self._busy[target]:
            self.power_off(target)
            self.fenced.append((time.time(), by, target))
            print(f"{time.time():.2f} fenced {target} by {by}", file=sys.stderr, flush=True)
        if action == "reboot":
            threading.Thread(target=self._reboot, args=(target,), daemon=True).start()

    def _reboot(self, target: str) -> None:
        with self._busy[target], suppress(AssertionError):  # it may be fenced again while it boots
            self.boot(target)

    def close(self) -> None:
        """Power both off and remove everything."""
        self._ended.set()
        if self._fencing.is_alive():
            self._fencing.join(60)
        self.lab.close()
        for loop in self._loops.values():
            run("losetup", "-d", loop, check=False)
