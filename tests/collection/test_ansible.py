"""The collection as Ansible's own programs see it: playbooks, inventory, documentation, lint and sanity."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.settings import ServerKind
from qmnode.directory.port import QueueManager
from tests.collection import sanity
from tests.collection.conftest import COLLECTION, REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable

    from mqenterprise.directory.private_slapd import EmbeddedDirectory
    from tests.collection.conftest import Modules

BIN = Path(sys.executable).parent
PLAYBOOKS = REPOSITORY / "playbooks"
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
RECAP = re.compile(r"ok=\d+ +changed=(\d+) +unreachable=0 +failed=0")


def run(
    program: str, *arguments: object, cwd: Path = PLAYBOOKS, code: int = 0, timeout: int = 900, **environment: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [BIN / program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=cwd,
        env=os.environ
        | {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            "ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "NO_COLOR": "1",
        }
        | environment,
    )
    assert done.returncode == code, done.stdout[-4000:] + done.stderr[-4000:]
    return done


def plain(value: Any) -> Any:
    """What ansible-inventory lists, without its marks of what no template may come from."""
    match value:
        case {"__ansible_unsafe": text}:
            return text
        case dict():
            return {key: plain(each) for key, each in value.items()}
        case list():
            return [plain(each) for each in value]
    return value


@pytest.mark.servers
class TestPlaybook:
    # The modules themselves are tested against both servers in this process, which takes a tenth of the time.
    @pytest.mark.parametrize("directory_server", [ServerKind.OPENLDAP], ids=["slapd"], indirect=True)
    def test_twice_changes_nothing_and_check_says_what_comes(
        self, directory_file: Path, fresh_name: Callable[[str], str]
    ) -> None:
        prefix = fresh_name("play")
        variables = json.dumps({"directory_file": str(directory_file), "prefix": prefix})
        arguments = ("-i", "localhost,", Path(__file__).with_name("modules.yml"), "-e", variables)

        answer = run("ansible-playbook", *arguments, "--check", "--diff")
        checked = answer.stdout
        assert f'+  "name": "{prefix}A"' in checked
        assert RECAP.search(checked)[1] == "4"  # type: ignore[index]
        assert f"there is no site '{prefix}A'" in " ".join(answer.stderr.split())
        assert RECAP.search(run("ansible-playbook", *arguments).stdout)[1] == "4"  # type: ignore[index]
        assert RECAP.search(run("ansible-playbook", *arguments).stdout)[1] == "0"  # type: ignore[index]

    def test_hosts_sites_and_roles_come_from_the_directory(
        self, directory_file: Path, modules: Modules, fresh_name: Callable[[str], str], tmp_path: Path
    ) -> None:
        site, other, gate, client = (fresh_name(each) for each in ("Zürich ", "Site", "Gate", "shop"))
        modules.run("site", name=site)
        modules.run("site", name=other)
        made = modules.run("queue_manager", name=gate, sites=[site], roles=["routing_server"])["queue_manager"]
        modules.run("queue_manager", name=client, sites=[site], dns_name=f"{client}.lab.test")
        modules.run("routing_link", sites=[site, other], cost=1, site_gates=[gate])
        file = tmp_path / "lab.msmq.yaml"
        file.write_text(
            yaml.safe_dump({"plugin": "mqenterprise.fleet.directory", "directory_file": "directory.yaml", "site": site})
        )

        listed = plain(json.loads(run("ansible-inventory", "-i", file, "--list").stdout))

        number = site.split()[-1]
        gate = gate.lower()
        assert listed[f"site_zurich_{number}"]["hosts"] == [gate, client]
        assert (listed["routing_servers"]["hosts"], listed["site_gates"]["hosts"]) == ([gate], [gate])
        assert listed["clients"]["hosts"] == [client]
        variables = listed["_meta"]["hostvars"]
        assert variables[gate]["msmq_identifier"] == made["identifier"]
        assert variables[gate]["msmq_is_gate"] is True
        assert variables[client]["ansible_host"] == f"{client}.lab.test"
        assert [site, other] in [sorted(link["sites"], reverse=True) for link in variables[client]["msmq_links"]]


@pytest.mark.slow
class TestInventory:
    def test_the_sample_is_the_default(self) -> None:
        hosts = plain(json.loads(run("ansible-inventory", "--list").stdout))

        assert hosts["site_cordoba"]["hosts"] == ["cor-router", "cor-warehouse"]
        assert hosts["_meta"]["hostvars"]["cor-router"]["ansible_host"] == "203.0.113.10"

    def test_a_host_has_its_declared_bridges_and_copy_and_no_template_in_them(self, tmp_path: Path) -> None:
        bridge = {"direction": "out", "queue": "orders", "peer": "amqps://b.example", "address": "{{ 6 * 7 }}"}
        declared = yaml.safe_load((REPOSITORY / "inventory/contoso.yaml").read_text("utf-8"))
        declared["bridges"] = [{"machine": "AMS-Shop", "name": "billing", **bridge}]
        copy = {"to": "s3://copies/{{ 6 * 7 }}", "key": "/etc/qmnode/copy.key", "lag": 5.0}
        next(one for one in declared["machines"] if one["name"] == "ams-shop")["remote_copy"] = copy
        (tmp_path / "declared.yaml").write_text(yaml.safe_dump(declared))
        file = tmp_path / "some.msmq.yaml"
        plugin = {"plugin": "mqenterprise.fleet.directory", "source": "declared", "declared": "declared.yaml"}
        file.write_text(yaml.safe_dump(plugin))

        hosts = plain(json.loads(run("ansible-inventory", "-i", file, "--list").stdout))["_meta"]["hostvars"]

        assert hosts["ams-shop"]["msmq_bridges"] == {"billing": bridge}
        assert hosts["ams-router"]["msmq_bridges"] == {}
        assert (hosts["ams-shop"]["msmq_remote_copy"], hosts["ams-router"]["msmq_remote_copy"]) == (copy, {})

    def test_a_site_without_hosts_is_told(self, tmp_path: Path) -> None:
        file = tmp_path / "none.msmq.yaml"
        sample = str(REPOSITORY / "inventory/contoso.yaml")
        plugin = {"plugin": "mqenterprise.fleet.directory", "source": "declared", "declared": sample, "site": "Bremem"}
        file.write_text(yaml.safe_dump(plugin))

        answer = run("ansible-inventory", "-i", file, "--list")

        assert "no queue manager is in the site 'Bremem'; there are some in Amsterdam, Bremen" in " ".join(
            answer.stderr.split()
        )

    def test_a_directory_that_is_away_stops_the_play(self, tmp_path: Path) -> None:
        file = tmp_path / "away.msmq.yaml"
        settings = {"servers": ["ldap://127.0.0.1:1"], "bind": "anonymous", "start_tls": False}
        file.write_text(yaml.safe_dump({"plugin": "mqenterprise.fleet.directory", "directory": settings}))

        answer = run("ansible-inventory", "-i", file, "--list", code=1)

        assert "127.0.0.1" in answer.stderr


@pytest.mark.slow
class TestPrograms:
    def test_every_module_is_documented_with_examples_and_results(self) -> None:
        modules = sorted(f"mqenterprise.fleet.{file.stem}" for file in (COLLECTION / "plugins/modules").glob("*.py"))

        documents = json.loads(run("ansible-doc", "--json", *modules).stdout)

        assert len(documents) == len(modules) >= 17
        for name, document in documents.items():
            assert document["return"], name
            assert document["examples"], name
            if "directory_file" in document["doc"]["options"]:  # it runs where the directory can be reached
                assert "delegate_to" in document["examples"] or "inventory_hostname" in document["examples"], name
        assert "ansible-inventory" in run("ansible-doc", "-t", "inventory", "mqenterprise.fleet.directory").stdout

    def test_an_interpreter_without_the_library_is_told_what_to_do(self, tmp_path: Path) -> None:
        (tmp_path / "mqenterprise.py").write_text("raise ImportError('not here')")

        arguments = ("localhost", "-i", "localhost,", "-c", "local", "-m", "mqenterprise.fleet.site_info")
        python = f"ansible_python_interpreter={sys.executable}"

        answer = run("ansible", *arguments, "-e", python, code=2, PYTHONPATH=str(tmp_path))

        assert "qmnode[enterprise]" in answer.stdout
        assert "delegate" in answer.stdout

    def test_settings_that_are_given_count_more_than_those_of_the_environment(self, tmp_path: Path) -> None:
        given = {"servers": ["ldap://127.0.0.1:1"], "bind": "anonymous", "start_tls": False}
        task = {"ignore_errors": True, "mqenterprise.fleet.site_info": {}}
        tasks = [task | {"mqenterprise.fleet.site_info": {"directory": given}}, task]
        play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}
        playbook = tmp_path / "play.yml"
        playbook.write_text(yaml.safe_dump([play]))
        arguments = ("-i", "localhost,", "-e", f"ansible_python_interpreter={sys.executable}", playbook)
        environment = {"MQENTERPRISE_DIRECTORY": str(tmp_path / "of-the-environment.yaml")}

        said = run("ansible-playbook", *arguments, **environment).stdout

        by_option, by_environment = re.split(r"^TASK ", said, flags=re.MULTILINE)[1:]
        assert "127.0.0.1:1" in by_option
        assert "of-the-environment.yaml cannot be read" in by_environment

    @pytest.mark.soak  # of style alone: what is wrong is found by the programs that run it
    def test_lint(self) -> None:
        run("ansible-lint", "--offline", "--profile=production", "--strict", cwd=PLAYBOOKS)

    @pytest.mark.timeout(1000)
    @pytest.mark.parametrize(
        ("chosen", "expected"),
        [
            (["--test", "validate-modules"], {"validate-modules"}),
            # ruff finds most of what they do, in every run.
            pytest.param(
                ["--skip-test", "validate-modules"],
                {"ansible-doc", "import", "pep8", "pylint", "yamllint"},
                marks=pytest.mark.soak,
            ),
        ],
        ids=["modules", "the rest"],
    )
    def test_sanity(self, tmp_path: Path, chosen: list[str], expected: set[str]) -> None:
        """All sanity tests whose requirements are installed; none of them may need the internet here."""
        root = tmp_path / "ansible_collections/mqenterprise/fleet"
        shutil.copytree(COLLECTION, root, ignore=shutil.ignore_patterns("__pycache__"))
        home = tmp_path / "home"
        sanity.prepare(home)

        arguments = ["sanity", "--local", "--python", PYTHON, "--color", "no", *chosen]
        if importlib.util.find_spec("antsibull_changelog") is None:
            arguments += ["--skip-test", "changelog"]
        answer = run("ansible-test", *arguments, cwd=root, timeout=900, HOME=str(home))

        done = set(re.findall(r'Running sanity test "([\w-]+)"', answer.stdout + answer.stderr))
        assert done >= expected


def test_a_site_with_a_space_in_its_name_is_quoted() -> None:
    move = ("-i", "localhost,", "move_site.yml", "-e", "machine=ams-shop", "-e")

    said = run("ansible-playbook", *move, "site=New York", code=2).stdout

    assert "Ansible reads the site as 'New', without 'York'. Quote the name: -e 'site=" in said
    asked = run("ansible-playbook", *move, 'site="New York"', "-e", "directory_file=/none", code=2)
    assert "Quote the name" not in asked.stdout and "/none" in asked.stdout + asked.stderr


@pytest.mark.servers
@pytest.mark.one_server(reason="the role asks for the same command over each of them")
def test_a_roll_out_admits_no_machine_that_is_not_in_the_directory(
    slapd: EmbeddedDirectory, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    """A host with a misspelt name would make a queue manager that no node ever is."""
    name = fresh_name("NODE")
    asked = {
        "login": str(tmp_path / "directory"),
        "directory_file": str(slapd.write_client_settings()),
        "computer": f"{name}X",
    }
    tasks = [{"mqenterprise.fleet.credentials": asked}]
    book = tmp_path / "play.yml"
    book.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]), "utf-8")
    with EnterpriseDirectory(slapd.client_settings()) as directory:
        directory.queue_managers.add(QueueManager(computer_name=name))
        failed = run("ansible-playbook", "-i", "localhost,", "-c", "local", book, code=2)
        assert "there is no queue manager on a computer" in failed.stdout, failed.stdout[-3000:]
        assert directory.queue_managers.find(f"{name}X") is None and not (tmp_path / "directory").exists()

        book.write_text(book.read_text("utf-8").replace(f"{name}X", name), "utf-8")
        foretold = run("ansible-playbook", "-i", "localhost,", "-c", "local", book, "--check")
        assert "changed=1" in foretold.stdout and not (tmp_path / "directory").exists()
        assert "changed=1" in run("ansible-playbook", "-i", "localhost,", "-c", "local", book).stdout
        assert "changed=0" in run("ansible-playbook", "-i", "localhost,", "-c", "local", book).stdout
