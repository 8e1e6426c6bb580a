"""``put``: the quick change of a value, which sets nothing but what it is given."""

from qmnode.structures.user_message import BaseHeader, MessagePropertiesHeader


def test_put_changes_what_it_names_and_nothing_else() -> None:
    header = BaseHeader(packet_size=20)
    changed = header.put(packet_size=24)
    assert changed == header.replace(packet_size=24)
    assert header.packet_size == 20


def test_put_leaves_padding_to_its_caller() -> None:
    header = MessagePropertiesHeader(message_body=b"four")
    assert header.put(message_body=b"12345").padding == header.padding
    assert header.put(message_body=b"12345", padding=bytes(3)) == header.replace(message_body=b"12345")
