"""Two domains of one forest: Samba's is the root, and a slapd with the real schema answers for a child domain.

Samba cannot make a child domain, so the crossRef of the child is made by hand, and the slapd is the global catalogue as
well. This shows that objects are found, read and changed where they are. It does not show how a catalogue of Active
Directory replicates: there, an object of another domain is found some time after it was made.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mqenterprise.directory.cache import DirectoryCache
from mqenterprise.directory.errors import DirectoryUnavailable, ObjectNotFound
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.port import LdapPort, PortSettings
from mqenterprise.directory.settings import DirectorySettings, OtherServers
from mqenterprise.survey.machines import Asking
from mqenterprise.survey.run import Survey, survey
from qmnode import Access, Message
from qmnode.directory.membership import Membership
from qmnode.directory.port import Queue, QueueManager, RoutingLink, Site, equals
from qmnode.node import QueueManager as Node
from qmnode.remote_read.client_interfaces import RemoteReadOptions
from qmnode.settings.node import NodeSettings
from qmnode.structures.guid import guid_to_text, new_guid
from tests.lab.directory_objects import create
from tests.lab.servers import start_slapd
from tests.transport.conftest import loopback_address, settings_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from mqenterprise.directory.private_slapd import EmbeddedDirectory
    from tests.lab.samba import DomainController

    Named = Callable[[str], str]

pytestmark = pytest.mark.servers

CHILD = "DC=child,DC=lab,DC=test"
NAME = "child.lab.test"


@dataclass
class Forest:
    """Both domains: the root as its administrator sees the forest, and the child as its own administrator does."""

    settings: DirectorySettings
    root: EnterpriseDirectory
    child: EnterpriseDirectory
    slapd: EmbeddedDirectory


@pytest.fixture
def forest(domain_controller: DomainController) -> Iterator[Forest]:
    folder = Path(tempfile.mkdtemp(prefix="qmchild"))
    folder.chmod(0o711)
    slapd = start_slapd(folder / "state", root=CHILD.lower())
    own = slapd.client_settings()
    there = OtherServers(servers=own.servers, user=own.user, password_file=own.password_file, ca_file=own.ca_file)
    settings = domain_controller.settings(catalogue=there, domains={NAME: there})
    reference = f"CN=CHILD,CN=Partitions,CN=Configuration,{domain_controller.root}"
    with EnterpriseDirectory(domain_controller.settings()) as alone, EnterpriseDirectory(own) as child:
        child.prepare()
        domain_controller.change_by_hand(
            reference, "add", "objectClass: crossRef", f"nCName: {CHILD}", f"dnsRoot: {NAME}", "nETBIOSName: CHILD",
            "systemFlags: 3",
        )  # fmt: skip
        try:
            with EnterpriseDirectory(settings) as root:
                yield Forest(settings, root, child, slapd)
        finally:
            alone.connection.delete(reference)
            slapd.stop()
            shutil.rmtree(folder, ignore_errors=True)


def test_objects_of_the_other_domain_are_found_and_changed_where_they_are(forest: Forest, fresh_name: Named) -> None:
    there, here = fresh_name("THERE"), fresh_name("HERE")
    made = forest.child.queue_managers.add(QueueManager(computer_name=there, public_encryption_key_list=b"its keys"))
    queue = forest.child.queues.add(Queue(pathname=f"{there}\\orders", label="old"))
    forest.root.queue_managers.add(QueueManager(computer_name=here))
    assert made.identifier is not None and queue.identifier is not None

    found = forest.root.queue_managers.find(there)
    assert found is not None and found.full_path is not None and found.full_path.upper().endswith(CHILD.upper())
    assert forest.root.queue_managers.get(made.identifier).public_encryption_key_list == b"its keys"
    assert forest.root.queues.get(queue.identifier).pathname == f"{there}\\orders".lower()
    assert [one.label for one in forest.root.queues.list(equals("label", "old"))] == ["old"]
    assert {one.computer_name for one in forest.root.queue_managers.list()} >= {there, here}

    forest.root.queues.modify(replace(queue, label="new", full_path=None), ("label",))
    assert forest.child.queues.get(queue.identifier).label == "new"
    second = forest.root.queues.add(Queue(pathname=f"{there}\\second"))
    assert forest.child.queues.find(f"{there}\\second") is not None
    forest.root.queues.delete(second)
    assert forest.child.queues.find(f"{there}\\second") is None
    with pytest.raises(ObjectNotFound):
        forest.root.queues.get(new_guid())


def test_a_gate_of_the_other_domain_is_a_site_gate_of_a_link(
    forest: Forest, domain_controller: DomainController, fresh_name: Named
) -> None:
    """The gate is entered by hand: Samba refuses values that name objects which it does not hold."""
    gate = forest.child.queue_managers.add(QueueManager(computer_name=fresh_name("GATE"), routing_server=True))
    sites = [create(forest.root, Site(name=fresh_name("Site"))).identifier for _ in range(2)]
    assert gate.identifier is not None and sites[0] is not None and sites[1] is not None
    link = create(forest.root, RoutingLink(site1_identifier=sites[0], site2_identifier=sites[1], actual_cost=1))
    domain_controller.change_by_hand(
        str(link.full_path), "modify", "add: mSMQSiteGates", f"mSMQSiteGates: {gate.full_path}"
    )
    links = [one for one in forest.root.routing_links.list() if one.site1_identifier == sites[0]]
    assert [one.site_gate_identifier_list for one in links] == [(gate.identifier,)]


def test_a_survey_reads_both_domains_and_says_which_object_is_in_which(forest: Forest, fresh_name: Named) -> None:
    there, here = fresh_name("THERE"), fresh_name("HERE")
    forest.child.queue_managers.add(QueueManager(computer_name=there, qualified_computer_name="127.0.0.1"))
    forest.child.queues.add(Queue(pathname=f"{there}\\orders", label="far"))
    forest.root.queue_managers.add(QueueManager(computer_name=here, qualified_computer_name="127.0.0.1"))
    nobody = Asking(RemoteReadOptions(endpoint_mapper_port=9), timeout=2.0)

    report = survey(Survey(directories=[forest.settings], asking=nobody)).report

    domains = {one["name"]: one["domain"].lower() for one in report["machines"]}
    assert (domains[there], domains[here]) == (NAME, "lab.test")
    assert {one["domain"].lower() for one in report["queues"] if one["path"] == f"{there}\\orders"} == {NAME}
    assert report["domains_not_surveyed"] == []
    alone = survey(Survey(directories=[forest.settings.model_copy(update={"catalogue": None})], asking=nobody)).report
    assert alone["domains_not_surveyed"] == [NAME]


@asynccontextmanager
async def running(folder: Path, name: str, address: str, settings: DirectorySettings) -> AsyncIterator[Node]:
    """A node on the network, under the identifier that its domain has for it."""
    folder.mkdir()
    port = LdapPort(PortSettings(directory=settings, fresh_for=1, answer_limit=20), DirectoryCache(folder / "cache"))
    try:
        async with Node.open(folder / "store", settings_of(name, address), directory=port) as node:
            await Membership(port, node, NodeSettings(computer_name=name)).join()
            await node.network.start()
            yield node
    finally:
        await port.close()


async def test_messages_go_to_a_public_queue_of_the_other_domain_also_while_its_server_is_away(
    forest: Forest, tmp_path: Path, fresh_name: Named
) -> None:
    addresses = {fresh_name("HERE"): loopback_address(), fresh_name("THERE"): loopback_address()}
    here, there = addresses
    site = create(forest.root, Site(name=fresh_name("Site"))).identifier
    assert site is not None
    forest.child.queue_managers.add(QueueManager(computer_name=there, qualified_computer_name=addresses[there]))
    there_now = forest.root.queue_managers.find(there)
    assert there_now is not None
    forest.root.queue_managers.modify(replace(there_now, site_identifier_list=(site,)), ("site_identifier_list",))
    forest.root.queue_managers.add(
        QueueManager(computer_name=here, qualified_computer_name=addresses[here], site_identifier_list=(site,))
    )
    async with (
        running(tmp_path / "there", there, addresses[there], forest.child.connection.settings) as receiver,
        running(tmp_path / "here", here, addresses[here], forest.settings) as sender,
    ):
        queue = await receiver.create_queue(f"{there}\\orders")
        name = f"PUBLIC={guid_to_text(queue.identifier)}"
        async with (
            await sender.open_queue(name, Access.SEND) as out,
            await receiver.open_queue(f"DIRECT=OS:{there}\\orders") as arrived,
        ):
            await out.send(Message(b"with its server", recoverable=True))
            assert (await arrived.receive(60)).body == b"with its server"
            forest.slapd.stop()
            await asyncio.sleep(1.1)  # what was read is no longer fresh
            sender.network.disconnect()
            sender.network.connect()
            await out.send(Message(b"without it", recoverable=True))
            assert (await arrived.receive(60)).body == b"without it"
        async with await sender.open_queue(name, Access.SEND) as again:
            await again.send(Message(b"opened again", recoverable=True))
        async with await receiver.open_queue(f"DIRECT=OS:{there}\\orders") as arrived:
            assert (await arrived.receive(60)).body == b"opened again"
    assert not [one for one in await _dead_letters(tmp_path, here) if one]


async def _dead_letters(folder: Path, name: str) -> list[bytes]:
    async with Node.open(folder / "here" / "store", settings_of(name, loopback_address())) as node:
        return [b"dead"] * (await node.status()).dead_letter_count


def test_what_cannot_be_read_now_is_not_left_out(forest: Forest, fresh_name: Named) -> None:
    here = fresh_name("HERE")
    forest.root.queue_managers.add(QueueManager(computer_name=here))
    assert forest.root.queue_managers.find(here) is not None
    forest.slapd.stop()
    assert forest.root.queue_managers.find(here) is not None
    with pytest.raises(DirectoryUnavailable):
        list(forest.root.queue_managers.list())
    with pytest.raises(DirectoryUnavailable):
        forest.root.queues.get(new_guid())
