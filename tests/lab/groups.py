"""Users and groups of a directory, as its administrator makes them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from mqenterprise.directory.entries import Change, ChangeKind
from mqenterprise.directory.ldap_names import child
from mqenterprise.directory.logins import groups_of
from mqenterprise.directory.settings import ServerKind
from qmnode.directory.port import User
from qmnode.structures.security_descriptor import Sid
from tests.lab.directory_objects import create

if TYPE_CHECKING:
    from collections.abc import Callable

    from mqenterprise.directory.open_directory import EnterpriseDirectory

    Named = Callable[[str], str]

GLOBAL_SECURITY_GROUP: Final = str(-2147483646).encode()


class Groups:
    """Users and groups of one directory."""

    def __init__(self, directory: EnterpriseDirectory, fresh_name: Named) -> None:
        self.directory, self.connection = directory, directory.connection
        self._name = fresh_name
        self._gives_sids = self.connection.dialect.kind is ServerKind.ACTIVE_DIRECTORY
        self._last = int(time.time() * 1000) % 2**30

    def _identifier(self) -> bytes:
        self._last += 1
        return Sid.from_text(f"S-1-5-21-5-6-7-{self._last}").write()

    def user(self) -> tuple[str, bytes]:
        """A new user's name and SID."""
        identifier = None if self._gives_sids else self._identifier()
        user = create(self.directory, User(name=self._name("user"), security_identifier=identifier))
        assert user.full_path is not None
        return user.full_path, user.security_identifier

    def group(self, *members: str, security: bool = True) -> tuple[str, bytes]:
        """A new group of these members; its name and SID."""
        name = self._name("group")
        dn = child(name, self.connection.dialect.contexts.users)
        attributes = {**self.connection.dialect.account("group", name), "groupType": (GLOBAL_SECURITY_GROUP,)}
        if members:
            attributes["member"] = tuple(member.encode() for member in members)
        if not self._gives_sids and security:
            attributes["objectSid"] = (self._identifier(),)
        self.connection.add(dn, ("top", "group"), attributes)
        return dn, self.connection.read(dn, ("objectSid",)).first("objectSid") or b""

    def change(self, group: str, *members: str) -> None:
        """A group has exactly these members from now on."""
        named = tuple(member.encode() for member in members)
        self.connection.modify(group, (Change(ChangeKind.REPLACE, "member", named),))

    def of(self, identifier: bytes) -> set[bytes]:
        """What the directory says, but for the groups that every user is in."""
        _, other = self.user()
        return set(groups_of(self.connection, identifier)) - set(groups_of(self.connection, other))
