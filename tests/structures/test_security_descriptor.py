"""SIDs, ACLs and security descriptors: bytes and text, MS-DTYP 2.4.2 to 2.4.6 and 2.5.1."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmnode.structures.errors import PacketError
from qmnode.structures.guid import Guid, guid_from_text
from qmnode.structures.security_descriptor import (
    ANONYMOUS,
    BUILTIN_ADMINISTRATORS,
    EVERYONE,
    LOCAL_SYSTEM,
    AccessEntry,
    Ace,
    AceType,
    Acl,
    Control,
    ObjectEntry,
    ReservedEntry,
    SecurityDescriptor,
    Sid,
    allow,
    deny,
)
from tests.lab.cases import cases
from tests.lab.sddl import SddlError, format_sddl, parse_sddl

# MS-DTYP 2.5.1.4: the text, and the bytes that it yields.
EXAMPLE_TEXT = "O:BAG:BAD:P(A;CIOI;GRGX;;;BU)(A;CIOI;GA;;;BA)(A;CIOI;GA;;;SY)(A;CIOI;GA;;;CO)S:P(AU;FA;GR;;;WD)"
EXAMPLE_BYTES = bytes.fromhex(
    """
    01 00 14 b0 90 00 00 00 a0 00 00 00 14 00 00 00
    30 00 00 00 02 00 1c 00 01 00 00 00 02 80 14 00
    00 00 00 80 01 01 00 00 00 00 00 01 00 00 00 00
    02 00 60 00 04 00 00 00 00 03 18 00 00 00 00 a0
    01 02 00 00 00 00 00 05 20 00 00 00 21 02 00 00
    00 03 18 00 00 00 00 10 01 02 00 00 00 00 00 05
    20 00 00 00 20 02 00 00 00 03 14 00 00 00 00 10
    01 01 00 00 00 00 00 05 12 00 00 00 00 03 14 00
    00 00 00 10 01 01 00 00 00 00 00 03 00 00 00 00
    01 02 00 00 00 00 00 05 20 00 00 00 20 02 00 00
    01 02 00 00 00 00 00 05 20 00 00 00 20 02 00 00
    """
)
DOMAIN = Sid.from_text("S-1-5-21-1-2-3")
MSMQ_SEND = guid_from_text("06bd3202-df3e-11d1-9c86-006008764d0e")

u8, u16, u32 = (st.integers(0, (1 << bits) - 1) for bits in (8, 16, 32))
guids = st.binary(min_size=16, max_size=16).map(Guid)
sids = st.builds(
    Sid, authority=st.binary(min_size=6, max_size=6), sub_authorities=st.lists(u32, max_size=15).map(tuple)
)
words = st.binary(max_size=3).map(lambda data: data * 4)
access_entries = st.builds(AccessEntry, mask=u32, sid=sids, application_data=words)
object_entries = st.builds(
    ObjectEntry,
    mask=u32,
    sid=sids,
    object_type=st.none() | guids,
    inherited_object_type=st.none() | guids,
    application_data=words,
)
plain_types = st.sampled_from([AceType.ACCESS_ALLOWED, AceType.ACCESS_DENIED, AceType.SYSTEM_AUDIT])
object_types = st.sampled_from(
    [AceType.ACCESS_ALLOWED_OBJECT, AceType.ACCESS_DENIED_OBJECT, AceType.SYSTEM_AUDIT_OBJECT]
)
aces = st.one_of(
    st.builds(Ace, ace_type=plain_types, ace_flags=u8, entry=access_entries),
    st.builds(Ace, ace_type=object_types, ace_flags=u8, entry=object_entries),
    st.builds(Ace, ace_type=st.just(AceType.SYSTEM_ALARM), ace_flags=u8, entry=st.builds(ReservedEntry, body=words)),
)
acls = st.builds(
    Acl,
    acl_revision=st.sampled_from([2, 4]),
    sbz1=u8,
    sbz2=u16,
    aces=st.lists(aces, max_size=4).map(tuple),
    unused=words,
)
descriptors = st.builds(
    SecurityDescriptor,
    owner=st.none() | sids,
    group=st.none() | sids,
    dacl=st.none() | acls,
    sacl=st.none() | acls,
    control=u16,
    resource_manager_control=u8,
)


# --- SIDs -------------------------------------------------------------------------------------------------------------
@given(sids)
def test_sids_round_trip_as_bytes_and_as_text(sid):
    assert Sid.parse(sid.write()) == sid
    assert Sid.from_text(str(sid)) == sid
    assert Sid.from_text(str(sid).lower()) == sid


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("S-1-1-0", "01 01 00 00 00 00 00 01 00 00 00 00"),
        ("S-1-5-32-544", "01 02 00 00 00 00 00 05 20 00 00 00 20 02 00 00"),
        ("S-1-0x100000000000-7", "01 01 10 00 00 00 00 00 07 00 00 00"),
    ],
)
def test_the_bytes_of_sids(text, written):
    assert Sid.from_text(text).write() == bytes.fromhex(written)
    assert str(Sid.parse(bytes.fromhex(written))) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "S-1",
        "S-2-5-18",
        "S-1-5-",
        "S-1-5-018",
        "S-1-5-4294967296",
        "S-1-4294967296-1",
        "S-1-0x000000000005-18",
        "S-1-5-١",
        "S-1-5" + "-1" * 16,
    ],
)
def test_what_is_no_sid(text):
    with pytest.raises(ValueError, match="not a SID"):
        Sid.from_text(text)


@given(st.text() | st.from_regex(r"S-1-[0-9x]*(-[0-9]*)*"))
def test_any_text_is_a_sid_or_a_value_error(text):
    try:
        sid = Sid.from_text(text)
    except ValueError:
        return
    assert str(sid) == text.upper().replace("0X", "0x").lower().replace("s-", "S-")


@pytest.mark.parametrize("written", ["", "01", "0110" + "00" * 80, "0201" + "00" * 10, "0102" + "00" * 10])
def test_bytes_that_are_no_sid(written):
    with pytest.raises(PacketError):
        Sid.parse(bytes.fromhex(written))


# --- descriptors as bytes ---------------------------------------------------------------------------------------------
def test_the_example_of_the_specification_parses_and_writes_back_byte_for_byte():
    descriptor = SecurityDescriptor.parse(EXAMPLE_BYTES)

    assert descriptor.owner == descriptor.group == BUILTIN_ADMINISTRATORS
    assert [(ace.ace_flags, ace.entry.mask, str(ace.entry.sid)) for ace in descriptor.dacl.aces] == [
        (0x03, 0xA0000000, "S-1-5-32-545"),
        (0x03, 0x10000000, "S-1-5-32-544"),
        (0x03, 0x10000000, "S-1-5-18"),
        (0x03, 0x10000000, "S-1-3-0"),
    ]
    assert [(ace.ace_type, ace.ace_flags, ace.entry.sid) for ace in descriptor.sacl.aces] == [(2, 0x80, EVERYONE)]
    assert descriptor.write() == EXAMPLE_BYTES


def test_the_example_of_the_specification_as_text_yields_its_bytes():
    assert parse_sddl(EXAMPLE_TEXT).write() == EXAMPLE_BYTES


@given(acls)
def test_acls_round_trip(acl):
    assert Acl.parse(acl.write()) == acl


@given(descriptors)
def test_descriptors_round_trip(descriptor):
    assert SecurityDescriptor.parse(descriptor.write()) == descriptor


def changed(descriptor, place, octet):
    written = bytearray(descriptor.write())
    written[place % len(written)] = octet
    return bytes(written)


@given(st.binary(max_size=120) | st.builds(changed, descriptors, st.integers(0), u8))
def test_any_bytes_are_a_descriptor_or_a_packet_error(buffer):
    try:
        descriptor = SecurityDescriptor.parse(buffer)
    except PacketError:
        return
    assert SecurityDescriptor.parse(descriptor.write()) == descriptor


@given(st.binary(max_size=60))
def test_any_bytes_are_an_acl_that_writes_them_back_or_a_packet_error(buffer):
    try:
        acl = Acl.parse(buffer)
    except PacketError:
        return
    assert acl.write() == buffer


def test_parts_may_lie_in_any_order_and_be_shared():
    owner = LOCAL_SYSTEM.write()
    acl = Acl.of(allow(EVERYONE, 1)).write()
    header = bytes.fromhex("01000480") + b"".join(n.to_bytes(4, "little") for n in (20, 20, 0, 20 + len(owner)))
    descriptor = SecurityDescriptor.parse(header + owner + acl)

    assert descriptor == SecurityDescriptor(
        owner=LOCAL_SYSTEM, group=LOCAL_SYSTEM, dacl=Acl.of(allow(EVERYONE, 1)), control=descriptor.control
    )


@pytest.mark.parametrize(
    ("control", "offsets", "sentence"),
    [
        (0x0004, (0, 0, 0, 0), "SR is clear"),
        (0x8000, (0, 0, 0, 20), "must be zero, since DP is clear"),
        (0x8000, (0, 0, 20, 0), "must be zero, since SP is clear"),
        (0x8000, (4, 0, 0, 0), "not behind the header"),
        (0x8000, (0, 0xFFFFFFFF, 0, 0), "not behind the header"),
        (0x8000, (28, 0, 0, 0), "needs"),
    ],
)
def test_offsets_are_checked(control, offsets, sentence):
    header = b"\x01\x00" + control.to_bytes(2, "little") + b"".join(n.to_bytes(4, "little") for n in offsets)
    with pytest.raises(PacketError, match=sentence):
        SecurityDescriptor.parse(header + EVERYONE.write())


@pytest.mark.parametrize("size", [0, 4, 22, 0xFFFC])
def test_an_entry_that_states_another_size_is_refused(size):
    written = bytearray(Acl.of(allow(EVERYONE, 1)).write())
    written[10:12] = size.to_bytes(2, "little")
    with pytest.raises(PacketError):
        Acl.parse(bytes(written))


def test_no_acl_is_larger_than_its_size_can_say():
    with pytest.raises(PacketError, match="AclSize"):
        Acl.of(*[allow(EVERYONE, 1)] * 4000)


# --- descriptors as text ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text",
    [
        "",
        "O:BAG:SY",
        "D:",
        "D:NO_ACCESS_CONTROL",
        "O:S-1-5-21-1-2-3-1001D:PARAI(D;OICINPIOIDSAFA;GA;;;AN)(A;;0x2bb;;;WD)",
        "D:AI(OA;;CR;06bd3202-df3e-11d1-9c86-006008764d0e;;AU)(OD;;CR;;9a0dc343-c100-11d1-bbc5-0080c76670c0;BA)",
        "S:(OU;SAFA;CCDCLCSWRPWPDTLOCRSDRCWDWOGAGXGWGR;;;WD)",
    ],
)
def test_text_round_trips(text):
    descriptor = parse_sddl(text)

    assert format_sddl(descriptor) == text
    assert parse_sddl(format_sddl(SecurityDescriptor.parse(descriptor.write()))) == descriptor


text_sids = sids.filter(lambda sid: sid.sub_authorities)
text_aces = st.one_of(
    st.builds(Ace, ace_type=plain_types, ace_flags=u8.map(lambda flags: flags & ~0x20),
              entry=st.builds(AccessEntry, mask=u32, sid=text_sids)),
    st.builds(Ace, ace_type=object_types, entry=st.builds(
        ObjectEntry, mask=u32, sid=text_sids, object_type=st.none() | guids, inherited_object_type=st.none() | guids)),
)  # fmt: skip
text_acls = st.lists(text_aces, max_size=4).map(lambda entries: Acl.of(*entries))
TEXT_FLAGS = Control.of(DP=1, SP=1, PD=1, PS=1, DC=1, SC=1, DI=1, SI=1)


@given(
    st.builds(
        SecurityDescriptor,
        owner=st.none() | text_sids,
        group=st.none() | text_sids,
        dacl=text_acls,
        sacl=text_acls,
        control=u16.map(lambda control: control & TEXT_FLAGS),
    )
)
def test_every_descriptor_that_has_a_text_comes_back_from_it(descriptor):
    assert parse_sddl(format_sddl(descriptor)) == descriptor


def test_accounts_of_a_domain_need_the_domain():
    assert parse_sddl("O:DA", DOMAIN).owner == Sid.from_text("S-1-5-21-1-2-3-512")
    with pytest.raises(SddlError, match="depends on the domain"):
        parse_sddl("O:DA")


def test_the_default_of_a_directory_class_is_read():
    text = "D:(A;;RPWPCRCCDCLCLORCWOWDSDDTSW;;;DA)(A;;RPWPCRCCDCLCLORCWOWDSDDTSW;;;SY)(A;;RPLCLORC;;;AU)"

    assert [ace.entry.mask for ace in parse_sddl(text, DOMAIN).dacl.aces] == [0xF01FF, 0xF01FF, 0x20094]


@pytest.mark.parametrize(("number", "mask"), [("0x1F", 0x1F), ("010", 8), ("31", 31), ("0", 0), ("FA", 0x1F01FF)])
def test_rights_may_be_numbers(number, mask):
    assert parse_sddl(f"D:(A;;{number};;;WD)").dacl.aces[0].entry.mask == mask


@cases(
    ("text", "position"),
    [
        ("X", 0),
        ("O:", 2),
        ("O:XX", 2),
        ("G:BAO:BA", 4),
        ("D:(A;;GA;;;WD", 11),
        ("D:(Z;;GA;;;WD)", 3),
        ('D:(XA;;GA;;;WD;(@User.Title=="PM"))', 3),
        ("S:(ML;;NW;;;LW)", 3),
        ("D:(A;XX;GA;;;WD)", 5),
        ("D:(A;CIO;GA;;;WD)", 7),
        ("D:(A;;GAX;;;WD)", 8),
        ("D:(A;;0x1FFFFFFFF;;;WD)", 6),
        ("D:(A;;4294967296;;;WD)", 6),
        ("D:(OA;;CR;x;;WD)", 10),
        ("D:(A;;GA;06bd3202-df3e-11d1-9c86-006008764d0e;;WD)", 47),
        ("D:(A;;GA;;;)", 11),
        ("D:D:", 2),
    ],
)
def test_a_wrong_text_says_where(text, position):
    with pytest.raises(SddlError) as caught:
        parse_sddl(text)
    assert caught.value.position == position


@given(st.text() | st.lists(st.sampled_from([*"ODGS:;()", "BA", "WD", "A", "0x1", "S-1-5-18", "GA", "P"])).map("".join))
def test_any_text_is_a_descriptor_or_an_sddl_error(text):
    try:
        descriptor = parse_sddl(text)
    except SddlError as error:
        assert 0 <= error.position <= len(text)
        return
    assert parse_sddl(format_sddl(descriptor)) == descriptor


def test_too_many_entries_are_refused():
    with pytest.raises(SddlError, match="64 KiB"):
        parse_sddl("D:" + "(A;;1;;;WD)" * 4000)
    with pytest.raises(SddlError, match="at most"):
        parse_sddl("D:" + "(A;;1;;;WD)" * 20000)


def test_what_has_no_text_is_refused_and_not_dropped():
    ace = Ace(ace_type=AceType.ACCESS_ALLOWED_CALLBACK, entry=AccessEntry(mask=1, sid=ANONYMOUS))
    with pytest.raises(ValueError, match="0x09"):
        format_sddl(SecurityDescriptor().with_dacl(ace, deny(EVERYONE, 1)))
