"""The conformance matrix is complete, and what it names is there."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from tests.conformance.matrix import Entry, Specification, exists, load

MATRIX = load()


@pytest.mark.parametrize("specification", MATRIX, ids=lambda specification: specification.name)
class TestMatrix:
    """Each specification of the matrix."""

    def test_every_section_has_a_test_or_a_reason_or_is_missing_since_a_day(self, specification: Specification) -> None:
        assert specification.unlisted() == []
        assert specification.unknown() == []
        assert specification.unsound() == []

    def test_what_is_missing_is_said_in_a_sentence(self, specification: Specification) -> None:
        for entry in specification.missing():
            assert len(entry.missing.split()) > 3, entry.number
            assert entry.since is not None and entry.since <= datetime.now(UTC).date(), entry.number

    def test_every_named_test_exists(self, specification: Specification) -> None:
        assert [test for test in sorted(specification.tests()) if not exists(test)] == []

    def test_every_deviation_is_shown(self, specification: Specification) -> None:
        for deviation in specification.deviations:
            assert deviation.tests, deviation.instead
            numbers = deviation.section.split(", ")
            assert all(number in specification.titles for number in numbers), deviation.section


def test_a_test_that_is_not_there_is_noticed() -> None:
    assert not exists("tests/conformance/test_matrix.py::test_nothing")
    assert not exists("tests/conformance/nowhere.py::test_nothing")
    assert exists("tests/conformance/test_matrix.py::test_a_test_that_is_not_there_is_noticed")


def test_a_method_of_a_class_can_be_named() -> None:
    assert exists("tests/conformance/test_matrix.py::TestMatrix::test_every_named_test_exists")
    assert not exists("tests/conformance/test_matrix.py::TestMatrix::test_nothing")


@pytest.mark.parametrize(
    ("entry", "sound"),
    [
        (Entry("1", tests=("a",)), True),
        (Entry("1", reason="a"), True),
        (Entry("1", missing="a", since=date(2026, 11, 21)), True),
        (Entry("1"), False),
        (Entry("1", missing="a"), False),
        (Entry("1", tests=("a",), since=date(2026, 11, 21)), False),
        (Entry("1", tests=("a",), reason="a"), False),
        (Entry("1", tests=("a",), missing="a", since=date(2026, 11, 21)), True),
        (Entry("1", reason="a", missing="a", since=date(2026, 11, 21)), False),
    ],
)
def test_an_entry_says_what_it_is_and_does_not_contradict_itself(entry: Entry, sound: bool) -> None:
    assert entry.is_sound is sound


def test_every_specification_is_listed() -> None:
    assert {one.name: len(one.titles) for one in MATRIX} == {
        "MS-MQQB": 152, "MS-MQDMPR": 121, "MS-MQMQ": 282, "MS-MQQP": 57, "MS-MQMP qmcomm": 35,
    }  # fmt: skip
