"""The caches with a fake clock: lifetimes, the oldest half, cleanup timers, forgetting."""

from __future__ import annotations

from qmnode.security.caches import AgedCache
from qmnode.security.encryption import BodyCipher, CachedSymmetricKey
from qmnode.structures.enumerations import EncryptionAlgorithm

KEY = b"0123456789abcdef"


def entry(cached_time: float, fingerprint: str = "SHA256:0") -> CachedSymmetricKey:
    return CachedSymmetricKey(b"blob", KEY, fingerprint, cached_time, BodyCipher(EncryptionAlgorithm.AES128, KEY))


def cache(size: int = 8, lifetime: int = 600_000) -> AgedCache[int, CachedSymmetricKey]:
    return AgedCache(size, lifetime)


def test_an_entry_is_found_until_its_lifetime_has_passed() -> None:
    keys = cache()
    keys.add(1, entry(1000.0))
    assert keys.get(1, 1000.0) is not None
    assert keys.get(1, 1600.0) is not None
    assert keys.get(1, 1600.1) is None
    assert keys.get(2, 1000.0) is None


def test_a_clock_that_was_set_back_ends_what_is_from_the_future() -> None:
    keys = cache()
    keys.add(1, entry(1000.0))
    assert keys.get(1, 999.0) is not None  # someone who read the clock a moment earlier
    assert keys.get(1, 939.0) is None
    assert keys.clean_up(939.0) is None


def test_a_full_cache_discards_the_oldest_half() -> None:
    keys = cache(size=7)
    for number in (3, 1, 2, 6, 5, 4, 0):
        keys.add(number, entry(1000.0 + number))
    keys.add(7, entry(1007.0))
    assert [number for number in range(8) if keys.get(number, 1010.0)] == [3, 4, 5, 6, 7]


def test_an_entry_that_is_replaced_discards_nothing() -> None:
    keys = cache(size=2)
    keys.add(1, entry(1000.0))
    keys.add(2, entry(1001.0))
    keys.add(2, entry(1002.0))
    assert len(keys) == 2


def test_the_timer_starts_with_the_first_entry_and_comes_back_a_minute_after_the_oldest_expires() -> None:
    keys = cache()
    assert keys.cleanup_due is None
    keys.add(1, entry(1000.0))
    keys.add(2, entry(1500.0))
    assert keys.cleanup_due == 1600.0
    assert keys.clean_up(1600.5) == 1500.0 + 600.0 + 60.0
    assert len(keys) == 1
    assert keys.clean_up(2160.0) is None
    assert (len(keys), keys.cleanup_due) == (0, None)
    keys.add(3, entry(3000.0))
    assert keys.cleanup_due == 3600.0


def test_what_a_rotated_key_left_is_forgotten() -> None:
    keys = cache()
    keys.add(1, entry(1000.0, "SHA256:old"))
    keys.add(2, entry(1000.0, "SHA256:new"))
    assert keys.forget(lambda _, each: each.fingerprint == "SHA256:old") == 1
    assert keys.get(1, 1000.0) is None
    assert keys.get(2, 1000.0) is not None


def test_no_symmetric_key_is_shown() -> None:
    keys = cache()
    keys.add(1, entry(1000.0))
    shown = repr(keys.get(1, 1000.0))
    assert "0123456789abcdef" not in shown
    assert "SHA256:0" in shown
