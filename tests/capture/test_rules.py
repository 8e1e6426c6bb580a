"""Every rule has a packet here that breaks it and no other."""

from __future__ import annotations

from typing import Any

import pytest

from qmnode.capture.conversations import Conversations
from qmnode.capture.explain import Explained, Explainer
from qmnode.capture.packetizer import Origin
from qmnode.capture.read_files import Captured, Carrier, Route
from qmnode.structures.conformance import NOTES, RULES, Finding, Kind, Seen
from qmnode.structures.enumerations import EncryptionAlgorithm, MessageClass
from qmnode.structures.guid import ZERO_GUID, Guid
from qmnode.structures.packets import (
    ConnectionParameters,
    ConnectionParametersHeader,
    EstablishConnection,
    EstablishConnectionHeader,
    FinalAckBody,
    InternalFlags,
    InternalHeader,
    OperatingSystemFlags,
    OrderAckBody,
    Ping,
    PingFlags,
    SessionAck,
    final_ack,
    order_ack,
)
from qmnode.structures.user_message import (
    BaseFlags,
    BaseHeader,
    DebugHeader,
    DirectQueueFormatName,
    MessagePropertiesHeader,
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
    SecurityFlags,
    SecurityHeader,
    SessionHeader,
    TransactionHeader,
    UserFlags,
    UserHeader,
    UserMessage,
)
from tests.lab.cases import cases

ONE, TWO = Guid(b"\x11" * 16), Guid(b"\x22" * 16)
DIRECT = DirectQueueFormatName(direct_format_name=r"OS:host\private$\orders")
PUBLIC = PublicQueueFormatName(public_queue_identifier=TWO)
NUMBER = PrivateQueueFormatNameId(private_queue_identifier=9)
ORDER_QUEUE = DirectQueueFormatName(direct_format_name=r"TCP:192.0.2.1\PRIVATE$\order_queue$")
SID = bytes.fromhex("010500000000000515000000ad4a9ebd36d9fa3d63a656dae8030000")
CLIENT_ROUTE = Route(1, True, "192.0.2.1:49759", "192.0.2.2:1801", True)
SERVER_ROUTE = Route(1, False, "192.0.2.2:1801", "192.0.2.1:49759", True)


def explain(packet: Any, route: Route | None = None, explainer: Explainer | None = None) -> Explained:
    data = packet if isinstance(packet, bytes) else packet.write()
    carrier = Carrier.UDP if isinstance(packet, Ping) else Carrier.TCP
    return (explainer or Explainer()).explain(Captured(carrier, route, Origin(0, (), None), data, None, len(data)))


# --- packets without fault, with places to put one in
def user_header(**values: Any) -> UserHeader:
    return UserHeader(**{"source_queue_manager": ONE, "message_id": 1, "destination_queue": DIRECT} | values)


def properties(**values: Any) -> MessagePropertiesHeader:
    body = values.pop("message_body", b"body")
    return MessagePropertiesHeader(
        **{"label": "label", "message_body": body, "allocation_body_size": len(body)} | values
    )


def message(
    user: UserHeader | None = None, props: MessagePropertiesHeader | None = None, base: int | None = None, **parts: Any
) -> UserMessage:
    header = BaseHeader() if base is None else BaseHeader(flags=base)
    return UserMessage(
        base_header=header,
        user_header=user or user_header(),
        message_properties_header=props or properties(),
        **parts,
    )


def transactional(base: int = 0, delivery: int = 1, **values: Any) -> UserMessage:
    numbers = {"tx_sequence_id": 1 << 32, "tx_sequence_number": 2, "previous_tx_sequence_number": 1} | values
    flags = UserFlags.of(MP=1, DM=delivery)
    return message(user_header(flags=flags), base=base, transaction_header=TransactionHeader(**numbers))


def secured(
    flags: dict[str, int] | None = None, props: MessagePropertiesHeader | None = None, **parts: Any
) -> UserMessage:
    bits = {"ST": 1, "DE": 1, "AI": 1} | (flags or {})
    header = SecurityHeader(**{"flags": SecurityFlags.of(**bits), "security_id": SID} | parts)
    return message(props=props, security_header=header)


def encrypted(flags: dict[str, int] | None = None, **values: Any) -> UserMessage:
    algorithm = {
        "privacy_level": 5,
        "encryption_algorithm": EncryptionAlgorithm.AES256,
        "message_body": b"x" * 32,
    }
    return secured({"EB": 1} | (flags or {}), properties(**algorithm | values), encryption_key=b"key!")


def acknowledging(**values: Any) -> UserMessage:
    return message(session_header=SessionHeader(**{"ack_sequence_number": 0, "user_msg_sequence_number": 1} | values))


def establish(
    internal: dict[str, int] | None = None, base: BaseHeader | None = None, **values: Any
) -> EstablishConnection:
    header = EstablishConnectionHeader(**{"client_guid": ONE, "server_guid": TWO, "time_stamp": 5} | values)
    more: dict[str, Any] = {"base_header": base} if base else {}
    return EstablishConnection(
        internal_header=InternalHeader(**internal or {}), establish_connection_header=header, **more
    )


def parameters(internal: dict[str, int] | None = None, **values: Any) -> ConnectionParameters:
    header = {"recoverable_ack_timeout": 1000, "ack_timeout": 120000, "window_size": 64} | values
    return ConnectionParameters(
        internal_header=InternalHeader(**internal or {}),
        connection_parameters_header=ConnectionParametersHeader(**header),
    )


def session_ack(internal: dict[str, int] | None = None, **values: Any) -> SessionAck:
    header = {"ack_sequence_number": 0, "user_msg_sequence_number": 0} | values
    return SessionAck(internal_header=InternalHeader(**internal or {}), session_header=SessionHeader(**header))


def an_order_ack(**values: Any) -> UserMessage:
    body = {"tx_sequence_id": 1, "tx_sequence_number": 3, "tx_previous_sequence_number": 2} | values
    return order_ack(user_header(destination_queue=ORDER_QUEUE), OrderAckBody(**body))


def a_final_ack(message_class: int = MessageClass.MQMSG_CLASS_ACK_RECEIVE) -> UserMessage:
    body = FinalAckBody(
        tx_sequence_id=1, tx_sequence_number=3, tx_previous_sequence_number=2, source_guid=ONE, message_id=7
    )
    return final_ack(user_header(destination_queue=ORDER_QUEUE), message_class, body)  # type: ignore[arg-type]


def with_base(packet: Any, **values: Any) -> Any:
    return packet.replace(base_header=packet.base_header.replace(**values))


def with_base_bits(packet: Any, **bits: int) -> bytes:
    """The written packet with bits of BaseHeader.Flags set that its constructor would not set."""
    data = bytearray(packet.write())
    word = int.from_bytes(data[2:4], "little")
    for name, value in bits.items():
        word = BaseFlags.FIELDS[name].put(word, value)
    data[2:4] = word.to_bytes(2, "little")
    return bytes(data)


def with_user(packet: UserMessage, **values: Any) -> UserMessage:
    return packet.replace(user_header=packet.user_header.replace(**values))


def with_user_bits(packet: UserMessage, **bits: int) -> UserMessage:
    word = packet.user_header.flags
    for name, value in bits.items():
        word = UserFlags.FIELDS[name].put(word, value)
    return with_user(packet, flags=word)


def with_properties(packet: UserMessage, **values: Any) -> UserMessage:
    return packet.replace(message_properties_header=packet.message_properties_header.replace(**values))


REFUSED = {"flags": InternalFlags.of(CS=1)}
SERVER = {"route": SERVER_ROUTE}
CLIENT = {"route": CLIENT_ROUTE}
TRACED = {"debug_header": DebugHeader(queue_identifier=TWO)}

GOOD: dict[str, tuple[Any, dict[str, Any]]] = {
    "express": (message(), {}),
    "traced": (message(base=BaseFlags.of(PR=3, TR=1), **TRACED), {}),
    "to a public queue": (message(user_header(destination_queue=PUBLIC, queue_manager_address=TWO)), {}),
    "with acknowledgments wanted": (message(user_header(admin_queue=DIRECT), properties(flags=15)), {}),
    "transactional": (transactional(), {}),
    "first of a sequence": (transactional(tx_sequence_number=1, previous_tx_sequence_number=0), {}),
    "secured": (secured(), {}),
    "of a queue manager": (secured({"ST": 2}, security_id=ONE), {}),
    "with another provider": (secured({"DE": 0}, signature=b"s", provider_info=b"\1\0\0\0p\0\0\0"), {}),
    "encrypted": (encrypted(), {}),
    "encrypted with RC4": (
        encrypted(privacy_level=1, encryption_algorithm=EncryptionAlgorithm.RC4, message_body=b"odd"), {},
    ),
    "acknowledging": (
        acknowledging(recoverable_msg_ack_seq_number=4, recoverable_msg_ack_flags=5, recoverable_msg_seq_number=2), {},
    ),
    "request": (establish(server_guid=ZERO_GUID, padding=bytes(512)), CLIENT),
    "response": (establish(), SERVER),
    "refusal": (establish(REFUSED), SERVER),
    "parameters": (parameters(), {}),
    "session ack": (session_ack(), {}),
    "order ack": (an_order_ack(), {}),
    "order ack by number": (with_user(an_order_ack(), destination_queue=PrivateQueueFormatNameId(
        private_queue_identifier=4), queue_manager_address=TWO), {}),
    "order ack over IPv6": (with_user(an_order_ack(), destination_queue=DirectQueueFormatName(
        direct_format_name=r"TCP:2001:DB8::1\private$\order_queue$")), {}),
    "order ack on its way through routing servers": (with_user_bits(an_order_ack(), RC=2), {}),
    "final ack": (a_final_ack(), {}),
    "refusing final ack": (a_final_ack(MessageClass.MQMSG_CLASS_NACK_Q_DELETED), {}),
    "ping": (Ping(cookie=1, qm_guid=ONE), CLIENT),
    "refusing ping": (Ping(cookie=1, qm_guid=ONE, flags=PingFlags.of(RF=1)), SERVER),
}  # fmt: skip

BAD: list[tuple[str, str, Any, dict[str, Any]]] = [
    ("BaseHeader.Flags", "PR must be 0", transactional(base=3), {}),
    ("BaseHeader.Flags", "DH must be set when TR is", message(base=BaseFlags.of(PR=3, TR=1)), {}),
    ("BaseHeader.Flags", "DH must not be set outside", with_base_bits(session_ack(), DH=1), {}),
    ("BaseHeader.Flags", "SH must not be set", with_base_bits(parameters(), SH=1), {}),
    ("BaseHeader.TimeToReachQueue", "outside a UserMessage", with_base(parameters(), time_to_reach_queue=5), {}),
    ("UserHeader.SourceQueueManager", "identify the sender", message(user_header(source_queue_manager=ZERO_GUID)), {}),
    ("UserHeader.QueueManagerAddress", "direct format name", message(user_header(queue_manager_address=TWO)), {}),
    (
        "UserHeader.QueueManagerAddress",
        "public or private queue",
        message(user_header(destination_queue=PUBLIC)),
        {},
    ),
    ("UserHeader.Flags", "DM must not be 0 when TH", transactional(delivery=0), {}),
    ("UserHeader.Flags", "AH must not be set", message(user_header(flags=UserFlags.of(MP=1, AH=1))), {}),
    ("UserHeader.AdminQueue", "must not be given", message(user_header(admin_queue=DIRECT)), {}),
    (
        "UserHeader.ResponseQueue",
        "RQ is 4",
        message(user_header(response_queue=NUMBER, flags=UserFlags.of(MP=1, RQ=4))),
        {},
    ),
    ("MessagePropertiesHeader.AllocationBodySize", "less than", message(props=properties(allocation_body_size=3)), {}),
    (
        "MessagePropertiesHeader.EncryptionAlgorithm",
        "AES for 5",
        encrypted(encryption_algorithm=EncryptionAlgorithm.RC4),
        {},
    ),
    ("MessagePropertiesHeader.Label", "null characters", message(props=properties(label="a\0b")), {}),
    ("MessagePropertiesHeader.PrivacyLevel", "not encrypted", message(props=properties(privacy_level=5)), {}),
    ("MessagePropertiesHeader.PrivacyLevel", "is encrypted", encrypted(privacy_level=0), {}),
    ("MessagePropertiesHeader.MessageSize", "whole number", encrypted(message_body=b"x" * 31), {}),
    (
        "SessionHeader.RecoverableMsgAckFlags",
        "acknowledge anything",
        session_ack(recoverable_msg_ack_flags=2),
        {},
    ),
    (
        "SessionHeader.RecoverableMsgAckFlags",
        "bit 0 must be set",
        acknowledging(recoverable_msg_ack_seq_number=1, recoverable_msg_ack_flags=2),
        {},
    ),
    (
        "TransactionHeader.PreviousTxSequenceNumber",
        "before this one",
        transactional(previous_tx_sequence_number=2),
        {},
    ),
    ("SecurityHeader.SecurityData", "at least one", secured({"ST": 0}, security_id=b""), {}),
    ("SecurityHeader.SecurityID", "a SID, or a GUID", secured(security_id=SID[:-4]), {}),
    ("SecurityHeader.ProviderInfo", "must name the provider", secured({"DE": 0}, signature=b"s"), {}),
    ("SecurityHeader.ProviderInfo", "empty ProviderName", secured({"DE": 0}, provider_info=bytes(6)), {}),
    ("SecurityHeader.ProviderInfo", "must not be there", secured(provider_info=b"\1\0\0\0p\0\0\0"), {}),
    ("InternalHeader.Reserved", "must be 0", parameters({"reserved": 1}), {}),
    ("InternalHeader.Flags", "in a SessionAck", session_ack(REFUSED), {}),
    ("InternalHeader.Flags", "in ConnectionParameters", parameters(REFUSED), {}),
    ("InternalHeader.Flags", "in a request", establish(REFUSED), CLIENT),
    ("ConnectionParametersHeader.Reserved", "must be 0", parameters(reserved=1), {}),
    ("EstablishConnectionHeader.Reserved", "must be 0", establish(reserved=1), {}),
    ("EstablishConnectionHeader.ServerGuid", "identify the acceptor", establish(server_guid=ZERO_GUID), SERVER),
    ("EstablishConnectionHeader.Padding", "0x5A", establish(padding=bytes(512)), SERVER),
    ("BaseHeader.Flags", "in an OrderAck", with_base(an_order_ack(), flags=3), {}),
    ("BaseHeader.Flags", "in a FinalAck", with_base(a_final_ack(), flags=3), {}),
    ("UserHeader.Flags", "0 in an OrderAck", with_user_bits(an_order_ack(), JN=1), {}),
    ("UserHeader.Flags", "0 in a FinalAck", with_user_bits(a_final_ack(), JP=1), {}),
    ("UserHeader.Flags", "DM must be 1", with_user_bits(a_final_ack(), DM=0), {}),
    (
        "UserHeader.Flags",
        "DQ must be 3 or 7 in an OrderAck",
        with_user(an_order_ack(), destination_queue=PUBLIC, queue_manager_address=TWO),
        {},
    ),
    (
        "UserHeader.Flags",
        "DQ must be 3 or 7 in a FinalAck",
        with_user(a_final_ack(), destination_queue=PUBLIC, queue_manager_address=TWO),
        {},
    ),
    ("UserHeader.DestinationQueue", "the order queue", with_user(an_order_ack(), destination_queue=DIRECT), {}),
    ("UserHeader.DestinationQueue", "the order queue", with_user(a_final_ack(), destination_queue=DIRECT), {}),
    ("MessagePropertiesHeader.Label", "Ordering Ack", with_properties(an_order_ack(), label="x"), {}),
    ("MessagePropertiesHeader.Label", "Ordering Ack", with_properties(a_final_ack(), label="x"), {}),
    ("MessagePropertiesHeader.MessageSize", "0x24", with_properties(an_order_ack(), message_body=b"x"), {}),
    ("MessagePropertiesHeader.MessageSize", "0x24", with_properties(a_final_ack(), message_body=b"x"), {}),
    ("MessagePropertiesHeader.Flags", "must be 0", with_properties(an_order_ack(), flags=1), {}),
    ("MessagePropertiesHeader.Flags", "must be 0", with_properties(a_final_ack(), flags=1), {}),
    (
        "MessagePropertiesHeader.MessageClass",
        "classes of a FinalAck",
        a_final_ack(MessageClass.MQMSG_CLASS_NACK_RECEIVE_REJECTED),
        {},
    ),
    ("MessagePropertiesHeader.BodyType", "VT_EMPTY", with_properties(an_order_ack(), body_type=31), {}),
    ("MessagePropertiesHeader.BodyType", "VT_EMPTY", with_properties(a_final_ack(), body_type=31), {}),
    ("OrderAck Body.TxPreviousSequenceNumber", "- 1", an_order_ack(tx_previous_sequence_number=1), {}),
    ("Ping Packet.Flags", "RF must be clear", Ping(cookie=1, qm_guid=ONE, flags=PingFlags.of(RF=1)), CLIENT),
]


@cases("name", GOOD)
def test_packets_without_fault(name: str) -> None:
    packet, options = GOOD[name]
    explained = explain(packet, **options)
    assert explained.error is None
    assert explained.findings == []


@cases(("where", "sentence", "packet", "options"), BAD, ids=[f"{row[0]}: {row[1]}" for row in BAD])
def test_a_packet_that_breaks_exactly_one_rule(where: str, sentence: str, packet: Any, options: dict[str, Any]) -> None:
    (finding,) = explain(packet, **options).findings
    assert f"{finding.structure}.{finding.field}" == where
    assert sentence in finding.sentence
    assert finding.section.startswith("MS-MQ")
    assert finding.offset is not None


def test_every_rule_has_a_packet_that_breaks_it() -> None:
    found = [explain(packet, **options).findings[0] for _, _, packet, options in BAD]
    found += explain(message(props=properties(privacy_level=2))).findings  # a level that there is not breaks two
    broken = {(finding[1], finding[3], finding[4]) for finding in found}
    untested = [rule for rule in RULES if (rule.field.rpartition(".")[2], rule.sentence, rule.section) not in broken]
    assert untested == []


@pytest.mark.parametrize(
    ("name", "right"),
    [
        (r"TCP:192.0.2.1\PRIVATE$\order_queue$", True),
        (r"TCP:2001:db8::1\private$\ORDER_QUEUE$", True),
        (r"SPX:0000BEEF.00AA00BB00CC\PRIVATE$\order_queue$", True),
        (r"TCP:host\PRIVATE$\order_queue$", False),
        (r"OS:192.0.2.1\PRIVATE$\order_queue$", False),
        (r"SPX:BEEF.00CC\PRIVATE$\order_queue$", False),
        (r"TCP:192.0.2.1\PRIVATE$\order_queue$;journal", False),
        ("TCP:" + ":" * 30000 + r"\PRIVATE$\order_queue$", False),
    ],
)
def test_names_of_the_order_queue(name: str, right: bool) -> None:
    packet = with_user(an_order_ack(), destination_queue=DirectQueueFormatName(direct_format_name=name))
    assert (explain(packet).findings == []) is right


def test_offsets_are_those_of_the_fields() -> None:
    def offset(packet: Any) -> int | None:
        return explain(packet).findings[0].offset

    assert offset(with_base(parameters(), time_to_reach_queue=5)) == 12
    assert offset(message(user_header(flags=UserFlags.of(MP=1, AH=1)))) == 16 + 44
    assert offset(an_order_ack(tx_previous_sequence_number=1)) == an_order_ack().size - 36 + 12


@pytest.mark.parametrize(
    ("packet", "field", "sentence"),
    [
        (message(user_header(flags=UserFlags.of(MP=1, RC=0x1E))), "Flags", "RC must not be"),
        (acknowledging(window_size=0), "WindowSize", "must not be"),
        (transactional(tx_sequence_number=0, previous_tx_sequence_number=0), "TxSequenceNumber", "must not be"),
        (secured({"AU": 1}), "Flags", "AU must not be"),
        (secured({"AS": 3}), "Flags", "AS must not be"),
        (parameters(ack_timeout=1), "AckTimeout", "must not be"),
        (parameters(recoverable_ack_timeout=0x1D4C1), "RecoverableAckTimeout", "must not be"),
        (establish(operating_system=OperatingSystemFlags.of(RE=0x11)), "OperatingSystem", "RE must not be"),
        (message(props=properties(message_class=0x200)), "MessageClass", "must not be 0x0200"),
        (message(props=properties(hash_algorithm=5)), "HashAlgorithm", "must not be"),
        (an_order_ack(tx_sequence_number=0), "TxSequenceNumber", "must not be"),
    ],
)
def test_what_one_field_alone_may_hold_is_checked_too(packet: Any, field: str, sentence: str) -> None:
    findings = explain(packet).findings
    assert any(finding.field == field and sentence in finding.sentence for finding in findings)


NOTED = [
    ("AI is clear", secured({"AI": 0})),
    ("none of the types", message(props=properties(body_type=8))),
    ("asks for acknowledgments", message(props=properties(flags=1))),
    ("own signature", message(user_header(sent_time=0x524F494C))),
]


@pytest.mark.parametrize(("sentence", "packet"), NOTED)
def test_notes_are_no_findings(sentence: str, packet: Any) -> None:
    explained = explain(packet)
    assert [sentence in note.sentence for note in explained.notes] == [True]
    assert explained.findings == []
    assert not explained.broken


def test_every_note_is_tested() -> None:
    assert len(NOTED) == len(NOTES)


# --- between packets
def findings_of(*packets: tuple[Any, Route]) -> list[Finding]:
    explainer = Explainer()
    return [finding for packet, route in packets for finding in explain(packet, route, explainer).findings]


REQUEST = (establish(), CLIENT_ROUTE)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("ClientGuid", {"client_guid": TWO}),
        ("ServerGuid", {"server_guid": ONE}),
        ("TimeStamp", {"time_stamp": 6}),
        ("OperatingSystem", {"operating_system": OperatingSystemFlags.of(RE=0x10)}),
    ],
)
def test_a_response_gives_back_what_was_asked(field: str, changes: dict[str, Any]) -> None:
    assert findings_of(REQUEST, (establish(), SERVER_ROUTE)) == []
    (finding,) = findings_of(REQUEST, (establish(**changes), SERVER_ROUTE))
    assert (finding.structure, finding.field) == ("EstablishConnectionHeader", field)
    assert finding.section in ("MS-MQQB 2.2.3.1", "MS-MQQB 3.1.5.3.1")


def test_an_acceptor_names_itself_when_it_was_not_named() -> None:
    assert findings_of((establish(server_guid=ZERO_GUID), CLIENT_ROUTE), (establish(), SERVER_ROUTE)) == []


@pytest.mark.parametrize("field", ["recoverable_ack_timeout", "ack_timeout"])
def test_parameters_are_given_back(field: str) -> None:
    request = (parameters(), CLIENT_ROUTE)
    assert findings_of(request, (parameters(window_size=32), SERVER_ROUTE)) == []
    (finding,) = findings_of(request, (parameters(**{field: 30000}), SERVER_ROUTE))
    assert finding.field == "".join(word.capitalize() for word in field.split("_"))


def test_pings_are_answered_with_their_cookie_and_kind_of_asker() -> None:
    request = (Ping(cookie=1, qm_guid=ONE, flags=PingFlags.of(RC=1)), Route(None, True, "a:1", "b:3527", True))
    back = Route(None, False, "b:3527", "a:1", True)
    assert findings_of(request, (Ping(cookie=1, qm_guid=TWO, flags=PingFlags.of(RC=1)), back)) == []
    (cookie,) = findings_of(request, (Ping(cookie=2, qm_guid=TWO, flags=PingFlags.of(RC=1)), back))
    (flags,) = findings_of(request, (Ping(cookie=1, qm_guid=TWO), back))
    assert (cookie.field, flags.field) == ("Cookie", "Flags")
    assert findings_of((Ping(cookie=2, qm_guid=TWO), back)) == []


RECOVERABLE = (message(user_header(flags=UserFlags.of(MP=1, DM=1))), CLIENT_ROUTE)


def acked(**values: int) -> tuple[SessionAck, Route]:
    return session_ack(**values), SERVER_ROUTE


def test_a_session_ack_acknowledges_what_was_sent() -> None:
    stored = {"recoverable_msg_ack_seq_number": 1, "recoverable_msg_ack_flags": 3}
    assert findings_of(RECOVERABLE, RECOVERABLE, acked(ack_sequence_number=2, **stored)) == []
    (count,) = findings_of(RECOVERABLE, acked(ack_sequence_number=2))
    (bits,) = findings_of(RECOVERABLE, acked(ack_sequence_number=1, **stored))
    assert (count.field, bits.field) == ("AckSequenceNumber", "RecoverableMsgAckSeqNumber")
    assert count.offset == 20
    assert "only 1" in count.sentence


def test_a_session_header_counts_the_recoverable_messages_sent() -> None:
    assert findings_of(RECOVERABLE, (session_ack(recoverable_msg_seq_number=1), CLIENT_ROUTE)) == []
    (finding,) = findings_of(RECOVERABLE, (session_ack(recoverable_msg_seq_number=2), CLIENT_ROUTE))
    assert (finding.field, finding.offset) == ("RecoverableMsgSeqNumber", 30)


def test_nothing_is_counted_when_the_capture_lacks_the_beginning_or_a_part() -> None:
    late = SERVER_ROUTE._replace(from_start=False)
    assert findings_of((session_ack(ack_sequence_number=7), late)) == []
    explainer = Explainer()
    lost = Captured(Carrier.TCP, CLIENT_ROUTE, Origin(0, (), None), b"", "lost", 10, True)
    explainer.explain(lost)
    assert explain(session_ack(ack_sequence_number=7), SERVER_ROUTE, explainer).findings == []


def test_counts_wrap_at_16_bits() -> None:
    conversations = Conversations()
    sent = Seen(Kind.USER_MESSAGE, message(), True)
    for _ in range(0x10001):
        assert list(conversations.check(sent, CLIENT_ROUTE)) == []
    for number, broken in ((1, False), (0xFFFF, False), (2, True)):
        ack = Seen(Kind.SESSION_ACK, session_ack(ack_sequence_number=number), False)
        assert bool(list(conversations.check(ack, SERVER_ROUTE))) is broken


@pytest.mark.parametrize(
    ("packet", "kind"),
    [
        (message(), Kind.USER_MESSAGE),
        (message(props=properties(message_class=0x8000)), Kind.USER_MESSAGE),
        (an_order_ack(), Kind.ORDER_ACK),
        (a_final_ack(), Kind.FINAL_ACK),
        (establish(), Kind.ESTABLISH_CONNECTION),
        (parameters(), Kind.CONNECTION_PARAMETERS),
        (session_ack(), Kind.SESSION_ACK),
        (Ping(cookie=1, qm_guid=ONE), Kind.PING),
    ],
)
def test_kinds(packet: Any, kind: Kind) -> None:
    assert explain(packet).kind is kind
