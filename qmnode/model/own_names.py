"""The names by which a queue manager knows its own machine."""

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from qmnode.structures.guid import Guid, guid_from_text
from qmnode.structures.names import LOCAL_COMPUTER, fold, plain_address

if TYPE_CHECKING:
    from qmnode.settings.node import Settings

_RELATIVE: Final = frozenset(map(fold, (LOCAL_COMPUTER, "localhost", "127.0.0.1", "::1")))
"""Names that every machine has for itself."""


class OwnNames:
    """The names and addresses of one machine. Case does not matter, nor a dot at the end of a DNS name."""

    def __init__(self, computer_name: str, settings: "Settings") -> None:
        self._known = set(_RELATIVE)
        self._computer = _compared(computer_name)
        self.qualified = computer_name
        """The best name for others: the full DNS name if it is known, else the computer name."""
        self._addresses: frozenset[str] = frozenset()
        self.add((computer_name, *settings.other_names), (settings.transport.address,))
        self.use_addresses(settings.addresses)

    def add(self, names: Iterable[str], addresses: Iterable[str] = (), qualified: str = "") -> None:
        """Add names and addresses. Of names that begin with the computer name, the first is its full DNS name, unless
        ``qualified`` is.
        """
        names = [name for name in (qualified, *names) if name]
        self._known.update(_compared(name) for name in (*names, *addresses) if name)
        if "." not in self.qualified:
            full = (name for name in names if _compared(name.partition(".")[0]) == self._computer and "." in name)
            self.qualified = (qualified or next(full, self.qualified)).removesuffix(".")

    def use_addresses(self, addresses: Iterable[str]) -> None:
        """Have these addresses beside those of :meth:`add`, in place of the last ones of this method."""
        self._addresses = frozenset(_compared(address) for address in addresses if address)

    def has(self, computer: str) -> bool:
        """Whether the machine has this name or address."""
        compared = _compared(computer)
        return compared in self._known or compared in self._addresses

    @staticmethod
    def is_relative(computer: str) -> bool:
        """Whether every machine takes this name for itself."""
        return _compared(computer) in _RELATIVE


@lru_cache(maxsize=4096)  # names of peers recur with each message
def _compared(computer: str) -> str:
    if not computer.strip("."):  # the local computer, or nothing that has a name
        return computer
    return fold(plain_address(computer.removeprefix("[").removesuffix("]")) or computer.removesuffix("."))


def own_identifier(computer: str) -> Guid | None:
    """The GUID that is written in the place of a computer name, or None."""
    if len(computer) not in _GUID_LENGTHS:
        return None
    try:
        return guid_from_text(computer.removeprefix("{").removesuffix("}"))
    except ValueError:
        return None


_GUID_LENGTHS: Final = (36, 38)
