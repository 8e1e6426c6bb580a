"""Messages that were sent together are acknowledged as if each had been sent alone."""

from hypothesis import given
from hypothesis import strategies as st

from qmnode.protocol.session import Disposition, SendSequence

GROUPS = st.lists(st.tuples(st.integers(1, 9), st.booleans(), st.sampled_from(Disposition)), max_size=12)
ACKNOWLEDGMENTS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40), st.integers(0, 0xFFFF)), max_size=12)


@given(GROUPS, ACKNOWLEDGMENTS)
def test_groups_and_single_messages_end_alike(
    groups: list[tuple[int, bool, Disposition]], acknowledgments: list[tuple[int, int, int]]
) -> None:
    together, alone = SendSequence(64, 64), SendSequence(64, 64)
    token = 0
    for size, recoverable, disposition in groups:
        tokens: list[object] = [*range(token, token + size)]
        token += size
        together.add(tokens, recoverable, disposition)
        for one in tokens:
            alone.add([one], recoverable, disposition)
    for count, base, flags in acknowledgments:
        count, base = min(count, alone.sent), max(1, min(base, alone.recoverable_sent))
        flags &= (1 << max(0, alone.recoverable_sent - base + 1)) - 1
        assert together.take_acknowledgment(count, base, flags) == alone.take_acknowledgment(count, base, flags)
        assert together.unacknowledged() == alone.unacknowledged()
        assert together.in_flight() == alone.in_flight() == len(alone.unacknowledged())
        assert together.room() == alone.room()


def test_an_acknowledgment_with_gaps_takes_apart_only_what_it_speaks_of() -> None:
    sequence = SendSequence(64, 64)
    for start in range(0, 16_000, 100):
        sequence.add([*range(start, start + 100)], 1, Disposition.RELEASE)
    for base in range(1, 300, 3):
        assert sequence.take_acknowledgment(0, base, 0b101) is not None
    assert len(sequence._flight) < 16_000 / 100 + 400
