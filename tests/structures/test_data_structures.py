"""The structures of MS-MQMQ 2.2 that are no packet headers: round trips, and any bytes whatever."""

import re

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

import qmnode.structures
from qmnode.structures.errors import PacketError
from qmnode.structures.guid import Guid
from qmnode.structures.properties import SequenceInfo
from qmnode.structures.public_keys import (
    AES_PROVIDER,
    BASE_PROVIDER,
    CALG_AES_256,
    CALG_RSA_KEYX,
    CALG_RSA_SIGN,
    PROV_RSA_AES,
    BlobHeader,
    MqdsPublicKey,
    MqdsPublicKeys,
    MqUserSignCert,
    MqUserSignCerts,
    PublicKeyBlob,
    RsaPubKey,
    SimpleBlob,
)
from qmnode.structures.queue_format import DlId, LpWStr, MulticastId, ObjectId, QueueFormat
from tests.structures.strategies import all_structures

u8, u16, u32, u64 = (st.integers(0, (1 << bits) - 1) for bits in (8, 16, 32, 64))
i8, i16, i32, i64 = (st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64))
guids = st.binary(min_size=16, max_size=16).map(Guid)
octets = st.binary(max_size=20)
strings = st.text(st.characters(exclude_characters="\0"), max_size=10)


def tuples(items):
    return st.lists(items, max_size=4).map(tuple)


lp_strings = st.builds(LpWStr, text=strings)
rsa_keys = st.builds(RsaPubKey, public_exponent=u32, modulus=octets)
public_key_blobs = st.builds(
    PublicKeyBlob,
    header=st.builds(BlobHeader, key_algorithm=st.sampled_from([CALG_RSA_KEYX, CALG_RSA_SIGN]) | u32),
    key=rsa_keys,
)
mqds_keys = st.builds(
    MqdsPublicKey, provider_type=u32, provider_name=strings, key=public_key_blobs.map(PublicKeyBlob.write) | octets
)
certificates = st.builds(
    MqUserSignCert, digest=st.binary(min_size=16, max_size=16), identifier=guids, certificate=octets
)
object_ids = st.builds(ObjectId, lineage=guids, uniquifier=u32)
dl_ids = st.builds(DlId, dl_guid=guids, domain=strings)
multicast_ids = st.builds(MulticastId, address=u32, port=u32)


def queue_formats_of(format_type, identifiers):
    return st.builds(
        QueueFormat, format_type=st.just(format_type), suffix_and_flags=u8, reserved=u16, identifier=identifiers
    )


queue_formats = st.one_of(
    queue_formats_of(number, identifiers)
    for number, identifiers in enumerate(
        [st.none(), guids, object_ids, lp_strings, guids, guids, dl_ids, multicast_ids, lp_strings]
    )
)

VALUES = {
    SequenceInfo: st.builds(SequenceInfo, seq_id=i64, seq_no=u32, prev_no=u32),
    ObjectId: object_ids,
    DlId: dl_ids,
    MulticastId: multicast_ids,
    LpWStr: lp_strings,
    BlobHeader: st.builds(BlobHeader, blob_type=st.sampled_from([1, 6]), key_algorithm=u32),
    RsaPubKey: rsa_keys,
    PublicKeyBlob: public_key_blobs,
    SimpleBlob: st.builds(SimpleBlob, session_key_algorithm=u32, encrypted_key=octets),
    MqdsPublicKey: mqds_keys,
    MqdsPublicKeys: st.builds(MqdsPublicKeys, keys=tuples(mqds_keys)),
    MqUserSignCert: certificates,
    MqUserSignCerts: st.builds(MqUserSignCerts, certificates=tuples(certificates)),
    QueueFormat: queue_formats,
}

every_structure = pytest.mark.parametrize("structure", VALUES, ids=lambda structure: structure.__name__)


@every_structure
def test_what_is_written_parses_to_the_same_value(structure):
    @given(VALUES[structure])
    def check(value):
        assert structure.parse(value.write()) == value
        assert structure.parse(memoryview(value.write())) == value

    check()


@every_structure
def test_any_bytes_are_a_value_that_writes_them_back_or_a_packet_error(structure):
    def mutated(values):
        return st.tuples(values.map(structure.write), st.integers(0), st.integers(0, 255)).map(_with_one_byte_changed)

    @given(st.binary(max_size=200) | mutated(VALUES[structure]))
    def check(buffer):
        try:
            value = structure.parse(buffer)
        except PacketError as error:
            assert error.offset is not None and 0 <= error.offset <= len(buffer)
            return
        assert value.write() == buffer
        assert structure.annotate(buffer).width == len(buffer)

    check()


def _with_one_byte_changed(change):
    written, place, octet = change
    if not written:
        return written
    place %= len(written)
    return written[:place] + bytes([octet]) + written[place + 1 :]


@every_structure
def test_every_shorter_piece_is_refused_or_is_a_value_of_its_own(structure):
    @given(VALUES[structure])
    def check(value):
        written = value.write()
        for size in range(len(written)):
            try:
                shorter = structure.parse(written[:size])
            except PacketError:
                continue
            assert shorter.write() == written[:size]

    check()


@pytest.mark.parametrize(
    ("structure", "buffer"),
    [
        (MqdsPublicKeys, "10000000 ffffffff 0000000000000000"),
        (MqdsPublicKey, "ffffffff 02000000 01000000 0000"),
        (MqUserSignCerts, "00000080"),
        (MqUserSignCert, "00" * 32 + "ffffff7f"),
        (RsaPubKey, "52534131 ffffffff 01000100"),
    ],
)
def test_a_length_beyond_the_bytes_is_refused_before_anything_is_taken(structure, buffer):
    with pytest.raises(PacketError):
        structure.parse(bytes.fromhex(buffer))


def test_a_bit_length_that_is_no_number_of_bytes_is_refused():
    with pytest.raises(PacketError, match="part of a byte"):
        RsaPubKey.parse(bytes.fromhex("52534131 09000000 01000100 0000"))


def test_the_bytes_of_a_public_key_are_those_of_the_specification():
    key = rsa.generate_private_key(65537, 1024).public_key().public_numbers()
    written = PublicKeyBlob.of(key.n, key.e).write()

    assert written[:16].hex(" ") == "06 02 00 00 00 a4 00 00 52 53 41 31 00 04 00 00"
    assert written[16:20] == (65537).to_bytes(4, "little")
    assert written[20:] == key.n.to_bytes(128, "little")
    assert (PublicKeyBlob.parse(written).modulus, PublicKeyBlob.parse(written).exponent) == (key.n, key.e)


def test_the_bytes_of_a_session_key_are_those_of_the_specification():
    blob = SimpleBlob(session_key_algorithm=CALG_AES_256, encrypted_key=bytes(range(256)))

    assert blob.write()[:12].hex(" ") == "01 02 00 00 10 66 00 00 00 a4 00 00"
    assert blob.write()[12:] == bytes(range(256))


def test_a_session_key_longer_than_any_public_key_is_refused():
    with pytest.raises(PacketError, match="at most 2048"):
        SimpleBlob.parse(bytes.fromhex("01020000 10660000 00a40000") + bytes(2049))


def test_a_key_of_a_list_is_read_as_its_blob():
    key = PublicKeyBlob.of(1 << 511, 65537)
    keys = MqdsPublicKeys(
        keys=(
            MqdsPublicKey(provider_type=1, provider_name=BASE_PROVIDER, key=b""),
            MqdsPublicKey(provider_type=PROV_RSA_AES, provider_name=AES_PROVIDER, key=key.write()),
        )
    )

    assert keys.length == len(keys.write())
    assert keys.keys[1].public_key == key


def test_the_package_says_in_which_file_each_structure_is() -> None:
    for kind in all_structures():
        package, _, module = kind.__module__.rpartition(".")
        if package != "qmnode.structures":
            continue  # what remote read speaks has its index in its own package
        row = re.search(rf"^{module} .*(?:\n .*)*", qmnode.structures.__doc__ or "", re.MULTILINE)
        name = kind.PLAN.name.removesuffix(" Packet").removesuffix(" Body")
        assert row is not None, module
        assert name in row[0], f"{name} is in {module}"
