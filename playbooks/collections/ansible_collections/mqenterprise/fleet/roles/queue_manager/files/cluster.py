"""Run the node of a machine with several hosts on one of them, and print one JSON document.

Arguments: an action, then the host that it is about, or ``check`` for what only says what it would do. Standard input
has the machine as JSON. Exit code 1 with a sentence that says what to do.

``running`` says whether this host runs the node, ``fit`` whether it could take over. ``restart``, ``start`` and
``stop`` are about this host; ``halt`` stops the node and keeps its store here, until ``resume``. In a Pacemaker cluster
``resources`` makes the machine's resources, and ``active`` waits until the node runs. ``move`` has another host run it.
``out`` and ``back`` take a host out of the cluster's choice, and in again. ``remove`` stops the node for good, and
``note`` keeps for the node here what ``fit`` has said of another host.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

UNIT = "qmnode.service"
SECONDS = 180
"""For a stop and a start."""
NOTES = Path("/run/qmnode-cluster/standbys")
"""failover.standbys of the node."""
NO = ("false", "off", "no", "n", "0")


class Refused(Exception):
    """A request that cannot be met; its sentence says what to do."""


def run(*command: str, check: bool = True, given: str | None = None) -> str:
    """Return the output of a command. Raises Refused."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS, input=given)
    except FileNotFoundError:
        raise Refused(f"there is no {command[0]} here: install pacemaker and pacemaker-cli-utils") from None
    except subprocess.TimeoutExpired:
        raise Refused(f"{' '.join(command)} has not ended after {SECONDS} s") from None
    if check and done.returncode != 0:
        raise Refused(f"{' '.join(command)[:200]}: {(done.stderr.strip() or done.stdout.strip())[-400:]}")
    return done.stdout


def short(host: str) -> str:
    """The name of a host without its domain."""
    return host.partition(".")[0].lower()


def is_running() -> bool:
    """Whether the node runs here."""
    return run("systemctl", "show", "-p", "ActiveState", "--value", UNIT).strip() in (
        "active",
        "activating",
        "reloading",
    )


def has_unit() -> bool:
    """Whether a roll-out has set the node up here."""
    return run("systemctl", "show", "-p", "LoadState", "--value", UNIT).strip() == "loaded"


# Questions to every host


def running(_machine: dict) -> dict:
    """Whether this host runs the node, and has it at all."""
    return {"running": is_running(), "has_unit": has_unit()}


def fit(machine: dict) -> dict:
    """Whether this host could take over: the node's own check, its unit, and the way to its store."""
    command = [machine["command"], "run", "--check", "--config", machine["config"]]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    except FileNotFoundError:
        return {"fit": False, "said": f"there is no {command[0]}: run rollout.yml"}
    lines = (done.stdout.strip() or done.stderr.strip() or "the check said nothing").splitlines()
    found = [] if done.returncode == 0 else [lines[-1].removeprefix("unfit: ")]
    if not has_unit():
        found.append(f"there is no unit {UNIT}: run rollout.yml")
    found += store_faults(machine)
    if machine["way"] == "pacemaker":
        try:
            cluster = Cluster(machine)
            found += cluster.faults() + cluster.cannot_run()
        except Refused as error:
            found.append(str(error))
    return {"fit": not found, "said": "; ".join(found) if found else lines[-1].removeprefix("fit: ")}


def store_faults(machine: dict) -> list[str]:
    """Why this host would not reach the store."""
    device, store = machine["device"], Path(machine["store"])
    if device is None:
        if not (store / "CURRENT").exists() and machine["active"]:
            return [f"{store} has no store, and {machine['active']} runs with one: mount the shared file system here"]
        return []
    if not os.access(device, os.R_OK):
        return []  # the node's own check has said so
    kind = run("blkid", "-p", "-s", "TYPE", "-o", "value", device, check=False).strip()
    if kind != machine["filesystem"]:
        return [f"{device} has {kind or 'no file system'}, and {machine['filesystem']} is declared"]
    return []


# Where an operator decides


def note(machine: dict) -> dict:
    """Keep for the node here what the check of a host that stands by has said, and when."""
    NOTES.parent.mkdir(mode=0o755, exist_ok=True)
    folder = os.open(NOTES.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        kept = NOTES.read_text().splitlines() if NOTES.exists() else []
        kept = [line for line in kept if not line.startswith(f"{machine['standby']} ")]
        moment = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
        new = NOTES.with_suffix(".new")
        new.write_text("\n".join([*kept, f"{machine['standby']} {machine['said'][:300]} (checked {moment} UTC)", ""]))
        new.chmod(0o644)
        new.replace(NOTES)
    finally:
        os.close(folder)
    return {"changed": False}


def start(machine: dict) -> dict:
    """Mount the store here and start the node."""
    store = Path(machine["store"])
    if is_running():
        return {"changed": False, "active": machine["here"]}
    if machine["device"] is not None and not os.path.ismount(store):
        store.mkdir(mode=0o700, parents=True, exist_ok=True)
        run("mount", "-t", machine["filesystem"], machine["device"], str(store))
    if store.stat().st_uid == 0:  # a file system that was made a moment ago
        store.chmod(0o700)
        shutil.chown(store, machine["user"], machine["group"])
    run("systemctl", "reset-failed", UNIT, check=False)
    try:
        run("systemctl", "start", UNIT)
    except Refused:
        said = run("journalctl", "--unit", UNIT, "--lines", "5", "--output", "cat", "--no-pager", check=False)
        stop(machine)
        raise Refused(f"the node does not start; its log ends with: {said.strip()[-900:]}") from None
    return {"changed": True, "active": machine["here"]}


def stop(machine: dict) -> dict:
    """Stop the node here and let its store go."""
    ran = is_running()
    run("systemctl", "stop", UNIT)
    if machine["device"] is not None and os.path.ismount(machine["store"]):
        run("umount", machine["store"])
        ran = True
    return {"changed": ran}


def restart(machine: dict) -> dict:
    """Start the node anew on the host that runs it."""
    if machine["way"] == "pacemaker":
        run("crm_resource", "--restart", "--resource", Cluster(machine).node)
    else:
        run("systemctl", "restart", UNIT)
    return {"changed": True, "active": machine["here"]}


# Either way


def halt(machine: dict) -> dict:
    """Stop the node here; its store stays, and no other host starts it."""
    if machine["way"] == "pacemaker":
        Cluster(machine).want("Stopped")
    else:
        run("systemctl", "stop", UNIT)
    return {"changed": True}


def resume(machine: dict) -> dict:
    """Start the node here after ``halt``."""
    if machine["way"] == "pacemaker":
        cluster = Cluster(machine)
        cluster.want("Started")
        return cluster.active() | {"changed": True}
    return start(machine)


def remove(machine: dict) -> dict:
    """Stop the node and let its store go, for good."""
    if machine["way"] == "pacemaker":
        return Cluster(machine).remove()
    return stop(machine)


# Where Pacemaker decides


class Cluster:
    """The Pacemaker cluster of this host, and the resources of one machine in it."""

    def __init__(self, machine: dict) -> None:
        self.machine = machine
        self.group = machine["name"]
        self.node = f"{self.group}-node"
        try:
            self.cib = ET.fromstring(run("cibadmin", "--query"))  # noqa: S314  (the cluster's own)
        except Refused as error:
            raise Refused(
                f"no Pacemaker cluster answers on {machine['here']}: set up Corosync and Pacemaker on "
                f"{' and '.join(machine['hosts'])}, with a fencing device, then run the playbook again ({error})"
            ) from None
        members = {short(one.get("uname", "")): one.get("uname", "") for one in self.cib.iterfind(".//nodes/node")}
        self.missing = [host for host in machine["hosts"] if short(host) not in members]
        self.names = {host: members.get(short(host), host) for host in machine["hosts"]}
        self.others = sorted(name for known, name in members.items() if known not in map(short, machine["hosts"]))

    def faults(self) -> list[str]:
        """Why the cluster may not move the node: above all, why it could not fence."""
        found = [f"{host} is no member of the cluster: add it with Corosync's configuration" for host in self.missing]
        properties = {
            one.get("name"): one.get("value", "") for one in self.cib.iterfind(".//cluster_property_set/nvpair")
        }
        if properties.get("stonith-enabled", "true").lower() in NO:
            found.append("its fencing is off: set stonith-enabled=true, as nothing else keeps two hosts from one store")
        devices = [one.get("id", "") for one in self.cib.iterfind(".//primitive[@class='stonith']")]
        absent = [name for name in self.machine["fencing"] if name not in devices]
        if absent:
            has = ", ".join(devices) or "no fencing device"
            found.append(
                f"the cluster has no fencing device {' and no '.join(absent)}, it has {has}: add it, or name it"
            )
        if not found:
            found += [fault for host in self.machine["hosts"] if (fault := self._cannot_fence(self.names[host]))]
        return found

    def _cannot_fence(self, host: str) -> str:
        listed = run("stonith_admin", "--list", host, check=False).split()
        if set(self.machine["fencing"]).isdisjoint(listed):
            names = " and ".join(self.machine["fencing"])
            return f"{names} cannot fence {host}: see that it runs, and that its pcmk_host_list has {host}"
        return ""

    def cannot_run(self) -> list[str]:
        """Why the cluster would not run the node here, by its own simulation of the loss of the other hosts."""
        active = self.located()
        if self.cib.find(f".//group[@id='{self.group}']") is None or not active:
            return []
        here = self.names[self.machine["here"]]
        if active == here:
            return []
        down = [part for name in self.names.values() if name != here for part in ("--node-down", name)]
        said = run("crm_simulate", "--live-check", "--simulate", *down, check=False)
        after = said.partition("Revised Cluster Status")[2]
        line = next((one for one in after.splitlines() if f"{self.node}\t" in one or f"{self.node} " in one), "")
        if f"Started {here}" in line:
            return []
        return [f"the cluster would not start {self.node} here if {active} were lost: crm_mon -1 says why"]

    def wanted(self) -> tuple[ET.Element, ET.Element]:
        """The group of resources in the order in which they start, and where they may run."""
        machine = self.machine
        group = ET.Element("group", id=self.group)
        _values(group, "meta", self.group, {"resource-stickiness": "100"})
        store = {"device": machine["device"], "directory": machine["store"], "fstype": machine["filesystem"]}
        self._resource(group, "store", "heartbeat", "Filesystem", store, {"monitor": ("20s", "40s")})
        for number, address in enumerate(machine["addresses"]):
            name = f"address-{number + 1}" if number else "address"
            self._resource(group, name, "heartbeat", "IPaddr2", {"ip": address}, {"monitor": ("20s", "20s")})
        times = {"start": ("0", "120s"), "stop": ("0", "90s"), "monitor": ("1s", "20s")}
        values = {"lease": str(machine["lease"])}
        node = self._resource(group, "node", "qmnode", "qmnode", values, times)
        _operation(node, self.node, "monitor", "60s", "20s", "Stopped")
        _values(node, "meta", self.node, {"failure-timeout": "10min"})
        place = ET.Element("rsc_location", {"id": f"{self.group}-hosts", "rsc": self.group})
        rule = ET.SubElement(
            place, "rule", {"id": f"{self.group}-hosts-rule", "score": "-INFINITY", "boolean-op": "and"}
        )
        for number, name in enumerate(sorted(self.names.values())):
            about = {"attribute": "#uname", "operation": "ne", "value": name}
            ET.SubElement(rule, "expression", {"id": f"{self.group}-hosts-{number}", **about})
        return group, place

    def _resource(
        self, group: ET.Element, name: str, provider: str, kind: str, values: dict, times: dict
    ) -> ET.Element:
        known = f"{self.group}-{name}"
        one = ET.SubElement(group, "primitive", {"id": known, "class": "ocf", "provider": provider, "type": kind})
        _values(one, "instance", known, values)
        for operation, (interval, timeout) in times.items():
            _operation(one, known, operation, interval, timeout)
        return one

    def resources(self, *, check: bool) -> dict:
        """Make the resources as they are declared, if the cluster could fence."""
        faults = self.faults()
        if faults:
            raise Refused("; ".join(faults))
        changed = []
        for section, element in zip(("resources", "constraints"), self.wanted(), strict=True):
            present = self.cib.find(f".//{section}/{element.tag}[@id='{element.get('id')}']")
            if present is not None and _has(present, element):
                continue
            changed.append(element.get("id"))
            if not check:
                how = "--create" if present is None else "--replace"
                run("cibadmin", how, "--scope", section, "--xml-pipe", given=ET.tostring(element, "unicode"))
        return {"changed": bool(changed), "resources": changed}

    def located(self) -> str:
        """The member on which the cluster runs the node; empty if on none."""
        found = run("crm_resource", "--resource", self.node, "--locate", "--quiet", check=False).split()
        return found[0] if len(found) == 1 else ""

    def active(self, on: str = "") -> dict:
        """Wait until the node runs, on that host if one is named."""
        wanted = self.names.get(on, on)
        ends = time.monotonic() + SECONDS
        while True:
            found = self.located()
            if found and wanted in ("", found) and self._has_started(found):
                return {"changed": False, "active": next(host for host, name in self.names.items() if name == found)}
            if time.monotonic() > ends:
                failed = run("crm_mon", "-1", "--exclude=all", "--include=failures", check=False).strip()
                raise Refused(
                    f"the cluster runs the node on {found or 'no host'} after {SECONDS} s"
                    f"{f', and not on {wanted}' if wanted else ''}: {failed[-600:] or 'crm_mon -1 says why'}"
                )
            time.sleep(0.5)

    def _has_started(self, host: str) -> bool:
        lines = run("crm_mon", "-1", check=False).splitlines()
        return any(self.node in line and f"Started {host}" in line for line in lines)

    def move(self, to: str) -> dict:
        """Have another host run the node; the wish for it does not outlast the move."""
        run("crm_resource", "--resource", self.group, "--move", "--node", self.names[to])
        run("crm_resource", "--resource", self.node, "--meta", "--delete-parameter", "target-role", check=False)
        try:
            return self.active(to) | {"changed": True}
        finally:
            run("crm_resource", "--resource", self.group, "--clear", check=False)

    def want(self, role: str) -> None:
        """Have the node started or stopped, with all that it needs left as it is."""
        given = ("--meta", "--set-parameter", "target-role", "--parameter-value", role)
        run("crm_resource", "--resource", self.node, *given)
        run("crm_resource", "--wait")

    def remove(self) -> dict:
        """Stop the machine's resources and delete them."""
        place = self.cib.find(f".//rsc_location[@id='{self.group}-hosts']")
        group = self.cib.find(f".//group[@id='{self.group}']")
        if group is not None:
            given = ("--meta", "--set-parameter", "target-role", "--parameter-value", "Stopped")
            run("crm_resource", "--resource", self.group, *given)
            run("crm_resource", "--wait")
            if is_running() or self.located():
                raise Refused(f"the cluster does not stop {self.group}: crm_mon -1 says why")
        for section, element in (("constraints", place), ("resources", group)):
            if element is not None:
                text = f'<{element.tag} id="{element.get("id")}"/>'
                run("cibadmin", "--delete", "--scope", section, "--xml-text", text)
        return {"changed": group is not None}

    def stand_by(self, host: str, *, out: bool, check: bool) -> dict:
        """Take a host out of the cluster's choice, or into it again."""
        name = self.names[host]
        query = ("crm_attribute", "--type", "nodes", "--node", name, "--name", "standby")
        is_out = run(*query, "--query", "--quiet", check=False).strip() in ("on", "true")
        if is_out == out:
            return {"changed": False}
        if not check:
            run(*query, "--update", "on" if out else "off")
            run("crm_resource", "--wait")
        return {"changed": True}


def _values(parent: ET.Element, kind: str, known: str, values: dict) -> None:
    found = ET.SubElement(parent, f"{kind}_attributes", id=f"{known}-{kind}")
    for name, value in values.items():
        ET.SubElement(found, "nvpair", {"id": f"{known}-{kind}-{name}", "name": name, "value": value})


def _operation(one: ET.Element, known: str, name: str, interval: str, timeout: str, role: str = "") -> None:
    operations = one.find("operations")
    if operations is None:
        operations = ET.SubElement(one, "operations")
    given = {"id": f"{known}-{name}-{interval}", "name": name, "interval": interval, "timeout": timeout}
    ET.SubElement(operations, "op", given | ({"role": role} if role else {}))


def _has(present: ET.Element, wanted: ET.Element) -> bool:
    """Whether all of it is there, and no other resource in the group. Additions of others to its parts may stay."""
    here = {one.get("id"): one for one in present.iter()}
    for one in wanted.iter():
        other = here.get(one.get("id")) if one.get("id") else present
        if other is None or any(other.get(name) != value for name, value in one.attrib.items()):
            return False
    parts = ("primitive", "expression")
    return all(len([*present.iter(part)]) == len([*wanted.iter(part)]) for part in parts)


HERE = {one.__name__: one for one in (running, fit, start, stop, restart, halt, resume, remove, note)}
"""Actions about this host alone."""


def main() -> None:
    """Do what is asked for."""
    action, *rest = sys.argv[1:]
    machine = json.loads(sys.stdin.read())
    check = "check" in rest
    host = next((one for one in rest if one != "check"), machine["here"])
    try:
        if action in HERE:
            done = HERE[action](machine)
        elif action == "resources":
            done = Cluster(machine).resources(check=check)
        elif action == "active":
            done = Cluster(machine).active()
        elif action == "move":
            done = Cluster(machine).move(host)
        else:
            done = Cluster(machine).stand_by(host, out=action == "out", check=check)
    except (Refused, OSError) as error:
        sys.exit(str(error))
    print(json.dumps(done))


main()
