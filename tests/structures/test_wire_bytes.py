"""Structures of which the specification dumps no bytes: what each is on the wire, put together by hand from its layout.

A round trip shows that parser and writer agree; these show that both agree with the specification. What MS-MQQB 4.1
dumps is in ``tests/conformance/test_frames.py``.
"""

from __future__ import annotations

from qmnode.structures.guid import guid_from_text
from qmnode.structures.layout import Structure
from qmnode.structures.packets import FinalAckBody, OrderAckBody
from qmnode.structures.properties import SequenceInfo
from qmnode.structures.public_keys import MqdsPublicKey, MqdsPublicKeys, MqUserSignCert, MqUserSignCerts
from qmnode.structures.queue_format import DlId, ObjectId, QueueFormat
from qmnode.structures.user_message import (
    DebugHeader,
    DirectQueueFormatName,
    MQFAddressHeader,
    MQFDirectQueueFormatName,
    MQFDistributionQueueFormatName,
    MQFFormatNameElement,
    MQFPrivateQueueFormatName,
    MQFPublicQueueFormatName,
    MQFSignatureHeader,
    MultiQueueFormatHeader,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    ProviderInfo,
    PublicQueueFormatName,
    SecurityFlags,
    SecurityHeader,
    SessionHeader,
    SoapHeader,
    TransactionFlags,
    TransactionHeader,
)
from tests.lab.cases import cases

GUID = guid_from_text("{01234567-89ab-cdef-0011-223344556677}")
G = "67452301 ab89 efcd 0011 223344556677"
DIRECT = MQFFormatNameElement(format_name=MQFDirectQueueFormatName(direct_format_name="OS:a"))
D = "0300 4f00 5300 3a00 6100 0000"
CERTIFICATE = MqUserSignCert(digest=bytes(range(16)), identifier=GUID, certificate=b"\x30\x82")
C = f"000102030405060708090a0b0c0d0e0f {G} 02000000 3082"
KEY = MqdsPublicKey(provider_type=24, provider_name="P", key=b"\xaa\xbb")
K = "02000000 04000000 18000000 5000 0000 aabb"

WIRE = [
    (SequenceInfo(seq_id=0x5F00000000000001, seq_no=3, prev_no=2), "01000000 0000005f 03000000 02000000"),
    (KEY, K),
    (MqdsPublicKeys(keys=(KEY,)), f"1a000000 01000000 {K}"),
    (QueueFormat(format_type=1, suffix_and_flags=0x81, identifier=GUID), f"01 81 0000 {G}"),
    (
        QueueFormat(format_type=2, suffix_and_flags=0, identifier=ObjectId(lineage=GUID, uniquifier=1)),
        f"02 00 0000 {G} 01000000",
    ),
    (ObjectId(lineage=GUID, uniquifier=0x12), f"{G} 12000000"),
    (DlId(dl_guid=GUID, domain="d"), f"{G} 6400 0000"),
    (PrivateQueueFormatNameId(private_queue_identifier=0x12), "12000000"),
    (DirectQueueFormatName(direct_format_name="OS:a"), "0a00 4f00 5300 3a00 6100 0000"),
    (PublicQueueFormatName(public_queue_identifier=GUID), G),
    (PrivateQueueFormatName(source_queue_manager=GUID, private_queue_identifier=0x12), f"{G} 12000000"),
    (DIRECT, D),
    (
        MQFFormatNameElement(format_name=MQFDistributionQueueFormatName(distribution_list_identifier=GUID)),
        f"0600 0000 {G}",
    ),
    (MQFFormatNameElement(format_name=MQFPublicQueueFormatName(public_queue_identifier=GUID)), f"0100 0000 {G}"),
    (
        MQFFormatNameElement(
            format_name=MQFPrivateQueueFormatName(source_queue_manager=GUID, private_queue_identifier=0x12)
        ),
        f"0200 0000 {G} 12000000",
    ),
    (MQFAddressHeader(format_name_list=(DIRECT,)), f"18000000 6400 0000 01000000 {D}"),
    (MQFSignatureHeader(signature=b"abcd"), "5e01 0000 04000000 61626364"),
    (
        MultiQueueFormatHeader(
            destination=MQFAddressHeader(format_name_list=(DIRECT,)), signature=MQFSignatureHeader(signature=b"abcd")
        ),
        f"18000000 6400 0000 01000000 {D} 0c000000 c800 0000 00000000 0c000000 2c01 0000 00000000"
        " 5e01 0000 04000000 61626364",
    ),
    (
        SessionHeader(
            ack_sequence_number=1,
            recoverable_msg_ack_seq_number=2,
            recoverable_msg_ack_flags=0x80000001,
            user_msg_sequence_number=3,
            recoverable_msg_seq_number=4,
            window_size=64,
        ),
        "0100 0200 01000080 0300 0400 4000 0000",
    ),
    (
        TransactionHeader(
            flags=TransactionFlags.of(CG=1, FA=1, FM=1, LM=1, ID=0xABCDE),
            tx_sequence_id=0x5F000000_00000001,
            tx_sequence_number=3,
            previous_tx_sequence_number=2,
            connector_qm_guid=GUID,
        ),
        f"efcdab00 01000000 0000005f 03000000 02000000 {G}",
    ),
    (
        TransactionHeader(
            flags=TransactionFlags.of(FM=1), tx_sequence_id=1, tx_sequence_number=1, previous_tx_sequence_number=0
        ),
        "04000000 01000000 00000000 01000000 00000000",
    ),
    (
        SecurityHeader(
            flags=SecurityFlags.of(ST=1, EB=1, AI=1),
            security_id=b"si",
            encryption_key=b"key",
            signature=b"sign",
            sender_cert=b"certi",
            provider_info=ProviderInfo(provider_type=1, provider_name="").write(),
        ),
        "a100 0200 0300 0400 05000000 06000000 73690000 6b657900 7369676e 6365727469000000 01000000 00000000",
    ),
    (SoapHeader(header="h", body="bo"), "2003 0000 02000000 6800 0000 8403 0000 03000000 6200 6f00 0000 0000"),
    (DebugHeader(queue_identifier=GUID), f"0100 0000 {G}"),
    (DebugHeader(), "0000 0000"),
    (CERTIFICATE, C),
    (MqUserSignCerts(certificates=(CERTIFICATE,)), f"01000000 {C}"),
    (
        OrderAckBody(tx_sequence_id=0x5F00000000000001, tx_sequence_number=3, tx_previous_sequence_number=2),
        "01000000 0000005f 03000000 02000000" + "00" * 20,
    ),
    (
        FinalAckBody(
            tx_sequence_id=0x5F00000000000001,
            tx_sequence_number=3,
            tx_previous_sequence_number=1,
            source_guid=GUID,
            message_id=9,
        ),
        f"01000000 0000005f 03000000 01000000 {G} 09000000",
    ),
]


@cases(("value", "wire"), WIRE, ids=[type(value).__name__ for value, _ in WIRE])
def test_a_value_is_these_bytes(value: Structure, wire: str) -> None:
    assert value.write().hex() == wire.replace(" ", "")
    assert type(value).parse(bytes.fromhex(wire)) == value
