"""What an application assigns to a received message stays, and is what is sent on."""

from qmnode.model.message import Message
from qmnode.model.serialization import Destination, serialize
from qmnode.model.stored_message import received_message
from qmnode.structures.guid import Guid
from qmnode.structures.names import parse_single_format_name
from tests.lab.cases import cases

HERE = Guid(bytes(range(16)))
OLD = {"body": b"old", "label": "old", "app_specific": 1, "body_type": 8, "priority": 2, "extension": b"e"}
NEW = {"body": b"the new one", "label": "new", "app_specific": 7, "body_type": 30, "priority": 6, "extension": b"more"}


@cases("read_first", [None, *OLD])
@cases("name", NEW)
def test_an_assigned_property_is_sent_on_with_the_others(name: str, read_first: str | None) -> None:
    destination = Destination(HERE, parse_single_format_name(r"DIRECT=OS:x\private$\q"))
    received = received_message(5, serialize(Message(**OLD), destination, 1, 1e9))
    if read_first is not None:
        assert getattr(received, read_first) == OLD[read_first]
    setattr(received, name, NEW[name])
    again = received_message(6, serialize(received, destination, 2, 1e9))
    assert {one: getattr(again, one) for one in OLD} == OLD | {name: NEW[name]}
    assert {one: getattr(received, one) for one in OLD} == OLD | {name: NEW[name]}
