"""Keys of maps that a sender chooses with one hash cost no more than others."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from proton import Data

from qmnode.amqp.codec import CodecError, Decoder, encode
from qmnode.amqp.proton_engine import decoded
from qmnode.bodies.nrbf_objects import _mapping

_MODULUS = (1 << 61) - 1
"""Python hashes numbers by their remainder."""
Count = Callable[[Callable[[], object]], int]


def alike(count: int) -> list[UUID]:
    """Identifiers with one hash."""
    found = [UUID(int=_MODULUS * number + 7) for number in range(1, count + 1)]
    assert len({hash(one) for one in found}) == 1
    return found


@pytest.fixture
def comparisons_of(monkeypatch: pytest.MonkeyPatch) -> Count:
    """How many times some work compares two identifiers."""
    calls = 0
    original = UUID.__eq__

    def equal(self: UUID, other: object) -> bool:
        nonlocal calls
        calls += 1
        return original(self, other)

    monkeypatch.setattr(UUID, "__eq__", equal)

    def count(work: Callable[[], object]) -> int:
        before = calls
        work()
        return calls - before

    return count


def refused(work: Callable[[], object]) -> None:
    with pytest.raises(CodecError, match="one hash"):
        work()


def as_map(keys: list[UUID]) -> bytes:
    data = b"".join(encode(key) + b"\x40" for key in keys)
    return b"\xd1" + (len(data) + 4).to_bytes(4, "big") + (2 * len(keys)).to_bytes(4, "big") + data


MANY = 4_900
ORDINARY = [UUID(int=number << 70 | 5) for number in range(1, MANY + 1)]


def test_a_map_of_amqp_with_keys_of_one_hash_is_refused_before_it_costs_more(comparisons_of: Count) -> None:
    hostile, usual = (as_map(keys) for keys in (alike(MANY), ORDINARY))
    assert comparisons_of(lambda: refused(lambda: Decoder(hostile).value())) < MANY
    assert comparisons_of(lambda: dict.fromkeys(alike(MANY // 10))) > 10 * MANY, "all comparisons count"
    assert len(Decoder(usual).value()) == MANY


def test_properties_of_a_link_are_read_in_the_same_way(comparisons_of: Count) -> None:
    data = Data()
    data.decode(as_map(alike(MANY)))
    assert comparisons_of(lambda: refused(lambda: decoded(data))) < MANY
    usual = Data()
    usual.decode(as_map(ORDINARY))
    assert len(decoded(usual)) == MANY


def test_a_dictionary_of_net_with_keys_of_one_hash_is_shown_as_pairs(comparisons_of: Count) -> None:
    hostile = [(key, 1) for key in alike(MANY)]
    assert comparisons_of(lambda: _mapping(hostile)) < MANY
    assert _mapping([(ORDINARY[0], 1)]) == {ORDINARY[0]: 1}
    assert _mapping(hostile)[0] == {"key": alike(1)[0], "value": 1}
