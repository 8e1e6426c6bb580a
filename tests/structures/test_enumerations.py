"""Message classes and access masks: MS-MQMQ 2.2.18.1.6, 2.2.23 to 2.2.27."""

import pytest

from qmnode.structures.enumerations import (
    VT_VECTOR,
    MessageClass,
    VariantType,
    is_negative_acknowledgment,
    is_permitted,
    is_receive_acknowledgment,
)
from qmnode.structures.security_descriptor import (
    ConnectedNetworkAccess,
    EnterpriseAccess,
    QueueAccess,
    QueueManagerAccess,
    SiteAccess,
)


def test_every_message_class_is_there():
    assert len(MessageClass) == 21
    assert MessageClass(0x800B).name == "MQMSG_CLASS_NACK_UNSUPPORTED_CRYPTO_PROVIDER"


def test_names_and_bits_of_message_classes_agree():
    for message_class in MessageClass:
        assert is_negative_acknowledgment(message_class) == ("_NACK_" in message_class.name)
        assert is_permitted(message_class)
    assert {c for c in MessageClass if is_receive_acknowledgment(c)} == {0x4000, 0xC000, 0xC001, 0xC002, 0xC004}


@pytest.mark.parametrize("bit", [0x0200, 0x0400, 0x0800, 0x1000])
def test_a_custom_class_outside_the_mask_is_not_permitted(bit):
    assert not is_permitted(0x8000 | bit)
    assert is_permitted(0x81FF)


@pytest.mark.parametrize(
    ("all_rights", "value"),
    [
        (QueueManagerAccess.MQSEC_MACHINE_GENERIC_ALL, 0x000F00F7),
        (QueueAccess.MQSEC_QUEUE_GENERIC_ALL, 0x000F003F),
        (SiteAccess.MQSEC_SITE_GENERIC_ALL, 0x000F0037),
        (EnterpriseAccess.MQSEC_ENTERPRISE_GENERIC_ALL, 0x000F0037),
        (ConnectedNetworkAccess.SEC_CN_GENERIC_ALL, 0x000F0031),
    ],
)
def test_all_rights_are_every_single_right(all_rights, value):
    every = type(all_rights)(0)
    for right in type(all_rights):
        every |= right

    assert all_rights == every == value


def test_receiving_is_peeking_and_deleting():
    assert QueueAccess.MQSEC_RECEIVE_MESSAGE == 0x00000003
    assert QueueAccess.MQSEC_RECEIVE_JOURNAL_MESSAGE == 0x0000000A
    assert QueueAccess.MQSEC_QUEUE_GENERIC_READ == 0x0002002B
    assert QueueAccess.MQSEC_QUEUE_GENERIC_WRITE == 0x00020024


def test_vectors_are_their_element_type_with_the_vector_bit():
    for variant_type in VariantType:
        if variant_type & VT_VECTOR:
            element = VariantType(variant_type & ~VT_VECTOR)
            assert variant_type.name == f"VT_VECTOR_{element.name.removeprefix('VT_')}"
