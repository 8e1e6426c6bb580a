"""Root in the folders of a daemon that was taken over: links that it planted lead root nowhere."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
import syslog
import tarfile
import tempfile
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible.module_utils import _internal
from packaging.requirements import Requirement

import qmnode
from mqenterprise.directory.authority import write_anew
from mqenterprise.directory.errors import DirectoryError
from mqenterprise.directory.private_slapd import EmbeddedDirectory, EmbeddedSettings
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
"""One that the daemon may run: that of the tests may be in root's own folder (then the node gets a copy)."""
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


SECRETS = {
    "one line": "hunter2\\of 1",
    "several lines": "-----BEGIN KEY-----\nMIIx\n-----END KEY-----\n",
    "short": "qmcare",
}


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that modules write into the log of the host."""
    lines: list[str] = []
    monkeypatch.setattr("ansible.module_utils.basic.has_journal", False)
    monkeypatch.setattr(syslog, "syslog", lambda *line: lines.append(str(line[-1])))
    return lines


class TestSecrets:
    """Nothing that is a secret is in the log of the host, or in what ``-vvv`` and ``--diff`` show."""

    @pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
    def test_a_secret_file_is_in_no_log_and_no_result(
        self, modules: Modules, lab: Path, logged: list[str], secret: str
    ) -> None:
        key, settings = str(lab / "key"), str(lab / "settings")
        given = [
            {"path": key, "content": secret, "mode": "0600", "secret": True},
            {"path": settings, "content": "shown: settings\n"},
        ]

        done = modules.run("files", files=given)

        assert Path(key).read_text() == secret
        assert done["changes"] == [key, settings], "paths are no secrets"
        assert [each["after"] for each in done["diff"]] == ["another secret\n", "shown: settings\n"]
        said = done["invocation"]["module_args"]["files"]
        assert [each["path"] for each in said] == [key, settings]
        assert secret not in (said[0]["content"], json.dumps(said[0]["content"]))
        assert said[1]["content"] == "shown: settings\n"
        assert logged
        for line in secret.replace("qmcare", "=qmcare").splitlines():
            assert not [each for each in logged if line in each or repr(line)[1:-1] in each]

    @pytest.mark.parametrize("password", ["hunter2", r"hunter\2", "'hunter2\""])
    def test_a_password_of_the_directory_is_in_no_log_and_no_result(
        self, modules: Modules, logged: list[str], password: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        directory = {"servers": ["ldaps://127.0.0.1:9"], "user": "cn=admin", "password": password, "root": "dc=x"}

        with pytest.raises(ModuleFailed) as failed:
            modules.run("site", name="Amsterdam", directory=directory)

        assert "127.0.0.1" in str(failed.value), "the server's name is no secret"
        assert logged and not [each for each in logged if "hunter" in each]

    def test_a_private_key_beside_a_certificate_is_in_no_log(self, modules: Modules, logged: list[str]) -> None:
        with pytest.raises(ModuleFailed):
            modules.run("user_certificate", user="alice", content=SECRETS["several lines"], directory={"user": "cn=x"})

        assert logged and not [each for each in logged if "MIIx" in each]


def parcel(file: Path, name: str, content: bytes = b"PK", kind: bytes = tarfile.REGTYPE) -> str:
    """An archive of one member; its SHA-256."""
    member = tarfile.TarInfo(name)
    member.type, member.size, member.linkname = kind, len(content) if kind == tarfile.REGTYPE else 0, "/etc/passwd"
    with tarfile.open(file, "w") as packed:
        packed.addfile(member, io.BytesIO(content))
    file.chmod(0o600)
    return hashlib.sha256(file.read_bytes()).hexdigest()


class TestParcels:
    """What root opens is what the controller sent, and nobody else could have touched it."""

    @pytest.mark.parametrize("fault", ["owner", "mode", "link", "second name", "content", "pipe"])
    def test_a_parcel_of_another_account_is_not_opened(self, lab: Path, fault: str) -> None:
        archive = lab / "root/parcel.tar"
        sent = parcel(archive, "wheels/a-1-py3-none-any.whl")
        match fault:
            case "owner":
                give(archive)
            case "mode":
                archive.chmod(0o666)
            case "link":
                archive.rename(lab / "root/other.tar")
                archive.symlink_to("other.tar")
            case "second name":
                (lab / "daemon/also.tar").hardlink_to(archive)
            case "content":
                parcel(archive, "wheels/evil-1-py3-none-any.whl")
            case "pipe":
                archive.unlink()
                os.mkfifo(archive, 0o600)

        done = run("restore.py", "unpack", "/bin/true", archive, lab / "root/data", DAEMON, "monday", sent)

        assert done.returncode != 0 and "Traceback" not in done.stderr
        assert "another" in done.stderr or "link" in done.stderr, done.stderr
        assert not (lab / "root/data").exists()

    def test_a_release_that_is_not_the_one_that_was_sent_is_not_installed(self, lab: Path) -> None:
        archive = lab / "root/parcel.tar"
        sent = parcel(archive, "wheels/a-1-py3-none-any.whl")
        parcel(archive, "wheels/evil-1-py3-none-any.whl")

        done = run("install.py", lab / "root/releases", "1", sent, given=archive.read_bytes())

        assert done.returncode != 0 and "another archive came" in done.stderr and "Traceback" not in done.stderr
        assert not (lab / "root/releases/1").exists()

    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            ("../evil.whl", tarfile.REGTYPE),
            ("wheels/../../evil.whl", tarfile.REGTYPE),
            ("/tmp/evil.whl", tarfile.REGTYPE),
            ("wheels/evil.pth", tarfile.REGTYPE),
            ("wheels/evil.whl", tarfile.SYMTYPE),
            ("wheels/evil.whl", tarfile.LNKTYPE),
            ("wheels/evil.whl", tarfile.FIFOTYPE),
            ("wheels/evil.whl", tarfile.CHRTYPE),
        ],
    )
    def test_a_release_holds_wheels_and_nothing_else(self, lab: Path, name: str, kind: bytes) -> None:
        archive = lab / "root/parcel.tar"
        sent = parcel(archive, name, kind=kind)

        done = run("install.py", lab / "root/releases", "1", sent, given=archive.read_bytes())

        assert done.returncode != 0 and "which is no wheel" in done.stderr
        assert not list((lab / "root/releases").iterdir()) and not list(lab.rglob("evil*"))

    def test_a_backup_is_kept_where_others_may_write(self, lab: Path) -> None:
        """Somebody has made the file that the archive is written to first."""
        (lab / "root/first.tar.gz").write_bytes(b"keys")
        kept = lab / "daemon/kept"
        kept.mkdir()
        kept.chmod(0o777)
        plant(kept / ".first.tar.gz.partial", lab / "root/secret")

        done = run("keep.py", "put", lab / "root/first.tar.gz", kept)

        assert done.returncode == 0, done.stderr
        assert (kept / "first.tar.gz").read_bytes() == b"keys" and (lab / "root/secret").read_text() == SECRET
        assert (owner(kept / "first.tar.gz"), (kept / "first.tar.gz").stat().st_mode & 0o777) == ("root", 0o600)


class TestControllers:
    """Commands of an operator, in folders that another account has made."""

    @pytest.mark.parametrize("planted", ["folder", "link"])
    def test_a_private_directory_is_in_no_folder_of_another_account(self, lab: Path, planted: str) -> None:
        state = lab / ("daemon/state" if planted == "folder" else "root/state")
        state.mkdir()
        if planted == "folder":
            give(state)
        else:
            plant(state / "tls", lab / "daemon")

        with pytest.raises(DirectoryError, match="another account"):
            EmbeddedDirectory(state).create(EmbeddedSettings())

        assert not list((lab / "daemon").rglob("*.key")) and not list((lab / "daemon").rglob("*.password"))

    def test_the_password_of_a_node_goes_into_no_file_of_another_account(self, lab: Path) -> None:
        """Somebody has made the file that it would be written to first, and the file that it is moved to."""
        folder = lab / "daemon"
        (folder / "directory.password.partial").touch()
        (folder / "directory.password.partial").chmod(0o666)
        give(folder / "directory.password.partial")
        plant(folder / "directory.password", lab / "root/secret")

        write_anew(folder / "directory.password", b"password", 0o600)

        assert (folder / "directory.password.partial").read_bytes() == b""
        assert (lab / "root/secret").read_text() == SECRET
        assert (folder / "directory.password").read_bytes() == b"password"
        assert owner(folder / "directory.password") == "root"


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


@pytest.fixture
def python(lab: Path) -> str:
    """A Python of the version of the tests, for which the node's libraries are made, that the daemon may run."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if subprocess.check_output([PYTHON, "--version"], text=True).startswith(f"Python {version}."):
        return PYTHON
    without = shutil.ignore_patterns("__pycache__", "site-packages", "test", "share", "include")
    shutil.copytree(sys.base_prefix, lab / "python", ignore=without, symlinks=True)
    script = lab / "python/run"
    script.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={lab}/python/lib exec {lab}/python/bin/python{version} "$@"\n')
    script.chmod(0o755)
    return str(script)


class Node(NodeProcess):
    """A node that runs as the daemon's account."""

    def __init__(self, folder: Path, code: Path, python: str) -> None:
        super().__init__(folder, environment={"PYTHONPATH": str(code), "HOME": "/"})
        self._python = python

    def launch(self) -> None:
        account: dict[str, Any] = {"user": DAEMON, "group": "nogroup", "extra_groups": []}
        self._launched = launch(self.config, self.log, self.environment, [self._python, *QMNODE], cwd="/", **account)


@pytest.fixture
def node(lab: Path, code: Path, python: str) -> Iterator[Node]:
    found = Node(lab / "daemon", code, python)
    found.start()
    yield found
    found.kill()


@pytest.fixture
def program(lab: Path, code: Path, python: str) -> Path:
    """The node's ``qmnode``, which notes as whom it runs, and plants links where it may: the attacker waits for it."""
    script = lab / "root/qmnode"
    qmnode = f"PYTHONPATH={code} {python} -c '{QMNODE[1]}'"
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


def run(script: str, *arguments: object, given: bytes = b"") -> subprocess.CompletedProcess[str]:
    command = [PYTHON, SCRIPTS / script, *map(str, arguments)]
    done = subprocess.run(command, input=given, capture_output=True, timeout=300, check=False)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


LARGE = 300_000


async def send_large(socket: Path) -> None:
    """Send a message that the store has in a folder."""
    async with qmnode.connect(socket) as manager:
        await manager.create_queue(r".\private$\large")
        async with await manager.open_queue(r"DIRECT=OS:.\private$\large", qmnode.Access.SEND) as queue:
            await queue.send(qmnode.Message(bytes(LARGE), recoverable=True))


def test_a_store_is_copied_packed_and_restored_as_the_daemon(
    lab: Path, code: Path, python: str, node: Node, program: Path
) -> None:
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
    packed_bytes = archive.read_bytes()
    sent = hashlib.sha256(packed_bytes).hexdigest()
    assert (done := run("restore.py", "unpack", *arguments, sent)).returncode == 0, done.stderr
    (lab / "root/restored").mkdir()
    plant(lab / "root/restored/keys", lab / "root/secret")
    assert (done := run("restore.py", "swap", *arguments)).returncode == 0, done.stderr

    assert (data / "restored-from").read_text() == "monday\n"
    assert {owner(path) for path in (data, *data.rglob("*"))} == {DAEMON}
    assert (data / "keys").is_symlink() and owner(lab / "root/secret") == "root"
    assert set((lab / "ran").read_text().split()) == {DAEMON}
    checked = subprocess.run(
        [python, *QMNODE, "verify", "--data", data], env={"PYTHONPATH": str(code)},
        capture_output=True, text=True, check=False, user=DAEMON, group="nogroup", extra_groups=[], cwd="/",
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert [file.stat().st_size > LARGE for file in (data / "large").iterdir()] == [True]

    # A file system that is mounted there stays, and its keys with it; a failure leaves all where it was.
    mounted = lab / "root/mounted"
    mounted.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", mounted], check=True)
    try:
        give(mounted)
        for name in ("CURRENT", "keys"):
            (mounted / name).write_text("old")
            give(mounted / name)
        (mounted / "lost+found").mkdir(mode=0o700)
        archive.touch(0o600)
        archive.write_bytes(packed_bytes)
        arguments = (program, archive, mounted, DAEMON, "monday")
        assert (done := run("restore.py", "unpack", *arguments, sent)).returncode == 0, done.stderr
        (mounted / "lost+found/before").write_text("root's")
        unpacked = {path.name for path in (mounted / ".restored").iterdir()}
        roots = mounted / next(name for name in unpacked if name.startswith("MANIFEST"))
        roots.mkdir()  # which the daemon cannot move aside
        assert run("restore.py", "swap", *arguments).returncode != 0
        assert {path.name for path in (mounted / ".restored").iterdir()} == unpacked
        assert (mounted / "CURRENT").read_text() == "old"
        roots.rmdir()
        assert (done := run("restore.py", "swap", *arguments)).returncode == 0, done.stderr
        assert (mounted / "restored-from").read_text() == "monday\n"
        assert (mounted / "keys").read_text() == "old" and (mounted / "lost+found/before").exists()
        assert not (mounted / ".restored").exists() and len([*mounted.glob("before-*")]) == 1
        assert {owner(mounted / name) for name in unpacked} == {DAEMON}
    finally:
        subprocess.run(["umount", mounted], check=True)


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
