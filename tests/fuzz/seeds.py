"""Where the fuzzer begins: the specification's frames and valid inputs of every kind, by target."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from qmnode.structures.enumerations import MessageClass
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import Guid
from qmnode.structures.layout import Structure
from qmnode.structures.packets import FinalAckBody, OrderAckBody, final_ack, order_ack
from qmnode.structures.user_message import (
    DebugHeader,
    DirectQueueFormatName,
    MessagePropertiesHeader,
    MQFAddressHeader,
    MQFDirectQueueFormatName,
    MQFDistributionQueueFormatName,
    MQFFormatNameElement,
    MQFPrivateQueueFormatName,
    MQFPublicQueueFormatName,
    MQFSignatureHeader,
    MultiQueueFormatHeader,
    PrivateQueueFormatName,
    ProviderInfo,
    PublicQueueFormatName,
    SecurityFlags,
    SecurityHeader,
    SessionHeader,
    SoapHeader,
    TransactionHeader,
    UserHeader,
    UserMessage,
)
from tests.conformance.frames import FRAMES
from tests.conformance.session import capture
from tests.fuzz.amqp_properties import amqp_seeds
from tests.fuzz.body_properties import body_seeds
from tests.fuzz.properties import structures
from tests.fuzz.rpc_properties import rpc_seeds
from tests.fuzz.view_properties import view_seeds

ONE, TWO = Guid(b"\x11" * 16), Guid(b"\x22" * 16)
SID = bytes.fromhex("010500000000000515000000ad4a9ebd36d9fa3d63a656dae8030000")
ORDER_QUEUE = DirectQueueFormatName(direct_format_name=r"TCP:192.0.2.1\PRIVATE$\order_queue$")


def messages() -> Iterator[UserMessage]:
    """UserMessages with each header, and the acknowledgments."""
    direct = DirectQueueFormatName(direct_format_name=r"OS:host\private$\orders")
    public = PublicQueueFormatName(public_queue_identifier=TWO)
    user = UserHeader(source_queue_manager=ONE, message_id=7, destination_queue=direct)
    properties = MessagePropertiesHeader(label="label", message_body=b"body", allocation_body_size=4)
    parts: dict[str, Any] = {
        "transaction_header": TransactionHeader(
            tx_sequence_id=1 << 32, tx_sequence_number=2, previous_tx_sequence_number=1, connector_qm_guid=TWO
        ),
        "security_header": SecurityHeader(
            flags=SecurityFlags.of(ST=1, AI=1),
            security_id=SID,
            encryption_key=b"key" * 4,
            signature=b"signature",
            sender_cert=b"certificate",
            provider_info=ProviderInfo(provider_type=1, provider_name="provider").write(),
        ),
        "debug_header": DebugHeader(queue_identifier=TWO),
        "soap_header": SoapHeader(header="<h/>", body="<b/>"),
        "multi_queue_format_header": _multi_queue(),
        "session_header": SessionHeader(ack_sequence_number=1, user_msg_sequence_number=1),
    }
    yield UserMessage(user_header=user, message_properties_header=properties)
    for name, part in parts.items():
        optional: Any = {name: part}
        yield UserMessage(user_header=user, message_properties_header=properties, **optional)
    full = UserHeader(
        source_queue_manager=ONE, queue_manager_address=TWO, message_id=8, destination_queue=public,
        admin_queue=PrivateQueueFormatName(source_queue_manager=ONE, private_queue_identifier=5), response_queue=direct,
        connector_type=TWO,
    )  # fmt: skip
    rich = MessagePropertiesHeader(label="l" * 249, extension_data=b"extension", message_body=b"b" * 33)
    yield UserMessage(user_header=full, message_properties_header=rich, **parts)
    to_order = UserHeader(source_queue_manager=ONE, message_id=9, destination_queue=ORDER_QUEUE)
    yield order_ack(to_order, OrderAckBody(tx_sequence_id=1, tx_sequence_number=3, tx_previous_sequence_number=2))
    yield final_ack(
        to_order,
        MessageClass.MQMSG_CLASS_ACK_RECEIVE,
        FinalAckBody(
            tx_sequence_id=1, tx_sequence_number=3, tx_previous_sequence_number=2, source_guid=ONE, message_id=7
        ),
    )


def _multi_queue() -> MultiQueueFormatHeader:
    names = (
        MQFPublicQueueFormatName(public_queue_identifier=ONE),
        MQFPrivateQueueFormatName(source_queue_manager=ONE, private_queue_identifier=5),
        MQFDirectQueueFormatName(direct_format_name=r"OS:host\q"),
        MQFDistributionQueueFormatName(distribution_list_identifier=TWO),
    )
    elements = tuple(MQFFormatNameElement(format_name=name) for name in names)
    return MultiQueueFormatHeader(
        destination=MQFAddressHeader(format_name_list=elements), signature=MQFSignatureHeader(signature=b"sign")
    )


NAMES = (
    r"DIRECT=OS:host\private$\queue;journal",
    r"DIRECT=TCP:192.0.2.1\private$\queue;sub",
    "DIRECT=HTTP://host/msmq/private$/queue",
    "PUBLIC=557358d1-9150-9595-4997-b6e611ea26c6;journal",
    r"PRIVATE=557358d1-9150-9595-4997-b6e611ea26c6\00000004",
    "MACHINE=557358d1-9150-9595-4997-b6e611ea26c6;DEADXACT",
    "CONNECTOR=557358d1-9150-9595-4997-b6e611ea26c6;XACTONLY",
    "DL=557358d1-9150-9595-4997-b6e611ea26c6@domain",
    "MULTICAST=239.192.0.1:4000",
    r"DIRECT=OS:a\q,PUBLIC=557358d1-9150-9595-4997-b6e611ea26c6",
    r"host\private$\queue",
    r".\queue;journal",
    "{557358d1-9150-9595-4997-b6e611ea26c6}",
)


def packets() -> list[bytes]:
    """Packets of every kind."""
    return [case.data for case in FRAMES] + [message.write() for message in messages()]


def seeds() -> Iterator[tuple[str, bytes]]:
    """Targets with inputs for them."""
    whole = packets()
    for data in whole:
        yield "packet", data
        yield "packet_size", data[:20]
        yield "source.auto", data
        yield "source.hex", data[:200].hex(" ", 2).encode()
    yield "source.raw", b"".join(whole)
    yield "source.capture", capture()
    yield "source.auto", capture()
    yield "streams", b"".join(struct.pack("<HBB", *row) for row in ((0, 0, 0), (0, 9, 0), (20, 9, 0), (9, 20, 1)))
    for text in NAMES:
        for target in ("format_name", "path_name", "guid"):
            yield target, text.encode()
    yield from view_seeds(list(messages()))
    yield from rpc_seeds()
    yield from amqp_seeds()
    yield from body_seeds()
    yield "sddl", b"O:SYG:BAD:P(A;;GA;;;WD)(D;OICI;0x1;;;S-1-5-7)S:(AU;SAFA;WD;;;AN)"
    kinds = structures()
    for name, kind in kinds.items():
        yield name, bytes(64)
        yield from ((name, data) for data in _parts(kind, whole))


def _parts(kind: type[Structure], whole: list[bytes]) -> Iterator[bytes]:
    """Where a packet has something that parses as this structure: any place will do."""
    found = 0
    for data in whole:
        for start in range(0, min(len(data), 400), 2):
            try:
                _, stop = kind.parse_from(data, start)
            except PacketError:
                continue
            if stop > start and found < 8:
                found += 1
                yield data[start:stop]
