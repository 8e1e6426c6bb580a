"""People of an LDAP directory: found by their name, and proved by a bind with their password."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from mqenterprise.directory.connection import LdapConnection
from mqenterprise.directory.errors import BindRefused, ConstraintViolated, DirectoryError
from mqenterprise.directory.names import escape_filter
from mqenterprise.directory.settings import BindMethod
from qmnode.console.port import DeniedError, Person, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mqenterprise.console.people.settings import LdapSettings
    from mqenterprise.directory.entries import Entry
    from mqenterprise.directory.settings import DirectorySettings

_CONTROL: Final = "userAccountControl"
_ACCOUNT_DISABLE: Final = 2
_MOST_GROUPS: Final = 1_024
"""Groups that one person may be in: Active Directory itself lets nobody log on who is in more (MS-KILE)."""
_LONGEST: Final = 300
"""Characters of a name. A node gives no role to a group with a longer one."""


class LdapPeople:
    """The people of a directory."""

    def __init__(self, settings: LdapSettings, directory: DirectorySettings) -> None:
        self._settings = settings
        self._directory = directory

    async def identify(self, name: str, password: str) -> Person | None:
        """The person; None for an unknown name or a wrong password. Raises :class:`UnavailableError`."""
        if not password:  # a bind without one succeeds for nobody (RFC 4513, 5.1.2)
            return None
        return await self._ask(name, lambda connection, dn: self._is_bound(connection, dn, password))

    async def _again(self, name: str, known: str) -> Person:
        """The person with the groups of now. Raises :class:`DeniedError` and :class:`UnavailableError`."""
        person = await self._ask(name, lambda _, dn: dn.casefold() == known.casefold())
        if person is None:
            raise DeniedError(f"the directory has no {name} any more, or has disabled the account")
        return person

    async def _ask(self, name: str, is_theirs: Callable[[LdapConnection, str], bool]) -> Person | None:
        try:
            return await asyncio.to_thread(self._found, name, is_theirs)
        except DirectoryError as error:
            raise UnavailableError(f"the directory cannot say who you are: {error.sentence}") from None

    def _found(self, name: str, is_theirs: Callable[[LdapConnection, str], bool]) -> Person | None:
        wanted = self._settings
        with closing(LdapConnection(self._directory)) as connection:
            found = list(
                connection.search(
                    wanted.people or connection.root,
                    f"({wanted.name}={escape_filter(name.encode())})",
                    (wanted.name, _CONTROL),
                )
            )
            if len(found) != 1 or _is_disabled(found[0]) or not is_theirs(connection, found[0].dn):
                return None
            person = found[0]
            groups = connection.search(
                wanted.groups or connection.root,
                f"({wanted.member}={escape_filter(person.dn.encode())})",
                (wanted.group_name,),
            )
            names: set[str] = set()
            for group in groups:
                names.add((group.first(wanted.group_name) or b"").decode("utf-8", "replace")[: _LONGEST + 1])
                if len(names) > _MOST_GROUPS:
                    raise ConstraintViolated(f"{name} is in more than {_MOST_GROUPS:,} groups")
        spelled = (person.first(wanted.name) or name.encode()).decode("utf-8", "replace")
        if len(spelled) > _LONGEST:
            raise ConstraintViolated(f"{name} has a name of more than {_LONGEST} characters")
        return Person(
            spelled,
            tuple(sorted(one for one in names if 0 < len(one) <= _LONGEST)),
            lambda: self._again(spelled, person.dn),
        )

    def _is_bound(self, connection: LdapConnection, dn: str, password: str) -> bool:
        own = {"bind": BindMethod.SIMPLE, "user": dn, "password": SecretStr(password), "password_file": None}
        try:
            for session in connection.pool.unbound(self._directory.model_copy(update=own)):
                session.close()
                return True
        except BindRefused:
            pass
        return False


def _is_disabled(person: Entry) -> bool:
    """Whether Active Directory has disabled the account: its password is not tried again (MS-ADTS 2.2.16)."""
    control = person.first(_CONTROL) or b""
    return control.isdigit() and bool(int(control) & _ACCOUNT_DISABLE)
