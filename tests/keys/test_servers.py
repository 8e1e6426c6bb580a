"""Published keys and users' certificates on both directory servers, and the commands."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from typer.testing import CliRunner

from mqenterprise.cli import app
from mqenterprise.keys.publication import Publication
from mqenterprise.keys.settings import KeyRotationError
from qmnode.directory.port import QueueManager, Site
from qmnode.security.key_stores import KeyPurpose
from qmnode.security.published_keys import PublishedKeys, public_key_list
from tests.lab.directory_objects import create, delete
from tests.security.messages import encryption_pair

if TYPE_CHECKING:
    from collections.abc import Callable

    from mqenterprise.directory.open_directory import EnterpriseDirectory
    from tests.lab.servers import DirectoryServer

    Named = Callable[[str], str]

pytestmark = pytest.mark.servers


@pytest.fixture
def node(directory: EnterpriseDirectory, fresh_name: Named) -> QueueManager:
    return directory.queue_managers.add(QueueManager(computer_name=fresh_name("KEYS")))


def written(number: int) -> dict[KeyPurpose, bytes]:
    return {KeyPurpose.ENCRYPTION: public_key_list([encryption_pair(number=number)], KeyPurpose.ENCRYPTION)}


class TestPublication:
    def test_a_list_is_read_as_senders_read_it(self, directory: EnterpriseDirectory, node: QueueManager) -> None:
        publication = Publication(directory)
        (found,) = publication.nodes(computers=[node.computer_name.lower()])
        assert publication.replace(found, publication.read(found), written(0))
        assert publication.read(found).fingerprints == {encryption_pair().fingerprint}
        encoded = directory.queue_managers.get(found.identifier).public_encryption_key_list
        keys = PublishedKeys.parse(found.identifier, encoded, 0.0)
        assert [key.fingerprint for key in keys.keys.values()] == [encryption_pair().fingerprint]

    def test_a_signing_key_is_read_where_it_was_published(
        self, directory: EnterpriseDirectory, node: QueueManager
    ) -> None:
        publication = Publication(directory)
        (found,) = publication.nodes(computers=[node.computer_name])
        pair = replace(encryption_pair(), purpose=KeyPurpose.SIGNING)
        encoded = public_key_list([pair], KeyPurpose.SIGNING)
        assert publication.replace(found, publication.read(found), {KeyPurpose.SIGNING: encoded})
        read = directory.queue_managers.get(found.identifier)
        assert (read.public_signing_keys, read.public_signing_key_list) == (encoded, None)

    def test_of_two_writers_one_is_told(self, directory: EnterpriseDirectory, node: QueueManager) -> None:
        publication = Publication(directory)
        (found,) = publication.nodes(computers=[node.computer_name])
        before = publication.read(found)
        assert publication.replace(found, before, written(0))
        assert not publication.replace(found, before, written(1))
        between = publication.read(found)
        assert publication.replace(found, between, written(1))
        assert not publication.replace(found, between, written(2))
        assert publication.read(found).fingerprints == {encryption_pair(number=1).fingerprint}

    def test_nodes_are_chosen_by_site_and_by_name(self, directory: EnterpriseDirectory, fresh_name: Named) -> None:
        site = create(directory, Site(name=fresh_name("Keysite")))
        assert site.identifier is not None
        name = fresh_name("KEYS")
        directory.queue_managers.add(QueueManager(computer_name=name, site_identifier_list=(site.identifier,)))
        publication = Publication(directory)
        assert [each.computer_name for each in publication.nodes(site=site.name)] == [name]
        with pytest.raises(KeyRotationError, match="nowhere"):
            publication.nodes(computers=["nowhere"])
        with pytest.raises(KeyRotationError, match="no site"):
            publication.nodes(site="nowhere")


class Commands:
    """The command line on one server, with short lifetimes."""

    def __init__(self, server: DirectoryServer, folder: Path) -> None:
        self.folder = folder
        self.directory_file, self.keys_file = folder / "directory.yaml", folder / "keys.yaml"
        values = server.settings.model_dump(mode="json", exclude_none=True)
        if server.settings.password is not None:
            values["password"] = server.settings.password.get_secret_value()
        self.directory_file.write_text(yaml.safe_dump(values), "utf-8")
        self.configure()

    def configure(self, **more: Any) -> None:
        short = {
            "directory": f"{self.folder}/{{computer}}",
            "security": {"public_key_lifetime": 1, "symmetric_key_short_lifetime": 1, "clock_skew": 0},
            "modulus_length": 1024,
            "reload_interval": 0,
            "replication_delay": 0,
            "offline_cache_age": 0,
            "longest_time_to_reach_queue": 0,
            "destroy_after": 0,
        }
        self.keys_file.write_text(yaml.safe_dump(short | more), "utf-8")

    def __call__(self, *words: str, code: int = 0) -> Any:
        arguments = [*words, "--directory", str(self.directory_file)]
        if words[0] == "keys":
            arguments += ["--keys", str(self.keys_file)]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == code, result.output
        return json.loads(result.stdout) if "--json" in words else result.output


@pytest.fixture
def commands(directory_server: DirectoryServer, tmp_path: Path) -> Commands:
    return Commands(directory_server, tmp_path)


class TestCommands:
    def test_a_key_is_rotated_rolled_back_retired_and_destroyed(
        self, commands: Commands, node: QueueManager, directory: EnterpriseDirectory
    ) -> None:
        name = node.computer_name
        (commands.folder / name).mkdir()
        assert [row["due"] for row in commands("keys", "status", name, "--json", code=2)] == ["rotate"]

        def keys(*words: str, code: int = 0) -> dict[str, str]:
            found = commands("keys", words[0], name, *words[1:], "--json", code=code)
            return {row["fingerprint"]: row["state"] for row in found if row["purpose"] == "encryption"}

        (first,) = keys("rotate")
        commands.configure(longest_time_to_reach_queue=1000)
        states = keys("rotate")
        (second,) = set(states) - {first}
        assert states == {first: "previous", second: "current"}
        assert keys("rollback") == {first: "current", second: "previous"}
        publication = Publication(directory)
        (found,) = publication.nodes(computers=[name])
        assert publication.read(found).fingerprints & {first, second} == {first}
        assert keys("status") == {first: "current", second: "previous"}
        commands.configure()
        assert keys("status", code=2) == {first: "current", second: "previous"}
        assert keys("retire", code=2) == {first: "current", second: "retired"}
        assert keys("retire") == {first: "current"}
        assert keys("status", "--destroyed") == {first: "current", second: "destroyed"}
        table = commands("keys", "status", name)
        assert first.removeprefix("SHA256:")[:12] in table
        assert max(map(len, table.splitlines())) <= 100

    def test_names_of_computers_complete_in_the_shell(
        self, commands: Commands, node: QueueManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MQENTERPRISE_DIRECTORY", str(commands.directory_file))

        def completed(line: str) -> set[str]:
            words = {"_MQENTERPRISE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
            return set(CliRunner().invoke(app, [], prog_name="mqenterprise", env=words).output.split())

        name = node.computer_name
        begun = name[:-1].upper()
        assert name in completed(f"mqenterprise keys status {begun}")
        assert name in completed(f"mqenterprise machine acl show {begun}")
        assert name in completed(f"mqenterprise route explain {begun}")
        assert completed("mqenterprise keys status no-such-name-") == set()
        monkeypatch.setenv("MQENTERPRISE_DIRECTORY", str(commands.folder / "none.yaml"))
        assert completed(f"mqenterprise keys status {begun}") == set()

    def test_a_new_key_that_waits_is_said_to_be_due(self, commands: Commands, node: QueueManager) -> None:
        name = node.computer_name
        (commands.folder / name).mkdir()
        commands.configure(reload_interval=3600)
        told = commands("keys", "rotate", name, "--no-wait", "--json", code=2)
        assert {row["state"] for row in told} == {"next"}
        commands.configure()
        told = commands("keys", "rotate", name, "--begun", "2020-01-01T00:00:00+00:00", "--json")
        assert {row["state"] for row in told} == {"current"}

    def test_a_store_that_fails_holds_up_nobody_else(
        self, commands: Commands, node: QueueManager, directory: EnterpriseDirectory, fresh_name: Named
    ) -> None:
        other = directory.queue_managers.add(QueueManager(computer_name=fresh_name("KEYS"))).computer_name
        (commands.folder / other).mkdir()
        told = commands("keys", "rotate", node.computer_name, other, code=1)
        assert f"{node.computer_name}: " in told
        assert f"there is no folder {commands.folder / node.computer_name} on this machine" in told
        assert "current" in commands("keys", "status", other)

    def test_nodes_whose_keys_would_be_one_file_are_refused(
        self, commands: Commands, node: QueueManager, directory: EnterpriseDirectory, fresh_name: Named
    ) -> None:
        other = directory.queue_managers.add(QueueManager(computer_name=fresh_name("KEYS"))).computer_name
        commands.configure(directory=str(commands.folder))
        for action in ("status", "rotate", "rollback", "retire"):
            told = commands("keys", action, node.computer_name, other, code=1)
            assert (
                f"the keys of 2 nodes cannot all be in {commands.folder}: write 'directory' with {{computer}}" in told
            )
        assert list(commands.folder.glob("keys*")) == [commands.folder / "keys.yaml"]

    def test_a_misspelt_node_or_site_is_told_with_the_nearest(
        self, commands: Commands, directory: EnterpriseDirectory, fresh_name: Named
    ) -> None:
        site = create(directory, Site(name=fresh_name("Bremen"))).name
        name = directory.queue_managers.add(QueueManager(computer_name=fresh_name("warehouse"))).computer_name
        assert f"did you mean {name}?" in commands("keys", "rotate", f"x{name}", code=1)
        assert f"did you mean {site}?" in commands("keys", "rotate", "--site", f"x{site}", code=1)

    def test_wrong_settings_are_told(self, commands: Commands) -> None:
        commands.configure(replication_delay="soon")
        assert "replication_delay" in commands("keys", "status", code=1)
        assert "no queue manager" in (commands.configure() or commands("keys", "status", "nobody", code=1))


def test_a_deleted_node_is_told(directory: EnterpriseDirectory, node: QueueManager) -> None:
    publication = Publication(directory)
    (found,) = publication.nodes(computers=[node.computer_name])
    delete(directory, node)
    with pytest.raises(KeyRotationError, match="not in the directory any more"):
        publication.read(found)
