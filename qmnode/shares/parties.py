"""The parties that use resources: own, declared, and strangers by address block."""

from enum import StrEnum, unique
from typing import Final, NamedTuple

from qmnode.shares.blocks import block_of


@unique
class Kind(StrEnum):
    """The identity that a party has proven."""

    OWN = "own"
    """Local applications and administrators."""
    DECLARED = "declared"
    """Machines of the directory at their addresses, TLS identities, and plain peers of the settings."""
    STRANGER = "stranger"


class Party(NamedTuple):
    """One payer. ``name`` identifies a declared peer, or is the address block of strangers."""

    kind: Kind
    name: str


OWN: Final = Party(Kind.OWN, "")
UNKNOWN: Final = Party(Kind.STRANGER, "unknown")
"""Strangers whose address block is no longer known."""


def declared(name: str) -> Party:
    """The party of a peer that has proven its identity, such as the text of its QueueManager.Identifier."""
    return Party(Kind.DECLARED, name)


def stranger(address: str) -> Party:
    """The party of all unproven peers in the block of an address."""
    return Party(Kind.STRANGER, block_of(address))
