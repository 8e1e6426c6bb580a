"""Limits on the cost of decoding one message, so that no body can exhaust the process that shows it."""

from dataclasses import dataclass, field
from typing import Final, NoReturn


class BodyError(ValueError):
    """Bytes that are not valid in the format, or exceed a limit; or a value that the format cannot represent."""


class BudgetError(BodyError):
    """Decoding stopped at a limit. The bytes may still be valid in the format."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The cost limits for decoding one message."""

    nodes: int = 5_000
    """Values, elements and attributes of the result."""
    depth: int = 100
    """The deepest nesting of values."""
    octets: int = 1 << 20
    """Bytes of text and of byte strings in the result, and of the body that is decoded."""


DEFAULT_LIMITS: Final = Limits()
"""For messages that are shown."""
CARRIED: Final = Limits(nodes=100_000, octets=1 << 26)
"""For messages that go on to a program. No message has so many bytes."""


@dataclass(slots=True)
class Budget:
    """The rest of the limits during decoding."""

    limits: Limits
    nodes: int = field(init=False)
    octets: int = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = self.limits.nodes
        self.octets = self.limits.octets

    def spend(self, nodes: int = 1, octets: int = 0) -> None:
        """Take from the budget. Raises BudgetError when it is used up."""
        self.nodes -= nodes
        self.octets -= octets
        if self.nodes < 0 or self.octets < 0:
            self._refuse()

    def require(self, nodes: int) -> None:
        """Raise BudgetError if the budget has fewer nodes than this. Takes nothing."""
        if nodes > self.nodes:
            self.nodes = -1
            self._refuse()

    def _refuse(self) -> NoReturn:
        if self.nodes < 0:
            raise BudgetError(f"more than {self.limits.nodes} values: raise the limit bodies.nodes to decode it")
        raise BudgetError(f"more than {self.limits.octets} bytes: raise the limit bodies.octets to decode it")

    def check_depth(self, depth: int) -> None:
        """Raise BudgetError for values nested more deeply than the limit."""
        if depth > self.limits.depth:
            raise BudgetError(f"nested more than {self.limits.depth} deep: raise the limit bodies.depth to decode it")
