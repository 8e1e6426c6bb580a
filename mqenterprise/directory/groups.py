"""The groups that a user is in, directly and through other groups, as security identifiers.

Active Directory computes them (``tokenGroups``, MS-ADTS 3.1.1.4.5.19). Elsewhere membership is followed both ways that
servers keep it: ``member`` of the group, and ``memberOf`` of the member.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from mqenterprise.directory.errors import ConstraintViolated, ObjectNotFound
from mqenterprise.directory.names import escape_filter, normalized
from mqenterprise.directory.settings import ServerKind
from qmnode.structures.errors import PacketError
from qmnode.structures.security_descriptor import Sid

if TYPE_CHECKING:
    from mqenterprise.directory.connection import LdapConnection
    from mqenterprise.directory.entries import Entry

MOST_GROUPS: Final = 10_000
"""Groups that one user may be in."""
_AT_ONCE: Final = 50
"""Members that one search asks for."""
_GROUP: Final = ("objectSid", "memberOf")


def groups_of(connection: LdapConnection, security_identifier: bytes) -> tuple[bytes, ...]:
    """The SIDs of all groups of a user, each once. A group without a SID counts only for those that it is in.

    Raises ``ObjectNotFound`` for a SID that the directory does not have, and ``ConstraintViolated`` for a user in too
    many groups.
    """
    user = _entry_of(connection, security_identifier)
    if connection.dialect.kind is ServerKind.ACTIVE_DIRECTORY:
        tokens = connection.read(user.dn, ("tokenGroups",)).attributes.get("tokengroups", ())
        return tuple(token for token in tokens if _is_sid(token))
    found: dict[bytes, None] = {}
    for group in _reached(connection, user):
        identifier = group.first("objectSid")
        if identifier is not None and _is_sid(identifier):
            found[identifier] = None
    return tuple(found)


def _entry_of(connection: LdapConnection, security_identifier: bytes) -> Entry:
    domain = connection.dialect.contexts.domain
    for entry in connection.search(domain, f"(objectSid={escape_filter(security_identifier)})", _GROUP):
        return entry
    raise ObjectNotFound("the directory has no user with this security identifier")


def _reached(connection: LdapConnection, user: Entry) -> Iterator[Entry]:
    """Every group that membership leads to from a user, each once, however they are nested."""
    seen = {normalized(user.dn)}
    left = [user]
    while left:
        some, left = left[:_AT_ONCE], left[_AT_ONCE:]
        for group in (*_with_members(connection, [entry.dn for entry in some]), *_named_by(connection, some)):
            place = normalized(group.dn)
            if place in seen:
                continue
            seen.add(place)
            if len(seen) > MOST_GROUPS:
                raise ConstraintViolated(f"{user.dn} is in more than {MOST_GROUPS:,} groups")
            left.append(group)
            yield group


def _with_members(connection: LdapConnection, members: Sequence[str]) -> Iterator[Entry]:
    wanted = "".join(f"(member={escape_filter(dn)})" for dn in members)
    return connection.search(connection.dialect.contexts.domain, f"(|{wanted})", _GROUP)


def _named_by(connection: LdapConnection, members: Iterable[Entry]) -> Iterator[Entry]:
    for member in members:
        names = member.attributes.get("memberof", ())
        if len(names) > MOST_GROUPS:
            raise ConstraintViolated(f"{member.dn} is in more than {MOST_GROUPS:,} groups")
        for name in names:
            try:
                yield connection.read(name.decode("utf-8", "replace"), _GROUP)
            except (ObjectNotFound, ConstraintViolated):
                continue  # deleted, and the member not told; or no name at all


def _is_sid(encoded: bytes) -> bool:
    try:
        Sid.parse(encoded)
    except PacketError:
        return False
    return True
