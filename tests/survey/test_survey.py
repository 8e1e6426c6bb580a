"""``mqenterprise survey`` of a small estate: a directory, two queue managers that answer, and two that do not."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.topology.check import load
from qmnode import Access, Message
from tests.lab.servers import start_slapd
from tests.survey.estate_lab import BODIES, EstateLab, Made, certificate, run_all

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.servers

ROOT = "dc=contoso,dc=test"
SAMPLE = 20
OPEN_TO_ALL = [{"to": "Everyone", "allow": ["generic_all"]}]
FOR_SOME = [
    {"to": "S-1-5-21-1-2-3-1002", "allow": ["peek", "send"]},
    {"to": "S-1-5-21-1-2-3-1003", "deny": ["receive"]},
]
HOSTILE = "<script>alert(1)</script>"


class Estate(EstateLab):
    """The small estate, and one survey of it."""

    report: dict[str, Any]
    output: Path
    file: Path
    said: subprocess.CompletedProcess[str]

    def build(self) -> None:
        names = {"SHOP": self.address("SHOP"), "BANK": self.address("BANK")}
        silent = {"GONE": self.address("GONE"), "MUTE": self.silent_address("MUTE")}
        machines = [
            {"name": name, "sites": [site], "dns_name": address, "roles": roles}
            for (name, address), site, roles in zip(
                (names | silent).items(),
                ("Bremen", "Ulm", "Ulm", "Bremen"),
                (["client"], ["routing_server", "supporting_server"], ["client"], ["client"]),
                strict=True,
            )
        ]
        self.file = self.add_directory(
            ROOT,
            {
                "enterprise": {"name": "Contoso"},
                "sites": [{"name": "Bremen"}, {"name": "Ulm"}],
                "foreign_sites": [{"name": "Host"}],
                "routing_links": [{"sites": ["Bremen", "Ulm"], "cost": 3, "site_gates": ["BANK"]}],
                "machines": machines,
                "queues": [
                    {"machine": "SHOP", "name": "orders", "label": HOSTILE, "access": OPEN_TO_ALL},
                    {"machine": "SHOP", "name": "news", "multicast_address": "234.1.1.1:8001", "access": FOR_SOME},
                    {"machine": "GONE", "name": "lost"},
                ],
                "users": [
                    {"name": "ann", "certificates": [certificate(10)]},
                    {"name": "bob", "certificates": [certificate(500)]},
                ],
            },
        )
        self.add_machine("SHOP", ROOT)
        self.add_machine("BANK", ROOT, readable=False)
        self.ready()
        everything = list(BODIES)
        run_all(
            self.fill(Made("SHOP", "mixed", True, everything * 5)),
            self.fill(Made("SHOP", "ordered", True, ["xml"] * 7, transactional=True)),
            self.fill(Made("SHOP", "closed", True, ["json"] * 3, peekable=False)),
            self.fill(Made("SHOP", "empty", True)),
            self.fill(Made("SHOP", "orders", False, ["text", "json"] * 30), create=False),
            self.fill(Made("BANK", "other", True, ["unknown"] * 2)),
            self._send_away(),
        )
        self.log_operations()
        self.output = self.folder / "out"
        self.said = self.survey(
            "--directory", self.file, *self.account, "--sample", SAMPLE, "--output", self.output, "--name", HOSTILE
        )
        self.report = json.loads((self.output / "report.json").read_text("utf-8"))

    async def _send_away(self) -> None:
        """A message that waits for a machine that nobody knows."""
        name = r"DIRECT=OS:nowhere.invalid\private$\x"
        async with (
            await self.machines["BANK"].connect() as node,
            await node.open_queue(name, Access.SEND) as queue,
        ):
            await queue.send(Message(b"waits", recoverable=True))

    def queue(self, path: str) -> dict[str, Any]:
        return next(one for one in self.report["queues"] if one["path"].casefold() == path.casefold())


@pytest.fixture(scope="module")
def estate() -> Iterator[Estate]:
    with Estate() as estate:
        estate.build()
        yield estate


def test_the_counts_are_those_of_what_was_put_there(estate: Estate) -> None:
    expected = {made.path.casefold(): len(made.bodies) for made in estate.made}
    found = {one["path"].casefold(): one["messages"] for one in estate.report["queues"]}
    assert {path: found[path] for path in expected} == expected
    totals = estate.report["totals"]
    assert totals["messages"] == sum(expected.values())
    assert (totals["sites"], totals["routing_links"], totals["machines"]) == (3, 1, 4)
    assert (totals["queues"], totals["private_queues"]) == (8, 5)
    assert totals["outgoing_messages"] == 1


def test_the_formats_of_bodies_are_those_of_the_messages_at_both_ends(estate: Estate) -> None:
    for made in estate.made:
        if made.machine == "BANK":
            continue  # it has no RemoteRead
        sample = estate.queue(made.path)["sample"]
        assert Counter(sample["formats"] if sample else {}) == made.seen(SAMPLE), made.path
    whole: Counter[str] = Counter()
    for made in estate.made:
        whole += made.seen(SAMPLE if made.machine != "BANK" else 0)
    assert estate.report["formats"] == dict(whole)


def test_a_queue_that_may_not_be_peeked_at_says_so_and_has_its_count(estate: Estate) -> None:
    closed = estate.queue(r"SHOP\private$\closed")
    assert (closed["messages"], closed["sample"]) == (3, None)
    assert "access was denied" in closed["not_sampled"]


def test_machines_that_are_down_are_named_and_do_not_stop_it(estate: Estate) -> None:
    answers = {one["name"]: one["answer"] for one in estate.report["machines"]}
    assert answers == {"SHOP": "answered", "BANK": "answered", "GONE": "unavailable", "MUTE": "unavailable"}
    assert "GONE: it does not answer: " in estate.said.stderr
    assert "MUTE: it does not answer: no connection within 5 s" in estate.said.stderr
    assert estate.queue(r"GONE\lost")["messages"] is None


def test_nothing_is_written_into_the_directory(estate: Estate) -> None:
    operations = estate.operations()
    assert operations["SRCH"] > 5
    assert not {"ADD", "MOD", "DEL", "MODRDN", "PASSMOD"} & operations.keys(), operations


def test_the_messages_are_all_still_there(estate: Estate) -> None:
    async def counted(made: Made) -> None:
        async with await estate.machines[made.machine].connect() as node:
            assert (await node.queue(f"DIRECT=OS:{made.path}")).message_count == len(made.bodies)

    run_all(*map(counted, estate.made))


def test_the_declaration_is_valid_and_says_where_it_guesses(estate: Estate) -> None:
    file = estate.output / "estate.yaml"
    declaration = load(file).declaration
    assert {queue.name for queue in declaration.queues if queue.private} == {
        made.name for made in estate.made if made.private
    }
    (ordered,) = (queue for queue in declaration.queues if queue.name == "ordered")
    assert ordered.transactional
    text = file.read_text("utf-8")
    above = re.search(r"# (unknown: label[^\n]+)\n- machine: SHOP\n  name: closed\n", text)
    assert above is not None and "MS-MQMR does not show it" in above[1]
    assert "# unknown: private queues of MUTE" in text
    assert {site.name for site in declaration.sites} == {"Bremen", "Ulm"}


def test_access_lists_of_public_queues_are_those_of_the_directory_and_others_unknown(estate: Estate) -> None:
    lists = {queue.name: queue.access for queue in load(estate.output / "estate.yaml").declaration.queues}
    assert {(one.to, one.allow, one.deny) for one in lists["news"] or ()} == {
        ("S-1-5-21-1-2-3-1002", ("peek", "send"), ()),
        ("S-1-5-21-1-2-3-1003", (), ("receive",)),
    }
    assert [one.to for one in lists["orders"] or ()] == ["Everyone"]
    assert "access" in estate.queue(r"SHOP\private$\mixed")["unknown"]


def test_what_nodes_do_not_have_and_what_ends_is_named(estate: Estate) -> None:
    features = {(one["name"], one["where"].casefold()) for one in estate.report["features"]}
    assert features >= {
        ("multicast", r"shop\news"), ("dependent clients", "bank"), ("foreign sites", "host"),
    }  # fmt: skip
    assert [one["user"] for one in estate.report["certificates"]] == ["ann"]
    assert estate.report["certificates"][0]["days_left"] == 9
    assert r"SHOP\private$\empty" in estate.report["without_reader"]


def test_public_queues_come_first_and_what_nodes_cannot_do_comes_last(estate: Estate) -> None:
    steps = [(one["what"], one["name"].casefold()) for one in estate.report["order"]]
    assert steps == [
        ("queue", r"shop\orders"), ("queue", r"gone\lost"), ("machine", "shop"), ("machine", "bank"),
        ("later", r"shop\news"),
    ]  # fmt: skip
    assert all(one["reasons"] for one in estate.report["order"])
    assert any("it routes for others" in reason for reason in estate.report["order"][3]["reasons"])


def test_the_page_has_names_of_others_as_text(estate: Estate) -> None:
    text = (estate.output / "report.html").read_text("utf-8")
    assert HOSTILE not in text
    assert "&lt;script&gt;alert(1)" in text
    assert text.count("<script>") == 1


# Wrong inputs: one line that says what to do, an exit code, and nothing written.


def refused(estate: Estate, *arguments: object, words: str, code: int = 1) -> None:
    output = estate.folder / "refused"
    done = estate.ask(*arguments, "--output", output, code=code)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 or code == 2, lines
    assert words in " ".join(done.stderr.split()), done.stderr
    assert not output.exists()


def test_an_account_without_rights_is_said_for_each_machine(estate: Estate) -> None:
    output = estate.folder / "stranger"
    place = f"BANK={estate.addresses['BANK']}"
    done = estate.ask("--no-directory", "--machine", place, "--port", estate.mapper, "--output", output)
    (machine,) = json.loads((output / "report.json").read_text("utf-8"))["machines"]
    assert machine["answer"] == "denied"
    assert "BANK: access was denied: give an account with the rights" in done.stderr


def test_a_directory_that_is_away_is_said_at_once(estate: Estate) -> None:
    file = estate.folder / "away.yaml"
    settings = yaml.safe_load(estate.file.read_text("utf-8"))
    file.write_text(yaml.safe_dump(settings | {"servers": [f"ldaps://{estate.addresses['GONE']}:6360"]}))
    refused(estate, "--directory", file, words=f"{estate.addresses['GONE']}")


def test_an_empty_directory_is_no_estate(estate: Estate) -> None:
    folder = estate.folder / "nothing"
    empty = start_slapd(folder, "dc=empty,dc=test")
    try:
        with EnterpriseDirectory(empty.client_settings()) as opened:
            opened.prepare()
        refused(estate, "--directory", empty.write_client_settings(), words="has no queue manager that this account")
        twice = ("--directory", estate.file, "--directory", estate.file)
        refused(estate, *twice, words="two files of --directory name the same directory")
    finally:
        empty.stop()


def test_names_that_clash_between_directories_are_named(estate: Estate) -> None:
    file = estate.add_directory(
        "dc=other,dc=test",
        {
            "enterprise": {"name": "Other"},
            "sites": [{"name": "Wien"}],
            "machines": [{"name": "SHOP", "sites": ["Wien"], "dns_name": "shop.other.test"}],
        },
    )
    try:
        refused(estate, "--directory", estate.file, "--directory", file, words="names clash: machine SHOP is in")
    finally:
        estate.directories.pop("dc=other,dc=test").stop()


def test_output_that_exists_is_left_alone(estate: Estate) -> None:
    before = (estate.output / "estate.yaml").read_bytes()
    done = estate.ask("--directory", estate.file, "--output", estate.output, code=1)
    assert "exists: name another --output, or delete it" in done.stderr
    assert (estate.output / "estate.yaml").read_bytes() == before


def test_a_machine_without_remote_read_still_has_its_counts(estate: Estate) -> None:
    queue = estate.queue(r"BANK\private$\other")
    assert (queue["messages"], queue["sample"]) == (2, None)
    assert "it does not offer the interface" in queue["not_sampled"]


def test_a_workgroup_is_surveyed_without_a_directory(estate: Estate) -> None:
    output = estate.folder / "workgroup"
    place = f"BANK={estate.addresses['BANK']}:{estate.mapper}"
    estate.ask("--no-directory", "--machine", place, *estate.account[:4], "--output", output)
    declaration = load(output / "estate.yaml").declaration
    assert declaration.is_workgroup
    assert [(queue.machine, queue.name) for queue in declaration.queues] == [("BANK", "other")]
