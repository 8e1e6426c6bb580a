"""The commands ``mqenterprise directory`` and ``mqenterprise queue``, as a process and against both servers."""

from __future__ import annotations

import base64
import json
import stat
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from typer.testing import CliRunner

from mqenterprise.cli import app
from mqenterprise.directory.admission import admit
from mqenterprise.directory.chosen_directory import load_settings
from mqenterprise.directory.entries import Change, ChangeKind
from mqenterprise.directory.errors import AccessRefused, BindRefused, DirectoryError
from mqenterprise.directory.ldap_names import parent_of
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.private_slapd import EmbeddedDirectory, EmbeddedSettings
from qmnode.directory.port import Queue, QueueManager, Site
from tests.lab.addresses import free_alias
from tests.lab.directory_objects import create, delete

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mqenterprise.directory.settings import DirectorySettings
    from tests.lab.servers import DirectoryServer


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command in this process: another would load the same libraries again."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def run_beside(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, which slapd outlives."""
    return subprocess.run(
        [sys.executable, "-m", "mqenterprise", *(str(argument) for argument in arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def stored_passwords(directory: EnterpriseDirectory, node: QueueManager) -> list[bytes]:
    entry = directory.connection.read(parent_of(str(node.full_path)), ("userPassword",))
    return list(map(bytes, entry.attributes["userpassword"]))


@pytest.fixture
def private(open_folder: Path) -> Iterator[list[object]]:
    """Arguments for a private directory of the test's own; stopped at the end."""
    state = open_folder / "state"
    yield ["--state", state]
    EmbeddedDirectory(state).stop()


@pytest.mark.servers
class TestPrivateDirectory:
    def test_up_creates_starts_and_keeps(self, private: list[object], open_folder: Path) -> None:
        host = free_alias([6360])

        first = run_beside("directory", "up", *private, "--host", host, "--root", "dc=acme,dc=internal")

        assert first.returncode == 0, first.stderr
        assert f"dc=acme,dc=internal answers on ldaps://{host}:6360" in first.stdout
        embedded = EmbeddedDirectory(open_folder / "state")
        with EnterpriseDirectory(embedded.client_settings()) as directory:
            create(directory, Site(name="Hamburg"))
        again = run_beside("directory", "up", *private)  # running already
        assert again.returncode == 0
        settings = again.stdout.partition("other commands name it with --directory ")[2].strip()
        assert run("queue", "list", "--directory", settings).returncode == 0
        assert run("directory", "down", *private).stdout == "stopped\n"
        assert run("directory", "down", *private).stdout == "it was not running\n"
        assert run_beside("directory", "up", *private).returncode == 0
        with EnterpriseDirectory(embedded.client_settings()) as directory:
            assert directory.sites.find("Hamburg") is not None

    def test_it_runs_without_privileges_and_keeps_secrets_to_itself(
        self, private: list[object], open_folder: Path
    ) -> None:
        run_beside("directory", "up", *private, "--host", free_alias([6360]))

        embedded = EmbeddedDirectory(open_folder / "state")
        pid = embedded.pid()
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
        ids = next(line for line in lines if line.startswith("Uid:")).split()[1:]
        assert "0" not in ids
        for name in ("admin.password", "tls/ca.key", "tls/server.key", "directory.json"):
            assert stat.S_IMODE((embedded.paths.state / name).stat().st_mode) == 0o600, name
        assert stat.S_IMODE(embedded.paths.state.stat().st_mode) == 0o700

    def test_status_says_what_is_to_be_done(self, private: list[object]) -> None:
        none = run("directory", "status", *private)
        assert (none.returncode, "create one" in none.stdout) == (2, True)

        run_beside("directory", "up", *private, "--host", free_alias([6360]))
        running = run("directory", "status", *private, "--json")
        assert running.returncode == 0
        assert json.loads(running.stdout)["answering"] is True

        run("directory", "down", *private)
        stopped = run("directory", "status", *private)
        assert (stopped.returncode, "is stopped" in stopped.stdout) == (2, True)

    def test_a_backup_comes_back_under_the_same_identity(self, private: list[object], open_folder: Path) -> None:
        run_beside("directory", "up", *private, "--host", free_alias([6360]))
        embedded = EmbeddedDirectory(open_folder / "state")
        with EnterpriseDirectory(embedded.client_settings()) as directory:
            before = create(directory, Site(name="Grüne Straße, Süd+West"))
        archive = open_folder / "backup.tar.gz"

        saved = run("directory", "backup", archive, *private)

        assert saved.returncode == 0, saved.stderr
        assert stat.S_IMODE(archive.stat().st_mode) == 0o600
        with EnterpriseDirectory(embedded.client_settings()) as directory:
            delete(directory, before)
        refused = run("directory", "restore", archive, *private)
        assert (refused.returncode, "stop it first" in refused.stderr) == (1, True)
        run("directory", "down", *private)
        refused = run("directory", "restore", archive, *private)
        assert (refused.returncode, "--force" in refused.stderr) == (1, True)
        assert run("directory", "restore", archive, *private, "--force").returncode == 0
        assert run_beside("directory", "up", *private).returncode == 0
        with EnterpriseDirectory(embedded.client_settings()) as directory:
            after = directory.sites.find(before.name)
            assert after is not None and after.identifier == before.identifier

    def test_a_link_laid_in_the_state_folder_is_not_followed(self, private: list[object], open_folder: Path) -> None:
        """slapd's account owns the folder; whoever starts slapd may be root."""
        victim = open_folder / "victim"
        victim.write_text("untouched")
        state = open_folder / "state"
        EmbeddedDirectory(state).create(EmbeddedSettings())
        owner = victim.stat().st_uid
        (state / "slapd.log").symlink_to(victim)

        with pytest.raises(OSError, match="symbolic links"):
            EmbeddedDirectory(state).start()
        for name in ("directory.json", "admin.password"):
            (state / name).unlink()
        (state / "admin.password").symlink_to(victim)
        with pytest.raises(OSError, match="symbolic links"):
            EmbeddedDirectory(state).create(EmbeddedSettings())

        assert victim.read_text() == "untouched"
        assert victim.stat().st_uid == owner

    def test_a_backup_is_not_written_into_a_file_that_others_can_read(
        self, private: list[object], open_folder: Path
    ) -> None:
        host = free_alias([6360])
        assert run_beside("directory", "up", *private, "--host", host).returncode == 0
        readable = open_folder / "b.tgz.partial"
        readable.write_text("")
        readable.chmod(0o666)

        EmbeddedDirectory(open_folder / "state").backup(open_folder / "b.tgz")

        assert stat.S_IMODE((open_folder / "b.tgz").stat().st_mode) == 0o600

    def test_what_is_no_backup_is_refused(self, private: list[object], open_folder: Path) -> None:
        (open_folder / "other").write_bytes(b"not an archive")

        refused = run("directory", "restore", open_folder / "other", *private)

        assert refused.returncode == 1
        assert "is not a backup" in refused.stderr

    def test_a_port_that_is_taken_is_named(self, private: list[object], open_folder: Path) -> None:
        host = free_alias([6360])
        run_beside("directory", "up", *private, "--host", host)

        second = run_beside("directory", "up", "--state", open_folder / "second", "--host", host)

        assert second.returncode == 1
        assert "slapd stopped at once" in second.stderr
        assert "Traceback" not in second.stderr


def test_without_any_directory_the_command_says_how_to_get_one(tmp_path: Path) -> None:
    settings = tmp_path / "none.yaml"

    answer = run("queue", "list", "--directory", settings)

    assert answer.returncode == 1
    assert str(settings) in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_mistake_in_the_settings_is_named_with_its_file(tmp_path: Path) -> None:
    settings = tmp_path / "directory.yaml"
    settings.write_text("servers: [http://host]\nuser: me\npassword: x\n")

    answer = run("queue", "list", "--directory", settings)

    assert answer.returncode == 1
    assert "directory.yaml: servers" in answer.stderr
    assert "ldaps://host" in answer.stderr


@pytest.fixture
def settings_file(directory_server: DirectoryServer, tmp_path: Path) -> Path:
    """A settings file as an operator writes it."""
    return written_settings(directory_server.settings, tmp_path)


def written_settings(settings: DirectorySettings, folder: Path) -> Path:
    file = folder / "directory.yaml"
    (folder / "password").write_text(settings.secret() + "\n")
    content = {
        "servers": list(settings.servers),
        "user": settings.user,
        "password_file": "password",
        "ca_file": str(settings.ca_file),
    }
    file.write_text(yaml.safe_dump(content))
    return file


@pytest.mark.servers
class TestAdmission:
    def test_a_node_binds_with_what_it_was_given_and_writes_its_own(
        self, directory: EnterpriseDirectory, settings_file: Path, tmp_path: Path, fresh_name: Callable[[str], str]
    ) -> None:
        computer, other = fresh_name("NODE"), fresh_name("NODE")
        directory.queue_managers.add(QueueManager(computer_name=other))
        given = tmp_path / "node"

        answer = run("directory", "admit", computer, "--new", "--output", given, "--directory", settings_file)

        assert answer.returncode == 0, answer.stderr
        assert stat.S_IMODE((given / "directory.password").stat().st_mode) == 0o600
        with EnterpriseDirectory(load_settings(given / "directory.yaml")) as as_node:
            as_node.queues.add(Queue(pathname=f"{computer}\\orders"))
            with pytest.raises(AccessRefused):
                as_node.queues.add(Queue(pathname=f"{other}\\orders"))

    def test_a_misspelt_computer_is_not_admitted_and_leaves_nothing_in_the_directory(
        self, directory: EnterpriseDirectory, settings_file: Path, tmp_path: Path, fresh_name: Callable[[str], str]
    ) -> None:
        computer = fresh_name("NODE")
        directory.queue_managers.add(QueueManager(computer_name=computer))
        wrong = f"{computer}X"

        answer = run("directory", "admit", wrong, "--output", tmp_path / "node", "--directory", settings_file)

        assert answer.returncode == 1 and f"did you mean '{computer}'?" in answer.stderr and "--new" in answer.stderr
        assert directory.queue_managers.find(wrong) is None and not (tmp_path / "node").exists()

    def test_a_name_that_a_computer_has_beside_its_own_makes_no_other_one(
        self, directory: EnterpriseDirectory, settings_file: Path, tmp_path: Path, fresh_name: Callable[[str], str]
    ) -> None:
        computer = fresh_name("NODE")
        full = f"{computer.lower()}.plant.example"
        directory.queue_managers.add(QueueManager(computer_name=computer, qualified_computer_name=full))
        before = {one.computer_name for one in directory.queue_managers.list()}

        for name in (computer.lower(), f"{computer}.", f" {computer} ", full, full.upper(), f"{full}."):
            assert admit(directory, name, tmp_path / "node").computer_name == computer
        for name in (
            f"x.{full}",
            "198.51.100.7",
            "::1",
            "two words",
            "a\\b",
            ".",
            "",
            "4d36e96e-e325-11ce-bfc1-08002be1",
            "localhost",
        ):
            with pytest.raises(DirectoryError):
                admit(directory, name, tmp_path / "other")

        assert {one.computer_name for one in directory.queue_managers.list()} == before
        assert not (tmp_path / "other").exists()

    def test_the_settings_of_another_node_are_not_written_over(
        self, directory: EnterpriseDirectory, settings_file: Path, tmp_path: Path, fresh_name: Callable[[str], str]
    ) -> None:
        first, second, given = fresh_name("NODE"), fresh_name("NODE"), tmp_path / "given"
        admit(directory, first, given)
        before = {file.name: file.read_bytes() for file in given.iterdir()}

        answer = run("directory", "admit", second, "--new", "--output", given, "--directory", settings_file)

        assert answer.returncode == 1 and "has the settings of another node" in answer.stderr
        assert {file.name: file.read_bytes() for file in given.iterdir()} == before
        with EnterpriseDirectory(load_settings(given / "directory.yaml")) as as_first:
            assert as_first.queue_managers.find(first) is not None
            assert directory.queue_managers.find(second) is None

    @pytest.mark.one_server(reason="Active Directory accepts the password before for an hour")
    def test_a_second_admission_ends_the_first(
        self, slapd: EmbeddedDirectory, tmp_path: Path, fresh_name: Callable[[str], str]
    ) -> None:
        computer = fresh_name("NODE")
        with EnterpriseDirectory(slapd.client_settings()) as directory:
            admit(directory, computer, tmp_path / "first")
            admit(directory, computer, tmp_path / "second")

        with EnterpriseDirectory(load_settings(tmp_path / "second" / "directory.yaml")) as as_node:
            assert as_node.queue_managers.find(computer) is not None
        with (
            EnterpriseDirectory(load_settings(tmp_path / "first" / "directory.yaml")) as stale,
            pytest.raises(BindRefused),
        ):
            stale.enterprise()

    @pytest.mark.one_server(reason="Active Directory hashes passwords by itself, and shows them to nobody")
    def test_passwords_are_stored_as_hashes_with_a_salt_each(
        self, slapd: EmbeddedDirectory, tmp_path: Path, fresh_name: Callable[[str], str]
    ) -> None:
        stored = set()
        with EnterpriseDirectory(slapd.client_settings()) as directory:
            computer = fresh_name("NODE")
            for _ in range(2):
                node = admit(directory, computer, tmp_path)
                stored.update(stored_passwords(directory, node))
                directory.queue_managers.set_password(node, "the same")
                stored.update(stored_passwords(directory, node))
            slapd.backup(tmp_path / "backup.tar.gz")
            with tarfile.open(tmp_path / "backup.tar.gz") as archive:
                dump = b"".join(archive.extractfile(member).read() for member in archive if member.isfile())  # type: ignore[union-attr]

        assert len(stored) == 4 and all(value.startswith(b"{SSHA}") for value in stored)
        secret = (tmp_path / "directory.password").read_bytes().strip()
        assert secret not in dump and base64.b64encode(secret) not in dump

    @pytest.mark.one_server(reason="only OpenLDAP has ever had passwords in clear")
    def test_passwords_in_clear_of_an_earlier_version_are_hashed_and_stay_valid(
        self, slapd: EmbeddedDirectory, tmp_path: Path, fresh_name: Callable[[str], str]
    ) -> None:
        old = {fresh_name("OLD"): secret for secret in ("{CLEARTEXT}secret-secret", "s{}crét:secret", "{SSHA}kept")}
        settings = written_settings(slapd.client_settings(), tmp_path)
        with EnterpriseDirectory(slapd.client_settings()) as directory:
            nodes = {name: admit(directory, name, tmp_path / name) for name in old}
            for name, node in nodes.items():
                change = Change(ChangeKind.REPLACE, "userPassword", (old[name].encode(),))
                directory.connection.modify(parent_of(str(node.full_path)), [change])

            answer = run(
                "directory", "admit", fresh_name("NODE"), "--new", "--output", tmp_path / "new", "--directory", settings
            )
            again = run(
                "directory", "admit", fresh_name("NODE"), "--new", "--output", tmp_path / "two", "--directory", settings
            )
            stored = {name: stored_passwords(directory, node) for name, node in nodes.items()}

        assert "2 passwords of other nodes lay in clear and are hashed now" in answer.stdout, answer.stderr
        assert again.returncode == 0 and "lay in clear" not in again.stdout
        assert all(len(values) == 1 and values[0].startswith(b"{SSHA}") for values in stored.values())
        for name, secret in old.items():
            (tmp_path / name / "directory.password").write_text(secret.removeprefix("{CLEARTEXT}"))
            if not secret.startswith("{SSHA}"):
                with EnterpriseDirectory(load_settings(tmp_path / name / "directory.yaml")) as as_node:
                    assert as_node.queue_managers.find(name) is not None

    def test_a_name_that_no_computer_can_have_is_refused(self, settings_file: Path, tmp_path: Path) -> None:
        arguments = ("--new", "--output", tmp_path / "node", "--directory", settings_file)

        refused = run("directory", "admit", "a-name-of-more-than-fifteen", *arguments)

        assert (refused.returncode, "1 to 15 " in refused.stderr) == (1, True), refused.stderr


@pytest.mark.servers
class TestQueue:
    def test_a_queue_is_published_found_changed_and_unpublished(
        self, directory: EnterpriseDirectory, settings_file: Path, fresh_name: Callable[[str], str]
    ) -> None:
        computer = fresh_name("NODE")
        directory.queue_managers.add(QueueManager(computer_name=computer))
        where = ("--directory", settings_file)
        pathname = f"{computer}\\orders, paid".lower()
        label, kind = fresh_name("label"), "00112233-4455-6677-8899-aabbccddeeff"

        made = run("queue", "publish", pathname, *where, "--transactional", "--label", label, "--json")

        assert made.returncode == 0, made.stderr
        identifier = json.loads(made.stdout)[0]["identifier"]
        for lookup in ([pathname], [identifier], ["--label", label]):
            found = run("queue", "find", *lookup, *where, "--json")
            assert json.loads(found.stdout)[0]["pathname"] == pathname
        changed = run("queue", "set", pathname, *where, "--privacy-level", "body", "--journaling", "--type", kind)
        assert (changed.returncode, changed.stderr) == (0, "")
        assert run("queue", "set", pathname, *where, "--multicast-address", "10.0.0.1:1").returncode == 1
        for limit, quota in ((100, 100), ("none", None), (4294967295, None), ("100 KB", 100)):  # 4294967295: once none
            limited = run("queue", "set", pathname, *where, "--quota", limit, "--no-authenticated", "--json")
            assert (limited.returncode, json.loads(limited.stdout)[0]["quota"]) == (0, quota)
            assert limited.stderr == "--authenticated is --authentication now\n"
        row = json.loads(run("queue", "find", "--type", kind, "--label", label, *where, "--json").stdout)[0]
        assert (row["quota"], row["privacy_level"], row["journaling"], row["label"]) == (100, "body", True, label)
        assert row["transactional"] is True
        assert pathname in run("queue", "list", *where, "--computer", computer).stdout
        twice = run("queue", "publish", pathname, *where)
        assert (twice.returncode, "published already; mqenterprise queue set" in twice.stderr) == (1, True)
        assert run("queue", "unpublish", pathname, *where).returncode == 0
        gone = run("queue", "find", pathname, *where)
        assert (gone.returncode, gone.stdout) == (1, "no such queue\n")

    def test_wrong_usage_is_told_from_failure(self, settings_file: Path) -> None:
        where = ("--directory", settings_file)

        assert run("queue", "find", *where).returncode == 2
        assert run("queue", "set", "host\\q", *where).returncode == 2
        nobody = run("queue", "publish", "nobodys-host\\q", *where)
        assert (nobody.returncode, "no queue manager" in nobody.stderr) == (1, True)
        assert run("queue", "find", "not-a-guid", *where).returncode == 1
