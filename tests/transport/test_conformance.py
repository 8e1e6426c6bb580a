"""What ``qmnode decode --check`` says that a node does with a packet is what a node does with it."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from qmnode import Access, Message, QueueManager
from qmnode.administration.browsing import browse
from qmnode.capture.explain import Explainer
from qmnode.capture.packetizer import Origin
from qmnode.capture.read_files import Captured, Carrier
from qmnode.errors import MessageQueuingError
from qmnode.management.message_documents import BodyForm, MessageDocument
from qmnode.model.stored_message import received_message, value_of_packet
from qmnode.protocol.received import MessageReader
from qmnode.protocol.session import Session
from qmnode.protocol.states import Role
from qmnode.protocol.wire import RemoteProtocolError
from qmnode.settings.protocol import SessionSettings
from qmnode.storage.verification import verify
from qmnode.structures.conformance import Finding, Handling
from qmnode.structures.guid import Guid, new_guid
from qmnode.structures.packets import ConnectionParameters, EstablishConnection, Ping, SessionAck
from qmnode.structures.user_message import (
    BaseFlags,
    DebugHeader,
    DirectQueueFormatName,
    MQFAddressHeader,
    MQFDirectQueueFormatName,
    MQFFormatNameElement,
    MQFSignatureHeader,
    MultiQueueFormatHeader,
    PrivateQueueFormatNameId,
    ProviderInfo,
    SecurityFlags,
    SecurityHeader,
    SessionHeader,
    SoapHeader,
    UserFlags,
    UserMessage,
)
from tests.capture import test_rules as rules
from tests.lab.waiting import eventually
from tests.transport.conftest import loopback_address, settings_of
from tests.transport.hostile import HostilePeer

QUEUE, EXACT = r".\private$\orders", r".\private$\exact"
PROVIDER = ProviderInfo(provider_type=24, provider_name="p").write()
ZERO = rules.transactional(tx_sequence_number=0, previous_tx_sequence_number=0)
MORE: list[tuple[str, str, Any, dict[str, Any]]] = [
    ("UserHeader.Flags", "RC 31", rules.message(rules.user_header(flags=UserFlags.of(MP=1, RC=31))), {}),
    ("MessagePropertiesHeader.MessageClass", "0xDEAD", rules.message(props=rules.properties(message_class=0xDEAD)), {}),
    ("MessagePropertiesHeader.PrivacyLevel", "2", rules.message(props=rules.properties(privacy_level=2)), {}),
    ("MessagePropertiesHeader.PrivacyLevel", "2, encrypted", rules.encrypted(privacy_level=2), {}),
    ("MessagePropertiesHeader.HashAlgorithm", "5", rules.message(props=rules.properties(hash_algorithm=5)), {}),
    ("MessagePropertiesHeader.Algorithm", "6", rules.message(props=rules.properties(encryption_algorithm=6)), {}),
    ("SecurityHeader.Flags", "ST 3", rules.secured({"ST": 3}), {}),
    ("SecurityHeader.Flags", "ST 3, signed", rules.secured({"ST": 3}, signature=b"s", sender_cert=b"c"), {}),
    ("SecurityHeader.Flags", "AU", rules.secured({"AU": 1}), {}),
    ("SecurityHeader.Flags", "AS", rules.secured({"AS": 5}), {}),
    ("SecurityHeader.SecurityID", "GUID", rules.secured({"ST": 2}, security_id=b"short"), {}),
    ("SecurityHeader.SecurityID", "of nobody", rules.secured({"ST": 0}), {}),
    ("TransactionHeader.TxSequenceNumber", "0", ZERO, {}),
    ("TransactionHeader.Previous", "last", rules.transactional(previous_tx_sequence_number=0xFFFFFFFF), {}),
    ("SessionHeader.WindowSize", "0", rules.acknowledging(window_size=0), {}),
    *(
        ("SecurityHeader.ProviderInfo", name, rules.secured({"DE": 0}, provider_info=content), {})
        for name, content in {
            "no null": PROVIDER[:-2], "two bytes": PROVIDER[:2], "odd": PROVIDER[:-1], "more": PROVIDER + b"more",
            "no name": PROVIDER[:4], "an empty name": PROVIDER[:4] + bytes(2), "one byte": b"\1",
        }.items()
    ),
]  # fmt: skip
ALL = [*rules.BAD, *MORE]
_IDENTIFIERS = itertools.count(1000)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[QueueManager]:
    folder, address = tmp_path_factory.mktemp("conformance"), loopback_address()
    async with QueueManager.open(folder / "host", settings_of("HOST", address)) as node:
        await node.create_queue(QUEUE)
        await node.create_queue(EXACT, transactional=True)
        await node.network.start()
        yield node


def adapted(packet: Any, node: QueueManager) -> Any:
    """The packet from a source of its own to a queue of the node; what breaks the rule is left as it is."""
    if not isinstance(packet, UserMessage):
        return packet
    user = packet.user_header
    changes: dict[str, Any] = {"message_id": next(_IDENTIFIERS)}
    if any(user.source_queue_manager):
        changes["source_queue_manager"] = new_guid()
    queue = EXACT if packet.transaction_header is not None else QUEUE
    match user.destination_queue:
        case DirectQueueFormatName(direct_format_name=name) if "order_queue$" not in name:
            changes["destination_queue"] = DirectQueueFormatName(direct_format_name=f"OS:host{queue[1:]}")
        case DirectQueueFormatName() | PrivateQueueFormatNameId():
            pass
        case _:
            number = node.names.find(queue).private_queue_number
            changes["destination_queue"] = PrivateQueueFormatNameId(private_queue_identifier=number)
            changes["flags"] = UserFlags.FIELDS["DQ"].put(user.flags, 3)
    return packet.replace(user_header=user.replace(**changes))


def findings_of(packet: Any, route: Any = None) -> list[Finding]:
    return rules.explain(packet, route).findings


def is_of_a_message(packet: Any) -> bool:
    if isinstance(packet, bytes):
        packet = rules.explain(packet).packet
    return isinstance(packet, UserMessage)


# These acknowledge what the node has not sent, which closes the session whatever the bits are.
ALL = [row for row in ALL if row[0] != "SessionHeader.RecoverableMsgAckFlags"]
MESSAGES = [row for row in ALL if is_of_a_message(row[2])]
OTHERS = [row for row in ALL if not is_of_a_message(row[2])]


async def brought(node: QueueManager, data: bytes) -> tuple[bool, list[Message]]:
    """Whether the session of whoever sends this stays open, and what is in the queues then, which are emptied."""
    sentinel = rules.message(rules.user_header(message_id=next(_IDENTIFIERS), source_queue_manager=new_guid()), base=0)
    sentinel = adapted(sentinel, node)
    found: list[Message] = []
    async with HostilePeer(loopback_address(), node.network.settings.address) as peer:
        await peer.establish(new_guid())
        peer.send(data)
        await peer.flush()
        peer.send(sentinel.write())
        await peer.flush()
        async with (
            await node.open_queue(f"DIRECT=OS:{QUEUE}") as queue,
            await node.open_queue(f"DIRECT=OS:{EXACT}") as exact,
        ):
            closed = asyncio.ensure_future(peer.is_closed())
            arrived = asyncio.ensure_future(_until(queue, sentinel.user_header.message_id))
            await asyncio.wait([closed, arrived], return_when=asyncio.FIRST_COMPLETED)
            is_open = not closed.done()
            closed.cancel()
            arrived.cancel()
            await asyncio.wait([closed, arrived])
            for one in (queue, exact):
                found += [message async for message in browse(one)]
                while True:
                    try:
                        await one.receive(0)
                    except MessageQueuingError:
                        break
    return is_open, [one for one in found if one.packet != sentinel.write()]


async def _until(queue: Any, message_id: int) -> None:
    """Until a message is in the queue."""
    cursor = queue.cursor()
    message = await cursor.peek(60)
    while message.packet[56:60] != message_id.to_bytes(4, "little"):
        message = await cursor.peek_next(60)


@pytest.mark.parametrize("packet", [row[2] for row in MESSAGES], ids=[f"{row[0]}: {row[1]}" for row in MESSAGES])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_node_handles_a_message_as_the_check_says(node: QueueManager, packet: Any) -> None:
    packet = adapted(packet, node)
    handlings = {finding.handling for finding in findings_of(packet)}
    assert handlings
    data = packet if isinstance(packet, bytes) else packet.write()
    is_open, messages = await brought(node, data)
    assert is_open is (Handling.REFUSED not in handlings)
    expected = not handlings & {Handling.REFUSED, Handling.REJECTED, Handling.IGNORED}
    if rules.explain(packet).kind is rules.Kind.USER_MESSAGE:
        assert len(messages) == expected
        assert not any(message.unreadable for message in messages)


@pytest.mark.parametrize(
    ("packet", "options"), [row[2:] for row in OTHERS], ids=[f"{row[0]}: {row[1]}" for row in OTHERS]
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_node_handles_other_packets_as_the_check_says(
    node: QueueManager, packet: Any, options: dict[str, Any]
) -> None:
    (finding,) = rules.explain(packet, **options).findings
    assert finding.handling in (Handling.REFUSED, Handling.TOLERATED)
    data = packet if isinstance(packet, bytes) else packet.write()
    now = asyncio.get_running_loop().time()
    parsed = rules.explain(packet, **options).packet
    if isinstance(parsed, Ping):
        assert await _is_answered(node.network.settings.address, data)
        return
    if options == rules.SERVER:  # of an acceptor: our initiator gets it
        session = Session(Role.INITIATOR, rules.ONE, SessionSettings(), now, direct=True)
        session.connected(now)
        session.receive_data(data, now)
        assert session.closed is (finding.handling == Handling.REFUSED)
        return
    if isinstance(parsed, SessionAck):
        is_open, _ = await brought(node, data)
        assert is_open is (finding.handling == Handling.TOLERATED)
        return
    request = rules.establish(server_guid=Guid(bytes(16)), padding=bytes(512)).write()
    packets = [data] if isinstance(parsed, EstablishConnection) else [request, data]
    assert isinstance(parsed, EstablishConnection | ConnectionParameters)
    if isinstance(parsed, EstablishConnection):
        packets = [parsed.replace(establish_connection_header=parsed.establish_connection_header.replace(
            server_guid=Guid(bytes(16)))).write()]  # fmt: skip
    session = Session(Role.ACCEPTOR, node.identifier, SessionSettings(), now)
    for one in packets:
        session.receive_data(one, now)
    assert session.closed is (finding.handling == Handling.REFUSED)


async def _is_answered(address: str, data: bytes) -> bool:
    answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    class Asking(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, address: Any) -> None:
            answered.set_result(True)

    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(Asking, remote_addr=(address, 3527))
    transport.sendto(data)
    try:
        return await asyncio.wait_for(answered, 60)
    finally:
        transport.close()


def test_every_rule_says_what_a_node_does() -> None:
    assert all(rule.treatment.why for rule in rules.RULES if rule.treatment.handling is not Handling.REFUSED)
    assert {rule.treatment.handling for rule in rules.RULES} == set(Handling)


# --- every byte of a packet that has all headers
def with_all_headers(**more: Any) -> UserMessage:
    names = MQFAddressHeader(format_name_list=tuple(
        MQFFormatNameElement(format_name=MQFDirectQueueFormatName(direct_format_name=rf"OS:host\private$\{name}"))
        for name in ("orders", "other")
    ))  # fmt: skip
    direct = DirectQueueFormatName(direct_format_name=r"OS:host\private$\orders")
    packet = rules.message(
        rules.user_header(
            destination_queue=direct, admin_queue=direct, response_queue=direct, connector_type=rules.TWO,
            flags=UserFlags.of(MP=1, DM=1),
        ),
        rules.properties(flags=0, extension_data=b"extension", label="a label"),
        BaseFlags.of(PR=3, TR=1),
        security_header=SecurityHeader(
            flags=SecurityFlags.of(ST=1, AI=1), security_id=rules.SID, provider_info=PROVIDER, sender_cert=b"x509"
        ),
        debug_header=DebugHeader(queue_identifier=rules.TWO),
        soap_header=SoapHeader(header="<h/>", body="<b/>"),
        multi_queue_format_header=MultiQueueFormatHeader(destination=names, signature=MQFSignatureHeader()),
        **more,
    )  # fmt: skip
    return packet


def mutated(packet: bytes) -> Iterator[bytes]:
    """The packet with each byte changed to some others."""
    for place in range(len(packet)):
        for value in {0, 1, 0x7F, 0xD8, 0xFF, packet[place] ^ 1, packet[place] ^ 0x80} - {packet[place]}:
            yield packet[:place] + bytes((value,)) + packet[place + 1 :]


def taken(data: bytes) -> bytes | None:
    """The packet as a node stores it; None if it refuses it."""
    try:
        return MessageReader().read(data).packet
    except RemoteProtocolError:
        return None


def test_every_mutation_is_refused_or_can_be_shown() -> None:
    accepted = refused = 0
    acknowledging = SessionHeader(ack_sequence_number=0, user_msg_sequence_number=0)
    for data in mutated(with_all_headers(session_header=acknowledging).write()):
        if int.from_bytes(data[8:12], "little") + 16 != len(data):
            continue  # the framer cuts it elsewhere
        packet = taken(data)
        if packet is None:
            refused += 1
            continue
        accepted += 1
        message = received_message(1, value_of_packet(packet, 1.0))
        assert message.unreadable == ""
        assert json.loads(MessageDocument.of(message, BodyForm.TEXT).model_dump_json())
    assert min(accepted, refused) > 100


def test_nodes_and_the_check_agree_on_mutations() -> None:
    every = list(mutated(with_all_headers().write()))
    for data in random.Random(14).sample(every, 250):
        explained = Explainer().explain(Captured(Carrier.TCP, None, Origin(0, (), None), data, None, len(data)))
        refused = explained.error is not None or any(one.handling == Handling.REFUSED for one in explained.findings)
        assert (taken(data) is None) is refused, [explained.error, explained.findings]


async def test_mutations_over_a_socket_hide_nothing(tmp_path: Path) -> None:
    """Sent, listed, received in part, and there after a restart; the check of the store finds nothing."""
    dice, address = random.Random(7), loopback_address()
    settings = settings_of("HOST", address)
    every = [one for one in mutated(with_all_headers().write()) if int.from_bytes(one[8:12], "little") == len(one)]
    packets = dice.sample(every, 40)
    async with QueueManager.open(tmp_path / "host", settings) as node:
        await node.create_queue(QUEUE)
        await node.network.start()
        queue = node.names.find(QUEUE)
        for number, data in enumerate(packets):
            before = queue.message_count
            source = new_guid()
            data = data[:16] + source + data[32:]
            last = rules.message(rules.user_header(
                message_id=10_000 + number, source_queue_manager=source, flags=UserFlags.of(MP=1, DM=1),
                destination_queue=DirectQueueFormatName(direct_format_name=r"OS:host\private$\orders")))  # fmt: skip
            async with HostilePeer(loopback_address(), address) as peer:
                await peer.establish(source)
                peer.send(data)
                await peer.flush()
                peer.send(last.write())
                await peer.flush()
                if taken(data) is None:
                    assert await peer.is_closed()
                else:
                    await eventually(lambda before=before: queue.message_count > before)  # type: ignore[misc]
        count = queue.message_count
        assert count > 10
        async with await node.open_queue(f"DIRECT=OS:{QUEUE}") as opened:
            assert len([message async for message in browse(opened) if not message.unreadable]) == count
            await opened.receive_many(10)
    async with QueueManager.open(tmp_path / "host", settings) as node:
        async with await node.open_queue(f"DIRECT=OS:{QUEUE}", Access.PEEK) as opened:
            listed = [MessageDocument.of(message, BodyForm.TEXT) async for message in browse(opened)]
        assert node.names.find(QUEUE).message_count == len(listed)
    assert verify(tmp_path / "host").findings == []
