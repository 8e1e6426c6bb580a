"""16-bit counters on the wire, counters without a limit inside.

Session counters wrap after 65,536 messages (3.1.1.3.1). A number from the wire is taken as the one nearest to a count
that both sides know, so that inside nothing ever wraps and "less than" is what it says.
"""

from typing import Final

_MODULUS: Final = 0x1_0000
_HALF: Final = 0x8000
WORD: Final = 0xFFFF
"""``count & WORD`` is what goes on the wire."""


def nearest(word: int, reference: int) -> int:
    """The count that is ``word`` modulo 65,536 and nearest to ``reference``; may be negative near zero."""
    return reference + ((word - reference + _HALF) & WORD) - _HALF
