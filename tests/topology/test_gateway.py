"""Plans and repositories write the same entries."""

from __future__ import annotations

import pytest

from mqenterprise.directory.gateway import MARK, SECURITY, mark
from mqenterprise.directory.ldap_names import child, parent_of
from mqenterprise.directory.mapping import QUEUE, QUEUE_MANAGER
from mqenterprise.topology.normal_form import Table, resource
from mqenterprise.topology.plan import Snapshot
from mqenterprise.topology.some_objects import NotPossible, carry_out, plan_absent
from qmnode.directory.port import Queue, QueueManager, RoutingLink, User
from qmnode.objects.rows import Changes, Kind
from tests.lab.directory_objects import change, create, delete

pytestmark = pytest.mark.servers

IDENTITY = ("adminDescription", "mSMQQMID", SECURITY)
"""What tells the two apart: their marks, GUIDs and access lists."""


@pytest.fixture
def declared(bench):
    """A declared machine that serves two sites, with a queue."""
    data = {
        "enterprise": {"name": "E"},
        "sites": [{"name": "A"}, {"name": "B"}],
        "machines": [
            {"name": "router", "sites": ["A"], "roles": ["routing_server"]},
            {
                "name": "declared",
                "sites": ["A", "B"],
                "roles": ["supporting_server"],
                "quota": 7000,
                "operating_system": "win_server",
                "version": "9",
                "dns_name": "m.lab.test",
                "out_routing_servers": ["router"],
                "in_routing_servers": ["router"],
            },
        ],
        "queues": [{"machine": "declared", "name": "x" * 100, "label": "L", "transactional": True, "quota": 5}],
    }
    bench.apply(bench.declare(data))
    yield bench.directory.queue_managers.find("declared")


@pytest.fixture
def added(bench, declared):
    """The same by repositories."""
    found = bench.directory.queues.find("declared\\" + "x" * 100)
    values = {field: getattr(declared, field) for field in declared.__slots__}
    routed = {
        f"{way}_routing_server_identifier_list": declared.out_routing_server_identifier_list for way in ("in", "out")
    }
    own = {"computer_name": "added", "identifier": None, "full_path": None} | dict.fromkeys(routed, ())
    manager = bench.directory.queue_managers.add(QueueManager(**values | own))
    change(bench.directory, manager, **routed)
    bench.directory.queues.add(
        Queue(
            pathname=f"added\\{'x' * 100}",
            **{field: getattr(found, field) for field in ("label", "transactional", "quota", "type", "base_priority")},
        )
    )
    yield manager
    if bench.directory.queue_managers.find("added") is not None:
        delete(bench.directory, manager)


def attributes(bench, dn, names):
    entry = bench.directory.connection.read(dn, tuple(names))
    return {name: set(entry.attributes.get(name.lower(), ())) for name in names if name not in IDENTITY}


def written(mapping, *, on_computer=False):
    rows = mapping.attributes
    return [row.name for row in rows if row.on_computer == on_computer and row.changes is not Changes.NEVER]


def test_a_queue_manager_and_its_computer_are_the_same(bench, declared, added):
    names = [*written(QUEUE_MANAGER), "mSMQServiceType"]

    assert attributes(bench, declared.full_path, names) == attributes(bench, added.full_path, names)

    names = written(QUEUE_MANAGER, on_computer=True)
    computers = [attributes(bench, parent_of(manager.full_path), names) for manager in (declared, added)]
    assert computers[0] == computers[1]


def test_a_queue_is_the_same(bench, declared, added):
    names = [*written(QUEUE), "cn", "mSMQQueueNameExt"]
    queues = [bench.directory.queues.find(f"{name}\\{'x' * 100}") for name in ("declared", "added")]

    assert attributes(bench, queues[0].full_path, names) == attributes(bench, queues[1].full_path, names)


def test_what_repositories_wrote_is_what_a_plan_reads(bench, declared, added):
    rows = {row.name[0]: dict(row.values) for row in bench.target.snapshot().table if row.kind == "machine"}

    assert rows["added"] == rows["declared"] | {"settings": ()}


def test_objects_of_others_are_deleted_on_request_with_what_was_made_for_them(bench, declared, added):
    one, other = bench.directory.sites.find("A"), bench.directory.sites.find("B")
    create(
        bench.directory,
        RoutingLink(site1_identifier=one.identifier, site2_identifier=other.identifier, actual_cost=7),
    )

    for kind, name in (
        (Kind.QUEUE, ("added", "x" * 100)),
        (Kind.MACHINE, ("added",)),
        (Kind.ROUTING_LINK, ("A", "B")),
    ):
        changes = plan_absent(bench.target.snapshot(), kind, [name])
        assert len(changes.not_ours) == 1 and not changes.plan.steps
        carry_out(changes, bench.target, patience=30)
        carry_out(changes, bench.target, patience=30)  # it is gone already

    left = bench.target.snapshot().table
    assert [row.title for row in left if "added" in row.name or row.kind is Kind.ROUTING_LINK] == []
    domain = bench.directory.connection.dialect.contexts.domain
    assert not list(bench.directory.connection.search(domain, "(&(objectClass=computer)(cn=added))", ("1.1",)))


def test_a_user_of_others_stays(bench, fresh_name):
    name = fresh_name("ann")
    user = create(bench.directory, User(name=name))
    try:
        with pytest.raises(NotPossible, match=f"the user {name} was not made by this tool, and may be a person's"):
            plan_absent(bench.target.snapshot([name]), Kind.USER, [(name,)])
        assert bench.directory.connection.read(user.full_path, ("cn",)).first("cn") == name.encode()
    finally:
        delete(bench.directory, user)


def test_a_group_of_others_with_the_name_of_a_list_stays(bench, fresh_name):
    name, connection = fresh_name("Payroll"), bench.directory.connection
    dn = child(name, connection.dialect.contexts.users)
    connection.add(dn, ("top", "group"), {"groupType": (b"-2147483646",), **connection.dialect.account("group", name)})
    try:
        changes = plan_absent(bench.target.snapshot(), Kind.DISTRIBUTION_LIST, [(name,)])
        carry_out(changes, bench.target, patience=30)
        assert not changes.changed
        assert connection.read(dn, ("cn",)).first("cn") == name.encode()
    finally:
        connection.delete(dn)


def test_a_list_that_others_made_is_refused():
    row = resource(Kind.DISTRIBUTION_LIST, ("Payroll",), {"members": ()})

    with pytest.raises(
        NotPossible, match="the distribution list Payroll was not made by this tool, and may be a group"
    ):
        plan_absent(Snapshot("E", Table({row.reference: row}), str), Kind.DISTRIBUTION_LIST, [("Payroll",)])


def test_a_machine_of_others_goes_without_the_computer_of_an_apply(bench, declared, added):
    computer = parent_of(added.full_path)
    bench.directory.gateway.writer.change(computer, {MARK: (mark(1),)})
    bench.directory.queues.delete(bench.directory.queues.find(f"added\\{'x' * 100}"))

    carry_out(plan_absent(bench.target.snapshot(), Kind.MACHINE, [("added",)]), bench.target, patience=30)

    try:
        assert bench.directory.queue_managers.find("added") is None
        assert bench.directory.connection.read(computer, (MARK,)).first(MARK) == mark(1)
    finally:
        bench.directory.connection.delete(computer)


def test_an_apply_deletes_a_machine_whose_computer_somebody_has_deleted(bench, fresh_name):
    name, connection = fresh_name("theirs"), bench.directory.connection
    computer = child(name, connection.dialect.contexts.computers)
    connection.add(computer, ("top", "computer"), connection.dialect.account("computer", name))
    sites = [{"name": "A"}]
    bench.apply(
        bench.declare({"enterprise": {"name": "E"}, "sites": sites, "machines": [{"name": name, "sites": ["A"]}]})
    )
    (step,) = plan_absent(bench.target.snapshot(), Kind.MACHINE, [(name,)]).plan.steps
    connection.delete(computer, tree=True)

    bench.target.carry_out(step, 10**9)

    assert name not in [row.name[0] for row in bench.target.snapshot().table if row.kind is Kind.MACHINE]
