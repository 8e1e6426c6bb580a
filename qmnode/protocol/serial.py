"""Conversion between 16-bit counters on the wire and unlimited counters inside.

Session counters wrap after 65,536 messages (3.1.1.3.1). A number from the wire is read as the one nearest to a count
that both sides know, so that nothing inside ever wraps and numbers compare normally.
"""

from typing import Final

_MODULUS: Final = 0x1_0000
_HALF: Final = 0x8000
WORD: Final = 0xFFFF
"""Mask of a 16-bit counter: ``count & WORD`` goes on the wire."""


def nearest(word: int, reference: int) -> int:
    """The count that is ``word`` modulo 65,536 and nearest to ``reference``; may be negative near zero."""
    return reference + ((word - reference + _HALF) & WORD) - _HALF
