"""The threat model lists the attacks that are played, and no others."""

from __future__ import annotations

from tests.adversary.attacks import all_attacks
from tests.adversary.listing import PAGE, renewed


def test_the_threat_model_lists_each_attack_of_the_suite() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == renewed(page), "run `python -m tests.adversary.listing`"


def test_no_two_attacks_are_one_test_and_each_is_told_in_a_line() -> None:
    attacks = list(all_attacks())
    assert len({one.test for one in attacks}) == len(attacks)
    for one in attacks:
        assert one.can and one.promised, one.test
        assert not {"\n", "|"} & set(one.can + one.promised), one.test
