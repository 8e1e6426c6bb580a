"""What each of the three digital signatures covers: MS-MQMQ 2.5.1 to 2.5.3, byte for byte."""

import pytest

from qmnode.structures.enumerations import AuthenticationLevel
from qmnode.structures.guid import Guid
from qmnode.structures.signature_properties import SIGNED_PROPERTIES, signed_bytes
from qmnode.structures.user_message import (
    BaseFlags,
    BaseHeader,
    DirectQueueFormatName,
    MessagePropertiesHeader,
    MQFAddressHeader,
    MQFDirectQueueFormatName,
    MQFFormatNameElement,
    MQFPublicQueueFormatName,
    MultiQueueFormatHeader,
    PublicQueueFormatName,
    UserFlags,
    UserHeader,
    UserMessage,
)
from tests.lab.cases import cases

SIG10, SIG20, SIG30 = AuthenticationLevel.SIG10, AuthenticationLevel.SIG20, AuthenticationLevel.SIG30
MANAGER, CONNECTOR, QUEUE = (Guid(bytes([number]) * 16) for number in (1, 2, 3))


def text(characters):
    return characters.encode("utf-16-le")


def message(**changes):
    properties = {"correlation_id": bytes(range(20)), "application_tag": 0x01020304, "label": "lab"}
    properties |= {"message_body": b"body", "extension_data": b"ext", "message_class": 0x8005, "body_type": 0x1011}
    return UserMessage(
        base_header=BaseHeader(flags=BaseFlags.of(PR=6)),
        user_header=UserHeader(
            source_queue_manager=MANAGER,
            message_id=1,
            flags=UserFlags.of(MP=1, DM=1, JP=1),
            destination_queue=DirectQueueFormatName(direct_format_name="OS:abcd\\q"),
            admin_queue=PublicQueueFormatName(public_queue_identifier=QUEUE),
            connector_type=CONNECTOR,
        ),
        message_properties_header=MessagePropertiesHeader(flags=0xF5, **(properties | changes)),
        multi_queue_format_header=MultiQueueFormatHeader(
            destination=MQFAddressHeader(
                format_name_list=(
                    MQFFormatNameElement(format_name=MQFDirectQueueFormatName(direct_format_name="OS:a\\b")),
                    MQFFormatNameElement(format_name=MQFPublicQueueFormatName(public_queue_identifier=QUEUE)),
                )
            )
        ),
    )


EVERY = [bytes(range(20)), b"\x04\x03\x02\x01", b"body", text("lab\0"), b"", QUEUE]
OPTIONS = [MANAGER, b"\x01", b"\x06", b"\x02", b"\x05", b"\x05\x80", b"\x11\x10\x00\x00", CONNECTOR]
DESTINATION = [b"\x14\x00" + text("OS:abcd\\q\0")]
LISTED = [b"\x03\x00" + text("OS:a\\b\0"), b"\x01\x00", QUEUE]


@pytest.mark.parametrize(
    ("level", "expected"),
    [(SIG10, EVERY), (SIG20, EVERY + OPTIONS + DESTINATION), (SIG30, [*EVERY, b"ext", *LISTED, *OPTIONS])],
)
def test_each_signature_covers_its_fields_in_their_order(level, expected):
    assert signed_bytes(message(), level) == b"".join(expected)


def test_the_fields_are_those_of_the_specification():
    counts = {level: len(properties) for level, properties in SIGNED_PROPERTIES.items()}

    assert counts == {SIG10: 6, SIG20: 15, SIG30: 16}
    assert SIGNED_PROPERTIES[SIG20][-1].name == "UserHeader.DestinationQueue"
    assert SIGNED_PROPERTIES[SIG30][7].name == "MultiQueueFormatHeader.FormatNameList"


def test_nothing_stands_for_what_is_not_there():
    bare = UserMessage(
        user_header=UserHeader(source_queue_manager=MANAGER, message_id=1, destination_queue=None),
        message_properties_header=MessagePropertiesHeader(),
    )

    assert signed_bytes(bare, SIG10) == bytes(24)
    assert signed_bytes(bare, SIG30) == bytes(24) + MANAGER + b"\0\3\0\0" + bytes(6)


@cases("level", list(SIGNED_PROPERTIES))
@cases(
    ("field", "value"),
    [("message_body", b"bodY"), ("label", "laB"), ("application_tag", 1), ("correlation_id", bytes(20))],
)
def test_what_is_covered_changes_the_bytes(level, field, value):
    assert signed_bytes(message(**{field: value}), level) != signed_bytes(message(), level)


def test_padding_changes_nothing():
    sent = message()
    written = bytearray(sent.write())
    end_of_name = written.index(text("abcd\\q\0")) + len(text("abcd\\q\0"))
    padding = len(sent.user_header.destination_queue.padding)
    written[end_of_name : end_of_name + padding] = b"\xee" * padding

    assert padding > 0
    assert signed_bytes(UserMessage.parse(bytes(written)), SIG20) == signed_bytes(sent, SIG20)
