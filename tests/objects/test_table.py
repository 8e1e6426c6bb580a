"""The rows themselves: each says what obeys it, has a default that it permits, and an attribute that the schema has."""

from importlib.util import find_spec
from itertools import chain
from pathlib import Path

from qmnode.model.message import Message, MessageProperties
from qmnode.objects.message_table import MESSAGE
from qmnode.objects.rows import Changes, Door, Kind, Property
from qmnode.objects.table import QUEUE, ROWS
from tests.lab.cases import cases

SCHEMA = Path(__file__).parents[2] / "schemas"
EVERY = [(kind, row) for kind, rows in ROWS.items() for row in rows.values()]
each = cases("row", [row for _, row in EVERY], ids=[f"{kind}.{row.name}" for kind, row in EVERY])
TEXT = "".join(path.read_text() for path in sorted(SCHEMA.rglob("*")) if path.suffix in (".schema", ".ldif")).lower()


@each
def test_a_row_says_what_obeys_it_or_why_nothing_does(row: Property) -> None:
    assert bool(row.obeyed_by) != bool(row.unobeyed)
    if row.obeyed_by:
        assert find_spec(row.obeyed_by) is not None


def test_at_most_ten_rows_are_obeyed_by_nothing() -> None:
    assert sum(bool(row.unobeyed) for _, row in EVERY) <= 10


@each
def test_a_default_is_permitted_and_survives_being_written(row: Property) -> None:
    if row.default is None:
        return
    assert row.fault(row.default) is None
    assert row.form.read(row.form.write(row.default)) == row.default


@each
def test_an_attribute_is_in_the_schema(row: Property) -> None:
    assert bool(row.attribute) == (Door.DIRECTORY in row.doors)
    if row.attribute not in ("", "description", "nTSecurityDescriptor", "dNSHostName"):
        assert row.attribute.lower() in TEXT


def test_names_and_aliases_of_a_kind_differ() -> None:
    for rows in ROWS.values():
        every = list(chain.from_iterable((row.name, *row.aliases) for row in rows.values()))
        assert len(every) == len(set(every))


def test_a_property_is_found_by_the_name_of_an_earlier_release() -> None:
    assert QUEUE.called("journal") is QUEUE["journaling"] is QUEUE.called("journaling")
    assert QUEUE.called("jornal") is None
    assert QUEUE.kind is Kind.QUEUE


def test_a_queue_is_transactional_from_its_creation_on() -> None:
    assert [row.name for row in QUEUE.values() if row.changes is not Changes.ALWAYS] == ["transactional"]


def test_the_typed_interface_has_the_properties_of_a_message() -> None:
    asked = [row.name for row in MESSAGE.values() if row.changes is Changes.ALWAYS]
    assert sorted(asked) == sorted({"body", *MessageProperties.__annotations__})
    assert Message.__annotations__.keys() == MESSAGE.keys()


def test_a_message_explains_its_properties() -> None:
    assert all(f"{row.name}: {row.sentence}." in (Message.__doc__ or "") for row in MESSAGE.values())
