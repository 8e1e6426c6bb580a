"""Files that Windows, spreadsheets and NServiceBus write, in the shapes that they really have."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from mqenterprise.commands.survey import app
from mqenterprise.survey.estate import Estate, SurveyError
from mqenterprise.survey.exports import read_exports
from mqenterprise.survey.run import Survey, survey
from mqenterprise.topology.check import load

if TYPE_CHECKING:
    from pathlib import Path

QUEUE: dict[str, Any] = {
    "QueueType": 2,
    "MessageCount": 3,
    "BytesInQueue": 812,
    "JournalMessageCount": 0,
    "BytesInJournal": 0,
    "Authenticate": False,
    "BasePriority": 0,
    "Category": "00000000-0000-0000-0000-000000000000",
    "CreateTime": "\\/Date(1700000000000)\\/",
    "DefaultPropertiesToSend": {"AcknowledgeType": 0, "Priority": 3},
    "EncryptionRequired": 1,
    "FormatName": "DIRECT=OS:winshop\\private$\\orders",
    "Formatter": {"TargetTypes": [], "TargetTypeNames": []},
    "Label": "private$\\orders",
    "MachineName": "winshop",
    "MaximumJournalSize": 4294967295,
    "MaximumQueueSize": 10240,
    "MulticastAddress": "",
    "Path": "FormatName:DIRECT=OS:winshop\\private$\\orders",
    "QueueName": "private$\\orders",
    "Transactional": True,
    "UseJournalQueue": True,
    "Site": None,
}
"""A queue as ``Get-MsmqQueue | ConvertTo-Json`` writes it: the properties of System.Messaging's MessageQueue."""


def estate_of(*files: Path) -> Estate:
    estate = Estate("Contoso")
    read_exports(estate, files)
    return estate


def written(folder: Path, text: str, encoding: str = "utf-8", name: str = "export.json") -> Path:
    file = folder / name
    file.write_bytes(text.encode(encoding))
    return file


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("shape", ["one", "array", "value"])
def test_queues_of_powershell_are_read_in_every_shape_and_encoding(tmp_path: Path, shape: str, encoding: str) -> None:
    found = {"one": QUEUE, "array": [QUEUE], "value": {"value": [QUEUE], "Count": 1}}[shape]
    (queue,) = estate_of(written(tmp_path, json.dumps(found), encoding)).queues.values()
    assert (queue.path, queue.messages, queue.bytes) == (r"winshop\private$\orders", 3, 812)
    assert queue.values == {
        "transactional": True, "label": "private$\\orders", "journaling": True, "quota": 10240,
        "journal_quota": "none", "authentication": False, "privacy_level": "optional", "multicast_address": "",
    }  # fmt: skip
    assert queue.unknown == ["type", "access"]


def test_access_lists_come_beside_queues_or_within_them_with_names_or_numbers(tmp_path: Path) -> None:
    rows = [
        {"QueueName": "private$\\orders", "MachineName": "winshop", "AccountName": "Everyone", "Access": "Allow",
         "Right": "WriteMessage, GetQueueProperties"},
        {"QueueName": "private$\\orders", "MachineName": "winshop", "AccountName": "Everyone", "Access": 0, "Right": 2},
        {"QueueName": "private$\\orders", "MachineName": "winshop", "AccountName": "S-1-5-21-1-2-3-4",
         "Access": "Deny", "Right": "ReceiveMessage"},
    ]  # fmt: skip
    beside = estate_of(written(tmp_path, json.dumps(rows)))
    inner = [{name: value for name, value in row.items() if name not in ("QueueName", "MachineName")} for row in rows]
    within = estate_of(written(tmp_path, json.dumps({"Queue": QUEUE, "Acl": inner})))
    for estate in (beside, within):
        (queue,) = estate.queues.values()
        assert queue.access == [
            {"to": "Everyone", "allow": ["get_properties", "peek", "send"]},
            {"to": "S-1-5-21-1-2-3-4", "deny": ["receive"]},
        ]


def test_a_spreadsheet_may_have_semicolons_and_words_of_its_country(tmp_path: Path) -> None:
    text = "sep=;\nMachine;Queue;Transactional;Journaling;Reader;DTC\n"
    text += "winshop;private$\\orders;WAHR;FALSCH;billing.exe;no\n"
    (queue,) = estate_of(written(tmp_path, text, "utf-8-sig", "queues.csv")).queues.values()
    assert (queue.path, queue.values) == (r"winshop\private$\orders", {"transactional": True, "journaling": False})
    assert queue.hints == {"reader": "billing.exe", "dtc": "no"}


def test_export_csv_begins_with_the_type(tmp_path: Path) -> None:
    text = '#TYPE Microsoft.Msmq.PowerShell.Commands.MessageQueue\n"Path","Label"\n"winshop\\private$\\a","x, y"\n'
    (queue,) = estate_of(written(tmp_path, text, name="queues.csv")).queues.values()
    assert (queue.path, queue.values) == (r"winshop\private$\a", {"label": "x, y"})


@pytest.mark.parametrize(
    "text",
    [
        '<endpoints><endpoint name="Sales"><instance machine="winshop" discriminator="1"/></endpoint></endpoints>',
        "# endpoints\nSales-1@winshop\n",
    ],
)
def test_endpoints_of_nservicebus_are_private_transactional_queues(tmp_path: Path, text: str) -> None:
    file = written(tmp_path, text, name="endpoints")
    found = survey(Survey(files=[file]))
    (queue,) = found.report["queues"]
    assert (queue["path"], queue["reader"]) == (r"winshop\private$\Sales-1", "yes")
    assert [one["name"] for one in found.report["features"]] == ["DTC"]
    assert "# guessed: transactional, because queues of NServiceBus are\n" in found.declaration
    assert "  transactional: true\n" in found.declaration


def test_a_declaration_of_files_alone_is_a_valid_workgroup(tmp_path: Path) -> None:
    file = written(tmp_path, json.dumps([QUEUE, QUEUE | {"QueueName": "private$\\x", "Path": "", "FormatName": ""}]))
    text = survey(Survey("Contoso", files=[file])).declaration
    declaration = load(written(tmp_path, text, name="estate.yaml")).declaration
    assert [(one.machine, one.name, one.quota, one.journaling) for one in declaration.queues] == [
        ("winshop", "orders", 10240, True), ("winshop", "x", 10240, True),
    ]  # fmt: skip


def test_triggers_are_seen_by_the_queue_of_their_service(tmp_path: Path) -> None:
    rows = [QUEUE, {"Path": "winshop\\private$\\MsmqTriggersNotifications"}]
    report = survey(Survey(files=[written(tmp_path, json.dumps(rows))])).report
    assert [(one["name"], one["where"]) for one in report["features"]] == [("triggers", "winshop")]
    assert report["totals"]["queues"] == 1


WRONG = {
    "a picture": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "is not UTF-8 (byte 0): save it as UTF-8"),
    "an encoding of Excel": ("Queue;Label\nwinshop\\private$\\a;Möbel\n".encode("cp1252"), "in Excel as 'CSV UTF-8'"),
    "nothing": (b" \n", "is empty: export again"),
    "cut JSON": (b'[{"QueueName": ', "is not JSON"),
    "deep JSON": (b"[" * 200_000, "is nested too deeply"),
    "JSON of a table": (b'["private$\\\\a"]', "item 1, is no object: pipe queues into ConvertTo-Json themselves"),
    "an unknown column": (b"Queue,Lable\nshop\\a,x\n", "a column 'Lable', which is unknown: did you mean 'label'?"),
    "another table": (b"a,b\n1,2\n", "its first line names no column such as QueueName"),
    "a queue without a machine": (b"QueueName,Label\nprivate$\\a,x\n", "line 2: 'private$\\a' names no machine"),
    "a number that is none": (b'Queue,QueueQuota\nwinshop\\private$\\a,"1.024,5"\n', "quota '1.024,5' of winshop"),
    "a right that is none": (
        b"Queue,AccountName,Right\nwinshop\\private$\\a,Everyone,WriteMesage\n", "'WriteMesage' is no right to a queue",
    ),
    "entities": (b'<!DOCTYPE x [<!ENTITY a "b">]><endpoints/>', "declares a document type"),
    "other XML": (b"<configuration/>", "is no instance mapping file of NServiceBus"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_file_is_refused_with_the_next_step_in_one_line(tmp_path: Path, what: str) -> None:
    content, words = WRONG[what]
    file = tmp_path / "wrong"
    file.write_bytes(content)
    with pytest.raises(SurveyError) as refused:
        estate_of(file)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)

    output = tmp_path / "out"
    done = CliRunner().invoke(app, ["--no-directory", "--export", str(file), "--output", str(output)])
    assert done.exit_code == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert not output.exists()


MISTAKES = {
    "nothing to read": ([], 1, "there is nothing to survey: give --directory, --machine or --export"),
    "a machine without a host": (["--machine", "SHOP"], 1, "--machine SHOP: write NAME=HOST, or NAME=HOST:PORT"),
    "a port that is none": (["--machine", "SHOP=192.0.2.7:99999"], 1, "--machine SHOP=192.0.2.7:99999: "),
    "a user without a password": (["--user", "SHOP\\ann"], 2, "--user and --password-file go together"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_wrong_option_is_refused_and_nothing_is_written(tmp_path: Path, what: str) -> None:
    words, code, sentence = MISTAKES[what]
    output = tmp_path / "out"
    done = CliRunner().invoke(app, ["--no-directory", *words, "--output", str(output)])
    assert done.exit_code == code
    assert sentence in " ".join(done.stderr.replace("│", " ").split())
    assert code == 2 or len(done.stderr.strip().splitlines()) == 1
    assert not output.exists()


def test_names_of_others_cannot_leave_their_line_or_their_element(tmp_path: Path) -> None:
    evil = "a\nb: [</script><script>x"
    row = QUEUE | {"QueueName": "private$\\" + evil, "Path": "", "FormatName": "", "Label": evil * 50}
    output = tmp_path / "out"
    arguments = ["--no-directory", "--export", str(written(tmp_path, json.dumps(row))), "--output", str(output)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert load(output / "estate.yaml")
    assert (output / "report.html").read_text("utf-8").count("<script>") == 1
