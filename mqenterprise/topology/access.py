"""Access lists of queues in a normal form: equal lists have equal texts, on every server.

``Everyone: allow get_permissions get_properties`` is one entry; an access list is the sorted tuple of its entries. The
names of the rights are those of MS-MQMQ 2.2.24 without ``MQSEC_`` and ``_MESSAGE``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from qmnode.structures.access_masks import QueueAccess as Q

if TYPE_CHECKING:
    from mqenterprise.topology.declaration import Access


RIGHTS = {
    "receive": Q.MQSEC_RECEIVE_MESSAGE,
    "receive_journal": Q.MQSEC_RECEIVE_JOURNAL_MESSAGE,
    "peek": Q.MQSEC_PEEK_MESSAGE,
    "send": Q.MQSEC_WRITE_MESSAGE,
    "set_properties": Q.MQSEC_SET_QUEUE_PROPERTIES,
    "get_properties": Q.MQSEC_GET_QUEUE_PROPERTIES,
    "delete": Q.MQSEC_DELETE_QUEUE,
    "get_permissions": Q.MQSEC_GET_QUEUE_PERMISSIONS,
    "change_permissions": Q.MQSEC_CHANGE_QUEUE_PERMISSIONS,
    "take_ownership": Q.MQSEC_TAKE_QUEUE_OWNERSHIP,
    "generic_read": Q.MQSEC_QUEUE_GENERIC_READ,
    "generic_write": Q.MQSEC_QUEUE_GENERIC_WRITE,
    "generic_all": Q.MQSEC_QUEUE_GENERIC_ALL,
}
"""The declaration's names. ``receive`` and ``receive_journal`` include ``peek``, as in the specification."""

NOT_UNDERSTOOD = "(not understood: "
"""How the one line of a descriptor begins that cannot be decoded."""

# Wide rights come first: receive and receive_journal include the bit of peek.
_PLAIN = tuple(name for name in RIGHTS if not name.startswith("generic_"))


def mask(rights: Iterable[str]) -> int:
    value = 0
    for right in rights:
        value |= int(RIGHTS[right])
    return value


def named(value: int) -> tuple[str, ...]:
    """Return the fewest names whose mask is ``value``. Bits without a name are written in hexadecimal."""
    if value == RIGHTS["generic_all"]:
        return ("generic_all",)
    names: list[str] = []
    left = value
    for name in _PLAIN:
        bits = int(RIGHTS[name])
        if value & bits == bits and left & bits:
            names.append(name)
            left &= ~bits
    if left:
        names.append(hex(left))
    return tuple(sorted(names))


def line(trustee: str, verb: str, value: int) -> str:
    """Return one entry of a normal access list."""
    return f"{trustee}: {verb} {' '.join(named(value))}"


def normal(entries: Iterable[Access], canonical: Callable[[str], str]) -> tuple[str, ...]:
    """Return a declared access list in normal form. ``canonical`` returns the one name of a trustee."""
    masks: dict[tuple[str, str], int] = {}
    for entry in entries:
        # Two entries may name the same trustee in two ways.
        for verb, rights in (("allow", entry.allow), ("deny", entry.deny)):
            if rights:
                key = canonical(entry.to), verb
                masks[key] = masks.get(key, 0) | mask(rights)
    return tuple(sorted(line(trustee, verb, value) for (trustee, verb), value in masks.items()))


def is_understood(lines: Iterable[str]) -> bool:
    """Whether lines are a normal access list, and not the reason why a descriptor cannot be decoded."""
    return not any(text.startswith(NOT_UNDERSTOOD) for text in lines)


def parsed(text: str) -> tuple[str, str, int]:
    """The trustee, the verb and the mask of one entry of a normal access list."""
    trustee, _, rest = text.rpartition(": ")
    verb, *rights = rest.split()
    value = 0
    for right in rights:
        value |= int(right, 16) if right.startswith("0x") else int(RIGHTS[right])
    return trustee, verb, value


def declared(lines: Iterable[str]) -> list[dict[str, object]]:
    """A normal access list as the declaration writes it."""
    entries: dict[str, dict[str, object]] = {}
    for text in lines:
        trustee, verb, value = parsed(text)
        entries.setdefault(trustee, {"to": trustee})[verb] = list(named(value))
    return list(entries.values())
