r"""Names as Windows writes them and as MS-MQMQ 2.1 has them: what they parse to, and how they print."""

from ipaddress import IPv4Address

import pytest

from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import guid_from_text
from qmnode.structures.names import (
    ConnectorFormatName,
    DirectFormatName,
    DirectProtocol,
    DistributionListFormatName,
    FormatNameError,
    MachineFormatName,
    MachineQueue,
    MulticastFormatName,
    MultipleElementFormatName,
    PathName,
    PathNameError,
    PrivateFormatName,
    PublicFormatName,
    QueueKind,
    parse_format_name,
    parse_single_format_name,
)
from tests.lab.cases import cases

G = "1f2d3c4b-0001-0203-0405-060708090a0b"
GUID = guid_from_text(G)
PUBLIC, PRIVATE, SYSTEM = QueueKind.PUBLIC, QueueKind.PRIVATE, QueueKind.SYSTEM


@pytest.mark.parametrize(
    ("text", "name", "printed"),
    [
        (r"server\orders", PathName("server", "orders"), r"server\orders"),
        (r".\Private$\orders", PathName(".", "orders", PRIVATE), r".\private$\orders"),
        (r"SERVER\PRIVATE$\orders", PathName("server", "ORDERS", PRIVATE), r"SERVER\private$\orders"),
        (r"server\System$;DEADXACT", PathName("server", "DEADXACT", SYSTEM), r"server\system$;DEADXACT"),
        (r"server\orders;late", PathName("server", "orders", subqueue="late"), r"server\orders;late"),
        (r"server\private$\a;Journal", PathName("server", "a", PRIVATE, journal=True), r"server\private$\a;JOURNAL"),
        (r"s.corp.example\two words", PathName("s.corp.example", "two words"), r"s.corp.example\two words"),
        (r"server\bestellungen-größe", PathName("server", "bestellungen-größe"), r"server\bestellungen-größe"),
    ],
)
def test_path_names(text, name, printed):
    assert PathName.parse(text) == name
    assert str(PathName.parse(text)) == printed


def direct(protocol, computer, queue, kind=PUBLIC, port=None, **suffix):
    return DirectFormatName(DirectProtocol(protocol), PathName(computer, queue, kind, **suffix), port)


@cases(
    ("text", "name", "printed"),
    [
        (r"DIRECT=OS:a04bm02\q", direct("OS", "a04bm02", "q"), None),
        (
            r"Direct=os:.\PRIVATE$\q;journal",
            direct("OS", ".", "q", PRIVATE, journal=True),
            r"DIRECT=OS:.\private$\q;JOURNAL",
        ),
        (r"DIRECT=OS:a\q;sub", direct("OS", "a", "q", subqueue="sub"), None),
        (r"DIRECT=OS:a\SYSTEM$;deadletter", direct("OS", "a", "DEADLETTER", SYSTEM), r"DIRECT=OS:a\system$;deadletter"),
        (r"DIRECT=TCP:10.0.0.1\private$\order_queue$", direct("TCP", "10.0.0.1", "order_queue$", PRIVATE), None),
        (r"DIRECT=TCP:fe80::1\q", direct("TCP", "fe80::1", "q"), None),
        (r"DIRECT=TCP:[2001:DB8:0::1]\q", direct("TCP", "2001:db8::1", "q"), r"DIRECT=TCP:2001:db8::1\q"),
        ("DIRECT=HTTP://host/msmq/private$/q", direct("HTTP", "host", "q", PRIVATE), None),
        (r"DIRECT=HTTP://host:8080/MSMQ\q", direct("HTTP", "host", "q", port=8080), "DIRECT=HTTP://host:8080/msmq/q"),
        ("DIRECT=https://[::1]:443/msmq/q", direct("HTTPS", "::1", "q", port=443), "DIRECT=HTTPS://[::1]:443/msmq/q"),
        (r"DIRECT=HTTP://host:/msmq/q", direct("HTTP", "host", "q"), "DIRECT=HTTP://host/msmq/q"),
        (r"DIRECT=IPX:00000012:00a0234f7500\q", direct("IPX", "00000012:00A0234F7500", "q"), None),
        (
            r"DIRECT=SPX:00000012:00a0234f7500\PRIVATE$\order_queue$",
            None,
            r"DIRECT=SPX:00000012:00a0234f7500\private$\order_queue$",
        ),
        (f"PUBLIC={G}", PublicFormatName(GUID), None),
        (f"public={G.upper()};journal", PublicFormatName(GUID, journal=True), f"PUBLIC={G};JOURNAL"),
        (rf"PRIVATE={G}\12", PrivateFormatName(GUID, 0x12), rf"PRIVATE={G}\00000012"),
        (
            rf"PRIVATE={G}\FFFFFFFF;JOURNAL",
            PrivateFormatName(GUID, 0xFFFFFFFF, journal=True),
            rf"PRIVATE={G}\ffffffff;JOURNAL",
        ),
        (f"DL={G}", DistributionListFormatName(GUID), None),
        (f"DL={G}@corp.example", DistributionListFormatName(GUID, "CORP.example"), None),
        (f"MACHINE={G}", MachineFormatName(GUID), None),
        (f"machine={G};DeadXact", MachineFormatName(GUID, MachineQueue.DEADXACT), f"MACHINE={G};DEADXACT"),
        (f"MACHINE={G};JOURNAL", MachineFormatName(GUID, MachineQueue.JOURNAL), None),
        (f"CONNECTOR={G}", ConnectorFormatName(GUID), None),
        (f"CONNECTOR={G};xactonly", ConnectorFormatName(GUID, transactional=True), f"CONNECTOR={G};XACTONLY"),
        ("MULTICAST=239.255.1.2:42", MulticastFormatName(IPv4Address("239.255.1.2"), 42), None),
    ],
)
def test_format_names(text, name, printed):
    parsed = parse_format_name(text)

    assert name is None or parsed == name
    assert str(parsed) == (printed or text)


def test_packets_carry_direct_names_without_the_prefix():
    name = DirectFormatName.parse(r"OS:a04bm02\q")

    assert name == parse_format_name(r"DIRECT=OS:a04bm02\q")
    assert name.without_prefix == r"OS:a04bm02\q"


def test_a_multiple_element_name_keeps_its_elements_in_order():
    text = rf"DIRECT=OS:a\q,PUBLIC={G},DL={G},MULTICAST=224.0.0.1:65535,CONNECTOR={G}"
    name = parse_format_name(text)

    assert isinstance(name, MultipleElementFormatName)
    assert [type(element) for element in name.elements] == [
        DirectFormatName,
        PublicFormatName,
        DistributionListFormatName,
        MulticastFormatName,
        ConnectorFormatName,
    ]
    assert str(name) == text


def test_case_does_not_distinguish_names():
    first, second = (
        parse_format_name(text) for text in (r"DIRECT=OS:Host\Private$\Größe;Sub", r"direct=os:HOST\private$\GRÖßE;SUB")
    )

    assert first == second
    assert hash(first) == hash(second)
    assert len({first, second}) == 1


def test_other_letters_are_not_folded_into_ascii():
    assert PathName("a", "ſ") != PathName("a", "S")
    with pytest.raises(FormatNameError):
        parse_format_name("DIRECT=Oſ:a\\q")


@cases(
    ("text", "position", "expected"),
    [
        ("", 0, "a computer name, which must not be empty"),
        ("server", 6, "a backslash and a queue name"),
        ("server\\", 7, "a queue name, which must not be empty"),
        (r"server\private$", 15, "a queue name after private$"),
        (r"server\private$\a\b", 17, "without control character, backslash"),
        (r"server\a+b", 8, "plus"),
        (r"server\q;", 9, "a subqueue name, which must not be empty"),
        (r"server\q;deadxact", 9, "which deadxact cannot be"),
        ("server\\" + "q" * 125, 131, "at most 124 UTF-16 units"),
        ("server\\q;" + "s" * 33, 41, "at most 32 UTF-16 units"),
        ("c" * 257 + "\\q", 256, "at most 256 UTF-16 units"),
        ("q" * 513, 512, "at most 512 UTF-16 units"),
        ("a\\\ud800", 2, "a queue name without"),
    ],
)
def test_a_wrong_path_name_says_where_and_what_would_be_right(text, position, expected):
    with pytest.raises(PathNameError) as caught:
        PathName.parse(text)

    assert caught.value.code == ErrorCode.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME
    assert caught.value.position == position
    assert expected in caught.value.expected
    assert "MQ_ERROR_ILLEGAL_QUEUE_PATHNAME" in str(caught.value)


@cases(
    ("text", "position", "expected"),
    [
        ("", 0, "DIRECT=, PUBLIC="),
        (r"server\q", 0, "DIRECT=, PUBLIC="),
        (r"DIRECT=server\q", 7, "TCP, OS, HTTP"),
        (r"DIRECT=OS", 9, "a colon after the protocol"),
        (r"DIRECT=OS:server", 16, "a backslash"),
        (r"DIRECT=TCP:server\q", 11, "a computer name goes after OS:"),
        (r"DIRECT=TCP:10.0.0.256\q", 11, "an IP address"),
        (r"DIRECT=IPX:12:34\q", 11, "a network of 8"),
        (r"DIRECT=OS:a\SYSTEM$;q", 20, "JOURNAL, DEADLETTER or DEADXACT"),
        (r"DIRECT=HTTP:host/msmq/q", 12, "// after HTTP:"),
        (r"DIRECT=HTTP://host/q", 18, "/msmq/"),
        (r"DIRECT=HTTP://ho st/msmq/q", 16, "a computer name without space"),
        (r"DIRECT=HTTP://host:65536/msmq/q", 19, "a port from 0 to 65535"),
        (r"DIRECT=HTTP://[10.0.0.1]/msmq/q", 15, "an IPv6 address in brackets"),
        ("DIRECT=HTTP://host/msmq/private$/", 33, "a queue name, which must not be empty"),
        ("PUBLIC=", 7, "a GUID"),
        (f"PUBLIC={G};DEADLETTER", 43, "the end of the name"),
        (f"PRIVATE={G}", 44, "a backslash and the number"),
        (rf"PRIVATE={G}\123456789", 45, "1 to 8 hexadecimal digits"),
        (f"MACHINE={G};q", 44, ";JOURNAL, ;DEADLETTER or ;DEADXACT"),
        (f"DL={G}@", 40, "a domain name, which must not be empty"),
        ("MULTICAST=223.0.0.1:1", 10, "224.0.0.0 to 239.255.255.255"),
        ("MULTICAST=224.0.0.1", 19, "a colon and a port"),
        ("MULTICAST=224.0.0.1:65536", 20, "a port"),
        (f"PUBLIC={G},", 44, "DIRECT=, PUBLIC="),
        (rf"PUBLIC={G},DIRECT=OS:a\q;JOURNAL", 44, "not a journal"),
        (rf"PUBLIC={G},MACHINE={G};DEADXACT", 44, "not a journal"),
        (rf"PUBLIC={G},DIRECT=OS:a\b\c", 57, "a queue name without"),
    ],
)
def test_a_wrong_format_name_says_where_and_what_would_be_right(text, position, expected):
    with pytest.raises(FormatNameError) as caught:
        parse_format_name(text)

    assert caught.value.code == ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME
    assert (caught.value.position, caught.value.text) == (position, text)
    assert expected in caught.value.expected


def test_a_single_name_has_no_comma():
    with pytest.raises(FormatNameError):
        parse_single_format_name(f"PUBLIC={G},PUBLIC={G}")


def test_the_number_of_elements_is_bounded():
    assert len(MultipleElementFormatName.parse(",".join([f"PUBLIC={G}"] * 1000)).elements) == 1000
    with pytest.raises(FormatNameError, match="at most 1000"):
        MultipleElementFormatName.parse("," * 1000)


@cases(
    "make",
    [
        lambda: PathName("", "q"),
        lambda: PathName("a", "q", subqueue="journal"),
        lambda: PathName("a", "q", subqueue="s", journal=True),
        lambda: PathName("a", "q", SYSTEM, journal=True),
        lambda: direct("TCP", "host", "q"),
        lambda: direct("TCP", "0::1", "q"),
        lambda: direct("OS", "host", "q", port=1),
        lambda: direct("HTTP", "host", "q", port=65536),
        lambda: direct("HTTP", "ho:st", "q"),
        lambda: direct("HTTP", "host", "private$/q"),
        lambda: PrivateFormatName(GUID, 1 << 32),
        lambda: DistributionListFormatName(GUID, "a,b"),
        lambda: MulticastFormatName(IPv4Address("10.0.0.1"), 1),
        lambda: MulticastFormatName(IPv4Address("224.0.0.1"), -1),
        lambda: MultipleElementFormatName(()),
        lambda: MultipleElementFormatName((MachineFormatName(GUID, MachineQueue.JOURNAL),)),
    ],
)
def test_no_value_can_be_made_that_does_not_print_as_a_name(make):
    with pytest.raises((PathNameError, FormatNameError)):
        make()
