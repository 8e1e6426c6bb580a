"""What the doors are asked for, and the outcome that the entries of a queue demand: from no code of the product."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from qmnode.structures.security_descriptor import (
    ANONYMOUS,
    AUTHENTICATED_USERS,
    BUILTIN_ADMINISTRATORS,
    EVERYONE,
    LOCAL,
    NETWORK,
    Acl,
    SecurityDescriptor,
    Sid,
    allow,
    deny,
)
from qmnode.structures.security_descriptor import QueueAccess as Right

ALL = int(Right.MQSEC_QUEUE_GENERIC_ALL)
SEE_AND_SEND = int(Right.MQSEC_GET_QUEUE_PROPERTIES | Right.MQSEC_GET_QUEUE_PERMISSIONS | Right.MQSEC_WRITE_MESSAGE)
IMPLICIT = int(Right.MQSEC_GET_QUEUE_PERMISSIONS | Right.MQSEC_CHANGE_QUEUE_PERMISSIONS)
REPAIR = IMPLICIT | int(Right.MQSEC_GET_QUEUE_PROPERTIES | Right.MQSEC_TAKE_QUEUE_OWNERSHIP)
UNKNOWN = Sid.from_text("S-1-5-21-9-9-9-500")
Entries = list[tuple[bool, Sid, int]]


@dataclass(frozen=True)
class Accounts:
    """The accounts that the descriptors are about."""

    owner: Sid
    group: Sid
    declared: Sid


DOMAIN = Accounts(*(Sid.from_text(f"S-1-5-21-7-8-9-{number}") for number in (1001, 2001, 1004)))
MEMBER, STRANGER = (Sid.from_text(f"S-1-5-21-7-8-9-{number}") for number in (1002, 1003))


def descriptors(accounts: Accounts) -> dict[str, Entries]:
    """The entries of each descriptor that queues are given."""
    owner, group, declared = accounts.owner, accounts.group, accounts.declared
    return {
        "default": [(True, EVERYONE, SEE_AND_SEND), (True, owner, ALL)],
        "nobody": [],
        "denied": [(False, EVERYONE, ALL), (True, EVERYONE, ALL), (True, owner, ALL)],
        "open": [(True, EVERYONE, ALL)],
        "applications": [(True, LOCAL, ALL)],
        "network": [(True, NETWORK, ALL)],
        "anonymous": [(True, ANONYMOUS, ALL)],
        "authenticated": [(True, AUTHENTICATED_USERS, ALL)],
        "group": [(True, group, ALL)],
        "all but a group": [(False, group, ALL), (True, EVERYONE, ALL)],
        "declared": [(True, declared, ALL)],
        "all but a declared one": [(False, declared, ALL), (True, EVERYONE, ALL)],
        "unknown": [(True, UNKNOWN, ALL)],
        "administrators": [(True, BUILTIN_ADMINISTRATORS, ALL)],
        **{
            f"{'only' if allows else 'all but'} {right.name}": (
                [(True, EVERYONE, int(right))] if allows else [(False, EVERYONE, int(right)), (True, EVERYONE, ALL)]
            )
            for right in Right
            for allows in (True, False)
        },
    }


@dataclass(frozen=True)
class Who:
    """A principal as the matrix knows it: the SIDs that it has to be found with."""

    sids: frozenset[Sid]
    repairs: bool = False
    """Whether it is an administrator, who may repair queues."""
    everything: bool = False
    """Whether no descriptor is asked for it."""
    reads_only: bool = False
    """Whether its role lets it change nothing."""


def allowed(entries: Entries, who: Who, owner: Sid, rights: int, *, repairs: bool = True) -> bool:
    """Whether the entries give the rights: each right as the first entry says that is about the principal."""
    if who.everything or (repairs and who.repairs and not rights & ~REPAIR):
        return True
    missing = rights & ~(IMPLICIT if owner in who.sids else 0)
    for bit in (1 << number for number in range(20)):
        if missing & bit:
            verdict = next((allows for allows, sid, mask in entries if sid in who.sids and mask & bit), False)
            if not verdict:
                return False
    return True


def described(entries: Entries, owner: Sid | None) -> bytes:
    """A descriptor with these entries; without an owner it changes only the list."""
    dacl = Acl.of(*((allow if allows else deny)(sid, mask) for allows, sid, mask in entries))
    return SecurityDescriptor(owner=owner, group=owner, dacl=dacl).write()


@dataclass
class Matrix:
    """Counts cells, and keeps the wrong ones."""

    door: str
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    worked: float = field(default_factory=time.process_time)

    def count(self, cell: str, expected: bool, found: bool) -> None:
        """One cell, with what the entries demand and what the door did."""
        self.counts["allowed" if expected else "denied"] += 1
        if found is not expected:
            self.wrong.append(f"{cell}: {'allowed' if found else 'denied'}")

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return sum(self.counts.values())

    def report(self) -> str:
        """The counts, for people."""
        took, worked = time.monotonic() - self.started, time.process_time() - self.worked
        return (
            f"\ndoor matrix, {self.door}: {self.cells} cells, {dict(self.counts)}, {took:.1f} s, {worked:.1f} s of CPU"
        )
