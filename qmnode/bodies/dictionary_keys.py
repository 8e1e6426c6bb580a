"""Keys of dictionaries that a sender chooses.

Python hashes texts and bytes with a salt, and numbers without one. Of numbers of 64 bits only a few have one hash, but
of UUIDs and decimals a sender finds thousands: a dictionary of them takes seconds.
"""

from collections.abc import Hashable
from typing import Final

MOST_ALIKE: Final = 64
"""Keys with one hash in a dictionary. By chance not even two have one."""
_SALTED: Final = frozenset({str, bytes, bool, type(None)})


class KeyHashes:
    """The hashes of the keys of one dictionary that have no salt."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def admits(self, key: Hashable) -> bool:
        """Whether a key may be added: False if too many have its hash. TypeError for what cannot be a key."""
        if type(key) in _SALTED:
            return True
        value = hash(key)
        self._counts[value] = count = self._counts.get(value, 0) + 1
        return count <= MOST_ALIKE
