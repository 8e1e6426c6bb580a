"""Every name prints as a text that parses to it, and no text raises anything but the names' own error."""

from hypothesis import given
from hypothesis import strategies as st

from qmnode.structures.guid import Guid
from qmnode.structures.names import (
    COMPUTER,
    DOMAIN,
    QUEUE,
    RESERVED_SUFFIXES,
    SUBQUEUE,
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
    fold,
    parse_format_name,
)


def part(kind):
    return st.text(min_size=1, max_size=kind.maximum // 4).filter(lambda text: kind.fault(text) is None)


guids = st.binary(min_size=16, max_size=16).map(Guid)
computers = part(COMPUTER)
queues = part(QUEUE).filter(lambda text: fold(text) not in ("PRIVATE$", "SYSTEM$"))
subqueues = part(SUBQUEUE).filter(lambda text: fold(text) not in RESERVED_SUFFIXES)


def paths_on(addresses):
    kinds = st.sampled_from([QueueKind.PUBLIC, QueueKind.PRIVATE])
    return st.one_of(
        st.builds(PathName, addresses, queues, kinds, journal=st.booleans()),
        st.builds(PathName, addresses, queues, kinds, subqueues),
        st.builds(PathName, addresses, st.sampled_from(list(MachineQueue)), st.just(QueueKind.SYSTEM)),
    )


ipx_addresses = st.from_regex(r"[0-9A-F]{8}:[0-9a-f]{12}", fullmatch=True)
ip_addresses = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str)
host_names = computers.filter(lambda text: not set("[]/:") & set(text))
web_paths = paths_on(st.one_of(host_names, ip_addresses)).filter(
    lambda path: not fold(path.queue).startswith("PRIVATE$/")
)

direct_names = st.one_of(
    st.builds(DirectFormatName, st.just(DirectProtocol.OS), paths_on(computers)),
    st.builds(DirectFormatName, st.just(DirectProtocol.TCP), paths_on(ip_addresses)),
    st.builds(DirectFormatName, st.sampled_from([DirectProtocol.IPX, DirectProtocol.SPX]), paths_on(ipx_addresses)),
    st.builds(
        DirectFormatName,
        st.sampled_from([DirectProtocol.HTTP, DirectProtocol.HTTPS]),
        web_paths,
        st.none() | st.integers(0, 0xFFFF),
    ),
)
single_names = st.one_of(
    direct_names,
    st.builds(PublicFormatName, guids, st.booleans()),
    st.builds(PrivateFormatName, guids, st.integers(0, 0xFFFFFFFF), st.booleans()),
    st.builds(DistributionListFormatName, guids, st.just("") | part(DOMAIN)),
    st.builds(MachineFormatName, guids, st.none() | st.sampled_from(MachineQueue)),
    st.builds(ConnectorFormatName, guids, st.booleans()),
    st.builds(MulticastFormatName, st.ip_addresses(network="224.0.0.0/4"), st.integers(0, 0xFFFF)),
)
multiple_names = st.lists(single_names.filter(lambda name: not name.is_read_only), min_size=2, max_size=5).map(
    lambda names: MultipleElementFormatName(tuple(names))
)

PREFIXES = ["DIRECT=", "PUBLIC=", "PRIVATE=", "MACHINE=", "DL=", "CONNECTOR=", "MULTICAST=", "TCP:", "OS:", "HTTP:"]
SEPARATORS = ["//", "/msmq", "\\", "/", ";", ",", "@", ":", "[", "]", "%", " "]
PARTS = ["private$", "system$", "JOURNAL", "127.0.0.1", "::1", "224.0.0.1", "12", "q", "\x00", "\ud800", "ß", "𝔘"]
fragments = st.sampled_from([*PREFIXES, *SEPARATORS, *PARTS, "01020304-0506-0708-090a-0b0c0d0e0f10"])
texts = st.one_of(st.text(), st.lists(fragments, max_size=12).map("".join))


@given(paths_on(computers))
def test_path_names_round_trip(name):
    assert PathName.parse(str(name)) == name


@given(single_names | multiple_names)
def test_format_names_round_trip(name):
    assert parse_format_name(str(name)) == name
    assert str(parse_format_name(str(name))) == str(name)


@given(direct_names)
def test_direct_names_round_trip_without_their_prefix(name):
    assert DirectFormatName.parse(name.without_prefix) == name


@given(single_names)
def test_names_in_another_case_are_the_same_name(name):
    swapped = parse_format_name(fold(str(name)))

    assert swapped == name
    assert hash(swapped) == hash(name)


@given(texts)
def test_any_text_is_a_path_name_or_a_path_name_error(text):
    try:
        name = PathName.parse(text)
    except PathNameError as error:
        assert 0 <= error.position <= len(text)
        return
    assert PathName.parse(str(name)) == name


@given(texts)
def test_any_text_is_a_format_name_or_a_format_name_error(text):
    try:
        name = parse_format_name(text)
    except FormatNameError as error:
        assert error.text == text
        assert 0 <= error.position <= len(text)
        return
    assert parse_format_name(str(name)) == name
