"""Compare and set for attributes of one value: two writers never undo each other's change."""

from collections.abc import Mapping, Sequence

from mqenterprise.directory.entries import Change, ChangeKind, Connection
from mqenterprise.directory.errors import ConditionFailed, ConstraintViolated


def swap(
    connection: Connection,
    dn: str,
    values: Mapping[str, tuple[bytes | None, bytes | None]],
    also: Sequence[Change] = (),
) -> bool:
    """Put new values in the place of old ones, by attribute: (old, new), None for no value. All or nothing.

    ``also`` are changes that take effect together with them. False when an attribute has another value than the old
    one. Raises ``ObjectNotFound`` and ``ConstraintViolated``.
    """
    changes = list(also)
    for attribute, (old, new) in values.items():
        if old is not None and old != new:
            changes.append(Change(ChangeKind.DELETE, attribute, (old,)))
        if new is not None and old != new:
            changes.append(Change(ChangeKind.ADD, attribute, (new,)))
    try:
        connection.modify(dn, changes)
    except ConditionFailed:
        return False
    except ConstraintViolated:
        # A server may complain of a second value first where there should have been none.
        present = connection.read(dn, tuple(values))
        if any(present.first(attribute) != old for attribute, (old, _) in values.items()):
            return False
        raise
    return True
