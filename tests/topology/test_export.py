"""Export: what a directory holds, written as the declaration that says the same."""

from __future__ import annotations

import datetime
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings

from mqenterprise.topology.apply import acquire, apply
from mqenterprise.topology.check import load
from mqenterprise.topology.declared_table import declared_table
from mqenterprise.topology.export import export
from mqenterprise.topology.normal_form import Kind, resource
from mqenterprise.topology.plan import make_plan
from tests.topology.enterprises import enterprises
from tests.topology.memory import MemoryTarget

SAMPLE = Path(__file__).parents[2] / "inventory" / "contoso.yaml"


def bring_about(target, file):
    checked = load(file)
    snapshot = target.snapshot()
    plan = make_plan(snapshot.directory, declared_table(checked, snapshot.canonical), snapshot.table)
    with acquire(target.lease_entry()) as lease:
        apply(plan, target, lease, workers=2)


def plan_of(target, text, directory):
    file = directory / "exported.yaml"
    file.write_text(text, "utf-8")
    snapshot = target.snapshot()
    return make_plan("memory", declared_table(load(file), snapshot.canonical), snapshot.table, prune=True)


def test_the_sample_exported_has_an_empty_plan(tmp_path):
    target = MemoryTarget()
    bring_about(target, SAMPLE)

    text = export(target.snapshot().table, "Contoso")

    plan = plan_of(target, text, tmp_path)
    assert (plan.steps, plan.remarks) == ((), ())


def test_the_export_says_only_what_differs_from_the_defaults():
    target = MemoryTarget()
    bring_about(target, SAMPLE)

    data = yaml.safe_load(export(target.snapshot().table, "Contoso"))

    assert data["enterprise"] == {"name": "Contoso"}
    assert {"name": "Amsterdam"} in data["sites"]
    assert data["foreign_sites"] == [{"name": "Mainframe"}]
    connector = next(machine for machine in data["machines"] if machine["name"] == "bre-connector")
    assert connector["roles"] == ["routing_server", "connector"]
    assert connector["foreign_sites"] == ["Mainframe"]


@settings(max_examples=60, deadline=None)
@given(enterprise=enterprises())
def test_any_enterprise_declared_applied_and_exported_has_an_empty_plan(enterprise, tmp_path_factory):
    directory = tmp_path_factory.mktemp("round")
    (directory / "declared.yaml").write_text(yaml.safe_dump(enterprise, allow_unicode=True), "utf-8")
    target = MemoryTarget()
    bring_about(target, directory / "declared.yaml")

    text = export(target.snapshot().table, "E")

    plan = plan_of(target, text, directory)
    assert (plan.steps, plan.remarks) == ((), ())


def test_certificates_are_exported_in_place(tmp_path):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name.from_rfc4514_string("CN=Order Desk")
    today = datetime.datetime(2026, 1, 1)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 7, today, today + datetime.timedelta(365))
    ).sign(key, hashes.SHA256())
    (tmp_path / "desk.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    (tmp_path / "e.yaml").write_text(
        "enterprise: {name: E}\nusers: [{name: Order Desk, certificates: [desk.pem, desk.pem]}]\n"
    )
    target = MemoryTarget()
    bring_about(target, tmp_path / "e.yaml")

    text = export(target.snapshot().table, "E")

    exported = yaml.safe_load(text)["users"][0]["certificates"]
    assert x509.load_pem_x509_certificate(exported[0].encode()) == certificate
    assert plan_of(target, text, tmp_path).steps == ()


def test_what_cannot_be_declared_is_left_out_with_a_word(tmp_path):
    target = MemoryTarget()
    bring_about(target, SAMPLE)
    lost = {**target.rows.get(resource(Kind.MACHINE, ("ams-shop",), {}).reference).values, "sites": ("gone",)}
    target.put(resource(Kind.MACHINE, ("lost",), {**lost, "out_routing_servers": (), "in_routing_servers": ()}))
    target.put(resource(Kind.QUEUE, ("lost", "q"), {}))

    text = export(target.snapshot().table, "Contoso")

    assert "# left out: machines lost: there is no site 'gone'" in text
    assert "# left out: queues q: there is no machine 'lost'" in text
    assert plan_of(target, text, tmp_path).steps == ()


def test_nothing_that_a_machine_writes_stops_the_export_or_adds_to_it(tmp_path):
    target = MemoryTarget()
    bring_about(target, SAMPLE)
    values = next(row for row in target.snapshot().table if row.kind is Kind.QUEUE).values
    target.put(resource(Kind.QUEUE, ("ams-shop", "garbage"), {**values, "access": ("(not understood: 3 bytes)",)}))
    target.put(resource(Kind.QUEUE, ("gone", "q\nusers: [{name: mallory}]\n#"), {}))

    text = export(target.snapshot().table, "Contoso")

    (garbage,) = (each for each in yaml.safe_load(text)["queues"] if each["name"] == "garbage")
    assert "access" not in garbage
    assert "mallory" not in str(yaml.safe_load(text))
    assert plan_of(target, text, tmp_path).steps == ()
