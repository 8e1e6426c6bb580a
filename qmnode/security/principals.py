"""Principals, the callers of access checks, by one rule for every door of a node.

A caller is a user's SID with those of all its groups, found so:

* **A process of this machine** (on the local socket) is the user that the kernel names. Its SID is the one
  that ``security.principals`` declares for it (or ``account_security_identifiers``); else that of the directory's user
  with the same account name, where the node joined one; else ``S-1-22-1-UID``, as Samba has it. The last is in every
  token of a local user, so that entries for it go on counting when the node joins a directory. The Unix groups are the
  primary and supplementary ones that the process had when it connected, as ``S-1-22-2-GID``, and what
  ``security.principals`` declares for them. Local users are in Everyone, Authenticated Users and Local (S-1-2-0).
* **A remote caller that authenticated** (remote read) is the user of the same name in the settings or the directory; if
  nobody knows one, it is one of Authenticated Users and nothing more. It is in Network (S-1-5-2).
* **A remote caller that did not** is Anonymous, and **not** in Everyone: only an entry for Anonymous lets it in. (The
  senders of unsigned messages are another matter: ``security.everyone_includes_anonymous``.)
* **A user whose password the directory has checked** (AMQP, where ``amqp.directory_passwords`` is set) is that user.
* **A token of the management API** (AMQP takes the same ones) is the SID that its file says, with its groups in the
  directory; without one its role alone says what it may do.
* **A user of the management socket** is the local user. The administrators may do everything there, as a token without
  a SID may.
* **An administrator** is whom ``security.administrators`` names: it is in Administrators (S-1-5-32-544) as well.

The groups of a directory's users come from the directory, nested ones too. While it does not answer, and its answer is
not known from before, the token is *uncertain*. Then nothing is allowed for the sake of a group that is not known, and
every entry that denies something to an account of a domain counts.
"""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import structlog

from qmnode.directory.port import (
    Directory,
    DirectoryOperationError,
    DirectoryOperationResult,
    GroupExpansion,
    PasswordCheck,
    User,
    WorkgroupDirectory,
    equals,
)
from qmnode.errors import ConfigurationError, MessageQueuingError
from qmnode.security.access_check import (
    QUEUE_MANAGER_MAPPING,
    QUEUE_MAPPING,
    GenericMapping,
    Token,
    access_check,
    default_queue_security,
    machine_security,
    notification_queue_security,
    outgoing_queue_security,
    system_queue_security,
    upgraded_queue_security,
    with_applications,
    workgroup_queue_security,
)
from qmnode.shares import Kind
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.errors import PacketError
from qmnode.structures.security_descriptor import (
    ANONYMOUS,
    AUTHENTICATED_USERS,
    BUILTIN_ADMINISTRATORS,
    EVERYONE,
    LOCAL,
    NETWORK,
    UNIX_GROUPS,
    UNIX_USERS,
    Control,
    SecurityDescriptor,
    Sid,
)

if TYPE_CHECKING:
    from qmnode.settings.security import SecuritySettings


log = structlog.get_logger(__name__)

_Place = tuple[int, frozenset[int]] | tuple[str, str]
"""A local user with its groups, or a token with its SID."""
_KEPT: Final = 1024
"""Local users and tokens whose principals are remembered."""
_DIRECTORY_PATIENCE: Final = 5.0
"""Seconds that a caller waits for the directory to say who it is."""
_UNCERTAIN: Final = 5.0
"""Seconds for which a principal counts whose groups are not known."""
_NODE: Final = "node"
"""In ``security.administrators``: the user that the node runs as."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller: its name for people, and its token for access checks."""

    name: str
    """``uid:1000``, ``CORP\\alice``, ``token:monitoring``, ``anonymous``: for messages and the audit log."""
    user: Sid
    """Its SID: the owner of the queues that it creates."""
    token: Token
    administrator: bool = False
    """Whether it may repair what locked everybody out: read and change permissions, and take queues over."""
    in_directory: bool = False
    """Whether the directory has the user: such a user's queues get a domain's defaults."""
    valid_until: float = field(default=float("inf"), compare=False)
    """Until when it counts as known, on :func:`time.monotonic`."""

    def __str__(self) -> str:
        return f"{self.name} ({self.user})"


def unix_user(number: int) -> Sid:
    """The SID of a Linux user that nothing else is declared for."""
    return UNIX_USERS.child(number)


def unix_group(number: int) -> Sid:
    return UNIX_GROUPS.child(number)


ANONYMOUS_PRINCIPAL: Final = Principal("anonymous", ANONYMOUS, Token(frozenset({ANONYMOUS, NETWORK})))
"""A caller over the network that did not authenticate."""


class Principals:
    """Finds principals, and remembers those of local users and tokens for ``security.principal_lifetime``."""

    def __init__(
        self,
        settings: SecuritySettings,
        directory: Directory | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``directory`` is None in a workgroup. ConfigurationError for settings that name nobody."""
        self._settings = settings
        self._directory = None if type(directory) is WorkgroupDirectory else directory
        self._clock = clock
        self._accounts = {account.casefold(): account for account in settings.account_security_identifiers}
        self._users, self._groups = _declared(settings.principals)
        self._administrators = frozenset(
            named_in_settings(text, "security.administrators") for text in settings.administrators
        )
        self._known: dict[_Place, Principal] = {}
        self._asked: dict[_Place, asyncio.Future[Principal]] = {}

    async def of_local_user(self, user_id: int, group_ids: Iterable[int] = ()) -> Principal:
        """The principal of a process of this machine, from its user and all its groups. Never raises."""
        groups = frozenset(group_ids)
        return await self._remembered((user_id, groups), lambda: self._find(user_id, groups))

    async def _remembered(self, place: _Place, find: Callable[[], Coroutine[Any, Any, Principal]]) -> Principal:
        known = self._known.get(place)
        if known is not None and self._clock() < known.valid_until:
            return known
        asked = self._asked.get(place)
        if asked is None:
            asked = self._asked[place] = asyncio.ensure_future(find())
            asked.add_done_callback(lambda _: self._asked.pop(place, None))
        found = await asyncio.shield(asked)
        if len(self._known) >= _KEPT:
            self._known.pop(next(iter(self._known)))
        self._known[place] = found
        return found

    def of_unix_user(self, user_id: int, group_ids: Iterable[int] = ()) -> Principal:
        """The same without the directory and the settings: a user and groups of this machine and nothing more."""
        return self._principal(f"uid:{user_id}", unix_user(user_id), _local(user_id, group_ids))

    async def of_remote_user(self, account: str) -> Principal:
        """The principal of a user that has proven to be ``DOMAIN\\user`` or ``user@REALM``; Anonymous without a name.

        MQ_ERROR_NO_DS while the directory cannot say in which groups a user is: its answer may be a denial.
        """
        if not account:
            return ANONYMOUS_PRINCIPAL
        implied = {EVERYONE, AUTHENTICATED_USERS, NETWORK}
        for name in (account, short_name(account)):
            known_as = self._accounts.get(name.casefold(), name)
            try:
                user = await security_identifier_of(known_as, self._settings, self._directory)
            except MessageQueuingError as error:
                if error.code == ErrorCode.MQ_ERROR_NO_DS:  # the user may be one who is denied
                    raise
                log.info("no SID for a remote user", account=known_as, reason=str(error))
                continue
            return self._principal(account, user, {user, *implied, *await self._groups_of(user)})
        return self._principal(account, AUTHENTICATED_USERS, implied)

    @property
    def checks_passwords(self) -> bool:
        """Whether the directory can check the passwords of its users."""
        return isinstance(self._directory, PasswordCheck)

    async def user_of_password(self, account: str, password: str) -> Sid | None:
        """The directory's user with this name and password, or None. MQ_ERROR_NO_DS if there is no answer."""
        if not isinstance(self._directory, PasswordCheck):
            return None
        try:
            found = await self._directory.check_password(account, password)
            return None if found is None else Sid.parse(found)
        except (DirectoryOperationError, PacketError) as error:
            raise MessageQueuingError(
                ErrorCode.MQ_ERROR_NO_DS, f"the directory cannot check a password now: {error}"
            ) from error

    async def of_directory_user(self, account: str, user: Sid) -> Principal:
        """The principal of a directory's user that has proven its name. MQ_ERROR_NO_DS while its groups are unknown."""
        implied = {EVERYONE, AUTHENTICATED_USERS, NETWORK}
        return self._principal(account, user, {user, *implied, *await self._groups_of(user)})

    async def of_token(self, name: str, sid: str) -> Principal:
        """The principal of a token of the management API: the SID that its file gives, with all its groups."""
        return await self._remembered((name, sid), lambda: self._find_token(name, Sid.from_text(sid)))

    async def _find_token(self, name: str, user: Sid) -> Principal:
        groups, uncertain = await self._known_groups_of(user, f"token:{name}")
        sids = {user, EVERYONE, AUTHENTICATED_USERS, NETWORK, *groups}
        return self._principal(f"token:{name}", user, sids, uncertain=uncertain)

    async def _known_groups_of(self, user: Sid, name: str) -> tuple[set[Sid], bool]:
        """The groups that the directory has for a user, and whether some may be missing."""
        try:
            async with asyncio.timeout(_DIRECTORY_PATIENCE):
                return await self._groups_of(user), False
        except (MessageQueuingError, TimeoutError) as error:
            log.warning("the groups of a caller are not known now", caller=name, reason=str(error) or "no answer")
            return set(), True

    async def names_of(self, security_identifiers: Iterable[str]) -> dict[str, str | None]:
        """The names by which a node knows SIDs: empty for a SID without an account, None while that is not known."""
        return {text: await self._name_of(text) for text in security_identifiers}

    async def _name_of(self, text: str) -> str | None:
        try:
            sid = Sid.from_text(text)
        except ValueError:
            return ""
        declared = self._settings.principals | self._settings.account_security_identifiers
        name = next((name for name, known in declared.items() if known.upper() == text.upper()), None)
        if name is not None:
            return name
        if sid.authority == UNIX_USERS.authority:
            return await asyncio.to_thread(_unix_name, sid)
        if self._directory is None:
            return ""
        try:
            async with asyncio.timeout(_DIRECTORY_PATIENCE):
                return await self._name_in_directory(self._directory, sid)
        except (DirectoryOperationError, TimeoutError):
            return None

    async def _name_in_directory(self, directory: Directory, sid: Sid) -> str:
        try:
            user = await directory.read_directory(User, [equals("security_identifier", sid.write())], ["name"])
            return user.name or str(sid)
        except DirectoryOperationError as error:
            if error.result is not DirectoryOperationResult.OBJECT_NOT_FOUND:
                raise
        try:
            if isinstance(directory, GroupExpansion):  # it finds groups as well
                await directory.expand_groups(sid.write())
                return "a group of the directory"
        except DirectoryOperationError as error:
            if error.result is not DirectoryOperationResult.OBJECT_NOT_FOUND:
                raise
        return ""

    def forget(self) -> None:
        """Ask for everybody anew."""
        self._known.clear()

    def _principal(self, name: str, user: Sid, sids: set[Sid], **more: bool) -> Principal:
        administrator = not self._administrators.isdisjoint(sids)
        if administrator:
            sids = sids | {BUILTIN_ADMINISTRATORS}
        uncertain = more.pop("uncertain", False)
        lifetime = self._settings.principal_lifetime
        until = self._clock() + (min(lifetime, _UNCERTAIN) if uncertain else lifetime)
        return Principal(
            name, user, Token(frozenset(sids), uncertain=uncertain), administrator, valid_until=until, **more
        )

    async def _find(self, user_id: int, group_ids: frozenset[int]) -> Principal:
        sids = _local(user_id, group_ids)
        sids.update(sid for number in group_ids if (sid := self._groups.get(number)) is not None)
        account = await asyncio.to_thread(account_of, user_id)
        declared = self._declared_for(user_id, account)
        uncertain, found = False, declared
        try:
            async with asyncio.timeout(_DIRECTORY_PATIENCE):
                if found is None and self._directory is not None and account is not None:
                    found = await self._in_directory(account)
                if found is not None and found.sub_authorities:
                    sids |= await self._groups_of(found)
        except (MessageQueuingError, TimeoutError) as error:
            uncertain = True
            log.warning("a local user's groups are not known now", user_id=user_id, reason=str(error) or "no answer")
        user = found or unix_user(user_id)
        in_directory = declared is None and found is not None
        return self._principal(f"uid:{user_id}", user, {user, *sids}, uncertain=uncertain, in_directory=in_directory)

    def _declared_for(self, user_id: int, account: str | None) -> Sid | None:
        declared = self._users.get(user_id)
        if declared is None and account is not None:
            text = self._settings.account_security_identifiers.get(account)
            declared = _sid(text, f"security.account_security_identifiers, {account}") if text is not None else None
        return declared

    async def _in_directory(self, account: str) -> Sid | None:
        """The SID of the directory's user of that name; None if it has none. MQ_ERROR_NO_DS if it does not answer."""
        try:
            return await security_identifier_of(account, self._settings, self._directory)
        except MessageQueuingError as error:
            if error.code == ErrorCode.MQ_ERROR_NO_DS:
                raise
            return None

    async def _groups_of(self, user: Sid) -> set[Sid]:
        """All groups of a directory's user. MQ_ERROR_NO_DS if they cannot be known now."""
        if not isinstance(self._directory, GroupExpansion):
            return set()
        try:
            return {Sid.parse(group) for group in await self._directory.expand_groups(user.write())}
        except PacketError as error:
            reason = str(error)
        except DirectoryOperationError as error:
            if error.result is DirectoryOperationResult.OBJECT_NOT_FOUND:  # known to the settings of this node only
                return set()
            reason = error.sentence
        # An access list may deny a group what it allows everybody.
        raise MessageQueuingError(
            ErrorCode.MQ_ERROR_NO_DS, f"the groups of {user} are not known now, so nothing is allowed: {reason}"
        )


def _local(user_id: int, group_ids: Iterable[int]) -> set[Sid]:
    return {EVERYONE, AUTHENTICATED_USERS, LOCAL, unix_user(user_id), *map(unix_group, group_ids)}


def short_name(account: str) -> str:
    """The account without its domain or realm."""
    return account.rpartition("\\")[2].partition("@")[0]


def _unix_name(sid: Sid) -> str:
    """``user:alice`` or ``group:ops``; by number where the machine has no name for it."""
    number = sid.relative_id or 0
    is_group = sid.sub_authorities[:1] == UNIX_GROUPS.sub_authorities
    try:
        return f"group:{grp.getgrgid(number).gr_name}" if is_group else f"user:{pwd.getpwuid(number).pw_name}"
    except (KeyError, OverflowError):
        return f"{'gid' if is_group else 'uid'}:{number}"


def account_of(user_id: int) -> str | None:
    """The name of a Linux user; None for a number without one, as in containers."""
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return None


def _declared(principals: dict[str, str]) -> tuple[dict[int, Sid], dict[int, Sid]]:
    """``security.principals`` by the numbers of users and of groups. Names that this machine does not have are left out
    with a line in the log: accounts come and go."""
    users: dict[int, Sid] = {}
    groups: dict[int, Sid] = {}
    for text, sid in principals.items():
        kind, number = unix_account(text, "security.principals")
        found = _sid(sid, f"security.principals, {text}")
        if number is None:
            log.warning("security.principals names an account that this machine does not have", account=text)
        elif kind is unix_user:
            users[number] = found
        else:
            groups[number] = found
    return users, groups


def named_in_settings(text: str, where: str) -> Sid:
    """The SID of a user or group that a setting names, also as ``node``. ConfigurationError."""
    if text == _NODE:
        return unix_user(os.geteuid())
    if text.upper().startswith("S-"):
        return _sid(text, where)
    kind, number = unix_account(text, where)
    if number is None:
        raise ConfigurationError(f"{where}: this machine has no {text}")
    return kind(number)


def unix_account(text: str, where: str) -> tuple[Callable[[int], Sid], int | None]:
    """The kind and number of ``uid:1000``, ``user:alice``, ``gid:50`` or ``group:ops``, or None. ConfigurationError."""
    kind, _, name = text.partition(":")
    try:
        match kind:
            case "uid" | "gid" if name.isascii() and name.isdigit() and int(name) <= 0xFFFFFFFF:
                return (unix_user if kind == "uid" else unix_group), int(name)
            case "user" if name:
                return unix_user, pwd.getpwnam(name).pw_uid
            case "group" if name:
                return unix_group, grp.getgrnam(name).gr_gid
    except KeyError:
        return (unix_user if kind == "user" else unix_group), None
    raise ConfigurationError(f"{where}: {text!r} is none of uid:NUMBER, user:NAME, gid:NUMBER, group:NAME")


def _sid(text: str, where: str) -> Sid:
    try:
        return Sid.from_text(text)
    except ValueError as error:
        raise ConfigurationError(f"{where}: {error}") from None


async def security_identifier_of(account: str, settings: SecuritySettings, directory: Directory | None) -> Sid:
    """The SID of a Linux user by name.

    Raises :class:`MessageQueuingError` with MQ_ERROR_COULD_NOT_GET_USER_SID when nobody knows it, MQ_ERROR_NO_DS when
    the directory does not answer.
    """
    text = settings.account_security_identifiers.get(account)
    if text is not None:
        try:
            return Sid.from_text(text)
        except ValueError as error:
            raise _unknown(f"security.account_security_identifiers has a wrong entry for {account}: {error}") from None
    if directory is None:
        raise _unknown(f"nobody knows a SID of {account}: add an entry in security.account_security_identifiers")
    try:
        user = await directory.read_directory(User, [equals("name", account)], ["security_identifier"])
    except DirectoryOperationError as error:
        if error.result is DirectoryOperationResult.OBJECT_NOT_FOUND:
            raise _unknown(
                f"the directory has no user {account}: add one, or an entry in security.account_security_identifiers"
            ) from None
        raise MessageQueuingError(ErrorCode.MQ_ERROR_NO_DS, f"the SID of {account}: {error.sentence}") from None
    try:
        return Sid.parse(user.security_identifier or b"")
    except PacketError:
        raise _unknown(f"the directory holds no SID that can be read for {account}") from None


def _unknown(sentence: str) -> MessageQueuingError:
    return MessageQueuingError(ErrorCode.MQ_ERROR_COULD_NOT_GET_USER_SID, sentence)


# ----------------------------------------------------------------------------------------------------------------------
# The access policy of a queue manager (MS-MQDMPR 3.1.7.1.3.1 and 3.1.7.1.5).

ANYBODY: Final = Token(frozenset({ANONYMOUS, EVERYONE}))
"""The sender of a message that proves no identity, where ``security.everyone_includes_anonymous`` is on."""
_SID_HEAD: Final = 8
"""Bytes of a SID (MS-DTYP 2.4.2.2) before its sub-authorities."""
NOBODY_KNOWN: Final = Token(frozenset({ANONYMOUS}))
"""The same where it is off."""


class QueueAccessPolicy:
    """Gives queues their descriptors, and checks callers against them."""

    def __init__(
        self,
        *,
        machine: Sid | None = None,
        anonymous_readers: bool = False,
        anonymous_senders: bool = False,
        names_senders: bool = True,
        unproven: Token = ANYBODY,
    ) -> None:
        """``machine`` is the computer's account in the directory. ``unproven`` is in the place of the sender of a
        message that proves no identity. ``anonymous_readers``: remote read is on, so that
        nobody in particular reads the queues of a store of an earlier version. ``anonymous_senders``: see
        ``security.anonymous_sends_elsewhere``. ``names_senders``: see
        ``security.send_sender_identifiers``."""
        self._machine = machine
        self._anonymous_readers = anonymous_readers
        self._anonymous_senders = anonymous_senders
        self._names_senders = names_senders
        self.unproven = unproven

    def default_queue_security(self, supplied: bytes, caller: object = None) -> bytes:
        """The descriptor of a new queue, self-relative. MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR for a wrong one.

        The queue belongs to its creator; those of the queue manager itself belong to the administrators.
        """
        asked = _readable(supplied) if supplied else None
        if isinstance(caller, Principal) and caller.in_directory:
            return default_queue_security(
                caller.user, is_domain_user=True, machine=self._machine, supplied=asked
            ).write()
        owner = caller.user if isinstance(caller, Principal) else BUILTIN_ADMINISTRATORS
        return workgroup_queue_security(owner, asked).write()

    def changed_queue_security(self, current: bytes, supplied: bytes) -> bytes:
        """A descriptor for an existing queue, which fills its gaps. MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR."""
        asked = _readable(supplied) if supplied else SecurityDescriptor()
        before = parsed(current) or SecurityDescriptor()
        owner = asked.owner or before.owner or BUILTIN_ADMINISTRATORS
        group = asked.group or before.group or owner
        said = replace(asked, owner=owner, group=group)
        if asked.dacl is None and not Control.DP.get(asked.control):  # left out, unlike one that lets everybody in
            said = replace(said, dacl=before.dacl or workgroup_queue_security(owner).dacl)
        return said.write()

    def followed_queue_security(self, current: bytes, said: bytes) -> bytes:
        """The directory's descriptor of a queue; applications of an earlier version's store stay let in."""
        before, told = parsed(current), parsed(said)
        if told is None:
            return current
        return self.changed_queue_security(current, with_applications(told, before).write())

    def sender_identifier(self, caller: object) -> bytes:
        """The SID of a caller that is known beyond this machine: an account of a domain."""
        if not self._names_senders or not isinstance(caller, Principal) or not caller.user.is_domain_account:
            return b""
        return caller.user.write()

    def rights_of(self, caller: object) -> bytes:
        """The SIDs of a caller's token, for a message that is delivered later; the first byte says that some are
        missing.
        """
        token = caller.token if isinstance(caller, Principal) else caller
        assert isinstance(token, Token)
        return bytes((token.uncertain,)) + b"".join(sorted(sid.write() for sid in token.sids))

    def caller_with(self, rights: bytes) -> Token:
        """A token with the SIDs of ``rights_of``."""
        return _token(rights)

    def kind_of(self, caller: object) -> Kind:
        """Kind of a caller: anonymous ones are strangers, others from the network peers with an identity."""
        token = caller.token if isinstance(caller, Principal) else caller
        sids = token.sids if isinstance(token, Token) else frozenset({ANONYMOUS})
        if ANONYMOUS in sids:
            return Kind.STRANGER
        return Kind.DECLARED if NETWORK in sids else Kind.OWN

    def check(self, security: bytes, rights: int, caller: object) -> bool:
        """Whether ``caller``, a Principal or a Token, has the rights to a queue."""
        return _check(security, rights, caller, QUEUE_MAPPING)

    def check_machine(self, security: bytes, rights: int, caller: object) -> bool:
        """Whether ``caller`` has the rights to the queue manager."""
        return _check(security, rights, caller, QUEUE_MANAGER_MAPPING)

    def machine_security(self, upgraded: bool) -> bytes:
        """The queue manager's own descriptor; that of an ``upgraded`` store lets every application do everything."""
        return machine_security(upgraded).write()

    def system_queue_security(self, upgraded: bool) -> bytes:
        """That of a dead-letter queue or the machine's journal."""
        return system_queue_security(upgraded).write()

    def notification_queue_security(self) -> bytes:
        """That of the queue of change notifications: all may send them, for none is believed."""
        return notification_queue_security().write()

    def outgoing_queue_security(self, machine: bytes) -> bytes:
        """That of queues to other machines: they have the administrators of the queue manager."""
        return _outgoing(machine, self._anonymous_senders)

    def upgraded_queue_security(self, security: bytes) -> bytes:
        """That of a queue of a store of an earlier version: it lets in who got in before."""
        if not security:
            before: SecurityDescriptor | None = SecurityDescriptor()
        else:
            before = parsed(security)
        return security if before is None else upgraded_queue_security(before, self._anonymous_readers).write()


def _check(security: bytes, rights: int, caller: object, mapping: GenericMapping) -> bool:
    match caller:
        case Principal(token=token) | (Token() as token):
            return _allowed(security, rights, token, mapping)
        case _:
            return False


@lru_cache(maxsize=4096)
def _allowed(security: bytes, rights: int, token: Token, mapping: GenericMapping) -> bool:
    """The access check, remembered. A descriptor that is missing or cannot be read grants nothing."""
    descriptor = parsed(security)
    return descriptor is not None and access_check(descriptor, token, rights, mapping).allowed


@lru_cache(maxsize=256)
def _token(rights: bytes) -> Token:
    sids, at = set(), 1
    while at < len(rights):
        size = _SID_HEAD + 4 * rights[at + 1]
        sids.add(Sid.parse(rights[at : at + size]))
        at += size
    return Token(frozenset(sids), uncertain=bool(rights[0]))


@lru_cache(maxsize=16)
def _outgoing(machine: bytes, anonymous: bool) -> bytes:
    return outgoing_queue_security(parsed(machine) or SecurityDescriptor().with_dacl(), anonymous=anonymous).write()


@lru_cache(maxsize=1024)
def parsed(security: bytes) -> SecurityDescriptor | None:
    """A self-relative descriptor; None for nothing, and for what cannot be read."""
    if not security:
        return None
    try:
        return SecurityDescriptor.parse(security)
    except PacketError:
        return None


def _readable(supplied: bytes) -> SecurityDescriptor:
    try:
        return SecurityDescriptor.parse(supplied)
    except PacketError as error:
        raise MessageQueuingError(ErrorCode.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR, str(error)) from None
