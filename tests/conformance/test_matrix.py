"""The conformance matrix is complete, and what it names is there."""

from __future__ import annotations

from datetime import UTC, date, datetime
from inspect import ismodule

import pytest

from qmnode.protocol.session import Session
from tests.conformance import attributes
from tests.conformance.honesty import is_unreached, used_by
from tests.conformance.matrix import Entry, Specification, exists, load
from tests.conformance.test_sections import DECLARED, structures
from tests.lab.cases import cases

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

    def test_every_named_test_exercises_code_that_runs_in_the_product(self, specification: Specification) -> None:
        idle = {test: gone for test in specification.tests() if (gone := sorted(filter(is_unreached, used_by(test))))}
        assert idle == {}, "nothing of the product runs this code: the sections are missing, or it is wired in"

    def test_no_section_is_shown_by_a_structure_that_the_product_does_not_use(
        self, specification: Specification
    ) -> None:
        idle = declared_by_idle_code(specification.name)
        assert {number for number in idle if specification.entries[number].state in ("shown", "partly")} == set()

    def test_every_deviation_is_shown(self, specification: Specification) -> None:
        for deviation in specification.deviations:
            assert deviation.tests, deviation.instead
            numbers = deviation.section.split(", ")
            assert all(number in specification.titles for number in numbers), deviation.section


def dotted(declaration: object) -> str:
    """The dotted name of a module, function or class, or of the module that a string names."""
    if isinstance(declaration, str):
        return declaration
    name = str(getattr(declaration, "__name__", ""))
    return name if ismodule(declaration) else f"{getattr(declaration, '__module__', '')}.{name}"


def declared_by_idle_code(specification: str) -> set[str]:
    """Sections that are declared in code, all of it code that no entry point of the product reaches."""
    homes: dict[str, list[str]] = {}
    for kind in structures():
        name, _, number = kind.section().rpartition(" ")
        if name == specification:
            homes.setdefault(number, []).append(f"{kind.__module__}.{kind.__qualname__}")
    if specification == "MS-MQMQ":
        for number, said in DECLARED.items():
            homes.setdefault(number, []).extend(map(dotted, said if isinstance(said, tuple) else (said,)))
    return {number for number, names in homes.items() if all(map(is_unreached, names))}


def test_a_test_of_idle_code_is_noticed() -> None:
    names = frozenset({"qmnode.structures.variant", "qmnode.model.queue.forgotten"})
    assert is_unreached("qmnode.structures.variant.Variant", names)
    assert is_unreached("qmnode.model.queue.forgotten", names)
    assert not is_unreached("qmnode.model.queue", names)
    assert not is_unreached("qmnode.structures.variants", names)


def test_the_names_that_a_test_uses_are_those_that_its_file_imports() -> None:
    name = "test_the_names_that_a_test_uses_are_those_that_its_file_imports"
    assert Session is not None
    assert used_by(f"tests/conformance/test_matrix.py::{name}") == {"qmnode.protocol.session.Session"}


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
        "MS-MQQB": 153, "MS-MQDMPR": 125, "MS-MQMQ": 282, "MS-MQQP": 57, "MS-MQRR": 79, "MS-MQMR": 34, "MS-MQCN": 65,
        "MS-MQMP qmcomm": 35,
        "MS-MQBR": 23, "MS-MQDSSM": 197,
    }  # fmt: skip


@cases("attribute", attributes.load(), ids=lambda attribute: attribute.name)
def test_every_attribute_of_a_message_has_its_doors_and_an_effect_that_is_observed(
    attribute: attributes.Attribute,
) -> None:
    assert attribute.problems() == []


def test_every_attribute_of_a_message_has_one_row() -> None:
    names = [attribute.name for attribute in attributes.load()]
    assert len(names) == len(set(names)) == 60
