"""Exactly once, in order, whatever breaks: two nodes on a wire that hypothesis cuts, delays, duplicates and reorders.

Connections are cut at any byte, several are up at a time, both nodes are killed with writes not synced, and what was
sent on a dead connection comes again on a new one. Afterwards: every transactional message once and in order, every
recoverable one at least once, and none twice while the history lasts.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.protocol.nodes import World


class Adversary(RuleBasedStateMachine):
    """Breaks the world between two nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.transactional: list[list[int]] = [[], []]
        self.recoverable: list[list[int]] = [[], []]

    @rule(which=st.integers(0, 1), count=st.integers(1, 12))
    def commit(self, which: int, count: int) -> None:
        self.transactional[which] += self.world.nodes[which].commit(count)
        self.world.collect()
        self.world.pump()

    @rule(which=st.integers(0, 1), count=st.integers(1, 12))
    def send(self, which: int, count: int) -> None:
        self.recoverable[which] += [self.world.nodes[which].send() for _ in range(count)]
        self.world.pump()

    @rule(initiator=st.integers(0, 1))
    def connect(self, initiator: int) -> None:
        if len(self.world.pairs) < 4:
            self.world.connect(initiator)

    @rule(pair=st.integers(0, 3), back=st.booleans(), size=st.sampled_from([1, 7, 40, 300, 3000, 1 << 20]))
    def carry(self, pair: int, back: bool, size: int) -> None:
        self.world.carry(pair, back, size)
        self.world.pump()

    @rule(turns=st.integers(1, 6))
    def carry_all(self, turns: int) -> None:
        for _ in range(turns):
            for pair in range(len(self.world.pairs)):
                self.world.carry(pair, False, 1 << 20)
                self.world.carry(pair, True, 1 << 20)
            self.world.pump()

    @rule(pair=st.integers(0, 3))
    def cut(self, pair: int) -> None:
        self.world.cut(pair)

    @rule(which=st.integers(0, 9))
    def replay(self, which: int) -> None:
        self.world.replay(which)

    @rule(which=st.integers(0, 1), limit=st.one_of(st.none(), st.integers(1, 3)))
    def sync(self, which: int, limit: int | None) -> None:
        self.world.nodes[which].sync(limit, self.world.now)
        self.world.collect()

    @rule(which=st.integers(0, 1))
    def restart(self, which: int) -> None:
        self.world.restart(which)

    @rule(seconds=st.sampled_from([0.1, 0.6, 5.0, 31.0]))
    def advance(self, seconds: float) -> None:
        self.world.advance(seconds)
        self.world.pump()

    @invariant()
    def nothing_is_delivered_twice_or_out_of_order(self) -> None:
        for which in (0, 1):
            delivered = self.world.disks[1 - which].delivered
            mine = set(self.transactional[which])
            in_order = [identifier for identifier in delivered if identifier in mine]
            assert in_order == self.transactional[which][: len(in_order)]
            assert len(set(delivered)) == len(delivered)

    @invariant()
    def memory_is_bounded(self) -> None:
        for node in self.world.nodes:
            for connection in node.connections:
                assert connection.session.unsettled() <= 64
                assert connection.session.in_flight() <= 64

    def teardown(self) -> None:
        note(f"outgoing: {[len(disk.outgoing) for disk in self.world.disks]}")
        assert self.world.heal()
        for which in (0, 1):
            delivered = self.world.disks[1 - which].delivered
            assert sorted(delivered) == sorted(self.transactional[which] + self.recoverable[which])
        self.nothing_is_delivered_twice_or_out_of_order()


_SETTINGS = settings(stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck))

TestAdversary = Adversary.TestCase
TestAdversary.settings = settings(_SETTINGS, max_examples=60)


@pytest.mark.soak
class TestPatientAdversary(Adversary.TestCase):  # type: ignore[misc, name-defined]
    """The same, for long."""

    settings = settings(_SETTINGS, max_examples=500, stateful_step_count=120)
