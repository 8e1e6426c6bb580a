"""A message on its way to the node is the packet that it would be without the short cut."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from qmnode.model.message import Message
from qmnode.model.serialization import Destination, Travelling, serialize
from qmnode.model.stored_message import PREFIX_SIZE
from qmnode.structures.guid import Guid
from qmnode.structures.names import parse_single_format_name

DESTINATION = Destination(Guid(bytes(range(16))), parse_single_format_name(r"DIRECT=OS:x\private$\q"))
TRAVELLING = Travelling(DESTINATION)
NUMBERS = st.integers(0, 0xFFFFFFFF)
PROPERTIES = st.fixed_dictionaries(
    {"body": st.one_of(st.binary(max_size=9), st.binary(max_size=9).map(bytearray))},
    optional={
        "recoverable": st.sampled_from([True, False, 1, 0, None]),
        "label": st.text(max_size=250),
        "app_specific": st.one_of(NUMBERS, st.just(-1)),
        "body_type": NUMBERS,
        "correlation_identifier": st.binary(max_size=22),
        "extension": st.one_of(st.binary(max_size=9), st.binary(max_size=9).map(bytearray), st.just("text")),
        "priority": st.integers(0, 7),
    },
)


def outcome(pack: Any, message: Message) -> bytes | tuple[type[Exception], str]:
    try:
        return bytes(pack(message))
    except Exception as error:
        return type(error), str(error)


def packed(message: Message) -> bytes:
    size, parts = TRAVELLING.pack(message)
    packet = b"".join(parts)
    assert len(packet) == size
    return packet


@given(PROPERTIES)
@example({"body": b"", "recoverable": None})
@example({"body": bytearray(b"1"), "recoverable": None})
@example({"body": b"1", "recoverable": 1, "label": "order 7"})
def test_the_packet_and_the_errors_are_the_same(properties: dict[str, Any]) -> None:
    whole = outcome(lambda one: serialize(one, DESTINATION, 0, 0.0)[PREFIX_SIZE:], Message(**properties))
    assert outcome(packed, Message(**properties)) == whole


def test_a_body_that_is_too_large_is_refused_alike() -> None:
    for size in range(4 * 1024 * 1024 - 260, 4 * 1024 * 1024, 3):
        message = Message(bytes(size))
        whole = outcome(lambda one: serialize(one, DESTINATION, 0, 0.0)[PREFIX_SIZE:], message)
        assert outcome(packed, message) == whole
