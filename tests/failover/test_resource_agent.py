"""The resource agent for Pacemaker, with programs in the place of systemd and the cluster."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import xml.etree.ElementTree as Xml
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qmnode.lease import read_promise
from tests.lab.nodes import PROJECT
from tests.lab.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

AGENT = PROJECT / "qmnode/systemd/qmnode.ocf"
SUCCESS, GENERIC, UNIMPLEMENTED, INSTALLED, CONFIGURED, NOT_RUNNING = 0, 1, 3, 5, 6, 7
SYSTEMCTL = """\
#!/bin/sh
echo "$*" >>"$STATE/calls"
case "$*" in
*LoadState*) cat "$STATE/load";;
*ExecStart*) echo "{ path=/q ; argv[]=$STATE/node run --config /etc/n.yaml ; ignore_errors=no ; pid=0 }";;
*ActiveState*) cat "$STATE/active";;
*MainPID*) cat "$STATE/pid";;
"is-active --quiet "*-lease.service) [ -e "$STATE/renewer" ];;
"start "*) [ -e "$STATE/fails" ] && exit 1; echo active >"$STATE/active";;
"stop "*-lease.service) rm -f "$STATE/renewer";;
"stop "*) [ -e "$STATE/hangs" ] || echo inactive >"$STATE/active";;
"kill -s KILL "*) rm -f "$STATE/hangs"; echo failed >"$STATE/active";;
esac
"""
PROGRAMS = {
    "systemctl": SYSTEMCTL,
    "systemd-run": '#!/bin/sh\necho "$*" >>"$STATE/calls"\ncase "$*" in *renew) touch "$STATE/renewer";; esac\n',
    "corosync-quorumtool": '#!/bin/sh\necho "Quorate:          $(cat "$STATE/quorum")"\n',
    "attrd_updater": '#!/bin/sh\necho "attrd $*" >>"$STATE/calls"\ncase "$*" in *Q*) '
    'echo \'name="qmnode-standby" host="cor-b" value="fit"\';; esac\n',
    "logger": "#!/bin/sh\n",
}


class Agent:
    """The agent on a host that a test makes up."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.state.mkdir()
        programs = folder / "programs"
        programs.mkdir()
        for name, text in PROGRAMS.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        self.set(load="loaded", active="inactive", quorum="Yes", pid="0")
        self.unit = f"qmtest-{secrets.token_hex(4)}.service"
        self.folder = Path("/run") / f"qmtest-{secrets.token_hex(4)}"
        self.lease = self.folder / "lease"
        self.environment = {
            "PATH": f"{programs}:{os.environ['PATH']}", "STATE": str(self.state), "OCF_RESKEY_unit": self.unit,
            "OCF_RESKEY_lease_file": str(self.lease), "OCF_RESKEY_lease": "3",
        }  # fmt: skip

    def set(self, **values: str) -> None:
        """What the programs answer."""
        for name, value in values.items():
            (self.state / name).write_text(f"{value}\n")

    def call(self, action: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """One action."""
        return subprocess.run(
            [str(AGENT), action], env=self.environment | environment,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    @property
    def calls(self) -> str:
        """What it called."""
        return (self.state / "calls").read_text()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    if os.getuid() != 0:
        pytest.skip("the agent writes below /run, as root")
    made = Agent(tmp_path)
    yield made
    shutil.rmtree(made.folder, ignore_errors=True)
    shutil.rmtree(f"/run/systemd/system/{made.unit}.d", ignore_errors=True)


def test_its_meta_data_name_every_action_and_parameter() -> None:
    found = Xml.fromstring(subprocess.run([AGENT, "meta-data"], capture_output=True, text=True, check=True).stdout)
    actions = {action.get("name") for action in found.iter("action")}
    parameters = {parameter.get("name") for parameter in found.iter("parameter")}
    assert actions == {"start", "stop", "monitor", "meta-data", "validate-all"}
    text = AGENT.read_text()
    assert parameters == {"unit", "lease", "lease_file", "store", "quorum"}
    assert all(f"OCF_RESKEY_{name}" in text for name in parameters)


@pytest.mark.parametrize(
    ("wrong", "code", "reason"),
    [
        ({"OCF_RESKEY_lease": "ten"}, CONFIGURED, "whole seconds"),
        ({"OCF_RESKEY_lease": "0"}, CONFIGURED, "whole seconds"),
        ({"OCF_RESKEY_lease_file": "/var/lib/qmnode/lease"}, CONFIGURED, "below /run"),
        ({"OCF_RESKEY_lease_file": "/run/../etc/lease"}, CONFIGURED, "without . and .."),
        ({"OCF_RESKEY_unit": "a;b"}, CONFIGURED, "no name of a unit"),
        ({"PATH": "/nowhere"}, INSTALLED, "there is no systemctl"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(agent: Agent, wrong: dict[str, str], code: int, reason: str) -> None:
    for action in ("validate-all", "start"):
        done = agent.call(action, **wrong)
        assert (done.returncode, reason in done.stderr) == (code, True), done
    assert not agent.lease.exists()


def test_without_the_unit_it_is_not_installed(agent: Agent) -> None:
    agent.set(load="not-found")
    assert agent.call("start").returncode == INSTALLED


def test_an_unknown_action_is_not_implemented(agent: Agent) -> None:
    assert agent.call("promote").returncode == UNIMPLEMENTED


def test_start_gives_the_node_a_lease_before_it_starts_it(agent: Agent) -> None:
    assert agent.call("monitor").returncode == NOT_RUNNING
    assert agent.call("start").returncode == SUCCESS
    assert read_promise(agent.lease, 3).boot
    assert agent.calls.index("renew") < agent.calls.index(f"start {agent.unit}")
    assert "Restart=no" in Path(f"/run/systemd/system/{agent.unit}.d/50-pacemaker.conf").read_text()
    assert agent.call("monitor").returncode == SUCCESS
    assert agent.call("start").returncode == SUCCESS


def test_stop_ends_the_lease_after_the_node(agent: Agent) -> None:
    agent.call("start")
    assert agent.call("stop").returncode == SUCCESS
    assert not agent.lease.exists()
    assert agent.calls.rindex(f"stop {agent.unit}") < agent.calls.rindex("-lease.service")
    assert agent.call("monitor").returncode == NOT_RUNNING
    assert agent.call("stop").returncode == SUCCESS


def test_a_node_that_does_not_stop_is_killed(agent: Agent) -> None:
    agent.call("start")
    agent.set(hangs="")
    assert agent.call("stop").returncode == SUCCESS
    assert f"kill -s KILL {agent.unit}" in agent.calls


def test_without_quorum_nothing_is_started(agent: Agent) -> None:
    agent.set(quorum="No")
    done = agent.call("start")
    assert done.returncode == GENERIC
    assert "no quorum" in done.stderr
    assert f"start {agent.unit}" not in agent.calls.splitlines()


def test_a_failed_start_leaves_no_lease(agent: Agent) -> None:
    agent.set(fails="")
    assert agent.call("start").returncode == GENERIC
    assert not agent.lease.exists()
    assert not (agent.state / "renewer").exists()


def test_a_process_that_is_stopped_by_a_signal_has_failed(agent: Agent) -> None:
    agent.call("start")
    with subprocess.Popen(["sleep", "600"]) as process:
        agent.set(pid=str(process.pid))
        assert agent.call("monitor").returncode == SUCCESS
        os.kill(process.pid, 19)
        wait_until(lambda: "T (stopped)" in Path(f"/proc/{process.pid}/status").read_text(), 60, "it is stopped")
        done = agent.call("monitor")
        process.kill()
    assert (done.returncode, "stopped by a signal" in done.stderr) == (GENERIC, True)


def test_the_renewal_ends_with_the_quorum_and_begins_again(agent: Agent) -> None:
    """And each promise is one that the node believes."""

    def held() -> bool:
        try:
            return read_promise(agent.lease, 3).standbys == ("cor-b fit",)
        except ValueError:
            return False

    with subprocess.Popen([AGENT, "renew"], env=agent.environment, stderr=subprocess.DEVNULL) as renewing:
        wait_until(held, 60, "it is renewed")
        agent.set(quorum="No")
        wait_until(lambda: not held(), 60, "it runs out")
        agent.set(quorum="Yes")
        wait_until(held, 60, "it is renewed again")
        renewing.kill()


def test_a_lost_renewal_is_started_again(agent: Agent) -> None:
    agent.call("start")
    (agent.state / "renewer").unlink()
    assert agent.call("monitor").returncode == SUCCESS
    assert (agent.state / "renewer").exists()


def test_a_standby_is_checked_beside_the_monitor_once_in_ten_minutes(agent: Agent) -> None:
    """A monitor that waits for the check times out on a busy host, which the cluster takes for a node on it."""
    for interval in ("0", "15000", "15000"):
        assert agent.call("monitor", OCF_RESKEY_CRM_meta_interval=interval).returncode == NOT_RUNNING
    calls = agent.calls.splitlines()
    (beside,) = [call for call in calls if call.endswith(" check")]
    assert f"--unit={agent.unit.removesuffix('.service')}-check.service" in beside
    assert "called" not in agent.calls


def test_a_check_tells_the_cluster_whether_the_host_would_be_fit(agent: Agent) -> None:
    node = agent.state / "node"
    node.write_text('#!/bin/sh\necho "called $*" >>"$STATE/calls"\necho "unfit: the <clock> is \'wrong\'"\n')
    node.chmod(0o755)
    agent.call("check")
    assert "called run --config /etc/n.yaml --check" in agent.calls.splitlines()
    name = agent.unit.removesuffix(".service")
    assert f"attrd -n {name}-standby -U unfit: the clock is wrong" in agent.calls.splitlines()
