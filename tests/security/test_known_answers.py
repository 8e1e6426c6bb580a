"""Signatures, session keys and bodies that the openssl command made, an implementation that shares no code with ours.

``dgst -sign``, ``pkeyutl -encrypt`` and ``enc`` with a zero IV; RSA values in reversed byte order.
"""

from __future__ import annotations

import base64

import pytest

from qmnode.security.encryption import BodyCipher, decrypt_body
from qmnode.security.rsa_keys import PrivateKey, sign, verify
from qmnode.structures.enumerations import AuthenticationLevel, EncryptionAlgorithm, HashAlgorithm
from qmnode.structures.signature_properties import signed_bytes
from tests.security.messages import message

# A key of these tests and of nothing else.
KEY = PrivateKey.from_der(
    base64.b64decode(
        "MIICdQIBADANBgkqhkiG9w0BAQEFAASCAl8wggJbAgEAAoGBAJr2mn8ECcLxTsP/NGHZ0aacBiCGmS2VlTD/KNqE16mCYCYL+Fcq"
        "zVTY1SSOUb+HrQhpprn2weifKmf9NseQ7LuVgH9EABPnzascSM1EciQslt/RHSEjUYiCdvIxCjW0M1VYTqLjzembvGFbcYM5+uB2"
        "k5fyzvg+nASAuvVceuDDAgMBAAECgYAwZ2001ZcS/Hsk/7dmBTrWdw/24vQ/5+R1LI6fSzVuLlpIKB8HY0hGA4D4bTgdwoyK/y1k"
        "Ey7Ysbb2SoLs7Vj0dqhruoNV5X4BnOMmP5u8Fr+blSJ8oD12lPa9gTsXL0fnv3MtH3mMtWCAVEgH4p4a2/mVWh/rB93x7+iESoSO"
        "IQJBAM6Mc81kk4OlXOr51vA3wmuN994gdqvy9mwcizhM8ZyMN+4IV7GZj7sgCeVc8zKek9cnpvl3ZD0LBkjjtWfdyPMCQQDAEHCe"
        "/9crRWq7QnFJPGYmYhQfLjc04Gep0FxXotYwgAW5rETVzjQzAb1opRlbIo4zV/dHySN7/tgAz5tB+XzxAkBnBuQUhaCXP/rTMoAm"
        "HooaABytbeAD8RM95hcDpE24WrDjSMIFUqXBH0AQaobcrwDrh1nggc88K62c2gh4oMZFAkA8tTWT3FQ7ti5dUEwUlQXIvhmUHXyP"
        "txqtH1IA1VSUcfLdVGlRl2MCeFtRN1ZDazG9YuGjjB0uNUg7QWPWv7BRAkASF9EE04R4niMSBan15KjERyvTVTxvLzXgQgHgkFDW"
        "ZmBBqz2y50TW5lzFHdEPTCLkeF//dbNE3mNEd8ZMTcXz"
    )
)

SIGNATURES = {
    (AuthenticationLevel.SIG10, HashAlgorithm.MD5): (
        "10fa88b46d7089d2cb5fbf1413492d041ffec73a3068ba6dbd6e9cf5e50570004ac7b754e8180aecc27739648e647cb4467f"
        "00f90361c569c7542656ed9217019d5c359b774dc21280d57d4e2d0ba3e6aaadffd6568c7956df8672ff56c5b24ef4d87e63"
        "dbf1185e83f9346bb3d5b82488ca27de81523df069c9b56654347b99"
    ),
    (AuthenticationLevel.SIG10, HashAlgorithm.SHA1): (
        "680b3fd0327e8fd193807d0cf2af7cf1f95a8488faf9fab58b9bca89502b4bd5eef9e3acf681e2933de1a5c6db56608683e7"
        "a3f759361cb7c27367cc408664e7307b72eeb5dc1dd29a859d8c72234665ae1531eaba1563d5303352ad4219c705346f25c1"
        "632f32a17a4cb86f601082d643493518dcf18a7b85da413fefff8b31"
    ),
    (AuthenticationLevel.SIG20, HashAlgorithm.SHA_256): (
        "f7c599d13528e46b8a0080852f1b70ac6562987c88ac7fd340d6bb28137f35690338c5640eeb07750a4cbbb74640246d6f59"
        "f99cc5c3bb26463ec116fc48ea2c62df29279c6b79d2bb24d2274526382c26f5e32ae0583bc5d3cae3bb731c0d825e930153"
        "0ebfecb237b8c3880fcefd25d263dfee248818da5735f133cbbd5527"
    ),
    (AuthenticationLevel.SIG20, HashAlgorithm.SHA_512): (
        "5b0aeb3a00809208f0552d1779a65e87524692e72b23d4b75c5b9cf0e6f644f0f86a5b5b3f739101416295139a8064121d7c"
        "cd520a9e20489d6b68814700ac2fe4836b4d120057a23456ad575b632add9d0c5e801d19c7e521b26078b7fa6e039970498e"
        "8e3ec1f53ad0f1ad215f8f5604f367009ef424ecbf8f524d401e5a95"
    ),
}

WRAPPED = {
    32: (
        "334b514b9e2119c2dbed465f19a589b433330ed8ad5ab128e1cbd0ef615c03cb98f90114f2711aeebf84c790f9c2f77d3538"
        "bfccc2ef24f0580d90f577f8d74aef6fdc320a6f219602e6a564195470a1f5f95ce85c87bdbc98124de276fe33d0484fcbf2"
        "4479facbe0550f500064a2a607ad4bb6fe3271ae11e3bbfeae34aa4a"
    ),
    16: (
        "f7839fff85b8428e93c61eca64b3d248ad4d6e80f3992122292eedc2603e14e0519d4e46d6c030e5f51fc2e7d1c48587b3b7"
        "8b9a0afdc6f527d83f92ff05fc907203c96ace6cc9132a1f58cd5330a39cf5db4d746564c6aaa19ff6d9f5733cb1af0dd591"
        "48d981d51bb0074bda2f1846ae79e58ef25eb464e0cbe063d7684510"
    ),
}

BODY = b"The body of a message, more than one block long."
BODIES = {
    (EncryptionAlgorithm.AES128, 16): (
        "a6276800ab8af8f6f55f735521cef5560d1aa5329405c4cc87b778599d8f43733aeab9259eb231ed55be25cc6d09eb6f8814"
        "4df4d74f2510e8a2ee02bd79e712"
    ),
    (EncryptionAlgorithm.AES192, 24): (
        "12ee8cf1c2d7fa0a1bec469f63d80cc22841523e85c9e6af0bebd4f1dc22c29e50d1def990769f5690332999204f5864fda5"
        "e4607b87adf1997837daf11e75f5"
    ),
    (EncryptionAlgorithm.AES256, 32): (
        "d7aab4ea37939e32383bfea7cdb42534b74a7cde121c6cd68b5d7305cfb554434b593a64a3c6b3478d164720f2af0821cc2f"
        "fcb0c049b2bb732e4fcde0e843ae"
    ),
    (EncryptionAlgorithm.RC2, 16): (
        "d828329bfde22913e29ecc00354d2316d1c37f53af3093feaba8b7da7d435b9188e12c684d5f2b3daadc313513e6310c554c"
        "fff42f337b65"
    ),
    (EncryptionAlgorithm.RC2, 5): (
        "d39de08c9d67be815cd9ef33ee51a1ed6a837f682556f996ff7ca3904f9b4549a93500966195cc7637f5ff118de70fe6e580"
        "857931fce0c0"
    ),
    (EncryptionAlgorithm.RC4, 16): (
        "bdf425d9258d7db526b4f1e66ffd472aa002e038979b6283e0ecc0f98d5f826c7b55257a10618e77e23c1db7dd239e44"
    ),
    (EncryptionAlgorithm.RC4, 5): (
        "aa756e13867e3eeb26b3e1e48c65a6221e86b1e87259b822d6ebdc705a8c12d048d54ed127b8386b820f2ac6001387f2"
    ),
}


@pytest.mark.parametrize(("level", "algorithm"), list(SIGNATURES))
def test_signatures_are_those_that_openssl_makes(level: AuthenticationLevel, algorithm: HashAlgorithm) -> None:
    signature, data = bytes.fromhex(SIGNATURES[level, algorithm]), signed_bytes(message(), level)
    assert sign(KEY, algorithm, data) == signature
    assert verify(KEY.public_key, algorithm, signature, data)


@pytest.mark.parametrize("length", list(WRAPPED))
def test_session_keys_that_openssl_wrapped_come_out(length: int) -> None:
    assert KEY.decrypt(bytes.fromhex(WRAPPED[length]), length) == bytes(range(length))


@pytest.mark.parametrize(("algorithm", "length"), list(BODIES))
def test_bodies_are_those_that_openssl_makes(algorithm: EncryptionAlgorithm, length: int) -> None:
    key, encrypted = bytes(range(length)), bytes.fromhex(BODIES[algorithm, length])
    assert BodyCipher(algorithm, key).encrypt(BODY) == encrypted
    assert decrypt_body(algorithm, key, encrypted) == BODY
