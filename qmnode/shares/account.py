"""The use of resources by party, and the decision whether a party may use more.

Strangers together stay out of the reserve, and each block within its part. The more of the strangers' part is taken,
the less a block may add, and the same holds among declared peers. So there is always room for the next party, however
many came before, and parties that are active for long end up with equal shares. A party that holds nothing may take one
message of the largest size as long as that fits at all, so no total should be below a few of these.
"""

from collections.abc import Callable, Hashable, Iterator
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from qmnode.shares.parties import Kind, Party
from qmnode.shares.resources import Resource
from qmnode.shares.turns import Turns

Entry = TypeVar("Entry", bound=Hashable)
_DECLARED_TIMES_FREE: Final = 3.0
"""A declared peer may hold three times as much as it leaves free: three quarters if it is the only one."""
_LOOKS: Final = 16
"""Entries of a table that one newcomer has looked at."""
_OWN: Final = Kind.OWN
_DECLARED: Final = Kind.DECLARED
_STRANGER: Final = Kind.STRANGER


class Account:
    """The use of one resource. Amounts are integers in the resource's unit."""

    __slots__ = ("_block", "_for_strangers", "_held", "_not_own", "_peer", "refused", "resource", "total", "used")

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.used: dict[Kind, int] = dict.fromkeys(Kind, 0)
        """Units in use, by kind of party."""
        self.refused: dict[Kind, int] = dict.fromkeys(Kind, 0)
        """Refusals since the start, by kind of party."""
        self._held: dict[Party, int] = {}

    def limit(self, total: float, each: float | None = None) -> None:
        """Set the total; ``each`` is the most of one peer if a setting gives it, and not the resource's row."""
        self.total = total
        self._for_strangers = total * (1 - self.resource.reserve)
        self._not_own = total * (1 - self.resource.own)
        self._block = max(1, total * self.resource.block) if each is None else each
        self._peer = max(1, total * self.resource.peer) if each is None else each

    def held(self, party: Party) -> int:
        """The units that a party holds."""
        return self._held.get(party, 0)

    def room(self, party: Party) -> float:
        """The units that a party may take now; below zero if it holds too much."""
        used, kind = self.used, party.kind
        strangers = used[_STRANGER]
        taken = used[_OWN] + used[_DECLARED] + strangers
        if kind is _OWN:
            return self.total - taken
        free, each, times = self._not_own - taken, self._peer, _DECLARED_TIMES_FREE
        if kind is _STRANGER:
            free, each = min(free, self._for_strangers - strangers), self._block
            times = self.resource.times_free
        held = self._held.get(party)
        return min(free, each) if held is None else min(free, times * free - held, each - held)

    def admits(self, party: Party, amount: int = 1) -> bool:
        """Whether a party may take so much. Otherwise its refusal counts."""
        if amount <= self.room(party):
            return True
        self.refused[party.kind] += 1
        return False

    def take(self, party: Party, amount: int = 1) -> bool:
        """Charge a party if it may take so much."""
        if not self.admits(party, amount):
            return False
        self.charge(party, amount)
        return True

    def charge(self, party: Party, amount: int = 1) -> None:
        """Charge a party that may take it, or holds it in any case, such as since before a restart."""
        self.used[party.kind] += amount
        self._held[party] = self._held.get(party, 0) + amount

    def give_back(self, party: Party, amount: int = 1) -> None:
        """Release what a party held."""
        self.used[party.kind] -= amount
        left = self._held[party] - amount
        if left:
            self._held[party] = left
        else:
            del self._held[party]


class Table(Generic[Entry]):
    """The entries of a table, each charged to its party, and those that make room for others."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._entries: dict[Party, dict[Entry, None]] = {}

    def enter(self, entry: Entry, party: Party) -> None:
        """Add an entry, which is the newest of its party."""
        self._account.charge(party)
        self._entries.setdefault(party, {})[entry] = None

    def renew(self, entry: Entry, party: Party) -> None:
        """Make an entry the newest of its party again."""
        entries = self._entries[party]
        del entries[entry]
        entries[entry] = None

    def leave(self, entry: Entry, party: Party) -> None:
        """Remove an entry that its party no longer pays for."""
        entries = self._entries[party]
        del entries[entry]
        if not entries:
            del self._entries[party]
        self._account.give_back(party)

    def has_room(self, party: Party) -> bool:
        """Whether a party may add an entry."""
        return self._account.room(party) >= 1

    def admits(self, party: Party) -> bool:
        """Whether a party may add an entry, once all is done that makes room. Otherwise its refusal counts."""
        return self._account.admits(party)

    def victim(self, party: Party, may_go: Callable[[Entry], bool]) -> Entry | None:
        """The entry to remove so that a party may add one: an old one of its own, else of the block with the most, else
        of the party with the most. Strangers make room for a stranger only if it holds less.
        """
        own = self._entries.get(party, {})
        found = _oldest(own, may_go)
        if found is not None:
            return found
        blocks = [entries for one, entries in self._entries.items() if one.kind is _STRANGER and one != party]
        if party.kind is not _STRANGER:
            blocks = blocks or [*self._entries.values()]
        fullest = max(blocks, key=len, default={})
        if party.kind is _STRANGER and len(fullest) <= len(own):
            return None
        return _oldest(fullest, may_go)


def _oldest(entries: dict[Entry, None], may_go: Callable[[Entry], bool]) -> Entry | None:
    """The first entry that may go, among the first few. Those that may not become the newest."""
    for entry in [*islice(entries, _LOOKS)]:
        if may_go(entry):
            return entry
        del entries[entry]
        entries[entry] = None
    return None


class Accountant:
    """All accounts of a node, in the order in which they were opened, and its turns."""

    def __init__(self) -> None:
        self.turns = Turns()
        self._accounts: dict[str, Account] = {}

    def open(self, resource: Resource, total: float, each: float | None = None) -> Account:
        """The account of a resource, from now on with these limits."""
        account = self._accounts.get(resource.name)
        if account is None:
            account = self._accounts[resource.name] = Account(resource)
        account.limit(total, each)
        return account

    def __iter__(self) -> Iterator[Account]:
        return iter(self._accounts.values())

    def summary(self) -> dict[str, dict[str, Any]]:
        """Each account by the name of its resource: unit, total, reserve, and use and refusals by kind of party."""
        return {
            account.resource.name: {
                "unit": account.resource.unit,
                "total": int(account.total),
                "reserve": int(account.total * account.resource.reserve),
                "used": {kind.value: amount for kind, amount in account.used.items()},
                "refused": {kind.value: count for kind, count in account.refused.items()},
            }
            for account in self
        }
