"""How much a decoder may spend on one message, so that no body can exhaust the process that looks at it."""

from dataclasses import dataclass, field
from typing import Final, NoReturn


class BodyError(ValueError):
    """Bytes that are not of the format, or pass a limit; or a value that the format cannot write."""


class BudgetError(BodyError):
    """Decoding stopped at a limit. The bytes may well be of the format."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the decoding of one message may cost."""

    nodes: int = 5_000
    """Values, elements and attributes of the result."""
    depth: int = 100
    """Values within values."""
    octets: int = 1 << 20
    """Bytes of text and of byte strings in the result, and of the body that is decoded."""


DEFAULT_LIMITS: Final = Limits()


@dataclass(slots=True)
class Budget:
    """What is left of the limits."""

    limits: Limits
    nodes: int = field(init=False)
    octets: int = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = self.limits.nodes
        self.octets = self.limits.octets

    def spend(self, nodes: int = 1, octets: int = 0) -> None:
        """Take from the budget. BudgetError when it is used up."""
        self.nodes -= nodes
        self.octets -= octets
        if self.nodes < 0 or self.octets < 0:
            self._refuse()

    def require(self, nodes: int) -> None:
        """BudgetError if so many values cannot be paid for. Nothing is taken."""
        if nodes > self.nodes:
            self.nodes = -1
            self._refuse()

    def _refuse(self) -> NoReturn:
        if self.nodes < 0:
            raise BudgetError(f"more than {self.limits.nodes} values: raise the limit bodies.nodes to decode it")
        raise BudgetError(f"more than {self.limits.octets} bytes: raise the limit bodies.octets to decode it")

    def check_depth(self, depth: int) -> None:
        """BudgetError for values nested more deeply than the limit."""
        if depth > self.limits.depth:
            raise BudgetError(f"nested more than {self.limits.depth} deep: raise the limit bodies.depth to decode it")
