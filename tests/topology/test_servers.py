"""Plan, apply, drift, rollback and export on both real servers."""

from __future__ import annotations

import datetime
import hashlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from mqenterprise.cli import app
from mqenterprise.directory.entries import Change, ChangeKind
from mqenterprise.directory.errors import ConditionFailed, ObjectNotFound
from mqenterprise.directory.gateway import MARK, mark
from mqenterprise.directory.ldap_names import child, parent_of
from mqenterprise.directory.settings import ServerKind
from mqenterprise.topology.apply import ApplyError, LeaseTaken, acquire, apply, apply_plan
from mqenterprise.topology.check import load
from mqenterprise.topology.export import export
from mqenterprise.topology.normal_form import Kind, resource
from mqenterprise.topology.plan import Action, Note
from mqenterprise.topology.problems import DeclarationError
from qmnode.directory.port import equals
from qmnode.structures.guid import guid_to_text
from qmnode.structures.public_keys import MqUserSignCerts
from tests.lab.site_settings import site_settings
from tests.lab.waiting import wait_until
from tests.topology.conftest import Silent

pytestmark = pytest.mark.servers

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "inventory" / "contoso.yaml"

ODD = {
    "enterprise": {"name": "Odd"},
    "sites": [{"name": name} for name in ("a, b + c", 'say "x" <y>', "Zürich = 漢字", "#1;")],
    "routing_links": [
        {"sites": ["a, b + c", 'say "x" <y>'], "cost": 999_999, "description": 'from, "to" + (*)\\'},
        {"sites": ["a, b + c", "#1;"], "cost": 1, "site_gates": ["router"]},
    ],
    "machines": [
        {"name": "router", "sites": ["a, b + c", "#1;"], "roles": ["routing_server"]},
        {"name": "maschineß", "sites": ["Zürich = 漢字"], "quota": 0xFFFFFFFF, "version": "9+"},
    ],
    "users": [{"name": 'Müller, "Max" + (1)'}],
    "queues": [
        {"machine": "maschineß", "name": name, "label": f"{name[:99]}*()\\", "access": [{"to": to, "allow": ["send"]}]}
        for name in ("a,b", "a+b", 'q"uote', "<=>", "#x", "(*)", "größe", "漢字", "x" * 124, "x" * 123 + "y")
        for to in ('Müller, "Max" + (1)',)
    ],
}


FOLDING = (
    "ß\u0301", "ẞ\u0301 Süd", "ΐ", "ŉ\u0301", "ǰ\u0323", "ﬃ", "K", "Å", "A\u030a2", "İ", "ı", "\u1100\u1161", "㍿",
    "①②", "α\u0345\u0301", "ᾳ", "Σς", "𝒜𝔅", "x\u00ady", "x\u200dy", "x\u00a0\u2003z", "\u0301x", "¨", "℀", "／＼", "Ǆ",
    "😀",
)  # fmt: skip
"""Names of which folding, composing or both make something else."""


def everything(checked, bench):
    """What is in the directory, attribute by attribute, with times and change numbers."""
    connection = bench.directory.connection
    return {
        entry.dn: dict(entry.attributes)
        for base in (connection.dialect.contexts.configuration, connection.dialect.contexts.domain)
        for entry in connection.search(base, "(adminDescription=*)", ("*", "+"))
    }


def command(bench, *arguments):
    """Run the command as an operator would, in this process: another would load the same libraries again."""
    environment = {"MQENTERPRISE_DIRECTORY": str(bench.file)}
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env=environment)


def command_beside(bench, *arguments):
    """Run the command in a process of its own, to which others may be beside."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MQENTERPRISE_DIRECTORY": str(bench.file)}
    return subprocess.run(
        [sys.executable, "-c", "from mqenterprise.cli import main; main()", *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_declaration_is_brought_about_and_the_second_apply_changes_nothing(bench):
    checked = load(SAMPLE)

    first = bench.apply(checked)
    before = everything(checked, bench)
    second = bench.apply(checked)

    created = [step for step in first.plan.steps if step.action is Action.CREATE]
    assert len(created) == 18
    assert first.done == len(first.plan.steps)
    assert second.done == 0
    assert everything(checked, bench) == before


def test_names_that_fold_into_others_are_applied_and_found_again(bench):
    links = [{"sites": pair, "cost": 1} for pair in itertools.pairwise(FOLDING)]
    machine = {"name": "ß\u0301ﬁ①", "sites": list(FOLDING[:3])}
    queues = [{"machine": "ß\u0301ﬁ①", "name": name} for name in FOLDING]
    content = {"sites": [{"name": name} for name in FOLDING], "machines": [machine], "queues": queues}
    checked = bench.declare({"enterprise": {"name": "ß\u0301"}, **content, "routing_links": links})

    bench.apply(checked)

    assert bench.plan(checked).steps == ()
    rows = {(row.kind, *row.name[-1:]) for row in bench.target.snapshot().table}
    assert rows >= {(Kind.SITE, name) for name in FOLDING} | {(Kind.QUEUE, name) for name in FOLDING}


def test_names_of_every_kind_are_escaped(bench):
    checked = bench.declare(ODD)

    bench.apply(checked)

    assert bench.plan(checked).steps == ()
    table = bench.target.snapshot().table
    for queue in ODD["queues"]:
        row = table.get(resource(Kind.QUEUE, (queue["machine"], queue["name"]), {}).reference)
        assert (row.name, row.values["label"]) == ((queue["machine"], queue["name"]), queue["label"])


def test_distribution_lists_are_shown_with_the_names_to_send_to(bench):
    queues = [{"machine": "m", "name": "orders"}]
    lists = [{"name": "inner", "members": ["moving", r"m\orders"]}, {"name": "all", "members": ["inner"]}]
    aliases = [{"name": "moving", "format_name": r"DIRECT=OS:m\private$\new"}]
    content = {"sites": [{"name": "A"}], "machines": [{"name": "m", "sites": ["A"]}], "queues": queues}
    content |= {"queue_aliases": aliases, "distribution_lists": lists}
    bench.apply(bench.declare({"enterprise": {"name": "E"}, **content}))

    shown = json.loads(command(bench, "queue", "lists", "--json").stdout)

    public = f"PUBLIC={guid_to_text(bench.directory.queues.find('m' + chr(92) + 'orders').identifier)}"
    assert [row["name"] for row in shown] == ["all", "inner"]
    assert all(set(row["queues"]) == {public, r"DIRECT=OS:m\private$\new"} for row in shown)
    assert all(re.fullmatch(r"DL=[0-9a-f-]{36}", row["format_name"], re.IGNORECASE) for row in shown)
    assert shown[0]["format_name"] in command(bench, "queue", "lists").stdout


def test_an_export_has_an_empty_plan(bench, tmp_path):
    bench.apply(bench.declare(ODD))
    bench.apply(load(SAMPLE))

    (tmp_path / "exported.yaml").write_text(export(bench.target.snapshot().table, "Exported"), "utf-8")
    plan = bench.plan(load(tmp_path / "exported.yaml"), prune=True)

    assert plan.steps == ()


def test_the_settings_objects_follow_the_roles(bench):
    machine = {"name": "m", "sites": ["A", "B"], "roles": ["routing_server", "supporting_server"]}
    data = {"enterprise": {"name": "E"}, "sites": [{"name": "A"}, {"name": "B"}], "machines": [machine]}
    bench.apply(bench.declare(data))
    manager = bench.directory.queue_managers.find("m")
    both = site_settings(bench.directory, manager).keys()

    machine |= {"roles": ["client"], "sites": ["B"]}
    bench.apply(bench.declare(data))

    assert both == {"A", "B"}
    assert manager.routing_server
    assert manager.supporting_server
    assert site_settings(bench.directory, manager) == {}
    assert not bench.directory.queue_managers.find("m").routing_server


def test_changes_by_hand_show_in_drift_and_are_repaired(bench):
    bench.apply(load(SAMPLE))
    connection = bench.directory.connection
    queue = bench.directory.queues.find("ams-shop\\orders")
    (link,) = (link for link in bench.directory.routing_links.list() if link.description == "Leased line")
    connection.modify(queue.full_path, [Change(ChangeKind.REPLACE, "mSMQLabelEx", (b"by hand",))])
    connection.modify(link.full_path, [Change(ChangeKind.REPLACE, "mSMQCost", (b"77",))])
    bench.directory.queues.delete(bench.directory.queues.find("cor-warehouse\\picking"))

    metrics = bench.folder / "drift.prom"
    drift = command(bench, "drift", "--json", SAMPLE, "--metrics", metrics)

    assert drift.exit_code == 2, drift.stderr
    assert counted(metrics) == {"create": 1, "update": 2, "delete": 0}
    assert {(step["action"], *step["name"]) for step in json.loads(drift.stdout)["steps"]} == {
        ("update", "ams-shop", "orders"),
        ("update", "Amsterdam", "Bremen"),
        ("create", "cor-warehouse", "picking"),
    }
    assert command(bench, "apply", SAMPLE).exit_code == 0
    after = command(bench, "drift", SAMPLE, "--metrics", metrics)
    assert counted(metrics) == {"create": 0, "update": 0, "delete": 0}
    assert (after.exit_code, after.stdout.splitlines()[-1]) == (0, "Nothing to do: the directory is as declared.")


def counted(metrics):
    """The differences by action, as Prometheus reads them."""
    families = text_string_to_metric_families(metrics.read_text())
    (changes,) = (family for family in families if family.name == "mqenterprise_drift_changes")
    return {sample.labels["action"]: sample.value for sample in changes.samples}


@pytest.mark.parametrize("file", ["drift.txt", "nowhere/drift.prom"])
def test_a_file_that_prometheus_would_pass_over_is_refused_before_anything_is_asked(tmp_path, file):
    done = CliRunner().invoke(
        app, ["drift", "--metrics", str(tmp_path / file), "--directory", "nowhere.yaml", str(SAMPLE)]
    )
    assert (done.exit_code, "Prometheus" in done.stderr) == (2, True)
    assert not list(tmp_path.iterdir())


def test_what_others_made_is_left_alone_by_prune(bench):
    data = {"enterprise": {"name": "E"}, "sites": [{"name": "A"}], "machines": [{"name": "m", "sites": ["A"]}]}
    bench.apply(bench.declare(data))
    connection = bench.directory.connection
    place = bench.directory.queue_managers.find("m").full_path
    theirs = child("theirs", place)
    connection.add(theirs, ("top", "mSMQQueue"), {})
    try:
        plan = bench.plan(bench.declare({"enterprise": {"name": "E"}}), prune=True)
    finally:
        connection.delete(theirs)

    assert plan.steps == ()
    notes = {remark.title: remark.note for remark in plan.remarks}
    assert notes["queue m\\theirs"] is Note.UNMANAGED
    assert notes["machine m"] is notes["site A"] is Note.HOLDS_OTHERS


def test_a_machine_that_a_cut_apply_half_made_is_completed(bench):
    data = {
        "enterprise": {"name": "E"},
        "sites": [{"name": "A"}],
        "machines": [{"name": "m", "sites": ["A"], "roles": ["routing_server"]}],
    }
    checked = bench.declare(data)
    bench.apply(checked)
    whole = bench.ours()
    manager = bench.directory.queue_managers.find("m")
    bench.directory.connection.delete(manager.full_path)

    plan = bench.plan(checked)
    bench.apply(checked)

    assert [(step.action, step.title) for step in plan.steps] == [(Action.CREATE, "machine m")]
    assert bench.ours() == whole
    assert bench.plan(checked).steps == ()


@pytest.mark.parametrize("with_machine", [True, False])
def test_a_server_object_that_a_cut_left_without_settings_does_not_keep_its_site(bench, with_machine):
    data = {
        "enterprise": {"name": "E"},
        "sites": [{"name": "A"}],
        "machines": [{"name": "m", "sites": ["A"], "roles": ["routing_server"]}],
    }
    bench.apply(bench.declare(data))
    connection = bench.directory.connection
    server = child("m", child("Servers", child("A", connection.dialect.contexts.sites)))
    connection.delete(child("MSMQ Settings", server))
    if not with_machine:
        connection.delete(parent_of(bench.directory.queue_managers.find("m").full_path), tree=True)

    bench.clear()

    assert bench.ours() == {}
    with pytest.raises(ObjectNotFound):
        connection.read(server, ("cn",))


def test_half_an_object_that_someone_else_made_is_completed_and_stays_theirs(bench):
    connection, contexts = bench.directory.connection, bench.directory.connection.dialect.contexts
    site = child("Theirs", contexts.sites)
    connection.add(site, ("top", "site"), {"mSMQInterval1": (b"55",)})
    try:
        checked = bench.declare({"enterprise": {"name": "E"}, "sites": [{"name": "Theirs"}]})
        plan = bench.plan(checked)
        bench.apply(checked)
        entry = connection.read(site, ("mSMQInterval1", MARK))
        bench.clear()
        still_there = connection.read(site, ("cn",))
    finally:
        connection.delete(site, tree=True)

    assert [(step.action, step.after) for step in plan.steps] == [
        (Action.UPDATE, {"intra_site_replication_interval": 2})
    ]
    assert (entry.first("mSMQInterval1"), entry.first(MARK)) == (b"2", None)
    assert still_there


def test_a_plan_is_rolled_back(bench):
    data = {"enterprise": {"name": "E"}, "sites": [{"name": "A"}], "machines": [{"name": "m", "sites": ["A"]}]}
    data["queues"] = [{"machine": "m", "name": "kept", "quota": 1}, {"machine": "m", "name": "dropped", "label": "L"}]
    bench.apply(bench.declare(data))
    before = bench.ours()
    data["queues"] = [{"machine": "m", "name": "kept", "quota": 2}, {"machine": "m", "name": "new"}]
    applied = bench.apply(bench.declare(data), prune=True)
    changed = bench.ours()

    done = apply_plan(applied.plan.inverse(), bench.target, Silent())

    assert done.done == 3
    assert changed != before
    assert bench.ours() == before


def test_rollback_by_command_undoes_the_last_apply(bench):
    bench.apply(bench.declare({"enterprise": {"name": "E"}, "sites": [{"name": "A"}]}))
    before = bench.ours()
    assert command(bench, "apply", SAMPLE).exit_code == 0

    done = command(bench, "rollback")

    assert done.exit_code == 0, done.stderr
    assert bench.ours() == before


def test_a_saved_plan_is_refused_when_the_directory_has_moved_on(bench, tmp_path):
    planned = command(bench, "plan", SAMPLE, "--save", tmp_path / "plan.json")
    site = child("Bremen", bench.directory.connection.dialect.contexts.sites)
    bench.directory.connection.add(site, ("top", "site"), {"mSMQInterval1": (b"99",)})
    try:
        applied = command(bench, "apply", tmp_path / "plan.json")
    finally:
        bench.directory.connection.delete(site)

    assert planned.exit_code == 2
    assert applied.exit_code == 1
    assert "the directory has moved on since the plan was made: site Bremen; plan anew" in applied.stderr


def test_of_two_applies_at_once_one_waits_and_both_succeed(bench):
    checked = load(SAMPLE)
    results = []

    def run():
        results.append(command_beside(bench, "apply", SAMPLE, "--wait", "60"))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [result.returncode for result in results] == [0, 0], [result.stderr for result in results]
    assert bench.plan(checked).steps == ()


def test_who_does_not_wait_is_told_who_applies(bench):
    with acquire(bench.target.lease_entry()):
        result = command_beside(bench, "apply", SAMPLE, "--wait", "0")

    assert result.returncode == 1
    assert f"process {os.getpid()} is applying a plan; wait for it" in result.stderr
    assert bench.ours() == {}


def test_an_apply_that_woke_up_late_does_not_touch_what_a_later_one_wrote(bench):
    data = {"enterprise": {"name": "E"}, "sites": [{"name": "A", "intra_site_replication_interval": 5}]}
    bench.apply(bench.declare(data))
    data["sites"][0]["intra_site_replication_interval"] = 6
    plan = bench.plan(bench.declare(data))
    site = child("A", bench.directory.connection.dialect.contexts.sites)
    with acquire(bench.target.lease_entry()) as late:
        mark_now = bench.directory.connection.read(site, (MARK,)).first(MARK)
        swap = [
            Change(ChangeKind.DELETE, MARK, (mark_now,)),
            Change(ChangeKind.ADD, MARK, (mark(late.token + 1),)),
        ]
        bench.directory.connection.modify(site, swap)

        with pytest.raises(ApplyError, match="was written by a later apply"):
            apply(plan, bench.target, late)


def test_access_rights_are_written_and_read_back(bench):
    rights = [
        {"to": "Everyone", "allow": ["get_properties", "get_permissions"]},
        {"to": "Anonymous", "deny": ["generic_all"]},
        {"to": "Desk", "allow": ["send", "peek"]},
        {"to": "Store", "allow": ["receive", "receive_journal", "delete", "set_properties"]},
        {"to": "S-1-5-21-1-2-3-4", "allow": ["generic_read"], "deny": ["send"]},
    ]
    data = {
        "enterprise": {"name": "E"},
        "sites": [{"name": "A"}],
        "machines": [{"name": "m", "sites": ["A"]}],
        "users": [{"name": "Desk"}, {"name": "Store"}],
        "queues": [{"machine": "m", "name": "q", "access": rights}],
    }
    checked = bench.declare(data)

    bench.apply(checked)

    row = bench.target.snapshot().table.get(resource(Kind.QUEUE, ("m", "q"), {}).reference)
    assert row.values["access"] == (
        "Anonymous: deny generic_all",
        "Desk: allow peek send",
        "Everyone: allow get_permissions get_properties",
        "S-1-5-21-1-2-3-4: allow get_permissions get_properties receive receive_journal",
        "S-1-5-21-1-2-3-4: deny send",
        "Store: allow delete receive receive_journal set_properties",
    )
    assert bench.plan(checked).steps == ()


def test_a_deletion_is_conditional_where_the_server_can(bench):
    data = {"enterprise": {"name": "E"}, "sites": [{"name": "A"}]}
    bench.apply(bench.declare(data))
    site = child("A", bench.directory.connection.dialect.contexts.sites)
    connection = bench.directory.connection
    connection.delete(child("Servers", site))

    if bench.server.is_active_directory:
        connection.delete(child("NTDS Site Settings", site))
        connection.delete(site, only_if=(MARK, b"something else"))
    else:
        with pytest.raises(ConditionFailed, match="no longer as it was"):
            connection.delete(site, only_if=(MARK, b"something else"))
        connection.delete(site, only_if=(MARK, connection.read(site, (MARK,)).first(MARK)))

    assert bench.ours() == {}


def certificate(name):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    today = datetime.datetime(2026, 1, 1)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 7, today, today + datetime.timedelta(365))
    return builder.sign(key, hashes.SHA256())


def test_a_new_site_has_the_objects_that_its_directory_expects(bench):
    sites = bench.directory.connection.dialect.contexts.sites
    bench.apply(bench.declare({"enterprise": {"name": "New"}, "sites": [{"name": "Genoa"}]}))
    beneath = {
        entry.first("cn").decode(): [one.decode() for one in entry.attributes["objectclass"]][-1]
        for entry in bench.directory.connection.search(child("Genoa", sites), "(objectClass=*)", ("cn", "objectClass"))
    }
    expected = {"Genoa": "site", "Servers": "serversContainer"}
    if bench.directory.connection.dialect.kind is ServerKind.ACTIVE_DIRECTORY:
        expected["NTDS Site Settings"] = "nTDSSiteSettings"
    assert beneath == expected
    bench.apply(bench.declare({"enterprise": {"name": "New"}, "sites": []}), prune=True)
    with pytest.raises(ObjectNotFound):
        bench.directory.connection.read(child("Genoa", sites), ("cn",))


def test_users_are_found_by_the_digest_of_their_certificates(bench):
    certificates = [certificate("one"), certificate("two")]
    pem = [found.public_bytes(Encoding.PEM).decode() for found in certificates]
    data = {"enterprise": {"name": "E"}, "users": [{"name": "Signer", "certificates": pem}, {"name": "Other"}]}
    bench.apply(bench.declare(data))

    for found in certificates:
        digest = hashlib.md5(found.public_bytes(Encoding.DER)).digest()
        (user,) = bench.directory.users.list(equals("certificate_digest_list", digest))
        assert user.name == "Signer"
        assert MqUserSignCerts.parse(user.certificates).certificate_count == 2
    assert bench.plan(bench.declare(data)).steps == ()

    data["users"][0]["certificates"] = pem[:1]
    bench.apply(bench.declare(data))
    assert len(bench.directory.users.find("Signer").certificate_digest_list) == 1
    data["users"][0]["certificates"] = []
    bench.apply(bench.declare(data))
    assert bench.directory.users.find("Signer").certificates is None


def test_two_different_declarations_applied_at_once_are_both_brought_about(bench):
    def declared(letter):
        data = {"enterprise": {"name": "E"}, "sites": [{"name": "A"}], "machines": [{"name": "m", "sites": ["A"]}]}
        data["queues"] = [{"machine": "m", "name": f"{letter}{number}"} for number in range(20)]
        bench.declare(data, f"{letter}.yaml")
        return bench.folder / f"{letter}.yaml"

    files = [declared(letter) for letter in "xyz"]
    results = []
    threads = [
        threading.Thread(target=lambda file=file: results.append(command_beside(bench, "apply", file, "--wait", "90")))
        for file in files
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [result.returncode for result in results] == [0, 0, 0], [result.stderr for result in results]
    for file in files:
        assert bench.plan(load(file)).steps == ()


def test_an_interrupted_apply_says_how_far_it_came(bench):
    data = {"enterprise": {"name": "E"}, "sites": [{"name": "A"}], "machines": [{"name": "m", "sites": ["A"]}]}
    data["queues"] = [{"machine": "m", "name": f"q{number}"} for number in range(1000)]
    checked = bench.declare(data)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MQENTERPRISE_DIRECTORY": str(bench.file)}
    arguments = [sys.executable, "-c", "from mqenterprise.cli import main; main()", "apply", checked.sources.files[0]]
    process = subprocess.Popen(arguments, env=environment, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: len(bench.ours()) > 5, 60, "the apply writes")
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=60)

    assert process.returncode == 1
    assert re.search(r"interrupted: \d+ of 1002 steps are done; run again to go on", complaint), complaint
    with acquire(bench.target.lease_entry()):
        pass  # it was given back


def test_an_access_entry_for_nobody_is_refused_with_its_line(bench):
    data = {
        "enterprise": {"name": "E"},
        "sites": [{"name": "A"}],
        "machines": [{"name": "m", "sites": ["A"]}],
        "queues": [{"machine": "m", "name": "q", "access": [{"to": "Nobody Here", "allow": ["send"]}]}],
    }

    with pytest.raises(DeclarationError, match=r"there is no user or group 'Nobody Here'; declare the user"):
        bench.plan(bench.declare(data))


def test_everything_is_marked_as_ours_and_nothing_else_is_touched(bench):
    connection = bench.directory.connection

    def theirs():
        contexts = connection.dialect.contexts
        return {
            entry.dn: dict(entry.attributes)
            for base in (contexts.configuration, contexts.domain)
            for entry in connection.search(base, "(!(adminDescription=mqenterprise *))", ("*",))
            if "mqenterprise" not in entry.dn and contexts.enterprise != entry.dn
        }

    before = theirs()
    bench.apply(load(SAMPLE))

    with_lease = {dn for dn in theirs() if dn not in before}
    assert with_lease == set()


def test_a_queue_of_a_machine_that_vanished_meanwhile_is_told(bench):
    data = {"enterprise": {"name": "E"}, "sites": [{"name": "A"}], "machines": [{"name": "m", "sites": ["A"]}]}
    bench.apply(bench.declare(data))
    data["queues"] = [{"machine": "m", "name": "q"}]
    plan = bench.plan(bench.declare(data))
    manager = bench.directory.queue_managers.find("m")
    bench.directory.connection.delete(manager.full_path)

    with acquire(bench.target.lease_entry()) as lease, pytest.raises(ApplyError, match=r"queue m\\q: .*no such object"):
        apply(plan, bench.target, lease)


def test_the_lease_is_refused_while_it_is_held(bench):
    with acquire(bench.target.lease_entry()) as lease:
        with pytest.raises(LeaseTaken):
            acquire(bench.target.lease_entry())
        lease.renew()
        lease.check()

    with acquire(bench.target.lease_entry()) as later:
        assert later.token == lease.token + 1


def test_export_by_command_can_be_validated(bench, tmp_path):
    bench.apply(load(SAMPLE))

    assert command(bench, "export", "--name", "Back", "--output", tmp_path / "back.yaml").exit_code == 0

    assert yaml.safe_load((tmp_path / "back.yaml").read_text())["enterprise"]["name"] == "Back"
    assert command(bench, "validate", tmp_path / "back.yaml").exit_code == 0
    assert command(bench, "plan", tmp_path / "back.yaml").exit_code == 0
    assert command(bench, "show", "--svg", tmp_path / "x.svg").exit_code == 0
    assert "Córdoba" in (tmp_path / "x.svg").read_text("utf-8")


def test_an_unknown_directory_is_told_without_a_traceback(bench, tmp_path):
    bench.file.write_text("servers: ['ldaps://127.0.0.1:1']\nbind: anonymous\n")

    result = command(bench, "plan", SAMPLE)

    assert result.exit_code == 1
    assert "cannot be reached" in result.stderr
    assert "Traceback" not in result.stderr
