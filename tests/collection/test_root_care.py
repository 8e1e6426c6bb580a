"""Root in the folders of a daemon that was taken over: links that it planted lead root nowhere."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible.module_utils import _internal
from packaging.requirements import Requirement

import qmnode
from tests.collection.conftest import COLLECTION, COLLECTIONS, REPOSITORY, ModuleFailed, Modules
from tests.lab.nodes import NodeProcess, launch

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(os.getuid() != 0, reason="root alone can be led astray"),
]
SCRIPTS = COLLECTION / "roles/queue_manager/files"
DAEMON = "nobody"
PYTHON = "/usr/bin/python3"
"""One that the daemon may run: that of the tests may be in root's own folder."""
QMNODE = ("-c", "from qmnode.cli import main; main()")
SECRET = "root:secret\n"


@pytest.fixture
def lab() -> Iterator[Path]:
    """A folder that everybody passes through: ``daemon/`` is the daemon's, ``root/`` is not."""
    folder = Path(tempfile.mkdtemp(prefix="qmcare"))
    folder.chmod(0o755)
    for name in ("daemon", "root"):
        (folder / name).mkdir(mode=0o755)
    give(folder / "daemon")
    (folder / "root/secret").write_text(SECRET)
    (folder / "root/secret").chmod(0o600)
    yield folder
    shutil.rmtree(folder)


def give(path: Path) -> None:
    account = pwd.getpwnam(DAEMON)
    os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)


def plant(link: Path, target: Path) -> None:
    """As the daemon does it."""
    link.symlink_to(target)
    give(link)


def owner(path: Path) -> str:
    return pwd.getpwuid(path.lstat().st_uid).pw_name


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Modules:
    """Modules that need no directory."""
    monkeypatch.setattr(sys, "path", [str(COLLECTIONS), *sys.path])
    monkeypatch.setattr(_internal, "is_controller", False)
    return Modules()


class TestFiles:
    def test_no_folder_behind_a_planted_link_changes_hands(self, modules: Modules, lab: Path) -> None:
        plant(lab / "daemon/tls", lab / "root")

        for path in (lab / "daemon/tls", lab / "daemon/tls/beneath"):
            with pytest.raises(ModuleFailed, match="a link of another user"):
                modules.run("files", directories=[{"path": str(path), "owner": DAEMON, "mode": "0777"}])

        assert owner(lab / "root") == "root" and stat.S_IMODE((lab / "root").stat().st_mode) == 0o755
        assert [each.name for each in (lab / "root").iterdir()] == ["secret"]

    def test_no_file_is_written_behind_a_planted_link(self, modules: Modules, lab: Path) -> None:
        plant(lab / "daemon/tls", lab / "root")

        with pytest.raises(ModuleFailed, match="a link of another user"):
            modules.run("files", files=[{"path": str(lab / "daemon/tls/secret"), "content": "x", "owner": DAEMON}])

        assert (lab / "root/secret").read_text() == SECRET and owner(lab / "root/secret") == "root"

    @pytest.mark.parametrize("content", ["new\n", SECRET], ids=["another content", "the same content"])
    def test_a_link_in_the_place_of_a_file_is_replaced_and_not_shown(
        self, modules: Modules, lab: Path, content: str
    ) -> None:
        plant(lab / "daemon/key", lab / "root/secret")
        given = [{"path": str(lab / "daemon/key"), "content": content, "owner": DAEMON, "mode": "0644"}]

        done = modules.run("files", files=given)

        assert not (lab / "daemon/key").is_symlink() and (lab / "daemon/key").read_text() == content
        assert owner(lab / "daemon/key") == DAEMON
        assert (lab / "root/secret").read_text() == SECRET
        assert (owner(lab / "root/secret"), stat.S_IMODE((lab / "root/secret").stat().st_mode)) == ("root", 0o600)
        assert SECRET not in [each["before"] for each in done["diff"]]

    def test_a_pipe_in_the_place_of_a_file_holds_nobody_up(self, modules: Modules, lab: Path) -> None:
        os.mkfifo(lab / "daemon/key")

        modules.run("files", files=[{"path": str(lab / "daemon/key"), "content": "new\n"}])

        assert (lab / "daemon/key").read_text() == "new\n"

    def test_an_operators_own_link_is_followed(self, modules: Modules, lab: Path) -> None:
        (lab / "disk").mkdir()
        (lab / "data").symlink_to("disk")
        wanted = {"path": str(lab / "data/store"), "owner": DAEMON, "mode": "0700"}

        modules.run("files", directories=[wanted])
        assert not modules.run("files", directories=[wanted])["changed"]

        assert owner(lab / "disk/store") == DAEMON

    def test_links_in_a_circle_end(self, modules: Modules, lab: Path) -> None:
        (lab / "one").symlink_to("two")
        (lab / "two").symlink_to("one")

        with pytest.raises(ModuleFailed, match="symbolic links"):
            modules.run("files", directories=[{"path": str(lab / "one/more")}])


def requirements(name: str, found: set[str]) -> set[str]:
    """The distributions that this one needs without its extras, with all that they need."""
    for text in distribution(name).requires or ():
        needed = Requirement(text)
        if needed.name not in found and (needed.marker is None or needed.marker.evaluate({"extra": ""})):
            found.add(needed.name)
            requirements(needed.name, found)
    return found


@pytest.fixture
def code(lab: Path) -> Path:
    """The node's code and what it needs, where the daemon may read: the checkout may be in a folder of root alone."""
    folder = lab / "code"
    shutil.copytree(REPOSITORY / "qmnode", folder / "qmnode", ignore=shutil.ignore_patterns("__pycache__"))
    for name in requirements("qmnode", set()):
        for file in distribution(name).files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                target = folder / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), target)
    return folder


class Node(NodeProcess):
    """A node that runs as the daemon's account."""

    def launch(self) -> None:
        account: dict[str, Any] = {"user": DAEMON, "group": "nogroup", "extra_groups": []}
        self._launched = launch(self.config, self.log, self.environment, [PYTHON, *QMNODE], cwd="/", **account)


@pytest.fixture
def node(lab: Path, code: Path) -> Iterator[Node]:
    found = Node(lab / "daemon", environment={"PYTHONPATH": str(code), "HOME": "/"})
    found.start()
    yield found
    found.kill()


@pytest.fixture
def program(lab: Path, code: Path) -> Path:
    """The node's ``qmnode``, which notes as whom it runs, and plants links where it may: the attacker waits for it."""
    script = lab / "root/qmnode"
    qmnode = f"PYTHONPATH={code} {PYTHON} -c '{QMNODE[1]}'"
    planted = f"{lab}/daemon/backups/.first.tar.gz.partial"
    script.write_text(
        f'#!/bin/sh\nid -un >>{lab}/ran\n{qmnode} "$@" || exit 1\n'
        f'[ "$1" != backup ] || ln -s {lab}/root/secret {planted}\n'
        f'[ "$1" != backup ] || ln -s {lab}/root/secret "$2/planted"\n'
    )
    script.chmod(0o755)
    (lab / "ran").touch()
    (lab / "ran").chmod(0o666)
    return script


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PYTHON, SCRIPTS / script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


LARGE = 300_000


async def send_large(socket: Path) -> None:
    """Send a message that the store has in a folder."""
    async with qmnode.connect(socket) as manager:
        await manager.create_queue(r".\private$\large")
        async with await manager.open_queue(r"DIRECT=OS:.\private$\large", qmnode.Access.SEND) as queue:
            await queue.send(qmnode.Message(bytes(LARGE), recoverable=True))


def test_a_store_is_copied_packed_and_restored_as_the_daemon(lab: Path, code: Path, node: Node, program: Path) -> None:
    (lab / "daemon/backups").mkdir()
    give(lab / "daemon/backups")
    for name in ("first.tar.gz", "first"):
        plant(lab / "daemon/backups" / name, lab / "root/secret")
    archive = lab / "root/first.tar.gz"
    archive.symlink_to("secret")
    asyncio.run(send_large(node.socket))

    packed = run("pack.py", program, node.socket, lab / "daemon/backups", DAEMON, archive)

    assert packed.returncode != 0 and "cannot be backed up" in packed.stderr, "a link in the place of the copy"
    assert (lab / "root/secret").read_text() == SECRET and not list((lab / "root").glob(".*"))
    (lab / "daemon/backups/first").unlink()
    packed = run("pack.py", program, node.socket, lab / "daemon/backups", DAEMON, archive)

    assert packed.returncode == 0, packed.stderr
    assert not archive.is_symlink() and owner(archive) == "root" and stat.S_IMODE(archive.stat().st_mode) == 0o600
    with tarfile.open(archive) as file:
        assert file.getmember("first/planted").issym(), "the link itself, and nothing of what it leads to"
        assert len(file.getmembers()) > 3
    assert (lab / "root/secret").read_text() == SECRET

    data = lab / "root/restored"
    arguments = (program, archive, data, DAEMON, "monday")
    assert (done := run("restore.py", "unpack", *arguments)).returncode == 0, done.stderr
    (lab / "root/restored").mkdir()
    plant(lab / "root/restored/keys", lab / "root/secret")
    assert (done := run("restore.py", "swap", *arguments)).returncode == 0, done.stderr

    assert (data / "restored-from").read_text() == "monday\n"
    assert {owner(path) for path in (data, *data.rglob("*"))} == {DAEMON}
    assert (data / "keys").is_symlink() and owner(lab / "root/secret") == "root"
    assert set((lab / "ran").read_text().split()) == {DAEMON}
    checked = subprocess.run(
        [PYTHON, *QMNODE, "verify", "--data", data], env={"PYTHONPATH": str(code)},
        capture_output=True, text=True, check=False, user=DAEMON, group="nogroup", extra_groups=[], cwd="/",
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert [file.stat().st_size > LARGE for file in (data / "large").iterdir()] == [True]


@pytest.mark.parametrize("planted", ["link", "pipe", "folder", "nothing"])
def test_looking_at_a_host_shows_nothing_behind_a_link(lab: Path, planted: str) -> None:
    mark = lab / "daemon/restored-from"
    match planted:
        case "link":
            plant(mark, lab / "root/secret")
        case "pipe":
            os.mkfifo(mark)
        case "folder":
            mark.mkdir()

    looked = run("look.py", lab / "install", lab / "daemon", lab / "settings", lab / "none.pid", lab / "none.sock")

    assert json.loads(looked.stdout)["restored_from"] == ""


def test_a_mark_is_read(lab: Path) -> None:
    (lab / "daemon/restored-from").write_text("monday\n")

    looked = run("look.py", lab / "install", lab / "daemon", lab / "settings", lab / "none.pid", lab / "none.sock")

    assert json.loads(looked.stdout)["restored_from"] == "monday"
