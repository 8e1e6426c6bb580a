"""QUEUE_FORMAT and format names: the same queue, both ways, by the table of MS-MQMQ 2.2.7."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmnode.structures.guid import guid_from_text
from qmnode.structures.names import FormatNameError, parse_single_format_name
from qmnode.structures.queue_format import (
    DlId,
    LpWStr,
    MulticastId,
    ObjectId,
    QueueFormat,
    format_name_of,
    queue_format_of,
)
from tests.lab.cases import cases

G = "1f2d3c4b-0001-0203-0405-060708090a0b"
GUID = guid_from_text(G)

EQUIVALENT = [
    (f"PUBLIC={G}", 1, 0x00, GUID),
    (f"PUBLIC={G};JOURNAL", 1, 0x81, GUID),
    (rf"PRIVATE={G}\00000012", 2, 0x00, ObjectId(lineage=GUID, uniquifier=0x12)),
    (rf"PRIVATE={G}\00000012;JOURNAL", 2, 0x81, ObjectId(lineage=GUID, uniquifier=0x12)),
    (r"DIRECT=OS:a\q", 3, 0x00, LpWStr(text=r"OS:a\q")),
    (r"DIRECT=OS:a\private$\q;JOURNAL", 3, 0x81, LpWStr(text=r"OS:a\private$\q;JOURNAL")),
    (r"DIRECT=OS:a\system$;JOURNAL", 3, 0x81, LpWStr(text=r"OS:a\system$;JOURNAL")),
    (r"DIRECT=TCP:10.0.0.1\system$;DEADLETTER", 3, 0x82, LpWStr(text=r"TCP:10.0.0.1\system$;DEADLETTER")),
    (r"DIRECT=OS:a\system$;DEADXACT", 3, 0x83, LpWStr(text=r"OS:a\system$;DEADXACT")),
    (f"MACHINE={G};JOURNAL", 4, 0x81, GUID),
    (f"MACHINE={G};DEADLETTER", 4, 0x82, GUID),
    (f"MACHINE={G};DEADXACT", 4, 0x83, GUID),
    (f"CONNECTOR={G}", 5, 0x00, GUID),
    (f"CONNECTOR={G};XACTONLY", 5, 0x04, GUID),
    (f"DL={G}@corp.example", 6, 0x00, DlId(dl_guid=GUID, domain="corp.example")),
    ("MULTICAST=224.1.2.3:80", 7, 0x00, MulticastId(address=0x030201E0, port=80)),
    (r"DIRECT=OS:a\q;sub", 8, 0x05, LpWStr(text=r"OS:a\q;sub")),
]


@cases(("text", "format_type", "suffix_and_flags", "identifier"), EQUIVALENT)
def test_a_format_name_and_a_queue_format_mean_the_same(text, format_type, suffix_and_flags, identifier):
    name = parse_single_format_name(text)
    value = queue_format_of(name)

    assert (value.format_type, value.suffix_and_flags, value.identifier) == (format_type, suffix_and_flags, identifier)
    assert format_name_of(QueueFormat.parse(value.write())) == name


def test_a_multicast_address_is_written_in_its_order():
    assert MulticastId(address=0x030201E0, port=80).write().hex() == "e001020350000000"


def test_a_journal_may_be_told_by_the_suffix_alone():
    value = QueueFormat(format_type=3, suffix_and_flags=0x81, identifier=LpWStr(text=r"OS:a\q"))

    assert str(format_name_of(value)) == r"DIRECT=OS:a\q;JOURNAL"


def test_a_machine_has_no_queue_format_without_a_suffix():
    with pytest.raises(FormatNameError, match="JOURNAL"):
        queue_format_of(parse_single_format_name(f"MACHINE={G}"))


@cases(
    ("format_type", "suffix_and_flags", "identifier"),
    [
        (0, 0x00, None),
        (1, 0x80, GUID),
        (1, 0x01, GUID),
        (1, 0x82, GUID),
        (1, 0x06, GUID),
        (3, 0x00, LpWStr(text=r"OS:a\q;JOURNAL")),
        (3, 0x82, LpWStr(text=r"OS:a\q")),
        (3, 0x00, LpWStr(text="no name")),
        (4, 0x00, GUID),
        (4, 0x84, GUID),
        (5, 0x81, GUID),
        (7, 0x00, MulticastId(address=1, port=80)),
        (8, 0x05, LpWStr(text=r"OS:a\q")),
    ],
)
def test_what_the_table_forbids_is_no_format_name(format_type, suffix_and_flags, identifier):
    value = QueueFormat(format_type=format_type, suffix_and_flags=suffix_and_flags, identifier=identifier)

    with pytest.raises(FormatNameError):
        format_name_of(value)


@given(
    st.integers(0, 8),
    st.integers(0, 255),
    st.sampled_from([row[3] for row in EQUIVALENT])
    | st.builds(LpWStr, text=st.text(st.characters(exclude_characters="\0"))),
)
def test_any_queue_format_is_a_format_name_or_a_format_name_error(format_type, suffix_and_flags, identifier):
    value = QueueFormat(format_type=format_type, suffix_and_flags=suffix_and_flags, identifier=identifier)
    try:
        name = format_name_of(value)
    except FormatNameError:
        return
    assert format_name_of(queue_format_of(name)) == name
