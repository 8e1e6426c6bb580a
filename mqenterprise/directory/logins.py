"""The passwords of users, checked by a simple bind as the user: the directory decides, and nothing is stored here.

A password is sent over TLS with a verified certificate only, whatever the settings allow the node's own account.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pydantic import SecretStr

from mqenterprise.directory.connection import LdapConnection
from mqenterprise.directory.entries import Entry
from mqenterprise.directory.errors import (
    AccessRefused,
    BindRefused,
    ConstraintViolated,
    DirectoryUnavailable,
    ObjectNotFound,
)
from mqenterprise.directory.ldap_messages import BUSY, SUCCESS, WireError, bind_request, error_of
from mqenterprise.directory.ldap_names import escape_filter, normalized
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.settings import BindMethod, ServerKind
from qmnode.structures.errors import PacketError
from qmnode.structures.security_descriptor import Sid

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


WRONG: Final = "the directory has no user {account!r} with this password: correct it, or name no user"
_LONGEST_NAME: Final = 256
_ATTRIBUTES: Final = ("objectSid", "sAMAccountName", "cn")


def check_password(connection: LdapConnection, account: str, password: str) -> bytes | None:
    """The SID of the user with this account name and password; None if there is no such user, or it has another one.

    Raises ``ConstraintViolated`` if the settings do not secure the connection, and ``DirectoryUnavailable``.
    """
    _check_secured(connection)
    # RFC 4513 5.1.2: a server accepts a bind with a name and no password, as anonymous.
    if not account or len(account) > _LONGEST_NAME or not password:
        return None
    user = _user(connection, account)
    if user is None:
        return None
    identifier = user.first("objectSid")
    if identifier is None or not _is_account(identifier):
        return None
    return identifier if _binds(connection, user.dn, password) else None


def logged_in(connection: LdapConnection, account: str, password: str) -> EnterpriseDirectory:
    """The directory as the user with this account name and password sees it; the caller closes it.

    Raises ``AccessRefused`` for a user that there is not, ``ConstraintViolated`` if the settings do not secure the
    connection, and ``DirectoryUnavailable``. The password is checked at the first use, with ``BindRefused``.
    """
    _check_secured(connection)
    user = _user(connection, account) if 0 < len(account) <= _LONGEST_NAME and password else None
    if user is None:
        raise AccessRefused(WRONG.format(account=account))
    own = {"bind": BindMethod.SIMPLE, "user": user.dn, "password": SecretStr(password), "password_file": None}
    settings = connection.settings.model_copy(update=own | {"client_certificate": None, "client_key": None})
    return EnterpriseDirectory(settings, connection.pool.order)


def _check_secured(connection: LdapConnection) -> None:
    settings = connection.settings
    may_be_clear = not settings.servers or any(url.startswith("ldap://") for url in settings.servers)
    if (may_be_clear and not settings.start_tls) or not settings.verify:
        raise ConstraintViolated(
            "passwords of users are sent over verified TLS only: set start_tls and verify to true in the directory's "
            "settings, or turn amqp.directory_passwords off and name no user"
        )


def _user(connection: LdapConnection, account: str) -> Entry | None:
    """The one user of an account name. A user without an account name has its common name instead.

    A directory also finds names that differ in spaces or accents. They are refused: limits on wrong passwords count by
    name.
    """
    text = escape_filter(account)
    filter = (
        f"(&(objectClass=user)(!(objectClass=computer))(|(sAMAccountName={text})(&(!(sAMAccountName=*))(cn={text}))))"
    )
    found = list(connection.search(connection.dialect.contexts.domain, filter, _ATTRIBUTES))
    if len(found) != 1:
        return None
    name = found[0].first("sAMAccountName") or found[0].first("cn") or b""
    return found[0] if name.decode("utf-8", "replace").casefold() == account.casefold() else None


def _is_account(identifier: bytes) -> bool:
    try:
        return bool(Sid.parse(identifier).sub_authorities)
    except PacketError:
        return False


def _binds(connection: LdapConnection, dn: str, password: str) -> bool:
    """Whether a server accepts a bind. A connection of its own, which is closed: it is the user's."""
    settings = connection.settings.model_copy(
        update={"bind": BindMethod.ANONYMOUS, "client_certificate": None, "client_key": None}
    )
    limit = connection.settings.operation_timeout
    for session in connection.pool.unbound(settings):
        try:
            identifier = session.wire.send(bind_request(dn, password))
            result = session.wire.receive(identifier, limit).result()
        except (OSError, WireError):
            connection.pool.fail(session.url)
            continue
        finally:
            session.close()
        if result.code == SUCCESS:
            return True
        if result.code not in BUSY:
            error = error_of(result, f"checking the password of {dn}", dn)
            if isinstance(error, DirectoryUnavailable) and not isinstance(error, BindRefused):
                raise error
            return False  # also for an account that may not log in, or has no password
    raise DirectoryUnavailable(f"checking the password of {dn}: no directory server answered")
