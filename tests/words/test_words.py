"""The words of the project: no riddles, and no docstring that says nothing."""

from __future__ import annotations

import pytest

from tests.lab.cases import cases
from tests.words.check import Finding, counts, exceptions, findings, judge
from tests.words.texts import ROOT, Text, texts_of_code, texts_of_yaml

_HERE = ROOT / "qmnode" / "example.py"
_EXAMPLES = [
    (
        "What a crash has undone is not told, and nothing that it has not is missing.",
        "Events of work that a crash rolled back are never exported; events of durable work always are.",
    ),
    ("who waited for it could not be told any more that it has it", "its waiters can no longer be notified"),
    (
        "What was sent on no known day is not known to have been sent since.",
        "Messages without a known send date are excluded.",
    ),
    ("Name no computer for all of them", "Omit the computer to act on all"),
    (
        "of what a client offers, the first is taken that is set up here",
        "the node uses the first offered method that it supports",
    ),
    (
        "Which one this is: 1 to 4095, another for each, and the same for good.",
        "Server id, 1 to 4095; unique per server and never changed.",
    ),
    ("It. Raises CertificateError.", "Return the certificate. Raises CertificateError if it has expired."),
    ("Several.", "Several certificates may be current at once."),
    ("Who sent it.", "The sender of the message."),
    ("So many may wait at a time.", "The most calls that may wait at a time."),
    ("Messages come. What is in the way of them is closed.", "Messages come. Connections in their way are closed."),
    ("Give nothing for the whole store.", "Omit the path to verify the whole store."),
    ("word " * 41, "word " * 40),
]


@pytest.fixture(scope="module")
def found() -> list[Finding]:
    """What the rules find in the whole project."""
    return findings()


@cases(("bad", "good"), _EXAMPLES)
def test_a_riddle_is_found_and_its_plain_form_is_not(bad: str, good: str) -> None:
    assert list(judge(Text("docstring", _HERE, 1, bad.strip())))
    assert not list(judge(Text("docstring", _HERE, 1, good.strip())))


@cases("bad", [bad for bad, _ in _EXAMPLES[:6]])
@cases(
    "source",
    [
        '"""Frame a message.\n\n    {}\n    """',
        "value = 1  # {}",
        "# Blocks are\n# joined. {}",
        'raise ValueError(\n    f"{{value}} is wrong. {}"\n)',
        'typer.Option(\n    "--all", help="All of them. {}"\n)',
        'ROWS = Row("module:app", "{}")',
    ],
    ids=["docstring", "trailing comment", "comment", "error", "option", "command"],
)
def test_a_riddle_is_found_wherever_it_stands(bad: str, source: str) -> None:
    texts = list(texts_of_code(_HERE, source.format(bad[0].upper() + bad[1:])))
    assert [finding for text in texts for finding in judge(text)]


@cases("bad", [bad for bad, _ in _EXAMPLES[:6]])
@cases("source", ["# First.\n# {}\n- hosts: all", "- name: {}", "    fail_msg: '{}'", "  description: {}"])
def test_a_riddle_is_found_in_the_files_of_ansible(bad: str, source: str) -> None:
    texts = list(texts_of_yaml(_HERE, source.format(bad[0].upper() + bad[1:])))
    assert [finding for text in texts for finding in judge(text)]


@pytest.mark.parametrize(
    "text",
    [
        "Frame a message:\n\n    what is indented\n    is code",
        "Who asked? The caller did.",
        "Frame a message, e.g. What it holds.",
        "Frame a message.\n\n>>> what(1)\n2",
        "A table:\n\nwhat    is a name\nwho     is another",
        "- one item of a list " + "word " * 30 + "\n- another item " + "word " * 30,
    ],
)
def test_questions_code_and_lists_are_no_riddles(text: str) -> None:
    assert not list(judge(Text("docstring", _HERE, 1, text)))


def test_no_room_has_more_findings_than_its_exceptions_allow(found: list[Finding]) -> None:
    allowed = exceptions()
    over = [
        f"{room}: {number} of {rule!r}, allowed {allowed.get(room, {}).get(rule, 0)}; list them with: "
        f"python -m tests.words.check {room}"
        for room, rules in counts(found).items()
        for rule, number in rules.items()
        if number > allowed.get(room, {}).get(rule, 0)
    ]
    assert not over, "\n".join(over)


def test_an_exception_is_for_a_room_that_exists(found: list[Finding]) -> None:
    rooms = counts(found)
    assert not {room for room in exceptions() if room not in rooms}, "run: python -m tests.words.check --lower"
