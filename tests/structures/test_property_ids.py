"""Property identifiers, MS-MQMQ 2.3: complete, numbered and typed as the specification says."""

import re

import pytest

from qmnode.structures.enumerations import VariantType
from qmnode.structures.properties import (
    PROPERTY_FAMILIES,
    ConnectedNetworkProperty,
    EnterpriseProperty,
    ManagementMachineProperty,
    ManagementQueueProperty,
    QueueManagerProperty,
    QueueProperty,
    SettingsProperty,
)

COUNTS = [27, 39, 15, 6, 18, 6, 13, 11, 5, 8, 6, 27, 5]
"""Subsections of MS-MQMQ 2.3.1 to 2.3.13."""


def test_every_subsection_of_every_family_has_its_property():
    for number, (family, count) in enumerate(zip(PROPERTY_FAMILIES, COUNTS, strict=True), start=1):
        expected = {f"2.3.{number}.{index}" for index in range(1, count + 1)}

        assert {prop.section for prop in family} == expected
        assert len(family.__members__) == len(family) == count


def test_all_186_are_there_each_with_a_type():
    properties = [prop for family in PROPERTY_FAMILIES for prop in family]

    assert len(properties) == sum(COUNTS) == 186
    assert all(isinstance(prop.variant_type, VariantType) for prop in properties)
    assert VariantType.VT_EMPTY not in {prop.variant_type for prop in properties}
    assert all(re.fullmatch(r"PROPID_[A-Z0-9_]+", prop.name) for prop in properties)


@pytest.mark.parametrize(
    ("prop", "value", "variant_type", "section"),
    [
        (QueueProperty.PROPID_Q_PATHNAME, 103, VariantType.VT_LPWSTR, "2.3.1.3"),
        (QueueProperty.PROPID_Q_BASEPRIORITY, 106, VariantType.VT_I2, "2.3.1.6"),
        (QueueProperty.PROPID_Q_SECURITY, 1101, VariantType.VT_BLOB, "2.3.1.25"),
        (QueueManagerProperty.PROPID_QM_INFRS, 209, VariantType.VT_VECTOR_CLSID, "2.3.2.8"),
        (QueueManagerProperty.PROPID_QM_ENCRYPTION_PK, 205, VariantType.VT_VECTOR_UI1, "2.3.2.4"),
        (ConnectedNetworkProperty.PROPID_CN_PROTOCOLID, 501, VariantType.VT_UI1, "2.3.4.1"),
        (EnterpriseProperty.PROPID_E_CIPHER_MODE, 615, VariantType.VT_UI4, "2.3.5.18"),
        (SettingsProperty.PROPID_SET_OLDSERVICE, 5112, VariantType.VT_UI4, "2.3.8.11"),
        (ManagementMachineProperty.PROPID_MGMT_MSMQ_BYTES_IN_ALL_QUEUES, 6, VariantType.VT_I8, "2.3.11.6"),
        (
            ManagementQueueProperty.PROPID_MGMT_QUEUE_CONNECTION_HISTORY,
            25,
            VariantType.VT_VECTOR_VARIANT,
            "2.3.12.25",
        ),
    ],
)
def test_number_type_and_section(prop, value, variant_type, section):
    assert (prop.value, prop.variant_type, prop.section) == (value, variant_type, section)


def test_a_number_finds_its_property():
    assert QueueProperty(103) is QueueProperty.PROPID_Q_PATHNAME
    with pytest.raises(ValueError, match="999"):
        QueueProperty(999)
