"""Settings begin with the values that MS-MQQB 3.1.3.1 and 3.1.1.3 give the elements of the same name."""

from __future__ import annotations

import pytest

from qmnode.settings.protocol import TransferSettings
from qmnode.settings.security import SecuritySettings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("user_cert_cache_size", 53),
        ("user_cert_lifetime", 1_200_000),
        ("receive_symmetric_key_cache_size", 127),
        ("send_symmetric_key_cache_size", 53),
        ("symmetric_key_short_lifetime", 600_000),
        ("preferred_advanced_algorithm", 0x6610),
        ("preferred_enhanced_algorithm", 0x6801),
        ("preferred_base_algorithm", 0x6801),
        ("send_enhanced_rc2_using_40_bit_keys", False),
        ("reject_enhanced_rc2_using_40_bit_keys", False),
    ],
)
def test_security_begins_with_the_values_of_the_specification(name: str, value: int) -> None:
    assert getattr(SecuritySettings(), name) == value


def test_the_resend_table_is_three_short_three_medium_three_long_and_a_final_interval() -> None:
    assert list(TransferSettings().resend_table()) == [30] * 3 + [300] * 3 + [1800] * 3 + [21600]


def test_insecure_nacks_are_not_sent_unasked() -> None:
    assert TransferSettings().send_insecure_nacks is False
