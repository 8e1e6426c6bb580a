"""Names and values that come from a directory are data: no template, no option, no path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from mqenterprise.directory.settings import ServerKind
from qmnode.directory.port import Queue, QueueManager, RoutingLink, Site, User
from tests.collection.test_ansible import run
from tests.lab.directory_objects import create, delete

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mqenterprise.directory.open_directory import EnterpriseDirectory
    from tests.lab.servers import DirectoryServer

pytestmark = [
    pytest.mark.servers,
    pytest.mark.parametrize("directory_server", [ServerKind.OPENLDAP], ids=["slapd"], indirect=True),
]

TEMPLATE = "{{ lookup('pipe', 'echo $((7 * 191))') }}"
EVALUATED = "1337"
MODULES = (
    "enterprise_info",
    "site_info",
    "routing_link_info",
    "queue_manager_info",
    "queue_info",
    "queue_alias_info",
    "distribution_list_info",
    "user_certificate_info",
)


@pytest.fixture
def planted(directory: EnterpriseDirectory, fresh_name: Callable[[str], str]) -> Iterator[str]:
    """A directory in which every text is a template; the name of a host that is none."""
    sites = [create(directory, Site(name=name)) for name in (TEMPLATE, fresh_name("Plain"))]
    first, second = (site.identifier for site in sites)
    assert first is not None and second is not None
    host = fresh_name("host")
    identifiers = (first, second)
    kinds = {"site_identifier_list": identifiers, "routing_server": True, "queue_manager_version": TEMPLATE}
    bad = directory.queue_managers.add(QueueManager(computer_name="{{lookup('a')}}", **kinds))
    directory.queue_managers.add(QueueManager(computer_name=host, qualified_computer_name=TEMPLATE, **kinds))
    directory.queue_managers.add(
        QueueManager(computer_name=fresh_name("dash"), qualified_computer_name="-oProxyCommand=id", **kinds)
    )
    assert bad.identifier is not None
    link = RoutingLink(site1_identifier=first, site2_identifier=second, actual_cost=1, description=TEMPLATE)
    made = create(directory, link)
    queue = directory.queues.add(Queue(pathname=f"{host}\\{TEMPLATE}", label=TEMPLATE))
    user = create(directory, User(name=TEMPLATE))
    yield host
    directory.queues.delete(queue)
    delete(directory, user)
    delete(directory, made)
    for machine in tuple(directory.queue_managers.list()):
        delete(directory, machine)
    for site in sites:
        delete(directory, site)


@pytest.fixture
def inventory(directory_server: DirectoryServer, directory_file: Path, tmp_path: Path) -> Path:
    del directory_server
    file = tmp_path / "lab.msmq.yaml"
    keyed = [{"key": "msmq_sites | first", "prefix": "by"}]
    compose = {"composed": "msmq_dns_name", "joined": "msmq_sites | join('+')"}
    values = {"plugin": "mqenterprise.fleet.directory", "directory_file": directory_file.name}
    file.write_text(yaml.safe_dump(values | {"keyed_groups": keyed, "compose": compose}))
    return file


def test_no_variable_of_the_inventory_is_a_template(planted: str, inventory: Path, tmp_path: Path) -> None:
    play = tmp_path / "play.yml"
    shown = [{"debug": {"msg": "{{ hostvars[inventory_hostname] | to_json }} {{ inventory_hostname }}"}}]
    names = ("msmq_links", "msmq_site", "msmq_dns_name", "composed", "joined")
    shown += [{"set_fact": {"again": "{{ msmq_site }} {{ msmq_dns_name }}"}}]
    shown += [{"debug": {"msg": "{{ again }} " + " ".join(f"{{{{ {name} }}}}" for name in names)}}]
    where = {"hosts": "queue_managers", "gather_facts": False, "connection": "local"}
    play.write_text(yaml.safe_dump([where | {"tasks": shown}]))

    answer = run("ansible-playbook", "-i", inventory, play)

    said = " ".join(answer.stderr.split())
    assert EVALUATED not in answer.stdout + said
    assert "{{ lookup(" in answer.stdout and planted in answer.stdout
    # What cannot be a host's name is none in the inventory either.
    assert "ok: [{{" not in answer.stdout
    assert "\"{{lookup('a')}}\" is no host's name: this queue manager is left out" in said
    assert "'-oProxyCommand=id' of" in said


def test_what_modules_return_is_no_template(planted: str, directory_file: Path, tmp_path: Path) -> None:
    play = tmp_path / "play.yml"
    tasks: list[dict[str, Any]] = [
        {f"mqenterprise.fleet.{name}": {"directory_file": str(directory_file)}, "register": name} for name in MODULES
    ]
    tasks += [{"set_fact": {"again": "{{ [" + ", ".join(MODULES) + "] | to_json }}"}}]
    tasks += [{"debug": {"msg": "{{ again }} {{ queue_manager_info }} {{ queue_info }} {{ site_info }}"}}]
    where = {"hosts": "localhost", "gather_facts": False, "connection": "local"}
    python = {"ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    play.write_text(yaml.safe_dump([where | {"vars": python, "tasks": tasks}]))

    answer = run("ansible-playbook", "-i", "localhost,", play)

    assert EVALUATED not in answer.stdout
    assert "lookup(" in answer.stdout and planted in answer.stdout
