"""What a newcomer is told of a broken declaration: every mistake at once, with its line and what would be right."""

# ruff: noqa: E501  (the table is read line by line)
from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mqenterprise.cli import app
from mqenterprise.topology.check import load
from mqenterprise.topology.problems import DeclarationError

GOOD = """\
enterprise: {name: E}
sites: [{name: North}, {name: South}]
machines:
- {name: n1, sites: [North], roles: [routing_server]}
- {name: s1, sites: [South], roles: [routing_server]}
routing_links:
- {sites: [North, South], cost: 1, site_gates: [n1, s1]}
"""
BOMB = GOOD + "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)  # fmt: skip


def swap(old: str, new: str) -> str:
    assert GOOD.count(old) == 1
    return GOOD.replace(old, new)


ENDS = "[North, South], cost"
S1 = "s1, sites: [South], roles: [routing_server]"
PACEMAKER = "{way: pacemaker, device: /dev/shared, fencing: [fence-a, fence-b]}"


def pair(hosts: str = "hosts: [a, b]", failover: str = PACEMAKER) -> str:
    return swap(S1, f"{S1}, addresses: [192.0.2.7], {hosts}, failover: {failover}")


MISTAKES: dict[str, tuple[str | bytes, list[str]]] = {
    # The file
    "latin 1": (f"{GOOD}# caf\xe9\n".encode("latin-1"), ["8: the byte 0xE9 is no UTF-8; save the file in UTF-8"]),
    "utf 16": (GOOD.encode("utf-16"), ["1: the file is UTF-16; save it as text in UTF-8"]),
    "archive": (b"PK\x03\x04\0\0", ["1: the file is a ZIP archive; save it as text in UTF-8"]),
    "nul": (f"{GOOD}# a\0b\n", ["8: the control character U+0000 cannot be in a file; take it out"]),
    "bell": (f"{GOOD}a: '\x07'\n", ["8: the control character U+0007 cannot be in a file; take it out"]),
    "empty": ("", ["1: the file is empty, or there is no 'enterprise' section"]),
    "a comment": ("# later\n", ["1: the file is empty, or there is no 'enterprise' section"]),
    "a list": ("- a\n", ["1: a declaration is a mapping with enterprise, directory, include, sites"]),
    "a text": ("hello\n", ["1: a declaration is a mapping with enterprise, directory, include, sites"]),
    # YAML
    "alias bomb": (BOMB, ["14: its aliases unfold to more than a declaration can hold"]),
    "alias in itself": (f"{GOOD}queues: &q [*q]\n", ["8: an alias stands inside the value that it names"]),
    "deep": (f"{GOOD}queues: {'[' * 5000}{']' * 5000}\n", ["8: the values are nested too deep"]),
    "tab": ("enterprise:\n\tname: E\n", ["2: not valid YAML: no text begins with %, @, ` or a tab; put it in quotes"]),
    "open brace": ("enterprise: {name: E\nsites: []\n", ["2: not valid YAML: a mapping that begins with '{' lacks"]),
    "open quote": ("enterprise: {name: 'E}\n", ["2: not valid YAML: a quoted text does not end"]),
    "indented": ("enterprise:\n  name: E\n sites: []\n", ["3: not valid YAML: the indentation does not fit"]),
    "two documents": (f"{GOOD}---\n{GOOD}", ["8: not valid YAML: '---' begins a second document; a file holds one"]),
    "twice": (f"{GOOD}sites: []\n", ["8: not valid YAML: 'sites' is set in line 2 and again in line 8: keep one of them"]),
    "tag": (f"{GOOD}queues: !!python/object:os.system []\n", ["8: not valid YAML: a tag (a word after '!') stands here"]),
    "no anchor": (f"{GOOD}queues: *q\n", ["8: not valid YAML: an alias (*name) stands before its anchor"]),
    # Copies elsewhere
    "copy in clear": (swap(S1, S1 + ", remote_copy: {to: /mnt/b}"), ["5: machines[1].remote_copy: "]),
    "probe over no link": (
        swap(S1, S1 + ", probes: {p: {queue: 'DIRECT=OS:x\\private$\\q', links: [[North, East]]}}"),
        ["5: machines[1].probes.p.links[0]: no routing link of North and East is declared"],
    ),
    "probe to no queue": (swap(S1, S1 + ", probes: {p: {queue: q}}"), ["5: machines[1].probes.p.queue: "]),
    "copy without a place": (swap(S1, S1 + ", remote_copy: {lag: 5}"), ["5: machines[1].remote_copy: a copy needs a place"]),
    "copy nearby": (swap(S1, S1 + ", remote_copy: {to: b, key: /k}"), ["5: machines[1].remote_copy.to: 'b' is no place"]),
    "passphrase": (swap(S1, S1 + ", remote_copy: {to: /b, key: x}"), ["5: machines[1].remote_copy.key: expected the absolute path of a file on s1"]),
    # Several hosts
    "one host": (pair("hosts: [a]"), ["5: machines[1].hosts: a alone cannot fail over; name two or three hosts"]),
    "four hosts": (pair("hosts: [a, b, c, d]"), ["5: machines[1].hosts: 4 hosts are too many; name two or three"]),
    "one host twice": (pair("hosts: [a, A.example.com]"), ["5: machines[1].hosts[1]: 'A.example.com' and 'a' are one host"]),
    "a machine as host": (pair("hosts: [a, N1]"), ["5: machines[1].hosts[1]: N1 is the name of the machine n1; give the host"]),
    "its own name": (pair("hosts: [a, s1]"), ["5: machines[1].hosts[1]: s1 is the name of the machine s1; give the host"]),
    "a host of two": (
        pair().replace("- {name: n1,", "- {name: n2, sites: [North], hosts: [b, c], addresses: [192.0.2.8], failover: {way: operator, store: /s}}\n- {name: n1,"),
        ["4: machines[0].hosts[0]: b is a host of s1 already, and runs one node", "6: machines[2].hosts[1]: b is a host of n2 already, and runs one node"],
    ),
    "hosts alone": (swap(S1, S1 + ", hosts: [a, b]"), ["5: machines[1].hosts: hosts need failover: say who moves"]),
    "failover alone": (pair("hosts: []"), ["5: machines[1].failover: failover needs hosts: name the two or three hosts"]),
    "no way": (pair(failover="{device: /d}"), ["5: machines[1].failover: 'way' is missing; give who moves the node: pacemaker"]),
    "another way": (pair(failover="{way: heartbeat}"), ["5: machines[1].failover.way: 'heartbeat' is not one of the values; give 'pacemaker', 'operator' or 'kubernetes'"]),
    "misspelt device": (pair(failover="{way: operator, store: /s, devise: /d}"), ["5: machines[1].failover.devise: there is no setting 'devise' (did you mean device?)"]),
    "no address": (swap(S1, S1 + f", hosts: [a, b], failover: {PACEMAKER}"), ["5: machines[1]: addresses is missing; name the address that moves"]),
    "no device": (pair(failover="{way: pacemaker, fencing: [f]}"), ["5: machines[1].failover: device is missing; Pacemaker mounts"]),
    "no fencing": (pair(failover="{way: pacemaker, device: /d}"), ["5: machines[1].failover: fencing is missing; name the fencing devices"]),
    "fencing is no name": (pair(failover="{way: pacemaker, device: /d, fencing: ['a b']}"), ["5: machines[1].failover.fencing[0]: 'a b' is no identifier of a resource"]),
    "no store": (pair(failover="{way: operator}"), ["5: machines[1].failover: store is missing; name its directory"]),
    "an operator's fencing": (pair(failover="{way: operator, store: /s, fencing: [f]}"), ["5: machines[1].failover.fencing: an operator fences by hand"]),
    "a device of Kubernetes": (pair(failover="{way: kubernetes, device: /d}"), ["5: machines[1].failover.device: nothing uses device with 'way: kubernetes'"]),
    "store nearby": (pair(failover="{way: operator, store: s/../t}"), ["5: machines[1].failover.store: 's/../t' is no absolute path"]),
    "no lease": (pair(failover="{way: operator, store: /s, lease: 0}"), ["5: machines[1].failover.lease: Input should be greater than or equal to 1"]),
    # Sections
    "no enterprise": (GOOD.split("\n", 1)[1], ["1: there is no 'enterprise' section; begin with 'enterprise: {name"]),
    "empty enterprise": (swap(" {name: E}", ""), ["1: enterprise: the section is empty; give at least the name"]),
    "enterprise without name": (swap("{name: E}", "{}"), ["1: enterprise: 'name' is missing; give what the operators"]),
    "enterprise is a text": (swap("{name: E}", "E"), ["1: enterprise: 'E' is a text, a mapping of names and values"]),
    "misspelt enterprise": (swap("enterprise", "enterprize"), ["1: enterprize: there is no section 'enterprize' (did"]),
    "misspelt section": (swap("machines:", "machnes:"), ["3: machnes: there is no section 'machnes' (did you mean"]),
    "capital section": (swap("machines:", "Machines:"), ["3: Machines: there is no section 'Machines' (did you mean"]),
    "section is a mapping": (swap("[{name: North}, {name: South}]", "{North: {}}"), ["2: sites: sites is a list; begin"]),
    "section, cost, machine": (
        swap("cost: 1, site_gates: [n1, s1]}", "cost: 0, site_gates: [n1, s2]}") + "rooms: []\n",
        [
            "7: routing_links[0].cost: 0 is out of range; give a cost from 1 to 999999",
            "7: routing_links[0].site_gates[1]: there is no machine 's2' (did you mean s1?)",
            "8: rooms: there is no section 'rooms'",
        ],
    ),
    "unreadable include and more": (
        f"{swap('cost: 1', 'cost: 0')}include: [gone.yaml]\n",
        ["7: routing_links[0].cost: 0 is out of range", "8: include: there is no file"],
    ),
    # Values
    "cost is a text": (swap("cost: 1", "cost: cheap"), ["7: routing_links[0].cost: 'cheap' is a text, a whole number"]),
    "cost is broken": (swap("cost: 1", "cost: 1.5"), ["7: routing_links[0].cost: 1.5 is a number, a whole number"]),
    "cost is negative": (swap("cost: 1", "cost: -1"), ["7: routing_links[0].cost: -1 is out of range; give a cost"]),
    "cost is too high": (swap("cost: 1", "cost: 1000000"), ["7: routing_links[0].cost: 1000000 is out of range"]),
    "no cost": (swap("cost: 1, ", ""), ["7: routing_links[0]: 'cost' is missing; give the lower, the better the link"]),
    "name is a number": (swap("{name: E}", "{name: 12}"), ["1: enterprise.name: 12 is a number, a text is wanted; write"]),
    "misspelt setting": (swap("sites: [South], roles", "sites: [South], rolse"), [
        "5: machines[1].rolse: there is no setting 'rolse' (did you mean roles?)",
    ]),
    "misspelt role": (swap("sites: [South], roles: [routing_server]", "sites: [South], roles: [router]"), [
        "5: machines[1].roles[0]: 'router' is not one of the values (did you mean routing_server?)",
    ]),
    "entries of nothing": (f"{GOOD}queues: [null, 3, text]\n", [
        "8: queues[0]: nothing stands here; a mapping", "8: queues[1]: 3 is a number", "8: queues[2]: 'text' is a text",
    ]),
    # References and sense
    "misspelt site": (swap("sites: [South]", "sites: [Suoth]"), ["5: machines[1].sites[0]: there is no site 'Suoth' (did"]),
    "link with itself": (swap(ENDS, "[North, North], cost"), ["7: routing_links[0].sites: the link joins 'North' with"]),
    "one end": (swap(ENDS, "[North], cost"), ["7: routing_links[0].sites: has 1 items; at least 2 are wanted"]),
    "three ends": (swap(ENDS, "[North, South, West], cost"), ["7: routing_links[0].sites: has 3 items; at most 2"]),
    "ends are a text": (swap(ENDS, "North, cost"), ["7: routing_links[0].sites: 'North' is a text, a list, such as"]),
    "site twice": (swap("{name: South}]", "{name: South}, {name: south}]"), ["2: sites[2]: the site 'south' is declared"]),
    "gate is a client": (swap("sites: [South], roles: [routing_server]", "sites: [South]"), [
        "7: routing_links[0].site_gates[1]: s1 is no routing server; only a routing server can be a site gate",
    ]),
    "no such certificate": (f"{GOOD}users: [{{name: u, certificates: [u.pem]}}]\n", ["8: users[0].certificates[0]: "]),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_told_once_with_its_line_and_what_would_be_right(mistake: str, tmp_path: Path) -> None:
    content, expected = MISTAKES[mistake]
    file = tmp_path / "e.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())

    with pytest.raises(DeclarationError) as caught:
        load(file)

    found = [str(problem).removeprefix(f"{file}:") for problem in caught.value.problems]
    assert len(found) == len(expected), found
    for sentence, begins in zip(found, expected, strict=True):
        assert sentence.startswith(begins), found


GATES = "[n1, s1]"
WARNINGS = {
    "no gate": (GOOD.replace(f", site_gates: {GATES}", ""), "has no site gate in North or in South: messages to North and"),
    "no gates": (swap(GATES, "[]"), "has no site gate in North or in South: messages to North and to South wait; name a"),
    "one side": (swap(GATES, "[s1]"), "has no site gate in North: messages to North wait; name a routing server of North"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WARNINGS)
def test_a_link_without_gates_on_both_sides_is_warned_of(mistake: str, tmp_path: Path) -> None:
    content, expected = WARNINGS[mistake]
    file = tmp_path / "e.yaml"
    file.write_text(content)

    told = CliRunner().invoke(app, ["validate", str(file)])
    listed = json.loads(CliRunner().invoke(app, ["validate", str(file), "--json"]).stdout)

    assert told.exit_code == 0 and "E is valid" in told.stdout
    assert told.stderr.startswith(f"warning: {file}:7: routing_links[0]") and expected in told.stderr
    assert listed["problems"] == [] and expected in listed["warnings"][0]["sentence"]


def test_warnings_stand_beside_mistakes(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(f"{swap(GATES, '[s1]')}rooms: []\n")

    told = CliRunner().invoke(app, ["validate", str(file)])

    assert told.exit_code == 1
    assert "warning: " in told.stderr and "there is no section 'rooms'" in told.stderr


@pytest.mark.parametrize(
    "more",
    [
        "",
        "- {sites: [North, Far], cost: 1, site_gates: [n2]}\n",
        "queues:\n",
    ],
)
def test_what_is_right_is_not_warned_of(more: str, tmp_path: Path) -> None:
    """A gate in a foreign site's neighbour is its connector; an empty section is an empty list."""
    connector = "- {name: n2, sites: [North], foreign_sites: [Far], roles: [routing_server, connector]}\n"
    file = tmp_path / "e.yaml"
    file.write_bytes(
        b"\xef\xbb\xbf"
        + f"{GOOD.replace('routing_links:', connector + 'routing_links:')}{more}"
        "foreign_sites: [{name: Far}]\n".encode()
    )

    assert load(file).warnings == ()


def test_a_folder_without_files_is_told_once(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError) as caught:
        load(tmp_path)
    assert [problem.sentence for problem in caught.value.problems] == [
        "the directory holds no .yaml file; put the declaration there"
    ]


def test_gates_that_other_links_name_are_told_of(tmp_path: Path) -> None:
    """MS-MQBR 3.1.5.7 takes any gate of the next site."""
    file = tmp_path / "e.yaml"
    file.write_text(
        swap("{name: South}]", "{name: South}, {name: West}]").replace(
            "machines:", "machines:\n- {name: w1, sites: [West], roles: [routing_server]}"
        )
        + "- {sites: [South, West], cost: 2, site_gates: [w1]}\n"
    )
    (warning,) = load(file).warnings
    assert "has no site gate in South: gates that other links name in South are used" in warning.sentence
