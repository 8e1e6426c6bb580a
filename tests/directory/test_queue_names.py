"""Long queue names (MS-MQDSSM 2.2.5, 3.1.6.1.2.5), beside the section's algorithm with the section's table."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mqenterprise.directory.errors import ConstraintViolated
from mqenterprise.directory.ldap_names import join_queue_name, queue_name_hash, split_queue_name
from qmnode.errors import MessageQueuingError
from qmnode.model.queue_collection import check_properties

VALUES = """
00000000 82E0FE45 3302DCCD B1E22288 6605B99A E4E547DF 55076557 D7E79B12
CC0B7334 4EEB8D71 FF09AFF9 7DE951BC AA0ECAAE 28EE34EB 990C1663 1BECE826
AED5C62F 2C35386A 9DD71AE2 1F37E4A7 C8D07FB5 4A3081F0 FBD2A378 79325D3D
62DEB51B E03E4B5E 51DC69D6 D33C9793 04DB0C81 863BF2C4 37D9D04C B5392E09
6B68AC19 E988525C 586A70D4 DA8A8E91 0D6D1583 8F8DEBC6 3E6FC94E BC8F370B
A763DF2D 25832168 946103E0 1681FDA5 C16666B7 438698F2 F264BA7A 7084443F
C5BD6A36 475D9473 F6BFB6FB 745F48BE A3B8D3AC 21582DE9 90BA0F61 125AF124
09B61902 8B56E747 3AB4C5CF B8543B8A 6FB3A098 ED535EDD 5CB17C55 DE518210
D6D15832 5431A677 E5D384FF 67337ABA B0D4E1A8 32341FED 83D63D65 0136C320
1ADA2B06 983AD543 29D8F7CB AB38098E 7CDF929C FE3F6CD9 4FDD4E51 CD3DB014
78049E1D FAE46058 4B0642D0 C9E6BC95 1E012787 9CE1D9C2 2D03FB4A AFE3050F
B40FED29 36EF136C 870D31E4 05EDCFA1 D20A54B3 50EAAAF6 E108887E 63E8763B
BDB9F42B 3F590A6E 8EBB28E6 0C5BD6A3 DBBC4DB1 595CB3F4 E8BE917C 6A5E6F39
71B2871F F352795A 42B05BD2 C050A597 17B73E85 9557C0C0 24B5E248 A6551C0D
136C3204 918CCC41 206EEEC9 A28E108C 75698B9E F78975DB 466B5753 C48BA916
DF674130 5D87BF75 EC659DFD 6E8563B8 B962F8AA 3B8206EF 8A602467 0880DA22
9B619023 19816E66 A8634CEE 2A83B2AB FD6429B9 7F84D7FC CE66F574 4C860B31
576AE317 D58A1D52 64683FDA E688C19F 316F5A8D B38FA4C8 026D8640 808D7805
35B4560C B754A849 06B68AC1 84567484 53B1EF96 D15111D3 60B3335B E253CD1E
F9BF2538 7B5FDB7D CABDF9F5 485D07B0 9FBA9CA2 1D5A62E7 ACB8406F 2E58BE2A
F0093C3A 72E9C27F C30BE0F7 41EB1EB2 960C85A0 14EC7BE5 A50E596D 27EEA728
3C024F0E BEE2B14B 0F0093C3 8DE06D86 5A07F694 D8E708D1 69052A59 EBE5D41C
5EDCFA15 DC3C0450 6DDE26D8 EF3ED89D 38D9438F BA39BDCA 0BDB9F42 893B6107
92D78921 10377764 A1D555EC 2335ABA9 F4D230BB 7632CEFE C7D0EC76 45301233
4DB0C811 CF503654 7EB214DC FC52EA99 2BB5718B A9558FCE 18B7AD46 9A575303
81BBBB25 035B4560 B2B967E8 305999AD E7BE02BF 655EFCFA D4BCDE72 565C2037
E3650E3E 6185F07B D067D2F3 52872CB6 8560B7A4 078049E1 B6626B69 3482952C
2F6E7D0A AD8E834F 1C6CA1C7 9E8C5F82 496BC490 CB8B3AD5 7A69185D F889E618
26D86408 A4389A4D 15DAB8C5 973A4680 40DDDD92 C23D23D7 73DF015F F13FFF1A
EAD3173C 6833E979 D9D1CBF1 5B3135B4 8CD6AEA6 0E3650E3 BFD4726B 3D348C2E
880DA227 0AED5C62 BB0F7EEA 39EF80AF EE081BBD 6CE8E5F8 DD0AC770 5FEA3935
4406D113 C6E62F56 77040DDE F5E4F39B 22036889 A0E396CC 1101B444 93E14A01
"""
TABLE = [int(value, 16) for value in VALUES.split()]


def units(text: str) -> list[int]:
    """The UTF-16 code units of a text: what Windows calls characters."""
    encoded = text.encode("utf-16-le", "surrogatepass")
    return [int.from_bytes(encoded[place : place + 2], "little") for place in range(0, len(encoded), 2)]


def text(of: list[int]) -> str:
    return b"".join(unit.to_bytes(2, "little") for unit in of).decode("utf-16-le")


def hash_of_the_section(name: str) -> str:
    value = 0
    for unit in units(name):
        lowered = unit if 0xD800 <= unit < 0xE000 else ord(chr(unit).lower())
        for byte in (lowered >> 8, lowered & 0xFF):
            value = value >> 8 ^ TABLE[byte ^ value & 0xFF]
    return f"{value:08x}"


# Letters whose lower case is one letter, signs, and characters of two code units.
NAMES = st.text(st.sampled_from("abzABZ019-_. äÖßЖжñΩ語\u3042😀𐐀𝒳"), min_size=1, max_size=147)


@given(NAMES)
@example("😀" * 31)
@example("😀" * 32)
@example("x" * 53 + "😀" + "y" * 20)
@example("x" * 63)
@example("x" * 64)
def test_names_are_measured_split_and_hashed_in_utf_16_code_units(name: str) -> None:
    of = units(name)
    if len(of) > 147 or (len(of) > 63 and 0xD800 <= of[54] < 0xDC00):
        with pytest.raises(ConstraintViolated, match=r"cannot be stored|are allowed"):
            split_queue_name(name)
        return
    cn, extension = split_queue_name(name)
    if len(of) <= 63:
        assert (cn, extension) == (name, "")
    else:
        assert (cn, extension) == (f"{text(of[:55])}-{hash_of_the_section(name)}", text(of[55:]))
        assert len(units(cn)) == 64
    assert join_queue_name(cn, extension) == name


@pytest.mark.parametrize("character", ["İ", "\u212a", "𐐀"], ids=["two-letters", "into-ascii", "two-units"])
def test_what_windows_does_not_lower_is_hashed_as_it_is(character: str) -> None:
    value = 0
    for byte in character.encode("utf-16-be"):
        value = value >> 8 ^ TABLE[byte ^ value & 0xFF]
    assert queue_name_hash(character) == f"{value:08x}"


def test_a_name_that_an_early_version_split_by_whole_characters_is_read() -> None:
    name = "😀" * 30 + "x" * 40
    assert join_queue_name(f"{name[:55]}-12345678", name[55:]) == name


def test_a_label_has_124_code_units() -> None:
    check_properties({"label": "😀" * 62}, public=True)
    with pytest.raises(MessageQueuingError, match="124"):
        check_properties({"label": "😀" * 62 + "x"}, public=True)
