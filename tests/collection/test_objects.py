"""The modules for the objects of a directory, against both directory servers."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest

from mqenterprise.directory.repositories import resolve_distribution_list
from mqenterprise.directory.settings import ServerKind
from qmnode.directory.port import Queue, QueueManager, Site
from qmnode.structures.guid import guid_from_text
from tests.collection.conftest import ModuleFailed
from tests.lab.directory_objects import create, delete

if TYPE_CHECKING:
    from collections.abc import Callable

    from mqenterprise.directory.open_directory import EnterpriseDirectory
    from tests.collection.conftest import Modules

    Names = Callable[[str], str]

pytestmark = pytest.mark.servers


class TestSite:
    @pytest.mark.public_report("ansible-collections/community.general#3619")
    def test_it_comes_changes_and_goes(self, modules: Modules, fresh_name: Names) -> None:
        name = fresh_name("Lisboa é ")

        made = modules.settle("site", name=name, inter_site_replication_interval=30)
        modules.settle("site", name=name, intra_site_replication_interval=3)

        (found,) = modules.run("site_info", name=name.upper())["sites"]
        assert found["identifier"] == made["site"]["identifier"]
        assert modules.run("site_info", check=True, name=name)["sites"] == [found], "reading is done in check mode too"
        assert (found["intra_site_replication_interval"], found["inter_site_replication_interval"]) == (3, 30)
        assert modules.settle("site", name=name, state="absent")["site"] is None
        assert modules.run("site_info", name=name)["sites"] == []

    def test_a_site_becomes_foreign_and_back(self, modules: Modules, site: str) -> None:
        modules.settle("site", name=site, foreign=True)
        modules.settle("site", name=site, foreign=False)

    def test_a_site_in_use_is_kept(self, modules: Modules, site: str, fresh_name: Names) -> None:
        machine = fresh_name("host")
        modules.run("queue_manager", name=machine, sites=[site])

        with pytest.raises(ModuleFailed, match=f"needed by machine {machine}"):
            modules.run("site", name=site, state="absent")

    def test_what_others_made_is_kept(
        self, modules: Modules, directory: EnterpriseDirectory, fresh_name: Names
    ) -> None:
        name = fresh_name("Theirs")
        create(directory, Site(name=name))

        with pytest.raises(ModuleFailed, match="was not made by this tool"):
            modules.run("site", name=name, state="absent")

    def test_a_wrong_value_is_explained(self, modules: Modules, fresh_name: Names) -> None:
        with pytest.raises(ModuleFailed, match="inter_site_replication_interval: -1 is out of range"):
            modules.run("site", name=fresh_name("Site"), inter_site_replication_interval=-1, check=True)

    def test_a_site_with_machines_becomes_foreign_in_no_mode(
        self, modules: Modules, site: str, fresh_name: Names
    ) -> None:
        modules.run("queue_manager", name=fresh_name("host"), sites=[site])

        for check in (True, False):
            with pytest.raises(ModuleFailed, match="cannot become a foreign site while others refer to it"):
                modules.run("site", name=site, foreign=True, check=check)

    @pytest.mark.parametrize("name", ["\U0001f600" * 33, "x" * 65, "", " ", "a\tb"])
    def test_a_name_that_no_site_can_have_is_refused(self, modules: Modules, name: str) -> None:
        with pytest.raises(ModuleFailed, match=r"^name: "):
            modules.run("site", name=name, check=True)


class TestRoutingLink:
    def test_it_comes_changes_and_goes(self, modules: Modules, site: str, fresh_name: Names) -> None:
        other, gate = fresh_name("Site"), fresh_name("gate")
        modules.run("site", name=other)
        modules.run("queue_manager", name=gate, sites=[site], roles=["routing_server"])

        modules.settle("routing_link", sites=[site, other], cost=5)
        changed = modules.settle("routing_link", sites=[other, site], site_gates=[gate.upper()], description="Líne")

        (found,) = modules.run("routing_link_info", site=site)["routing_links"]
        assert (found["cost"], found["site_gates"], found["description"]) == (5, [gate], "Líne")
        assert found["identifier"] == changed["routing_link"]["identifier"] is not None
        modules.settle("routing_link", sites=[site, other], state="absent")

    def test_what_does_not_fit_is_refused_before_anything_is_written(
        self, modules: Modules, site: str, fresh_name: Names
    ) -> None:
        other, client = fresh_name("Site"), fresh_name("client")
        modules.run("site", name=other)
        modules.run("queue_manager", name=client, sites=[site])

        with pytest.raises(ModuleFailed, match="'cost' is missing"):
            modules.run("routing_link", sites=[site, other])
        with pytest.raises(ModuleFailed, match=f"there is no site '{other}x' .*did you mean"):
            modules.run("routing_link", sites=[site, f"{other}x"], cost=1)
        with pytest.raises(ModuleFailed, match=f"{client} is no routing server"):
            modules.run("routing_link", sites=[site, other], cost=1, site_gates=[client])
        with pytest.raises(ModuleFailed, match=r"joins .* with itself"):
            modules.run("routing_link", sites=[site, site], cost=1)
        assert modules.run("routing_link_info", site=other)["routing_links"] == []


class TestQueueManager:
    def test_it_comes_changes_and_goes(self, modules: Modules, site: str, fresh_name: Names) -> None:
        name, router = fresh_name("shop"), fresh_name("router")
        modules.run("queue_manager", name=router, sites=[site], roles=["routing_server"])

        made = modules.settle("queue_manager", name=name, sites=[site], dns_name=f"{name}.lab.test")
        modules.settle("queue_manager", name=name, out_routing_servers=[router], quota=2048)

        found = modules.run("queue_manager_info", site=site)["queue_managers"]
        assert [each["name"] for each in found] == [router, name]
        assert found[1]["identifier"] == made["queue_manager"]["identifier"]
        assert found[1]["dns_name"] == f"{name}.lab.test"
        assert (found[1]["out_routing_servers"], found[1]["quota"], found[1]["roles"]) == ([router], 2048, ["client"])
        modules.settle("queue_manager", name=name, state="absent")

    def test_a_role_that_others_need_stays(self, modules: Modules, site: str, fresh_name: Names) -> None:
        name, router = fresh_name("shop"), fresh_name("router")
        modules.run("queue_manager", name=router, sites=[site], roles=["routing_server"])
        modules.run("queue_manager", name=name, sites=[site], out_routing_servers=[router])

        with pytest.raises(ModuleFailed, match=f"{router} is no routing server"):
            modules.run("queue_manager", name=router, roles=["client"])
        with pytest.raises(ModuleFailed, match=f"needed by machine {name}"):
            modules.run("queue_manager", name=router, state="absent")

    def test_a_machine_needs_a_site(self, modules: Modules, directory: EnterpriseDirectory, fresh_name: Names) -> None:
        lone = directory.queue_managers.add(QueueManager(computer_name=fresh_name("other")))
        try:  # one that somebody else made without a site is no excuse for another
            with pytest.raises(ModuleFailed, match="a machine is in a site"):
                modules.run("queue_manager", name=fresh_name("lone"))
        finally:
            delete(directory, lone)


def test_a_misspelt_name_is_no_empty_answer(modules: Modules, site: str, fresh_name: Names) -> None:
    machine = fresh_name("warehouse")
    modules.run("queue_manager", name=machine, sites=[site])
    modules.run("queue", machine=machine, name="orders")
    for module, option, right in (
        ("queue_info", "machine", machine),
        ("queue_manager_info", "site", site),
        ("routing_link_info", "site", site),
    ):
        with pytest.raises(
            ModuleFailed, match=rf"there is no .* '{right}x' in the directory \(did you mean {right}\?\)"
        ):
            modules.run(module, **{option: f"{right}x"})
        modules.run(module, **{option: right.upper()})
    for module, result, options in (
        ("queue_info", "queues", {"machine": machine, "name": "order"}),
        ("site_info", "sites", {"name": f"{site}x"}),
        ("queue_manager_info", "queue_managers", {"name": f"{machine}x"}),
    ):
        answer = modules.run(module, **options)
        assert answer[result] == []
        assert f"'{options['name']}' in the directory (did you mean" in str(answer["warnings"])


class TestSeveral:
    @pytest.fixture
    def machines(self, modules: Modules, fresh_name: Names) -> list[str]:
        """A site, and two machines in it."""
        site, names = fresh_name("Site"), [fresh_name("shop"), fresh_name("desk")]
        modules.settle("site", sites=[{"name": site}, {"name": fresh_name("Other")}])
        made = modules.settle("queue_manager", sites=[site], queue_managers=[{"name": name} for name in names])
        assert [each["name"] for each in made["queue_managers"]] == names
        return names

    def test_queues_come_change_and_go(self, modules: Modules, machines: list[str]) -> None:
        one, other = machines
        queues = [{"name": "orders"}, {"name": "bills", "label": "Bills"}, {"name": "orders", "machine": other.upper()}]

        made = modules.settle("queue", machine=one, label="All", queues=queues)["queues"]
        queues[1]["label"] = "Invoices"
        changed = modules.settle("queue", machine=one, queues=queues)

        assert [(each["machine"], each["name"], each["label"], each["changed"]) for each in made] == [
            (one, "orders", "All", True), (one, "bills", "Bills", True), (other, "orders", "All", True),
        ]  # fmt: skip
        assert [each["changed"] for each in changed["queues"]] == [False, True, False]
        assert [each["identifier"] for each in changed["queues"]] == [each["identifier"] for each in made]
        (difference,) = changed["diff"]
        assert difference["after_header"] == f"queue {one} - bills"
        assert '"label": "Invoices"' in difference["after"]
        there = modules.run("queue_info", machine=one)["queues"]
        assert [(each["name"], each["label"]) for each in there] == [("bills", "Invoices"), ("orders", "All")]
        moved = [{"name": "bills", "state": "absent"}, {"name": "invoices"}, {"name": "orders"}]
        assert [each["changed"] for each in modules.settle("queue", machine=one, queues=moved)["queues"]] == [1, 1, 0]
        modules.settle("queue", machine=one, queues=[{"name": "bills"}, {"name": "invoices", "state": "absent"}])
        gone = modules.settle("queue", machine=one, queues=[*queues, {"name": "never"}], state="absent")["queues"]
        assert [each["changed"] for each in gone] == [True, True, True, False]
        assert gone[0] == {"machine": one, "name": "orders", "changed": True}

    def test_one_that_cannot_be_stops_all(self, modules: Modules, machines: list[str]) -> None:
        one, _ = machines
        fine = {"machine": one, "name": "fine"}
        for wrong, sentence in (
            ([{"machine": one, "name": "a;b"}, {"machine": one, "name": "c", "quota": "9XB"}], "a;b: .*\n.*c: quota"),
            ([{"machine": f"{one}x", "name": "a"}], f"no machine '{one}x' .*did you mean {one}"),
            ([{"machine": one.upper(), "name": "FINE"}], "there twice"),
            ([{"machine": one, "name": "Fine", "state": "absent"}], "Fine: it is there twice, present and absent"),
            ([{"machine": one, "name": "a", "private": True}], "say where the nodes are"),
            ([{"name": "a"}], "queues, number 2: say the machine there or beside the list"),
        ):
            with pytest.raises(ModuleFailed, match=f"(?s){sentence}"):
                modules.run("queue", queues=[fine, *wrong])
        assert modules.run("queue_info", machine=one)["queues"] == []
        nothing = modules.run("queue", queues=[])
        assert (nothing["queues"], nothing["changed"], nothing["diff"]) == ([], False, [])
        with pytest.raises(ModuleFailed, match="mutually exclusive"):
            modules.run("queue", queues=[fine], name="other", machine=one)
        with pytest.raises(ModuleFailed, match="one of the following is required: name, queues"):
            modules.run("queue", machine=one)

    def test_a_server_goes_when_none_that_stays_needs_it(self, modules: Modules, site: str, fresh_name: Names) -> None:
        old, new, shop = (fresh_name(name) for name in ("old", "new", "shop"))
        servers = [{"name": name, "sites": [site], "roles": ["routing_server"]} for name in (old, new)]
        modules.run("queue_manager", queue_managers=servers)
        modules.run("queue_manager", name=shop, sites=[site])
        gone, needs_it = {"name": old, "state": "absent"}, {"name": shop, "out_routing_servers": [old]}
        for check in (True, False):
            with pytest.raises(ModuleFailed, match=f"{old} is needed by machine {shop}"):
                modules.run("queue_manager", queue_managers=[gone, needs_it], check=check)
        modules.run("queue_manager", **needs_it)

        modules.settle("queue_manager", queue_managers=[gone, needs_it | {"out_routing_servers": [new]}])

        (found,) = modules.run("queue_manager_info", name=shop)["queue_managers"]
        assert found["out_routing_servers"] == [new]

    def test_links_of_a_ring(self, modules: Modules, fresh_name: Names) -> None:
        sites = [fresh_name("Ring") for _ in range(3)]
        modules.run("site", sites=[{"name": name} for name in sites])
        ends: list[dict[str, object]] = [{"sites": [sites[number - 1], sites[number]]} for number in range(3)]
        ends[1]["cost"] = 7
        made = modules.settle("routing_link", cost=3, routing_links=ends)["routing_links"]
        assert [each["cost"] for each in made] == [3, 7, 3]
        with pytest.raises(ModuleFailed, match="is needed by"):
            modules.run("site", sites=[{"name": name} for name in sites], state="absent")
        modules.settle("routing_link", routing_links=ends, state="absent")
        modules.settle("site", sites=[{"name": name} for name in sites], state="absent")

    def test_lists_that_contain_each_other(self, modules: Modules, machines: list[str], fresh_name: Names) -> None:
        inner, outer = fresh_name("inner"), fresh_name("outer")
        modules.run("queue", machine=machines[0], name="orders")
        lists = [{"name": outer, "members": [inner]}, {"name": inner, "members": [f"{machines[0]}\\orders"]}]
        modules.settle("distribution_list", distribution_lists=lists)
        modules.settle("distribution_list", distribution_lists=[{"name": inner}, {"name": outer}], state="absent")


@pytest.mark.soak
@pytest.mark.parametrize("directory_server", [ServerKind.OPENLDAP], indirect=True, ids=["slapd"])
def test_five_hundred_queues_in_one_task(modules: Modules, site: str, fresh_name: Names) -> None:
    machine = fresh_name("shop")
    modules.run("queue_manager", name=machine, sites=[site])
    queues = [{"name": f"queue{number:03}", "label": f"Queue {number}"} for number in range(500)]
    times, diffs = [], []
    for check, changed in ((True, 500), (False, 500), (False, 0)):
        begun = time.monotonic()
        done = modules.run("queue", machine=machine, queues=queues, check=check)
        times.append(time.monotonic() - begun)
        diffs.append(done["diff"])
        assert (len(done["diff"]), len(done["queues"])) == (changed, 500)
    print("check {:.1f} s, new {:.1f} s, unchanged {:.1f} s".format(*times))
    assert diffs[0] == diffs[1]
    queues[7] |= {"label": "Another"}
    (one,) = modules.settle("queue", machine=machine, queues=queues)["diff"]
    assert "Another" in str(one["after"]) and "Another" not in str(one["before"])
    assert times[1] <= 10 and times[2] <= 4


class TestQueue:
    @pytest.fixture
    def machine(self, modules: Modules, site: str, fresh_name: Names) -> str:
        name = fresh_name("shop")
        modules.run("queue_manager", name=name, sites=[site])
        return name

    def test_it_comes_changes_and_goes(self, modules: Modules, machine: str) -> None:
        queue = {"machine": machine, "name": "orders/é"}

        made = modules.settle("queue", **queue, label="Orders", transactional=True, multicast_address="234.1.1.1:8001")
        modules.settle("queue", **queue, journaling=True, quota="100 KB", multicast_address="none", type="None")

        (found,) = modules.run("queue_info", machine=machine)["queues"]
        assert found["identifier"] == made["queue"]["identifier"] is not None
        assert (found["label"], found["transactional"], found["journaling"]) == ("Orders", True, True)
        assert (found["quota"], found["journal_quota"]) == (100, None)
        assert (found["multicast_address"], found["type"]) == (None, None)
        modules.settle("queue", **queue, state="absent")

    def test_names_of_the_release_before_are_taken_and_the_new_ones_named(self, modules: Modules, machine: str) -> None:
        done = modules.run("queue", machine=machine, name="named", journal=True, authenticate=True, quota="none")

        assert (done["queue"]["journaling"], done["queue"]["authentication"]) == (True, True)
        assert done["queue"]["quota"] is None
        assert "4294967295" not in str(done["diff"])
        assert len(done["deprecations"]) == 2
        assert all(f"Alias '{name}' is deprecated" in str(done["deprecations"]) for name in ("journal", "authenticate"))
        assert not modules.run("queue", machine=machine, name="named", journaling=True, quota=4294967295)["changed"]

    def test_what_is_returned_is_what_the_directory_holds(self, modules: Modules, machine: str) -> None:
        """In check mode too: numbers for sizes, and the label to its last UTF-16 unit."""
        label = "\U0001f600" * 62
        for quota, kilobytes in (("1.5GB", 1536 * 1024), ("0", 0), ("none", None)):
            name = f"sized{kilobytes}"
            made = modules.settle("queue", machine=machine, name=name, quota=quota, label=label)["queue"]
            (found,) = modules.run("queue_info", machine=machine, name=name)["queues"]
            assert made["quota"] == found["quota"] == kilobytes
            assert made["label"] == found["label"] == label

    def test_a_denial_of_nobody_is_said_to_have_no_effect(self, modules: Modules, machine: str) -> None:
        nobody = "S-1-5-21-1-2-3-4711"
        entries = [{"to": nobody, "deny": ["send"]}, {"to": "Everyone", "allow": ["send"]}]
        done = modules.run("queue", machine=machine, name="denied", access=entries)
        warned = [line for line in map(str, done["warnings"]) if f"denied, {nobody}" in line]
        assert warned and "the denial has no effect" in warned[-1]
        modules.run("queue", machine=machine, name="granted", access=[{"to": nobody, "allow": ["send"]}])
        known = modules.run("queue", machine=machine, name="known", access=[{"to": "Everyone", "deny": ["send"]}])
        assert all(f"{queue}," not in str(known["warnings"]) for queue in ("granted", "known"))

    def test_what_no_queue_can_have_is_refused_before_anything_is_written(self, modules: Modules, machine: str) -> None:
        for wrong, sentence in (
            ({"label": "\U0001f600" * 63}, "at most 124 UTF-16 units, this one has 126"),
            ({"label": "a\nb"}, "control character"),
            ({"name": "\U0001f600" * 63}, "1 to 124 UTF-16 units, this one has 126"),
            ({"name": "a;b"}, "cannot hold ;"),
            ({"machine": "."}, "cannot hold '.'"),
            ({"machine": f"{machine}."}, "cannot hold '.'"),
            ({"quota": "4294967296"}, "out of range"),
            ({"quota": "10XB"}, "no size such as 10MB"),
            ({"base_priority": 32768}, "from -32768 to 32767"),
            ({"duplicate_window": 60}, "only a private queue has it"),
            ({"multicast_address": "10.0.0.1:9"}, "224.0.0.0"),
            ({"access": [{"to": "Everyone"}]}, "neither allows nor denies"),
            ({"access": [{"to": "Everyone", "allow": ["send"]}, {"to": "EVERYONE", "deny": ["send"]}]}, "twice"),
        ):
            for check in (True, False):
                with pytest.raises(ModuleFailed, match=re.escape(sentence)):
                    modules.run("queue", **{"machine": machine, "name": "wrong"} | wrong, check=check)
        assert modules.run("queue_info", machine=machine)["queues"] == []

    def test_access_rights(self, modules: Modules, machine: str) -> None:
        queue = {"machine": machine, "name": "guarded"}
        everyone = {"to": "Everyone", "allow": ["send"]}

        modules.settle("queue", **queue, access=[everyone])
        modules.settle("queue", **queue, access=[everyone, {"to": "Anonymous", "deny": ["receive", "peek"]}])

        (found,) = modules.run("queue_info", machine=machine, access=True)["queues"]
        assert {"to": "Everyone", "allow": ["send"]} in found["access"]
        assert {each["to"]: each.get("deny") for each in found["access"]}.keys() >= {"Everyone"}
        with pytest.raises(ModuleFailed, match="there is no user or group 'Nobody Known'"):
            modules.run("queue", **queue, access=[{"to": "Nobody Known", "allow": ["send"]}])

    def test_transactional_is_for_ever(self, modules: Modules, machine: str) -> None:
        modules.run("queue", machine=machine, name="fixed")

        with pytest.raises(ModuleFailed, match="delete it first"):
            modules.run("queue", machine=machine, name="fixed", transactional=True, check=True)

    def test_a_queue_that_a_node_published_is_withdrawn(
        self, modules: Modules, machine: str, directory: EnterpriseDirectory
    ) -> None:
        directory.queues.add(Queue(pathname=f"{machine}\\theirs"))

        modules.settle("queue", machine=machine, name="theirs", label="Ours now")
        modules.settle("queue", machine=machine, name="theirs", state="absent")

    def test_a_queue_needs_its_machine(self, modules: Modules, fresh_name: Names) -> None:
        machine = fresh_name("none")

        with pytest.raises(ModuleFailed, match="there is no machine"):
            modules.run("queue", machine=machine, name="orders")
        # Before a first run, what an earlier task would make is not there.
        foreseen = modules.run("queue", machine=machine, name="orders", check=True)
        assert foreseen["changed"]
        assert f"there is no machine '{machine}'" in json.dumps(foreseen["warnings"])


class TestLists:
    @pytest.fixture
    def queue(self, modules: Modules, site: str, fresh_name: Names) -> str:
        machine = fresh_name("shop")
        modules.run("queue_manager", name=machine, sites=[site])
        modules.run("queue", machine=machine, name="prices")
        return f"{machine}\\prices"

    def test_they_come_change_and_go(
        self, modules: Modules, directory: EnterpriseDirectory, queue: str, fresh_name: Names
    ) -> None:
        """What messages to the list are sent to, follows."""
        alias, inner, outer = fresh_name("alias"), fresh_name("inner"), fresh_name("outer")
        modules.settle("queue_alias", name=alias, format_name=r"DIRECT=OS:old\private$\prices")
        modules.settle("distribution_list", name=inner, members=[alias.upper()])
        made = modules.settle("distribution_list", name=outer, members=[queue, inner])["distribution_list"]

        modules.settle("queue_alias", name=alias, format_name=r"DIRECT=OS:new\private$\prices")
        (found,) = modules.run("distribution_list_info", name=outer.upper())["distribution_lists"]
        (seen,) = modules.run("queue_alias_info", name=alias)["queue_aliases"]
        published = modules.run("queue_info", name="prices", machine=queue.partition("\\")[0])["queues"]

        assert found["identifier"] == made["identifier"] is not None
        assert sorted(found["members"]) == sorted([queue, inner])
        assert seen["format_name"] == r"DIRECT=OS:new\private$\prices" and seen["identifier"]
        sent_to = resolve_distribution_list(directory.connection, guid_from_text(made["identifier"]))
        assert set(sent_to) == {f"PUBLIC={published[0]['identifier']}", seen["format_name"]}
        with pytest.raises(ModuleFailed, match=f"needed by distribution list {inner}"):
            modules.run("queue_alias", name=alias, state="absent")
        with pytest.raises(ModuleFailed, match=f"needed by distribution list {outer}"):
            modules.run("queue", machine=queue.partition("\\")[0], name="prices", state="absent")
        modules.settle("distribution_list", name=outer, members=[])
        for name in (outer, inner):
            modules.settle("distribution_list", name=name, state="absent")
        assert modules.settle("queue_alias", name=alias, state="absent")["queue_alias"] is None

    def test_a_list_of_a_queue_that_is_gone_stops_no_other_object(
        self, modules: Modules, directory: EnterpriseDirectory, queue: str, fresh_name: Names
    ) -> None:
        name, machine = fresh_name("list"), queue.partition("\\")[0]
        modules.run("distribution_list", name=name, members=[queue])
        entity = directory.queues.find(queue)
        assert entity is not None
        directory.queues.delete(entity)

        assert modules.settle("queue", machine=machine, name="more")["queue"]["name"] == "more"
        modules.run("distribution_list", name=name, members=[])
        modules.run("distribution_list", name=name, state="absent")

    def test_what_no_list_can_have_is_refused_with_a_remedy(
        self, modules: Modules, queue: str, fresh_name: Names
    ) -> None:
        name, alias = fresh_name("list"), fresh_name("alias")
        with pytest.raises(ModuleFailed, match="'format_name' is missing"):
            modules.run("queue_alias", name=alias)
        modules.run("queue_alias", name=alias, format_name=r"DIRECT=OS:other\prices")
        modules.run("distribution_list", name=name, members=[alias])
        for module, options, sentence in (
            ("distribution_list", {"members": [f"{queue}s"]}, f"did you mean {queue}?"),
            ("distribution_list", {"members": [f"{alias}s"]}, f"did you mean {alias}?"),
            ("distribution_list", {"members": [name]}, "the list contains itself"),
            ("distribution_list", {"members": [r"DIRECT=OS:a\b"]}, "declare a queue alias"),
            ("distribution_list", {"name": alias}, "a queue alias has this name"),
            ("queue_alias", {"name": fresh_name("new"), "format_name": queue}, "no format name"),
        ):
            with pytest.raises(ModuleFailed, match=re.escape(sentence)):
                modules.run(module, **{"name": name} | options)
        assert modules.run("distribution_list_info", name=name)["distribution_lists"][0]["members"] == [alias]
        modules.run("distribution_list", name=name, state="absent")
        modules.run("queue_alias", name=alias, state="absent")

    def test_members_that_an_earlier_task_would_create_are_foreseen(self, modules: Modules, fresh_name: Names) -> None:
        foreseen = modules.run("distribution_list", name=fresh_name("list"), members=["later"], check=True)

        assert foreseen["changed"]
        assert "there is no queue alias or distribution list 'later'" in json.dumps(foreseen["warnings"])


def test_results_are_plain_and_hold_no_secret(modules: Modules, directory_file: object, site: str) -> None:
    assert site in json.dumps(modules.run("site_info"))
    assert "password" not in json.dumps(modules.run("site_info"))
