"""Queue aliases and distribution lists resolved to format names (MS-MQDSSM 3.1.6.8, 3.1.6.9)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Final

from mqenterprise.directory.errors import ConstraintViolated, HalfWritten, ObjectNotFound
from mqenterprise.directory.gateway import MARK
from mqenterprise.directory.names import name_of, normalized
from qmnode.structures.guid import GUID_SIZE, Guid, guid_from_bytes, guid_to_text

if TYPE_CHECKING:
    from mqenterprise.directory.connection import LdapConnection
    from mqenterprise.directory.entries import Entry

ASKED: Final = ("objectClass", "objectGUID", "member", "msMQ-Recipient-FormatName")
MOST_QUEUES: Final = 10_000
"""Format names that one list may lead to; a message is sent to each of them."""
MOST_NAMES: Final = 50_000
"""Names of members in a list and the lists in it, those that are there several times as well."""
_SECONDS: Final = 60.0


def resolve_queue_alias(connection: LdapConnection, full_path: str) -> str:
    """The format name of an alias (3.1.6.8). Raises ``ObjectNotFound``, and ``HalfWritten`` for one without."""
    return _format_name(connection.read(full_path, ("msMQ-Recipient-FormatName",)))


def declared_lists(connection: LdapConnection) -> Iterator[tuple[str, Guid]]:
    """The names and GUIDs of the lists that declarations made: most groups of a directory are of people."""
    filter = f"(&(objectClass=group)({MARK}=mqenterprise *))"
    for entry in connection.search(connection.dialect.contexts.domain, filter, ("objectGUID",)):
        if not normalized(entry.dn).partition(",")[2].startswith("cn=users,"):
            continue  # the access list of a site or the enterprise, in OpenLDAP
        if (value := entry.first("objectGUID")) is not None:
            yield name_of(entry.dn), guid_from_bytes(value)


def resolve_distribution_list(
    connection: LdapConnection, identifier: Guid, seconds: float = _SECONDS
) -> tuple[str, ...]:
    """The format names of all queues of a list and of the lists in it (3.1.6.9), each once, in the order of the lists.

    The section would follow lists that contain each other without end; here each member is read once. Raises
    ``ConstraintViolated`` for a member that is no queue, alias or list, for lists of too many names, and after
    ``seconds``.
    """
    outermost = _by_guid(connection, identifier)
    found: dict[str, None] = {}
    seen = {normalized(outermost.dn)}
    left: deque[tuple[str, Sequence[bytes]]] = deque()
    names, until = 0, monotonic() + seconds

    def enter(group: Entry) -> None:
        nonlocal names
        members = group.attributes.get("member", ())
        names += len(members)
        if names > MOST_NAMES:
            raise ConstraintViolated(
                f"{outermost.dn} and the lists in it name more than {MOST_NAMES:,} members: split it"
            )
        left.append((group.dn, members))

    enter(outermost)
    while left:
        dn, members = left.popleft()
        for member in members:
            path = member.decode("utf-8", "replace")
            if (place := normalized(path)) in seen:
                continue
            seen.add(place)
            if len(seen) > MOST_QUEUES:
                raise ConstraintViolated(f"{outermost.dn} and the lists in it have more than {MOST_QUEUES:,} members")
            if monotonic() > until:
                raise ConstraintViolated(
                    f"{outermost.dn} and the lists in it cannot be read within {seconds:g} s: {len(seen):,} of their "
                    "members were; split it"
                )
            entry = connection.read(path, ASKED)
            classes = {value.decode("utf-8", "replace").lower() for value in entry.attributes.get("objectclass", ())}
            if "msmqqueue" in classes:
                found[_public(entry)] = None
            elif "msmq-custom-recipient" in classes:
                found[_format_name(entry)] = None
            elif "group" in classes:
                enter(entry)
            else:
                raise ConstraintViolated(f"{dn} has {entry.dn}, which is no queue, alias or list")
    return tuple(found)


def _by_guid(connection: LdapConnection, identifier: Guid) -> Entry:
    base, filter, is_base = connection.dialect.by_guid(identifier)
    entries = (connection.read(base, ASKED),) if is_base else connection.search(base, filter, ASKED)
    for entry in entries:
        if b"group" in entry.attributes.get("objectclass", ()):
            return entry
    raise ObjectNotFound(f"there is no distribution list with the GUID {guid_to_text(identifier)}")


def _public(entry: Entry) -> str:
    value = entry.first("objectGUID")
    if value is None or len(value) != GUID_SIZE:
        raise HalfWritten(f"{entry.dn} lacks objectGUID")
    return f"PUBLIC={guid_to_text(guid_from_bytes(value))}"


def _format_name(entry: Entry) -> str:
    value = entry.first("msMQ-Recipient-FormatName")
    if value is None:
        raise HalfWritten(f"{entry.dn} is an alias without a format name")
    return value.decode("utf-8", "replace")
