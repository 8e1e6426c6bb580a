"""Keys of maps that a sender chooses with one hash cost no more than others."""

from __future__ import annotations

import time
from collections.abc import Callable
from uuid import UUID

import pytest
from proton import Data

from qmnode.amqp.codec import CodecError, Decoder, encode
from qmnode.amqp.engine import decoded
from qmnode.bodies.nrbf_objects import _mapping

_MODULUS = (1 << 61) - 1
"""Python hashes numbers by their remainder."""


def alike(count: int) -> list[UUID]:
    """Identifiers with one hash."""
    found = [UUID(int=_MODULUS * number + 7) for number in range(1, count + 1)]
    assert len({hash(one) for one in found}) == 1
    return found


def seconds_of(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def refused(work: Callable[[], object]) -> None:
    with pytest.raises(CodecError, match="one hash"):
        work()


def as_map(keys: list[UUID]) -> bytes:
    data = b"".join(encode(key) + b"\x40" for key in keys)
    return b"\xd1" + (len(data) + 4).to_bytes(4, "big") + (2 * len(keys)).to_bytes(4, "big") + data


MANY = 4_900
ORDINARY = [UUID(int=number << 70 | 5) for number in range(1, MANY + 1)]


def test_a_map_of_amqp_with_keys_of_one_hash_costs_as_much_as_another() -> None:
    hostile, usual = (as_map(keys) for keys in (alike(MANY), ORDINARY))
    usual_seconds = min(seconds_of(lambda: Decoder(usual).value()) for _ in range(3))
    assert seconds_of(lambda: refused(lambda: Decoder(hostile).value())) < 5 * usual_seconds
    assert len(Decoder(usual).value()) == MANY


def test_properties_of_a_link_are_read_in_the_same_way() -> None:
    data = Data()
    data.decode(as_map(alike(MANY)))
    usual = Data()
    usual.decode(as_map(ORDINARY))
    usual_seconds = min(seconds_of(lambda: decoded(usual)) for _ in range(3))
    assert seconds_of(lambda: refused(lambda: decoded(data))) < 5 * usual_seconds


def test_a_dictionary_of_net_with_keys_of_one_hash_costs_as_much_as_another() -> None:
    usual_seconds = min(seconds_of(lambda: _mapping([(key, 1) for key in ORDINARY])) for _ in range(3))
    assert seconds_of(lambda: _mapping([(key, 1) for key in alike(MANY)])) < 5 * usual_seconds
    assert _mapping([(ORDINARY[0], 1)]) == {ORDINARY[0]: 1}
    assert _mapping([(key, 1) for key in alike(MANY)])[0] == {"key": alike(1)[0], "value": 1}
