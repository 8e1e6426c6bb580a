"""What a declaration may say, and what is said about one that is wrong."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import get_args

import jsonschema_rs
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mqenterprise.topology.check import load
from mqenterprise.topology.declaration import Role
from mqenterprise.topology.problems import DeclarationError
from mqenterprise.topology.schema import enterprise_schema
from qmnode.objects.rows import Door, Kind
from qmnode.objects.table import ROWS
from qmnode.settings.bridges import BridgeSettings

ROOT = Path(__file__).parents[2]

HEAD = """\
enterprise: {name: Contoso}
sites:
  - name: A
  - name: B
machines:
  - {name: a1, sites: [A], roles: [routing_server]}
  - {name: b1, sites: [B], roles: [routing_server]}
  - {name: c1, sites: [A]}
"""


@pytest.fixture
def problems(tmp_path):
    """Loads HEAD and what a test adds; gives the problems as texts without the file."""

    def check(text: str = "", head: str = HEAD) -> list[str]:
        file = tmp_path / "enterprise.yaml"
        file.write_text(head + text, "utf-8")
        with pytest.raises(DeclarationError) as caught:
            load(file)
        return [str(problem).removeprefix(f"{file}:") for problem in caught.value.problems]

    return check


def test_the_sample_enterprise_is_valid():
    checked = load(ROOT / "inventory" / "contoso.yaml")

    assert [site.name for site in checked.declaration.sites] == ["Amsterdam", "Bremen", "Córdoba"]
    assert len(checked.declaration.queues) == 3


@pytest.mark.parametrize(
    ("written", "kilobytes"),
    [
        ("7", 7),
        ("10MB", 10_240),
        ("1.5 GiB", 1_572_864),
        ("none", None),
        ("NONE", None),
        ("", None),
        ("'4294967295'", None),
    ],
)
def test_quotas_are_kilobytes_or_sizes(tmp_path, written, kilobytes):
    file = tmp_path / "declared.yaml"
    file.write_text(
        "enterprise: {name: E}\nsites:\n  - name: S\nmachines:\n"
        f"  - {{name: m, sites: [S], quota: {written}, journal_quota: {written}}}\n"
        f"queues:\n  - {{machine: m, name: q, quota: {written}, journal_quota: {written}}}\n"
    )
    schema = jsonschema_rs.validator_for(json.loads(enterprise_schema()))
    assert schema.is_valid(yaml.safe_load(file.read_text()))

    declared = load(file).declaration

    for item in (*declared.machines, *declared.queues):
        assert (item.quota, item.journal_quota) == (kilobytes, kilobytes)


@pytest.mark.parametrize("values", ["type: 00000000-0000-0000-0000-000000000000", "type: none", "type: None", "type: "])
@pytest.mark.parametrize("address", ["none", "NONE", "", "''"])
def test_no_type_and_no_address_are_the_word_none_or_nothing(tmp_path, values, address):
    file = tmp_path / "declared.yaml"
    queue = f"{{machine: m, name: q, multicast_address: {address}, {values}}}"
    file.write_text(
        f"enterprise: {{name: E}}\nsites: [{{name: S}}]\nmachines: [{{name: m, sites: [S]}}]\nqueues: [{queue}]\n"
    )
    checked = load(file)
    (declared,) = checked.declaration.queues
    assert (declared.type, declared.multicast_address, checked.notes) == (None, None, ())


BRIDGE = "machine: cl, name: out, direction: out, queue: orders, peer: 'amqps://b.example', address: billing"


def test_a_bridge_is_declared_with_what_the_settings_of_its_node_say(tmp_path):
    file = tmp_path / "declared.yaml"
    file.write_text(
        "enterprise: {name: E}\nsites: [{name: S}]\nmachines: [{name: cl, sites: [S]}]\n"
        f"bridges:\n  - {{{BRIDGE}, user: shop, password_secret: {{name: billing, settings: {{region: eu-west-1}}}}}}\n"
    )
    assert jsonschema_rs.validator_for(json.loads(enterprise_schema())).is_valid(yaml.safe_load(file.read_text()))

    (bridge,) = load(file).declaration.bridges

    assert (bridge.machine, bridge.name) == ("cl", "out")
    assert bridge.settings == {
        "direction": "out", "queue": "orders", "peer": "amqps://b.example", "address": "billing", "user": "shop",
        "password_secret": {"name": "billing", "settings": {"region": "eu-west-1"}},
    }  # fmt: skip
    assert BridgeSettings(**bridge.settings).window == 200


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (BRIDGE.replace("cl", "nobody"), "there is no machine 'nobody'"),
        (BRIDGE.replace("cl", "far"), "far is a foreign system; only a node has bridges"),
        (f"{BRIDGE}, password: open sesame", "there is no setting 'password' (did you mean password_file?)"),
        (BRIDGE.replace("b.example", "shop:open sesame@b.example"), "peer has no user and password: set user, and"),
        (f"{BRIDGE}, user: shop", "user goes with either password_file or password_secret"),
        (BRIDGE.replace("name: out", "name: o/ut"), "'o/ut': the name of a bridge has up to 64 letters, digits"),
        (f"{BRIDGE}, window: 20000", "less than or equal to 10000"),
        (f"{BRIDGE}}}\n  - {{{BRIDGE}", r"the bridge 'cl\\out' is declared at"),
        (
            f"{BRIDGE}, guarantee: exactly-once, ledger: l}}\n"
            f"  - {{{BRIDGE.replace('name: out', 'name: more')}, guarantee: exactly-once, ledger: l",
            "has this ledger; give each bridge its own",
        ),
    ],
)
def test_a_bridge_that_cannot_be_is_told_and_no_password_with_it(tmp_path, written, told):
    file = tmp_path / "declared.yaml"
    file.write_text(
        "enterprise: {name: E}\nsites: [{name: S}]\nforeign_sites: [{name: F}]\n"
        "machines: [{name: cl, sites: [S]}, {name: far, foreign: true, foreign_sites: [F]}]\n"
        f"bridges:\n  - {{{written}}}\n"
    )

    with pytest.raises(DeclarationError) as refused:
        load(file)

    assert [told in problem.sentence for problem in refused.value.problems] == [True], str(refused.value)
    assert "open sesame" not in str(refused.value)


def test_the_json_schema_is_up_to_date():
    assert (ROOT / "schemas" / "enterprise.schema.json").read_text("utf-8") == enterprise_schema()


def test_the_sample_enterprise_satisfies_the_json_schema():
    schema = json.loads(enterprise_schema())
    validator = jsonschema_rs.validator_for(schema)
    sample = yaml.safe_load((ROOT / "inventory" / "contoso.yaml").read_text("utf-8"))

    assert validator.is_valid(sample)
    sample["routing_links"][0]["cost"] = 0
    assert not validator.is_valid(sample)


def test_all_problems_are_told_at_once_each_with_its_line(problems):
    found = problems(
        "routing_links:\n"
        "  - sites: [A, Bee]\n"
        "    cost: 1\n"
        "  - sites: [A, A]\n"
        "    cost: 1\n"
        "queues:\n"
        "  - {machine: cl, name: x}\n"
    )

    assert found == [
        "10: routing_links[0].sites[1]: there is no site 'Bee' (did you mean B?)",
        "12: routing_links[1].sites: the link joins 'A' with itself; name two sites",
        "15: queues[0].machine: there is no machine 'cl' (did you mean c1?)",
    ]


def test_wrong_values_do_not_hide_wrong_references(problems):
    found = problems(
        "  - {name: d1, sites: [Pariss], quota: -1}\n"
        "  - {name: e1, sites: [A], roles: [routing_sever]}\n"
        "routing_links:\n"
        "  - {sites: [A, Pariss], cost: 0, site_gates: [e1]}\n"
        "queues:\n"
        "  - {machine: d1, name: Orders, quota: -1}\n"
        "  - {machine: D1, name: ORDERS}\n"
        "  - {machine: nobody, name: x, journal: 7}\n"
        "  - 5\n"
    )

    assert [re.sub(r" at .*:(\d+) already", r" at \1", line) for line in found] == [
        "9: machines[3].quota: -1 is out of range; give KB from 0 to 4294967294, a size such as 10MB, or none "
        "(MS-MQDMPR 3.1.1.1)",
        "9: machines[3].sites[0]: there is no site 'Pariss' (known: A, B)",
        "10: machines[4].roles[0]: 'routing_sever' is not one of the values (did you mean routing_server?)",
        "12: routing_links[0].cost: 0 is out of range; give a cost from 1 to 999999 (MS-MQDMPR 3.1.1.8)",
        "12: routing_links[0].sites[1]: there is no site 'Pariss' (known: A, B)",
        "14: queues[0].quota: -1 is out of range; give KB from 0 to 4294967294, a size such as 10MB, or none "
        "(MS-MQMQ 2.3.1.5)",
        "15: queues[1]: the queue 'D1\\\\ORDERS' is declared at 14",
        "16: queues[2].journal: 7 is a number, true or false is wanted",
        "16: queues[2].machine: there is no machine 'nobody' (known: a1, b1, c1, d1, e1)",
        "17: queues[3]: 5 is a number, a mapping of names and values is wanted",
    ]


@pytest.mark.parametrize("cost", [0, 1_000_000, -1])
def test_a_cost_outside_its_range_is_refused_with_the_range(problems, cost):
    found = problems(f"routing_links:\n  - sites: [A, B]\n    cost: {cost}\n")

    assert found == [
        f"11: routing_links[0].cost: {cost} is out of range; give a cost from 1 to 999999 (MS-MQDMPR 3.1.1.8)"
    ]


def test_two_queues_of_one_name_are_refused_whatever_their_case(problems):
    found = problems("queues:\n  - {machine: a1, name: Orders}\n  - {machine: A1, name: ORDERS}\n")

    assert len(found) == 1
    assert found[0].startswith("11: queues[1]: the queue 'A1\\\\ORDERS' is declared at ")
    assert found[0].endswith(":10 already")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("queues:\n  - {machine: a1, name: 5}\n", "5 is a number, a text is wanted; write it in quotes"),
        ("queues:\n  - {machine: a1, name: x, jurnal: true}\n", "no setting 'jurnal' (did you mean journaling?)"),
        ("queues:\n  - {machine: a1, name: x, journaling: 'yes'}\n", "'yes' is a text, true or false is wanted"),
        ("queues:\n  - {machine: a1, name: 'a\\b'}\n", "a queue name cannot hold \\"),
        ("queues:\n  - {machine: a1, name: 'a;b'}\n", "a queue name cannot hold ;"),
        ("queues:\n  - {machine: a1, name: '.'}\n", "names no queue"),
        ("queues:\n  - {machine: a1, name: 'private$\u0078'}\n", "is declared with private: true"),
        ("queues:\n  - {machine: a1, name: x, type: 12}\n", "12 is a number, a text is wanted"),
        ("queues:\n  - {machine: a1, name: x, type: '12'}\n", "a GUID looks like"),
        ("queues:\n  - {machine: a1, name: x, multicast_address: '10.0.0.1:1'}\n", "from 224.0.0.0 to 239"),
        (
            "queues:\n  - {machine: a1, name: x, base_priority: 32768}\n",
            "a base priority from -32768 to 32767 (MS-MQMQ 2.3.1.6)",
        ),
        ("queues:\n  - {machine: a1, name: x, quota: -1}\n", "KB from 0 to 4294967294"),
        ("queues:\n  - {machine: a1, name: x, quota: lots}\n", "quota: 'lots' is not 'none' and no size such as 10MB"),
        ("queues:\n  - {machine: a1, name: x, quota: 1.5}\n", "1.5 is a number, a whole number is wanted"),
        ("queues:\n  - {machine: a1, name: x, base_priority: }\n", "nothing stands here; a whole number is wanted"),
        ("queues:\n  - {machine: a1, name: x, access: [{to: E}]}\n", "neither allows nor denies anything"),
        ("queues:\n  - {machine: a1, name: x, access: [{to: E, allow: [sent]}]}\n", "did you mean send?"),
        ("queues:\n  - {machine: a1}\n", "'name' is missing; give the queue's name"),
        ("queues: {a: 1}\n", "queues is a list; begin each with '- '"),
        ("quues: []\n", "there is no section 'quues' (did you mean queues?)"),
        ("routing_links:\n  - {sites: [A, B], cost: 1, site_gates: [c1]}\n", "c1 is no routing server"),
        ("foreign_sites:\n  - name: a\n", "a site of this name is declared"),
        ("users:\n  - {name: U, certificates: [missing.pem]}\n", "missing.pem cannot be read"),
        ("users:\n  - {name: U, certificates: ['-----BEGIN nothing']}\n", "holds no certificate"),
    ],
)
def test_a_wrong_value_is_told_with_what_would_be_right(problems, text, sentence):
    assert any(sentence in problem for problem in problems(text))


@pytest.mark.parametrize(
    ("machine", "sentence"),
    [
        ("{name: m, sites: [Nowhere]}", "there is no site 'Nowhere'"),
        ("{name: 'm,n', sites: [A]}", "a machine name cannot hold ','"),
        ("{name: m, sites: []}", "a machine is in a site; name at least one"),
        ("{name: m, sites: [A, a]}", "'a' stands here 2 times"),
        ("{name: m, sites: [A], roles: [connector]}", "a connector needs foreign_sites"),
        ("{name: m, sites: [A], roles: [client, routing_server]}", "a client has no other role"),
        ("{name: m, sites: [A], out_routing_servers: [c1]}", "c1 is no routing server"),
        ("{name: m, sites: [A], out_routing_servers: [b1]}", "b1 is in none of the sites of m"),
        ("{name: m, sites: [A], out_routing_servers: [a2]}", "there is no machine 'a2' (did you mean"),
        ("{name: m, sites: [A], roles: [routing_server], in_routing_servers: [a1]}", "routes for itself"),
        ("{name: m, sites: [A], addresses: [300.1.1.1]}", "an IPv4 or IPv6 address"),
        ("{name: m, sites: [A], dns_name: 'a b'}", "a DNS name is labels"),
    ],
)
def test_a_machine_that_cannot_be_is_refused(problems, machine, sentence):
    found = problems(head=HEAD + f"  - {machine}\n")

    assert any(sentence in problem for problem in found)
    assert all(problem.startswith("9: ") for problem in found)


@pytest.mark.parametrize("name", ["a,b", "a+b", 'say "x"', "<a=b>", "#1", "Zürich/Ærø", "漢字", "a b", "x" * 124])
def test_names_with_special_letters_are_accepted(tmp_path, name):
    file = tmp_path / "e.yaml"
    file.write_text(HEAD + f"queues:\n  - machine: a1\n    name: '{name}'\n", "utf-8")

    assert load(file).declaration.queues[0].name == name


def test_a_directory_of_files_is_one_declaration_and_problems_name_the_file(tmp_path):
    (tmp_path / "a.yaml").write_text(HEAD)
    (tmp_path / "b.yaml").write_text("queues:\n  - {machine: a1, name: x}\n")
    (tmp_path / "c.yml").write_text("queues:\n  - {machine: a1, name: y}\n  - {machine: a1, name: X}\n")

    with pytest.raises(DeclarationError) as caught:
        load(tmp_path)

    assert str(caught.value) == (
        f"{tmp_path}/c.yml:3: queues[1]: the queue 'a1\\\\X' is declared at {tmp_path}/b.yaml:2 already"
    )


def test_included_files_are_read_once(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "e.yaml").write_text(HEAD + "include: ['parts/*.yaml', parts/q.yaml]\n")
    (tmp_path / "parts" / "q.yaml").write_text("include: [../e.yaml]\nqueues: [{machine: a1, name: x}]\n")

    assert [queue.name for queue in load(tmp_path / "e.yaml").declaration.queues] == ["x"]


def test_an_include_of_nothing_is_told(problems):
    assert problems("include: [nothing.yaml]\n")[0].startswith("9: include: there is no file ")


def test_settings_in_two_files_are_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("enterprise: {name: X}\n")
    (tmp_path / "b.yaml").write_text("\nenterprise: {name: Y}\n")

    with pytest.raises(DeclarationError, match=r"b\.yaml:2: enterprise: 'enterprise' stands in .*a\.yaml already"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [1,\n", "not valid YAML"),
        ("enterprise: {name: X, name: Y}\n", "'name' is set in line 1 and again in line 1"),
        ("- 1\n", "a declaration is a mapping"),
        ("sites: []\n", "there is no 'enterprise' section"),
        ("enterprise: &a {name: X}\nsites: [*b]\n", "not valid YAML"),
        ("enterprise: !!python/object/apply:os.getcwd []\n", "not valid YAML"),
        ("\tenterprise: 1\n", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_declaration_is_told_so(problems, text, sentence):
    assert any(sentence in problem for problem in problems(head="", text=text))


@given(st.text())
@example("include: ['/*']\nenterprise: {name: E}\n")
@example("[" * 20_000)
@example("include: " + "[" * 20_000)
@example("enterprise: {name: E}\nqueues: [[], 1, null, {machine: {}, name: []}]\n")
@example("enterprise: {name: E}\nusers: [{name: u, certificates: ['\0']}]\n")
@example("enterprise: &a {name: E, x: *a}\n")
@example("? [a]\n: 1\n")
@example("2026-01-01: 1\n")
@settings(deadline=None)
def test_no_text_is_worse_than_no_declaration(tmp_path_factory, text):
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))

    with contextlib.suppress(DeclarationError):
        load(file)


def test_a_foreign_machine_is_in_a_foreign_site_alone(tmp_path):
    file = tmp_path / "e.yaml"
    file.write_text(HEAD + "  - {name: f, foreign: true, foreign_sites: [F]}\nforeign_sites: [{name: F}]\n")

    assert load(file).declaration.machines[-1].sites == ()


def test_anchors_aliases_and_merges_are_followed(tmp_path):
    file = tmp_path / "e.yaml"
    file.write_text(
        HEAD + "queues:\n"
        "  - &base {machine: a1, name: x, journaling: true, access: &open [{to: Everyone, allow: [send]}]}\n"
        "  - {<<: *base, name: y, journaling: false}\n"
        "  - {<<: [*base], name: z}\n"
        "  - {machine: a1, name: q, access: *open}\n"
    )

    x, y, z, q = load(file).declaration.queues

    assert [queue.name for queue in (x, y, z, q)] == ["x", "y", "z", "q"]
    assert [queue.journaling for queue in (x, y, z, q)] == [True, False, True, False]
    assert x.access == y.access == q.access


def test_an_alias_bomb_is_refused_quickly(problems):
    text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    text += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))

    assert "unfold" in problems(text)[0]


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(DeclarationError) as raised:
        load(tmp_path / "none.yaml")

    advice = "cannot be read: No such file or directory; name a YAML file or a folder of them"
    assert str(raised.value) == f"{tmp_path}/none.yaml: {advice}"


def notes(tmp_path, text):
    file = tmp_path / "e.yaml"
    file.write_text(HEAD + text)
    return load(file), [str(note).removeprefix(f"{file}:") for note in load(file).notes]


def test_a_declaration_of_the_release_before_is_taken_and_the_new_names_said_once(tmp_path):
    earlier, said = notes(
        tmp_path,
        "queues:\n"
        "  - {machine: a1, name: x}\n"
        "  - {machine: a1, name: y, journal: true, authenticate: true, privacy: body, quota: 4294967295}\n"
        "  - {machine: a1, name: z, journal: false}\n",
    )
    later, none = notes(
        tmp_path,
        "queues:\n"
        "  - {machine: a1, name: x}\n"
        "  - {machine: a1, name: y, journaling: true, authentication: true, privacy_level: body, quota: none}\n"
        "  - {machine: a1, name: z, journaling: false}\n",
    )

    assert earlier.declaration == later.declaration
    assert (said, none) == (
        [
            "11: queues[1].authenticate: the name is authentication now; authenticate is taken for one more release",
            "11: queues[1].journal: the name is journaling now; journal is taken for one more release "
            "(here and once more)",
            "11: queues[1].privacy: the name is privacy_level now; privacy is taken for one more release",
        ],
        [],
    )


def test_a_property_under_two_names_is_refused(problems):
    assert problems("queues:\n  - {machine: a1, name: x, journal: true, journaling: false}\n") == [
        "10: queues[0].journaling: 'journal' and 'journaling' are one property; keep 'journaling'"
    ]


UNOBEYED = [(kind, row) for kind, rows in ROWS.items() for row in rows.at(Door.DECLARATION) if row.unobeyed]


@pytest.mark.parametrize(("kind", "row"), UNOBEYED, ids=[f"{kind}.{row.name}" for kind, row in UNOBEYED])
def test_a_property_that_nothing_obeys_is_told_unless_it_is_the_default(tmp_path, kind, row):
    def declared(value):
        own = {"roles": [row.name]} if row.name in get_args(Role) else {row.name: value}
        data = yaml.safe_load(HEAD)
        items = {
            Kind.ENTERPRISE: data["enterprise"],
            Kind.SITE: data["sites"][1],
            Kind.MACHINE: data["machines"][2],
            Kind.QUEUE: {"machine": "a1", "name": "q"},
        }
        items[kind] |= own
        data["queues"] = [items[Kind.QUEUE]]
        (tmp_path / "e.yaml").write_text(yaml.safe_dump(data))
        return [str(note) for note in load(tmp_path / "e.yaml").notes]

    default = row.form.write(row.default)
    other = {bool: True, int: 7, str: "234.1.1.1:8001"}[row.form.type] if not row.form.choices else "win_server"
    other = (not default) if row.form.type is bool else other
    (note,) = declared(other)

    assert row.unobeyed in note
    assert note.endswith("it is written to the directory and has no effect")
    assert row.name in get_args(Role) or declared(default) == []


def test_properties_that_nothing_obeys_are_one_note_each(tmp_path):
    lines = "".join(f"  - {{machine: a1, name: q{n}, multicast_address: '234.1.1.1:{n}'}}\n" for n in range(3))
    _, said = notes(tmp_path, f"queues:\n  - {{machine: a1, name: x}}\n{lines}")

    assert said == [
        "11: queues[1].multicast_address: nodes do not speak multicast (PGM); it is written to the directory and has "
        "no effect (here and in 2 more of the queues)"
    ]
