"""Every property of a message is shown, and no door takes a value that it cannot have."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

import qmnode
from qmnode.management.message_documents import MessageDocument
from qmnode.model.message import Message
from qmnode.model.serialization import Destination, serialize
from qmnode.model.stored_message import PREFIX_SIZE, received_message, value_of_packet
from qmnode.objects.message_table import MESSAGE
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import Guid
from qmnode.structures.names import parse_single_format_name
from qmnode.structures.user_message import UserMessage
from tests.commands.conftest import Command
from tests.lab.nodes import NodeProcess

NOT_SHOWN = {"symmetric_key", "deliver_at", "deliver_in"}
"""Of use to the receiving node alone, and shown as ``delivery_time`` while a message waits."""
GUID, NOBODY = Guid(bytes(range(16))), Guid(bytes(16))
QUEUES = r"DIRECT=OS:there\private$\a", r"DIRECT=OS:there\private$\b"


def test_every_property_of_a_message_is_in_its_document() -> None:
    names = {row.key or row.name for row in MESSAGE.values() if row.name not in NOT_SHOWN}
    assert names - set(MessageDocument.model_fields) == set()


def send(node: NodeProcess, queue: str, message: Message) -> None:
    async def work() -> None:
        async with (
            qmnode.connect(node.socket) as manager,
            await manager.open_queue(rf"DIRECT=OS:.\private$\{queue}", qmnode.Access.SEND) as opened,
        ):
            await opened.send(message)

    asyncio.run(work())


def http(node: NodeProcess, method: str, path: str, **options: Any) -> httpx.Response:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(node.management_socket)), timeout=60) as client:
        return client.request(method, f"http://node{path}", **options)


def test_rare_properties_are_seen_at_the_command_line_over_http_and_in_an_export(
    node: NodeProcess, queue: str, command: Command, tmp_path: Path
) -> None:
    rare = Message(
        b"x",
        positive_journaling_requested=True, negative_journaling_requested=True, acknowledgements_requested=5,
        administration_multi_queue_format_name=",".join(QUEUES),
        response_multi_queue_format_name=",".join(QUEUES[::-1]),
        soap_header="<h/>", soap_body="<b/>", tracing_requested=True, tracing_queue_identifier=GUID,
        hash_algorithm=0x800C, encryption_algorithm=0x660E, connector_type_identifier=GUID, allow_peek_when_locked=True,
    )  # fmt: skip
    send(node, queue, rare)
    (seen,) = command("peek", queue, "--json").documents
    place = seen["lookup_identifier"]
    file = tmp_path / "exported"
    assert command("message", "export", queue, "--output", file).code == 0

    answers = [
        command("message", "show", queue, place, "--json").json,
        http(node, "GET", f"/v1/queues/{queue}/messages/{place}", params={"body": "text"}).json(),
        json.loads(file.read_text().splitlines()[0]),
    ]

    expected = {
        "journal": True, "dead_letter": True, "acknowledgements_requested": 5, "administration_queues": list(QUEUES),
        "response_queues": list(QUEUES[::-1]), "soap_header": "<h/>", "soap_body": "<b/>", "tracing": True,
        "hash_algorithm": "SHA_256", "encryption_algorithm": "AES128", "allow_peek_when_locked": True,
        "privacy_level": "NONE", "is_signed": False,
    }  # fmt: skip
    for answer in answers:
        assert expected.items() <= answer.items()
        assert answer["connector_type"] == answer["tracing_queue"] and answer["connector_type"].count("-") == 4
    shown = command("message", "show", queue, place).out
    assert "soap header" in shown and QUEUES[1] in shown and "AES128" in shown


@pytest.mark.parametrize("door", ["command line", "http"])
def test_each_of_several_administration_queues_gets_the_acknowledgment(
    node: NodeProcess, queue: str, command: Command, door: str
) -> None:
    told = [f"{queue}-told-{number}" for number in range(3)]
    for name in told:
        assert command("queue", "create", name).code == 0
    if door == "http":
        names = [rf"DIRECT=OS:.\private$\{name}" for name in told]
        body = {
            "text": "x",
            "administration_queues": names,
            "response_queues": names[1:],
            "acknowledgements_requested": 1,
        }
        assert http(node, "POST", f"/v1/queues/{queue}/messages", json={"messages": [body]}).status_code < 300
    else:
        words = ("--admin-queue", ",".join(told), "--response-queue", ",".join(told[1:]), "--acknowledge", 1)
        assert command("send", queue, "x", *words).code == 0
    (seen,) = command("peek", queue, "--json").documents
    assert [len(seen["administration_queues"]), len(seen["response_queues"])] == [3, 2]
    for name in told:
        (one,) = command("receive", name, "--timeout", 60, "--json").documents
        assert one["message_class"] == "MQMSG_CLASS_ACK_REACH_QUEUE"
        command("queue", "delete", name, "--yes")


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("acknowledgements_requested", 16, "4 (did not arrive)"),
        ("acknowledgements_requested", -1, "8 (was not received)"),
        ("hash_algorithm", 1, "0x800e (SHA_512)"),
        ("encryption_algorithm", 5, "0x6610 (AES256)"),
        ("body_type", 2**33, "0xFFFFFFFF"),
        ("app_specific", -1, "0xFFFFFFFF"),
        ("app_specific", "7", "a number"),
        ("privacy_level", 2, "5 (ADVANCED)"),
        ("authentication_level", 2, "3 (SIG20)"),
        ("correlation_identifier", b"abc", "20 bytes"),
        ("connector_type_identifier", b"abc", "16 bytes"),
        ("priority", 8, "0 to 7"),
        ("time_to_reach_queue", 2**32, "for ever"),
        ("message_class", 0x1E00, "MessageClass"),
    ],
)
def test_a_value_that_a_property_cannot_have_is_refused_with_those_that_it_can(
    node: NodeProcess, queue: str, name: str, value: Any, allowed: str
) -> None:
    properties: dict[str, Any] = {name: value}
    for message in (Message(b"x", **properties), Message(b"x", label="l", **properties)):
        with pytest.raises(qmnode.MessageQueuingError, match=name) as refused:
            send(node, queue, message)
        assert refused.value.code is ErrorCode.MQ_ERROR_ILLEGAL_PROPERTY_VALUE and allowed in str(refused.value)


def test_the_list_of_allowed_values_is_the_same_at_the_command_line_and_over_http(
    node: NodeProcess, queue: str, command: Command
) -> None:
    for name, value, allowed in (("acknowledgements_requested", 16, "8 (was not received)"), ("priority", 9, "0 to 7")):
        answer = http(node, "POST", f"/v1/queues/{queue}/messages", json={"messages": [{"text": "x", name: value}]})
        assert 400 <= answer.status_code < 500 and allowed in answer.text
    answered = command("send", queue, "x", "--acknowledge", 16)
    assert answered.code == 2 and "8 (was not received)" in answered.err


def test_a_received_message_with_numbers_of_a_peer_that_have_no_name_can_be_sent_on() -> None:
    destination = Destination(NOBODY, parse_single_format_name(QUEUES[0]))
    packet = UserMessage.parse(serialize(Message(b"x", label="l"), destination, 1, 0.0)[PREFIX_SIZE:])
    strange = packet.replace(message_properties_header=packet.message_properties_header.replace(hash_algorithm=0x8099))
    copied = received_message(1, value_of_packet(strange.write(), 0.0)).copy(label="sent on")
    assert received_message(2, serialize(copied, destination, 2, 0.0)).label == "sent on"
