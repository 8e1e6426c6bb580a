"""Settings begin with the values that MS-MQQB 3.1.3.1 and 3.1.1.3 give the elements of the same name."""

from __future__ import annotations

import pytest

from qmnode.directory.port import WorkgroupDirectory
from qmnode.security.protector import MessageProtector
from qmnode.security.rsa_keys import AES_PROVIDER, BASE_PROVIDER, ENHANCED_PROVIDER, Policy, usable_algorithms
from qmnode.security.sender_identity import SenderDirectory
from qmnode.settings.protocol import TransferSettings
from qmnode.settings.security import SecuritySettings, WeakAlgorithm
from tests.protocol.machines import ALICE


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("user_cert_lifetime", 1_200_000),
        ("symmetric_key_short_lifetime", 600_000),
        ("send_enhanced_rc2_using_40_bit_keys", False),
        ("reject_enhanced_rc2_using_40_bit_keys", False),
    ],
)
def test_security_begins_with_the_values_of_the_specification(name: str, value: int) -> None:
    assert getattr(SecuritySettings(), name) == value


def test_caches_and_preferred_algorithms_have_the_values_of_the_specification() -> None:
    settings = SecuritySettings()
    protector = MessageProtector(ALICE, settings)
    caches = SenderDirectory(WorkgroupDirectory(), settings).cache, protector._outgoing.cache, protector._incoming.cache
    assert [cache._size for cache in caches] == [53, 53, 127]
    everything = Policy(frozenset(WeakAlgorithm), "weak_algorithms_sent")
    providers = AES_PROVIDER, ENHANCED_PROVIDER, BASE_PROVIDER
    assert [next(iter(usable_algorithms(everything, one))) for one in providers] == [0x6610, 0x6801, 0x6801]


def test_the_resend_table_is_three_short_three_medium_three_long_and_a_final_interval() -> None:
    assert list(TransferSettings().resend_table()) == [30] * 3 + [300] * 3 + [1800] * 3 + [21600]


def test_insecure_nacks_are_not_sent_unasked() -> None:
    assert TransferSettings().send_insecure_nacks is False
