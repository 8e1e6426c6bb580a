"""A packet cut at the borders of its headers against the structures that declare them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from qmnode.structures.enumerations import AuthenticationLevel
from qmnode.structures.guid import Guid
from qmnode.structures.packet_view import DIRECT, Sections
from qmnode.structures.signature_properties import signed_bytes
from qmnode.structures.user_message import (
    BaseFlags,
    BaseHeader,
    DebugHeader,
    DirectQueueFormatName,
    MessagePropertiesHeader,
    MQFAddressHeader,
    MQFFormatNameElement,
    MQFPublicQueueFormatName,
    MultiQueueFormatHeader,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
    SecurityHeader,
    SoapHeader,
    TransactionHeader,
    UserFlags,
    UserHeader,
    UserMessage,
)

GUIDS = st.binary(min_size=16, max_size=16).map(Guid)
NUMBERS = st.integers(0, 0xFFFF_FFFF)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=9)
DIRECTS = TEXTS.map(lambda text: DirectQueueFormatName(direct_format_name=f"OS:{text}"))
PUBLICS = st.builds(PublicQueueFormatName, public_queue_identifier=GUIDS)
NUMBERED = st.builds(PrivateQueueFormatNameId, private_queue_identifier=NUMBERS)
ELSEWHERE = st.builds(PrivateQueueFormatName, source_queue_manager=GUIDS, private_queue_identifier=NUMBERS)
OTHERS = st.one_of(st.none(), DIRECTS, PUBLICS, ELSEWHERE)
PARTS = st.binary(max_size=11)
SECURITY = st.builds(
    SecurityHeader,
    flags=st.integers(0, 0xFFFF),
    security_id=PARTS,
    encryption_key=PARTS,
    signature=PARTS,
    sender_cert=PARTS,
    provider_info=PARTS,
)
SEVERAL = MultiQueueFormatHeader(
    destination=MQFAddressHeader(
        format_name_list=(
            MQFFormatNameElement(format_name=MQFPublicQueueFormatName(public_queue_identifier=Guid(bytes(16)))),
        )
    )
)


@st.composite
def messages(draw: st.DrawFn) -> UserMessage:
    """Any message, with any headers."""
    to = draw(st.one_of(st.none(), DIRECTS, PUBLICS, NUMBERED))
    flags = UserFlags.of(MP=1, DM=draw(st.integers(0, 3)), JN=draw(st.integers(0, 1)), JP=draw(st.integers(0, 1)))
    answers = draw(OTHERS)
    if answers is None and draw(st.booleans()):
        flags |= UserFlags.of(RQ=1)
    return UserMessage(
        base_header=BaseHeader(flags=BaseFlags.of(PR=draw(st.integers(0, 7)))),
        user_header=UserHeader(
            source_queue_manager=draw(GUIDS),
            queue_manager_address=draw(GUIDS),
            sent_time=draw(NUMBERS),
            message_id=draw(NUMBERS),
            flags=flags | (UserFlags.of(DQ=3) if isinstance(to, PrivateQueueFormatNameId) else 0),
            destination_queue=to,
            admin_queue=draw(OTHERS),
            response_queue=answers,
            connector_type=draw(st.none() | GUIDS),
        ),
        transaction_header=draw(
            st.none()
            | st.builds(
                TransactionHeader,
                tx_sequence_id=NUMBERS,
                tx_sequence_number=st.just(1),
                previous_tx_sequence_number=st.just(0),
                connector_qm_guid=st.none() | GUIDS,
            )
        ),
        security_header=draw(st.none() | SECURITY),
        message_properties_header=MessagePropertiesHeader(
            flags=draw(st.integers(0, 255)),
            label=draw(TEXTS),
            correlation_id=draw(st.binary(min_size=20, max_size=20)),
            body_type=draw(NUMBERS),
            application_tag=draw(NUMBERS),
            privacy_level=draw(st.integers(0, 5)),
            hash_algorithm=draw(NUMBERS),
            encryption_algorithm=draw(NUMBERS),
            extension_data=draw(st.binary(max_size=9)),
            message_body=draw(st.binary(max_size=9)),
        ),
        debug_header=draw(st.sampled_from([None, DebugHeader()])),
        soap_header=draw(st.sampled_from([None, SoapHeader(header="a", body="b")])),
        multi_queue_format_header=draw(st.sampled_from([None, SEVERAL])),
    )


def parts(header: SecurityHeader | None) -> tuple[object, ...]:
    header = header or SecurityHeader()
    return header.flags, header.security_id, header.encryption_key, header.signature, header.sender_cert


@settings(max_examples=100, deadline=None)
@given(messages())
def test_the_sections_hold_what_the_structures_hold(packet: UserMessage) -> None:
    sections = Sections(packet.write())
    user, properties = packet.user_header, packet.message_properties_header
    assert (sections.source, sections.address, sections.sent_time) == (
        user.source_queue_manager,
        user.queue_manager_address,
        user.sent_time,
    )
    assert (sections.to == DIRECT) is isinstance(user.destination_queue, DirectQueueFormatName)
    assert sections.has_security is (packet.security_header is not None)
    assert sections.several == packet.multi_queue_format_header
    assert parts(packet.security_header) == (
        sections.security_flags,
        sections.security_id,
        sections.encryption_key,
        sections.signature,
        sections.sender_cert,
    )
    assert sections.body == bytes(properties.message_body)
    numbers = properties.privacy_level, properties.hash_algorithm, properties.encryption_algorithm
    assert numbers == (sections.privacy_level, sections.hash_algorithm, sections.encryption_algorithm)


@settings(max_examples=100, deadline=None)
@given(messages(), st.sampled_from([AuthenticationLevel.SIG10, AuthenticationLevel.SIG20, AuthenticationLevel.SIG30]))
def test_a_signature_covers_the_same(packet: UserMessage, level: AuthenticationLevel) -> None:
    sections = Sections(packet.write())
    assert sections.signed(level, sections.body) == signed_bytes(packet, level)
    header = packet.message_properties_header.replace(message_body=b"another body")
    expected = signed_bytes(packet.replace(message_properties_header=header), level)
    assert sections.signed(level, b"another body") == expected


@settings(max_examples=100, deadline=None)
@given(messages(), SECURITY, st.binary(max_size=9))
def test_a_changed_packet_is_that_of_the_changed_structures(
    packet: UserMessage, header: SecurityHeader, body: bytes
) -> None:
    sections, properties = Sections(packet.write()), packet.message_properties_header
    assert sections.with_security(header.write()) == packet.replace(security_header=header).write()
    hashed = properties.replace(hash_algorithm=7)
    assert sections.with_hash_algorithm(7) == packet.replace(message_properties_header=hashed).write()
    before = packet.security_header
    flagged = before.replace(flags=7) if before is not None else None
    clear = properties.replace(message_body=body)
    assert sections.with_body(7, None) == packet.replace(security_header=flagged).write()
    changed = packet.replace(security_header=flagged, message_properties_header=clear)
    assert sections.with_body(7, body) == changed.write()
    encrypted = packet.replace(
        security_header=(before or SecurityHeader()).replace(flags=9, encryption_key=b"the key", provider_info=b"who"),
        message_properties_header=properties.replace(
            message_body=body, allocation_body_size=len(body), privacy_level=5, encryption_algorithm=8
        ),
    )
    assert sections.encrypted(9, b"the key", b"who", body, 5, 8) == encrypted.write()
