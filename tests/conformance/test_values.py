"""Every number that MS-MQMQ 2 gives a name has it here too: enumerations, access masks, properties, error codes.

``ms-mqmq-values.txt`` was taken from the specification, not from the code: section, name, number, and for a property
(2.3) the type of its value.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from pathlib import Path

import pytest

from qmnode.structures import security_descriptor
from qmnode.structures.enumerations import VT_VECTOR, MessageClass, QueueFormatType, QueueSuffixType, VariantType
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.properties import PROPERTY_FAMILIES
from tests.lab.cases import cases

LINES = [line.split() for line in (Path(__file__).parent / "ms-mqmq-values.txt").read_text("utf-8").splitlines()]
PROPERTIES = [line for line in LINES if line[0].startswith("2.3.")]
ENUMERATIONS: dict[str, type[IntEnum | IntFlag]] = {
    "2.2.3": security_descriptor.SecurityInformation,
    "2.2.6": QueueFormatType,
    "2.2.11": QueueSuffixType,
    "2.2.18.1.6": MessageClass,
    "2.2.23": security_descriptor.QueueManagerAccess,
    "2.2.24": security_descriptor.QueueAccess,
    "2.2.25": security_descriptor.SiteAccess,
    "2.2.26": security_descriptor.EnterpriseAccess,
    "2.2.27": security_descriptor.ConnectedNetworkAccess,
    "2.4": ErrorCode,
}

BEYOND = {
    # A class of MS-MQDMPR 3.1.1.12 that has no number in MS-MQMQ: Acknowledgment.CouldNotEncrypt in System.Messaging.
    "2.2.18.1.6": {"MQMSG_CLASS_NACK_COULD_NOT_ENCRYPT": 0x8008},
}


def values_of(section: str) -> dict[str, int]:
    return {name: int(number, 0) for number_of, name, number, *_ in LINES if number_of == section}


@pytest.mark.parametrize("section", ENUMERATIONS)
def test_each_name_has_the_number_of_the_specification_and_there_is_no_other(section: str) -> None:
    members = {name: member.value for name, member in ENUMERATIONS[section].__members__.items()}

    assert members == values_of(section) | BEYOND.get(section, {})


def test_each_variant_type_has_the_number_of_the_specification() -> None:
    simple = {kind.name: kind.value for kind in VariantType if not kind & VT_VECTOR}

    assert simple | {"VT_VECTOR": VT_VECTOR} == values_of("2.2.12")


@cases(("section", "name", "number", "variant_type"), PROPERTIES, ids=[line[1] for line in PROPERTIES])
def test_each_property_has_its_number_and_its_type(section: str, name: str, number: str, variant_type: str) -> None:
    (found,) = [prop for family in PROPERTY_FAMILIES for prop in family if prop.section == section]

    assert (found.name, found.value, found.variant_type.name) == (name, int(number), variant_type)


def test_no_section_was_left_out() -> None:
    named = {line[0] for line in LINES}

    assert named == set(ENUMERATIONS) | {"2.2.12", "2.2.14"} | {line[0] for line in PROPERTIES}
    assert len(PROPERTIES) == 186
