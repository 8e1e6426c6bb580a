"""The mistakes that newcomers make: each is one line with its cause and the next step, and the right exit code."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml

import mqenterprise.cli
import qmnode.cli
from mqenterprise.directory.admission import admit
from mqenterprise.directory.open_directory import EnterpriseDirectory
from qmnode.directory.port import QueueManager, Site
from tests.lab.directory_objects import create
from tests.lab.nodes import PROJECT, NodeProcess

if TYPE_CHECKING:
    from mqenterprise.directory.private_slapd import EmbeddedDirectory

pytestmark = pytest.mark.servers

SAMPLE = PROJECT / "inventory/contoso.yaml"
MAIN = {"qmnode": qmnode.cli.main, "mqenterprise": mqenterprise.cli.main}


class Mistake(NamedTuple):
    what: str
    command: str
    code: int
    cause: str
    next_step: str


NODE = [
    Mistake("no node runs", "qmnode status --socket {here}/none.sock", 3, "no node answers", "'qmnode run'"),
    Mistake("a misspelt command", "qmnode stauts", 2, "no such command 'stauts'", "Did you mean 'status'?"),
    Mistake("a misspelt option", "qmnode peek orders --cout 3", 2, "no such option: --cout", "--count"),
    Mistake("a misspelt queue", "qmnode send ordres x", 1, "there is no queue", r"did you mean .\private$\orders?"),
    Mistake(
        "a misspelt queue to read", "qmnode peek Oders", 1, "there is no queue", r"did you mean .\private$\orders?"
    ),
    Mistake(
        "a queue elsewhere as if it were here",
        r"qmnode send foo\orders x",
        1,
        "is on computer foo",
        r"DIRECT=OS:foo\private$\orders",
    ),
    Mistake("half a format name", "qmnode send DIRECT=OS:foo x", 1, "is wrong at character 13", "expected a backslash"),
    Mistake(
        "a name in a list of format names",
        r"qmnode send orders,DIRECT=OS:h\private$\q x",
        1,
        r"'orders,DIRECT=OS:h\private$\q' is wrong at character 0",
        "expected DIRECT=",
    ),
    Mistake("a queue that is there", "qmnode queue create orders", 1, "MQ_ERROR_QUEUE_EXISTS", "already"),
    Mistake(
        "no transaction for a queue that wants one",
        "qmnode send exact x --no-transactional",
        1,
        "MQ_ERROR_TRANSACTION_USAGE",
        "transaction",
    ),
    Mistake("a body that is too large", "qmnode send orders --file {here}/large", 2, "more than 4194304", "in parts"),
    Mistake(
        "a file that is not there", "qmnode send orders --file {here}/none", 2, "No such file", "qmnode send --help"
    ),
    Mistake("a full queue", "qmnode send small --file {here}/body", 1, "MQ_ERROR_INSUFFICIENT_RESOURCES", "quota"),
    Mistake("an empty queue", "qmnode receive empty", 4, "MQ_ERROR_IO_TIMEOUT", ""),
    Mistake("a size that is none", "qmnode queue set orders --quota lots", 2, "'lots'", "no size such as 10MB"),
    Mistake("deleting in a script", "qmnode queue delete orders", 2, "nobody to ask", "--yes"),
    Mistake("a right that is none", "qmnode queue acl allow orders everyone send", 2, "send", "send-message"),
    Mistake(
        "a misspelt right", "qmnode queue acl allow orders everyone recieve-message", 2, "no right", "mean receive-"
    ),
    Mistake("a misspelt property", "qmnode message find orders --where lable=x", 2, "lable", "did you mean label?"),
    Mistake("the journal of a misspelt queue", "qmnode journal ordrs", 1, "there is no queue", "orders;journal?"),
    Mistake("a misspelt journal", "qmnode peek 'orders;jurnal'", 1, "there is no queue", "orders;journal?"),
    Mistake("a user that is none", "qmnode queue acl allow orders bob send-message", 1, "bob", "S-1-"),
    Mistake("checking a store in use", "qmnode verify --config {here}/node.yaml", 1, "is in use", "stop the node"),
    Mistake("a second node on a store", "qmnode run --config {here}/second.yaml", 1, "is in use", "stop the node"),
    Mistake("a port in use", "qmnode run --config {here}/port.yaml", 1, "in use", "change transport.address"),
    Mistake("a configuration that is not there", "qmnode run -c {here}/none.yaml", 2, "does not exist", "qmnode init"),
    Mistake(
        "a misspelt setting", "qmnode run -c {here}/typo.yaml", 2, "typo.yaml:2: local.sockt", "did you mean socket?"
    ),
    Mistake("an old configuration", "qmnode run -c {here}/old.yaml", 2, "old.yaml:1: quota", "did you mean quotas?"),
    Mistake("no YAML", "qmnode run -c {here}/broken.yaml", 2, "broken.yaml:2: no YAML", "expected"),
    Mistake(
        "a configuration made twice", "qmnode init -c {here}/node.yaml", 1, "exists already", "qmnode run --config"
    ),
    Mistake("a full disk", "qmnode run -c {here}/full.yaml", 1, "No space left on device", "make room"),
    Mistake(
        "a configuration on a full disk",
        "qmnode init -c {here}/full/node.yaml --data {here}/fresh",
        1,
        "No space left on device",
        "--config",
    ),
    Mistake("a directory with other files", "qmnode init -c {here}/n.yaml --data {here}", 1, "is not empty", "--data"),
    Mistake("a restore of no backup", "qmnode restore {here} --data {here}/r", 1, "is no backup", "qmnode backup"),
    Mistake("a check of no store", "qmnode verify --data {here}/none", 1, "is no message store", "a node's data"),
    Mistake("a backup over another", "qmnode backup {here}", 1, "MQ_ERROR_MESSAGE_STORAGE_FAILED", "{here}"),
    Mistake("a host that does not answer", "qmnode receive --node 127.0.0.1:9 x", 3, "127.0.0.1", "endpoint mapper"),
]

ENTERPRISE = [
    Mistake("a declaration that is not there", "mqenterprise plan {here}/none.yaml", 1, "none.yaml", "No such file"),
    Mistake(
        "no directory",
        "mqenterprise plan {sample}",
        1,
        "no directory is named",
        "'mqenterprise directory up'",
    ),
    Mistake(
        "a directory that is down",
        "mqenterprise plan {sample} --directory {here}/down.yaml",
        1,
        "cannot be reached",
        "correct servers",
    ),
    Mistake(
        "a wrong password",
        "mqenterprise plan {sample} --directory {here}/password.yaml",
        1,
        "the password is wrong",
        "cn=admin",
    ),
    Mistake(
        "an authority that is not there",
        "mqenterprise plan {sample} --directory {here}/authority.yaml",
        1,
        "/none.pem cannot be read",
        "ca_file",
    ),
    Mistake(
        "settings of the directory that are none",
        "mqenterprise plan {sample} --directory {here}/typo-directory.yaml",
        1,
        "typo-directory.yaml: sevrers",
        "did you mean servers?",
    ),
    Mistake(
        "an account without rights",
        "mqenterprise apply {sample} --directory {here}/node/directory.yaml",
        1,
        "CN=newcomer",
        "may not",
    ),
    Mistake(
        "a misspelt machine",
        "mqenterprise route explain ams-shp cor-router --declared {sample}",
        1,
        "there is no queue manager 'ams-shp'",
        "did you mean ams-shop?",
    ),
    Mistake(
        "a misspelt link",
        "mqenterprise route simulate --without-link Bremen-Cordoba --declared {sample}",
        1,
        "there is no routing link 'Bremen-Cordoba'",
        "did you mean Bremen-Córdoba?",
    ),
    Mistake(
        "a queue of a machine that is not there",
        r"mqenterprise queue publish nobody\orders --directory {here}/d.yaml",
        1,
        "nobody",
        "queue manager",
    ),
    Mistake(
        "keys before there is a node",
        "mqenterprise keys status newcomer --directory {here}/d.yaml --keys {here}/keys.yaml",
        1,
        "there is no folder {here}/no-node on this machine",
        "where the node's keys are",
    ),
    Mistake(
        "keys of a misspelt node",
        "mqenterprise keys status newcomr --directory {here}/d.yaml",
        1,
        "no queue manager of the enterprise is named newcomr",
        "did you mean newcomer?",
    ),
    Mistake(
        "a certificate for a user who is not declared",
        "mqenterprise certificate register alice --internal {here}/alice.key --directory {here}/d.yaml",
        1,
        "there is no user named alice",
        "declare it under users",
    ),
    Mistake(
        "analysis before there is an export",
        "mqenterprise analyze all --from {here}/segments --to {here}/analysed",
        1,
        "there is no {here}/segments",
        "export.target",
    ),
    Mistake("a misspelt command", "mqenterprise aply x", 2, "no such command 'aply'", "Did you mean 'apply'?"),
]


class Desk:
    """Where a newcomer works: a node, a directory, and files with each mistake."""

    def __init__(self, node: NodeProcess, slapd: EmbeddedDirectory) -> None:
        self.here = node.folder
        here = self.here
        settings = json.loads((here / "node.yaml").read_text())
        (here / "large").write_bytes(bytes(5_000_000))
        (here / "body").write_bytes(bytes(5_000))
        (here / "second.yaml").write_text(json.dumps(settings | {"local": {"socket": str(here / "second.sock")}}))
        (here / "typo.yaml").write_text("local:\n  sockt: /tmp/node.sock\n")
        (here / "old.yaml").write_text("quota: 1048576\n")
        (here / "broken.yaml").write_text("data: [\n")
        (here / "full.yaml").write_text(f"data: {here}/full/data\n")
        (here / "keys.yaml").write_text(f"directory: {here}/no-node\n")
        with EnterpriseDirectory(slapd.client_settings()) as directory:
            site = create(directory, Site(name="Newcomers"))
            assert site.identifier is not None
            directory.queue_managers.add(
                QueueManager(computer_name="newcomer", site_identifier_list=(site.identifier,))
            )
            admit(directory, "newcomer", here / "node")
        values = slapd.client_settings().model_dump(mode="json", exclude_none=True)
        for name, changed in (
            ("d", {}),
            ("down", {"servers": ["ldaps://127.0.0.1:9"]}),
            ("password", {"password": "wrong", "password_file": None}),
            ("authority", {"ca_file": str(here / "none.pem")}),
            ("typo-directory", {"sevrers": ["ldaps://127.0.0.1"]}),
        ):
            kept = {key: value for key, value in (values | changed).items() if value is not None}
            (here / f"{name}.yaml").write_text(yaml.safe_dump(kept))

    def words(self, command: str) -> list[str]:
        return [word.replace("{here}", str(self.here)).replace("{sample}", str(SAMPLE)) for word in command.split()]


@pytest.fixture(scope="module")
def desk(daemon: NodeProcess, slapd: EmbeddedDirectory) -> Iterator[Desk]:
    desk = Desk(daemon, slapd)
    taken = socket.create_server(("127.0.0.1", 0))
    settings = {
        "data": str(desk.here / "other"),
        "local": {"socket": str(desk.here / "port.sock")},
        "management": {"socket": None},
        "transport": {"address": "127.0.0.1", "port": taken.getsockname()[1]},
    }
    (desk.here / "port.yaml").write_text(json.dumps(settings))
    with taken, full_disk(desk.here / "full"):
        yield desk


@contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """A file system without room, where this user may mount one."""
    folder.mkdir()
    if os.geteuid() != 0:
        yield
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], check=True)
    try:
        (folder / "data").mkdir(mode=0o700)
        with suppress(OSError), (folder / "filled").open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.fixture
def run(
    desk: Desk, node: NodeProcess, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], tuple[int, str, str]]:
    monkeypatch.delenv("MQENTERPRISE_DIRECTORY", raising=False)
    monkeypatch.setattr("mqenterprise.directory.chosen_directory.default_state", lambda: desk.here / "no-directory")
    monkeypatch.setattr("mqenterprise.directory.chosen_directory.default_state", lambda: desk.here / "no-directory")
    monkeypatch.setenv("XDG_STATE_HOME", str(desk.here / "state"))
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    def run(command: str) -> tuple[int, str, str]:
        words = desk.words(command)
        monkeypatch.setattr(sys, "argv", words)
        capfd.readouterr()
        code: Any = 0
        try:
            MAIN[words[0]]()
        except SystemExit as end:
            code = end.code or 0
        return code, *capfd.readouterr()

    return run


@pytest.fixture(scope="module", autouse=True)
def queues(desk: Desk) -> None:
    import qmnode

    with qmnode.sync.connect(desk.here / "node.sock") as qm:
        for name in ("orders", "empty"):
            qm.create_queue(rf".\private$\{name}")
        qm.create_queue(r".\private$\exact", transactional=True)
        qm.create_queue(r".\private$\small", quota=1)


@pytest.mark.parametrize("mistake", [*NODE, *ENTERPRISE], ids=lambda mistake: mistake.what)
def test_a_mistake_is_a_line_with_its_cause_and_the_next_step(
    mistake: Mistake, run: Callable[[str], tuple[int, str, str]], desk: Desk
) -> None:
    if "full disk" in mistake.what and os.geteuid() != 0:
        pytest.skip("only root can mount a file system without room")
    code, out, err = run(mistake.command)
    said = [line for line in err.splitlines() if not line.startswith("{")]  # a node that starts has a log
    assert (code, out) == (mistake.code, ""), err
    assert len(said) == 1 or said[1:] == ["1 problem in the declaration"], err
    assert mistake.cause.replace("{here}", str(desk.here)) in said[0]
    assert mistake.next_step.replace("{here}", str(desk.here)) in said[0]
    assert "Traceback" not in err
    assert not re.search(r"\bErrno\b|<class|object at 0x", err)


def test_a_socket_that_is_not_for_everybody_names_the_group(
    run: Callable[[str], tuple[int, str, str]], desk: Desk
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    run("qmnode status")  # everything is imported while it can be read
    desk.here.chmod(0o755)
    os.seteuid(65534)
    try:
        code, out, err = run("qmnode status")
    finally:
        os.seteuid(0)
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "MQ_ERROR_SERVICE_NOT_AVAILABLE" in err
    assert "may not use the node's socket" in err
    assert "sudo usermod --append --groups" in err


def test_there_are_enough_of_them() -> None:
    assert len({(mistake.what, mistake.command) for mistake in (*NODE, *ENTERPRISE)}) >= 25
