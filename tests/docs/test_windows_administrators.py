"""Every command in the tables for administrators of Windows runs, in their order, against a real node and directory."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import mqenterprise.cli
import qmnode.cli
from mqenterprise.directory.open_directory import EnterpriseDirectory
from qmnode.directory.port import QueueManager, Site, User
from tests.lab.directory_objects import create
from tests.lab.nodes import launch
from tests.lab.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mqenterprise.directory.private_slapd import EmbeddedDirectory

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs/windows-administrators.md").read_text("utf-8")
CMDLETS = {
    *(f"{verb}-MsmqQueue" for verb in ("New", "Set", "Get", "Remove", "Clear", "Send", "Receive")),
    *(f"{verb}-Msmq{what}" for verb in ("Get", "Set") for what in ("QueueACL", "QueueManager", "QueueManagerACL")),
    *(f"{verb}-MsmqOutgoingQueue" for verb in ("Get", "Suspend", "Resume", "Clear")),
    *(f"{verb}-MsmqCertificate" for verb in ("Get", "Enable", "Remove")),
    "New-MsmqMessage",
    "Move-MsmqMessage",
}
SPAN = re.compile(r"`((?:qmnode|mqenterprise) [^`]+)`")
PROGRAM = "import sys; from {0}.cli import main; sys.argv[0] = '{0}'; main()"


def rows() -> list[str]:
    return [line for line in PAGE.splitlines() if line.startswith("| ")]


class Desk:
    """A shell of the administrator of ``shop``: a node and a directory, found by the environment."""

    process: subprocess.Popen[bytes]

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.folder = folder
        self.config = folder / "node.yaml"
        (folder / "directory.yaml").write_text(yaml.safe_dump(settings), "utf-8")
        keys = {"directory": str(folder / "{computer}"), "reload_interval": 0}
        (folder / "keys.yaml").write_text(yaml.safe_dump(keys), "utf-8")
        (folder / "shop").mkdir()
        self.environment = os.environ | {
            "PYTHONPATH": str(REPOSITORY),
            "QMNODE_SOCKET": str(folder / "node.sock"),
            "MQENTERPRISE_DIRECTORY": str(folder / "directory.yaml"),
            "MQENTERPRISE_KEYS": str(folder / "keys.yaml"),
        }

    def configure(self, **more: object) -> None:
        settings = {
            "computer_name": "shop",
            "data": str(self.folder / "store"),
            "transport": {"enabled": False},
            "local": {"socket": str(self.folder / "node.sock")},
            "management": {"socket": str(self.folder / "management.sock")},
        }
        self.config.write_text(json.dumps(settings | more))

    def run(self, command: str, codes: tuple[int, ...] = (0,)) -> str:
        program, *arguments = shlex.split(command)
        output, code = io.StringIO(), 0
        with (
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
            pytest.MonkeyPatch.context() as patch,
        ):
            patch.setattr(sys, "argv", [program, *arguments])
            for name, value in self.environment.items():
                patch.setenv(name, value)
            try:
                {"qmnode": qmnode.cli.main, "mqenterprise": mqenterprise.cli.main}[program]()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(bool(end.code))
        assert code in codes, f"{command}: {output.getvalue()}"
        return output.getvalue()

    def filled(self, command: str) -> str:
        """The command with what only the node, the directory or the reader knows."""
        if "LOOKUP" in command:
            words = shlex.split(command)
            queue = words[words.index("LOOKUP") - 1]  # the word before is the queue
            (message, *_) = self.run(f"qmnode peek {queue} --json").splitlines()
            command = command.replace("LOOKUP", json.loads(message)["lookup_identifier"])
        if "FINGERPRINT" in command:
            found = json.loads(self.run("mqenterprise certificate list 'Order Desk' --json"))
            command = command.replace("FINGERPRINT", found[-1]["fingerprint"])
        return command.replace("FILE", str(REPOSITORY / "tests/conformance/session.pcap"))


@pytest.fixture(scope="module")
def desk(slapd: EmbeddedDirectory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    settings = slapd.client_settings()
    with EnterpriseDirectory(settings) as directory:
        site = create(directory, Site(name="Here"))
        assert site.identifier is not None
        directory.queue_managers.add(QueueManager(computer_name="shop", site_identifier_list=(site.identifier,)))
        sid = bytes.fromhex("0105000000000005150000000102030405060708091011125a040000")
        create(directory, User(name="Order Desk", security_identifier=sid))
    values = settings.model_dump(mode="json", exclude_none=True)
    if settings.password is not None:
        values["password"] = settings.password.get_secret_value()
    desk = Desk(tmp_path_factory.mktemp("desk"), values)
    desk.configure()
    log = desk.folder / "log"
    desk.process = launch(desk.config, log, desk.environment, cwd=desk.folder)
    try:
        wait_until(lambda: '"ready"' in log.read_text("utf-8"), 60, "the node is ready")
        yield desk
    finally:
        desk.process.terminate()
        desk.process.wait(240)


def test_every_cmdlet_has_a_row_with_a_command() -> None:
    named: set[str] = set()
    for row in rows():
        found = set(re.findall(r"`(\w+-Msmq\w+)`", row.split("|")[1]))
        assert not found or SPAN.search(row), row
        named |= found
    assert named == CMDLETS
    assert len(named) == 22


@pytest.mark.servers
def test_every_row_works(desk: Desk) -> None:
    # The other ends: a queue for answers, and an outgoing queue whose next hop is not there.
    desk.run("qmnode queue create answers")
    desk.run(r"qmnode send 'DIRECT=OS:far\private$\orders' waits")
    ran = 0
    for row in rows():
        for command in SPAN.findall(row):
            # What is due for a key is no failure. This node has no directory to publish a queue in.
            codes = (0, 2) if "keys status" in command else (1,) if command.endswith("--public") else (0,)
            printed = desk.run(desk.filled(command), codes=codes)
            assert ("MQ_ERROR_NO_DS" in printed) is (codes == (1,))
            ran += 1
    assert ran >= 45
    assert json.loads(desk.run("qmnode status --json"))["online"] is True


@pytest.mark.servers
def test_a_node_that_is_disconnected_says_so(desk: Desk) -> None:
    desk.run("qmnode disconnect")
    assert json.loads(desk.run("qmnode status --json"))["online"] is False
    desk.run("qmnode connect")
    assert json.loads(desk.run("qmnode status --json"))["online"] is True


@pytest.mark.servers
def test_quotas_are_taken_over_on_reload(desk: Desk) -> None:
    (written,) = re.findall(r"`quotas: (\{.*?\})`", PAGE)
    desk.configure(quotas=yaml.safe_load(written))

    desk.process.send_signal(signal.SIGHUP)

    def quotas() -> Any:
        return json.loads(desk.run("qmnode status --json"))["quotas"]

    wait_until(lambda: quotas()["quota"] == 2097152 and quotas()["journal_quota"] == 1048576, 60, "new quotas")
