"""When two names are the same name."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mqenterprise.topology.names import fold
from qmnode.structures.names import fold as fold_of_queues

# Letters of which folding or composing make something else, and what composes with letters, are met often.
_AWKWARD = "ßẞŉǰΐΰᾳῼﬃİıςΣKÅǄ①㍿¨\u0301\u0308\u0323\u0345\u1100\u1161\u11a8\u3000\u00a0 sSkK"
TEXTS = st.text(st.one_of(st.characters(), st.sampled_from(_AWKWARD)), max_size=12)


@given(TEXTS)
@example("ß\u0301")
@example("\u0345\u0301")
def test_folding_twice_is_folding_once(name: str) -> None:
    assert fold(fold(name)) == fold(name)
    assert fold_of_queues(fold_of_queues(name)) == fold_of_queues(name)


@given(TEXTS)
def test_case_composition_and_spaces_make_no_other_name(name: str) -> None:
    assert fold(name) == fold(f"  {name}\t")
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert fold(unicodedata.normalize(form, name)) == fold(name)  # type: ignore[arg-type]
    assert fold(name.casefold()) == fold(name)


@pytest.mark.parametrize("planes", [range(0x10000), range(0x10000, 0x20000), range(0x20000, 0x110000, 61)])
def test_every_character_alone_and_before_an_accent(planes: range) -> None:
    for character in map(chr, planes):
        for name in (character, f"{character}\u0301"):
            assert fold(fold(name)) == fold(name), hex(ord(character))
            assert fold_of_queues(fold_of_queues(name)) == fold_of_queues(name), hex(ord(character))
