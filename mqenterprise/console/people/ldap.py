"""People of an LDAP directory: found by their name, and proved by a bind with their password."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING

from pydantic import SecretStr

from mqenterprise.directory.connection import LdapConnection
from mqenterprise.directory.errors import BindRefused, DirectoryError
from mqenterprise.directory.names import escape_filter
from mqenterprise.directory.settings import BindMethod
from qmnode.console.port import UnavailableError
from qmnode.console.sign_in import Person

if TYPE_CHECKING:
    from mqenterprise.console.people.settings import LdapSettings
    from mqenterprise.directory.settings import DirectorySettings


class LdapPeople:
    """The people of a directory."""

    def __init__(self, settings: LdapSettings, directory: DirectorySettings) -> None:
        self._settings = settings
        self._directory = directory

    async def identify(self, name: str, password: str) -> Person | None:
        """The person; None for an unknown name or a wrong password. Raises :class:`UnavailableError`."""
        try:
            return await asyncio.to_thread(self._identify, name, password)
        except DirectoryError as error:
            raise UnavailableError(f"the directory cannot say who you are: {error.sentence}") from None

    def _identify(self, name: str, password: str) -> Person | None:
        if not password:  # a bind without one succeeds for nobody (RFC 4513, 5.1.2)
            return None
        wanted = self._settings
        with closing(LdapConnection(self._directory)) as connection:
            found = list(
                connection.search(
                    wanted.people or connection.root,
                    f"({wanted.name}={escape_filter(name.encode())})",
                    (wanted.name,),
                )
            )
            if len(found) != 1 or not self._is_bound(connection, found[0].dn, password):
                return None
            person = found[0]
            groups = connection.search(
                wanted.groups or connection.root,
                f"({wanted.member}={escape_filter(person.dn.encode())})",
                (wanted.group_name,),
            )
            names = [group.first(wanted.group_name) for group in groups]
        spelled = person.first(wanted.name) or name.encode()
        return Person(
            spelled.decode("utf-8", "replace"),
            tuple(sorted(one.decode("utf-8", "replace") for one in names if one is not None)),
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
