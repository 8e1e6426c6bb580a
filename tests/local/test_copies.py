"""A large message is copied a few times on its way through two nodes, and no more."""

import pytest

from tests.bench.copies import copied
from tests.bench.way import PARTIES
from tests.bench.way_parties import EXPRESS

pytestmark = [pytest.mark.servers]

MOST = {
    "application, sending": 0.1,
    "node, sending": 0.3,  # the address takes its place before the body
    "node, receiving": 2.1,  # one for a receiver that waits, one more for messages that wait, as on a busy machine
    "application, receiving": 1.1,  # the body out of what was read
}
"""Copies of each byte in memory. What is read from sockets into its place is none."""


def test_a_large_message_is_copied_a_few_times_only() -> None:
    (measured,) = copied({"1 MB": 1_000_000}, 16_000_000, EXPRESS).values()
    assert measured[3].memory > 0.9  # it is measured at all
    found = dict(zip(PARTIES, (one.memory for one in measured), strict=True))
    assert not {party: copies for party, copies in found.items() if copies > MOST[party]}
    assert all(one.taken < 1.2 and one.given < 1.2 for one in measured)
