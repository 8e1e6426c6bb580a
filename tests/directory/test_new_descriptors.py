"""Access lists of new objects in Active Directory (MS-MQDSSM 3.1.6.1), read back by Samba's own tools.

``samba-tool dsacl get`` prints SDDL (MS-DTYP 2.5.1). Entries with the flag ID are inherited from the directory's own.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
import yaml
from typer.testing import CliRunner

from mqenterprise.cli import app
from mqenterprise.directory.errors import AccessRefused
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.schema import load_schema
from qmnode.directory.port import Queue, QueueManager, RoutingLink, Site
from tests.lab.directory_objects import create
from tests.lab.samba import PASSWORD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.lab.samba import DomainController

    Named = Callable[[str], str]

pytestmark = pytest.mark.servers

FULL = "RPWPCRCCDCLCLORCWOWDSDDTSW"
READ = "RPLCLORC"
"""RIGHT_GENERIC_READ, which MS-MQDSSM 5.1 demands of readers."""
SELF = "RPWPCRCCLCLORCWDSW"
"""MQSEC_MACHINE_SELF_RIGHTS: all but deleting and owning it."""
CREATOR = "LA"
"""The lab's administrator, who makes the objects."""
_ACE = re.compile(r"\(([^)]*)\)")


@dataclass
class Lab:
    """A domain controller, and what its own tools say."""

    controller: DomainController
    directory: EnterpriseDirectory
    file: Path

    def entries(self, dn: str) -> list[str]:
        """The entries of an object's own list: kind;flags;rights;object;inherited object;who."""
        text = self._said("samba-tool", "dsacl", "get", f"--objectdn={dn}", "-s", self._folder("etc/smb.conf"))
        return [one for one in _ACE.findall(text.split("D:")[1].partition("S:")[0]) if "ID" not in one.split(";")[1]]

    def sid(self, dn: str) -> str:
        found = re.search(r"objectSid: (S-[\d-]+)", self._said("ldbsearch", "-b", dn, "-s", "base", "objectSid"))
        assert found is not None
        return found[1]

    def run(self, *words: str) -> None:
        done = CliRunner().invoke(app, [*words, "--directory", str(self.file)])
        assert done.exit_code == 0, done.output

    def tool(self, *words: str) -> None:
        self._said("samba-tool", *words, "-s", self._folder("etc/smb.conf"))

    def _folder(self, name: str) -> str:
        return str(self.controller.folder / "dc" / name)

    def _said(self, *command: str) -> str:
        words = [*command[:3], "-H", self._folder("private/sam.ldb"), *command[3:]]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def lab(domain_controller: DomainController, tmp_path: Path) -> Iterator[Lab]:
    file = tmp_path / "directory.yaml"
    values = domain_controller.settings().model_dump(mode="json", exclude_none=True)
    file.write_text(yaml.safe_dump(values | {"password": PASSWORD}), "utf-8")
    with EnterpriseDirectory(domain_controller.settings()) as directory:
        yield Lab(domain_controller, directory, file)


def test_a_queue_manager_is_seen_by_all_and_run_by_its_computer(lab: Lab, fresh_name: Named) -> None:
    made = lab.directory.queue_managers.add(QueueManager(computer_name=fresh_name("SD")))

    dn = str(made.full_path)
    machine = lab.sid(dn.partition(",")[2])
    assert lab.entries(dn) == [
        f"A;;{READ};;;WD",
        f"A;;{FULL};;;{machine}",
        f"A;;{SELF};;;{machine}",
        f"A;;{FULL};;;{CREATOR}",
        f"A;CI;{FULL};;;{machine}",  # ours: a node writes its queues as its computer
    ]


def test_everybody_may_create_queues_on_a_foreign_one(lab: Lab, fresh_name: Named) -> None:
    made = lab.directory.queue_managers.add(QueueManager(computer_name=fresh_name("SD"), foreign_system=True))

    assert lab.entries(str(made.full_path))[0] == "A;;RPCCLCLORC;;;WD"


def test_a_queue_is_seen_by_all_and_its_creators(lab: Lab, fresh_name: Named) -> None:
    node = lab.directory.queue_managers.add(QueueManager(computer_name=fresh_name("SD")))
    made = lab.directory.queues.add(Queue(pathname=f"{node.computer_name}\\orders"))

    machine = lab.sid(str(node.full_path).partition(",")[2])
    assert lab.entries(str(made.full_path)) == [f"A;;{READ};;;WD", f"A;;{READ};;;{machine}", f"A;;{FULL};;;{CREATOR}"]


def test_a_site_is_seen_by_all_and_its_creators(lab: Lab, fresh_name: Named) -> None:
    made = create(lab.directory, Site(name=fresh_name("Site")))

    assert lab.entries(str(made.full_path)) == [f"A;;{READ};;;WD", f"A;;{FULL};;;{CREATOR}"]


def test_links_and_settings_have_the_lists_of_their_classes(lab: Lab, fresh_name: Named) -> None:
    sites = [create(lab.directory, Site(name=fresh_name("Site"))).identifier for _ in range(2)]
    assert sites[0] is not None and sites[1] is not None
    link = create(lab.directory, RoutingLink(site1_identifier=sites[0], site2_identifier=sites[1], actual_cost=1))
    router = lab.directory.queue_managers.add(
        QueueManager(computer_name=fresh_name("SD"), routing_server=True, site_identifier_list=(sites[0],))
    )
    gateway, site = lab.directory.gateway, lab.directory.sites.get(sites[0])
    [settings] = gateway.keep_settings(gateway.writer, str(router.full_path), [str(site.full_path)], ()).values()

    defaults = [f"A;;{FULL};;;DA", f"A;;{FULL};;;SY", f"A;;{READ};;;AU"]
    assert lab.entries(str(link.full_path)) == defaults
    assert lab.entries(settings) == defaults


def test_apply_writes_the_same_lists(lab: Lab, fresh_name: Named, tmp_path: Path) -> None:
    site, machine = fresh_name("Site"), fresh_name("SD")
    lists = {"open": [{"to": "Everyone", "allow": ["send"]}], "usual": None}
    file = tmp_path / "enterprise.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "enterprise": {"name": "lab"},
                "sites": [{"name": site}],
                "machines": [{"name": machine, "sites": [site]}],
                "queues": [
                    {"machine": machine, "name": name} | ({"access": access} if access else {})
                    for name, access in lists.items()
                ],
            }
        ),
        "utf-8",
    )

    lab.run("apply", str(file), "--yes")

    contexts = lab.directory.connection.dialect.contexts
    computer = f"CN={machine},{contexts.computers}"
    sid = lab.sid(computer)
    seen, creators = f"A;;{READ};;;WD", f"A;;{FULL};;;{CREATOR}"
    assert lab.entries(f"CN={site},{contexts.sites}") == [seen, creators]
    assert lab.entries(f"CN=msmq,{computer}") == [seen, f"A;;{FULL};;;{sid}", f"A;;{SELF};;;{sid}", creators]
    assert lab.entries(f"CN=usual,CN=msmq,{computer}") == [seen, f"A;;{READ};;;{sid}", creators]
    [send] = lab.entries(f"CN=open,CN=msmq,{computer}")
    assert send == f"OA;;CR;{load_schema().extended_rights['msmq-Send'].guid};;WD"


def test_a_creator_with_few_rights_goes_on_with_the_object_and_others_only_read(lab: Lab, fresh_name: Named) -> None:
    creator, reader = fresh_name("creator"), fresh_name("reader")
    for name in (creator, reader):
        lab.tool("user", "create", name, PASSWORD)
    contexts = lab.directory.connection.dialect.contexts
    sid = lab.sid(f"CN={creator},{contexts.users}")
    computer = fresh_name("SD")
    lab.directory.connection.add(
        f"CN={computer},{contexts.computers}",
        ("top", "computer"),
        lab.directory.connection.dialect.account("computer", computer),
    )
    lab.tool("dsacl", "set", f"--objectdn=CN={computer},{contexts.computers}", f"--sddl=(A;;RPWPCC;;;{sid})")

    def as_user(name: str) -> EnterpriseDirectory:
        return EnterpriseDirectory(lab.controller.settings(user=f"{name}@{lab.controller.domain}"))

    with as_user(creator) as directory:
        made = directory.queue_managers.add(QueueManager(computer_name=computer))
        directory.queue_managers.modify(replace(made, queue_manager_quota=7), ("queue_manager_quota",))
        queue = directory.queues.add(Queue(pathname=f"{made.computer_name}\\orders"))
        directory.queues.modify(replace(queue, label="mine"), ("label",))
    with as_user(reader) as directory:
        assert [one.label for one in directory.queues.of(made.computer_name, ("label",))] == ["mine"]
        with pytest.raises(AccessRefused):
            directory.queues.modify(replace(queue, label="theirs"), ("label",))
        with pytest.raises(AccessRefused):
            directory.queue_managers.modify(replace(made, queue_manager_quota=8), ("queue_manager_quota",))
        with pytest.raises(AccessRefused):
            directory.queues.add(Queue(pathname=f"{made.computer_name}\\theirs"))
    assert lab.entries(str(queue.full_path))[-1] == f"A;;{FULL};;;{sid}"
