"""Two users who log in to the directory by themselves: what an access list lets each of them do there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mqenterprise.directory.entries import Change, ChangeKind, Scope
from mqenterprise.directory.errors import AccessRefused, DirectoryError
from mqenterprise.directory.ldap_names import child
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.directory.settings import BindMethod, DirectorySettings, ServerKind
from qmnode.model.api import DirectoryLogin
from qmnode.structures.guid import guid_to_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from mqenterprise.directory.connection import LdapConnection

ANNE, BOB = "acl-anne", "acl-bob"
_SECRET: Final = "Qm-2-Secret!"
_ENABLED: Final = b"512"


@dataclass
class Users:
    """Both users of one directory. Objects are those of declared sites ``listed`` and ``other``."""

    administrator: EnterpriseDirectory
    settings: DirectorySettings

    @property
    def _active(self) -> bool:
        return self.administrator.connection.dialect.kind is ServerKind.ACTIVE_DIRECTORY

    def let_in(self) -> None:
        """Give the declared users their passwords."""
        connection = self.administrator.connection
        for name in (ANNE, BOB):
            dn = child(name, connection.dialect.contexts.users)
            connection.set_password(dn, _SECRET)
            if self._active:
                connection.modify(dn, [Change(ChangeKind.REPLACE, "userAccountControl", (_ENABLED,))])

    def login(self, name: str) -> DirectoryLogin:
        """What an application of one of the two gives a node."""
        return DirectoryLogin(name, _SECRET)

    def able(self, work: Callable[[LdapConnection], None]) -> list[str]:
        """Those of the two whom the server lets do something."""
        return [name for name in (ANNE, BOB) if self._may(name, work)]

    def opened(self, name: str) -> EnterpriseDirectory:
        """The directory as one of the two sees it."""
        values: dict[str, Any] = self.settings.model_dump(exclude={"password", "password_file"})
        user = child(name, self.administrator.connection.dialect.contexts.users)
        own = {"user": user, "password": _SECRET, "bind": BindMethod.SIMPLE}
        return EnterpriseDirectory(DirectorySettings.model_validate(values | own))

    def _may(self, name: str, work: Callable[[LdapConnection], None]) -> bool:
        with self.opened(name) as directory:
            try:
                work(directory.connection)
            except AccessRefused:
                return False
            return True

    # What they try

    def site(self, name: str) -> str:
        return child(name, self.administrator.connection.dialect.contexts.sites)

    def changes_a_site(self, name: str) -> list[str]:
        """Who may change a property of a site."""
        return self.able(lambda own: _write(own, self.site(name), "mSMQInterval1"))

    def adds_a_server(self, name: str) -> list[str]:
        """Who may put a server into a site."""
        servers = child("Servers", self.site(name))
        return self.able(lambda own: self._made(own, child("acl-server", servers), ("top", "server"), {}))

    def changes_the_enterprise(self) -> list[str]:
        """Who may change a property of the enterprise."""
        enterprise = self.administrator.connection.dialect.contexts.enterprise
        return self.able(lambda own: _write(own, enterprise, "mSMQInterval1" if self._active else "mSMQLongLived"))

    def links(self, one: str, other: str) -> list[str]:
        """Who may create a routing link between two sites."""
        dn, values = self.link(one, other)
        return self.able(lambda own: self._made(own, dn, ("top", "mSMQSiteLink"), values))

    def link(self, one: str, other: str) -> tuple[str, dict[str, tuple[bytes, ...]]]:
        """The routing link between two sites: its distinguished name, and its values."""
        ends = [self.administrator.sites.find(name) for name in (one, other)]
        name = "".join(guid_to_text(end.identifier).replace("-", "") for end in ends if end and end.identifier)
        sites = {"mSMQSite1": (self.site(one).encode(),), "mSMQSite2": (self.site(other).encode(),)}
        enterprise = self.administrator.connection.dialect.contexts.enterprise
        return child(name, enterprise), {**sites, "mSMQCost": (b"7",)}

    def makes(self, dn: str, kind: str, values: dict[str, tuple[bytes, ...]]) -> list[str]:
        """Who may create an entry, which is deleted again."""
        return self.able(lambda own: self._made(own, dn, ("top", kind), values))

    def adds(self, dn: str, attribute: str, value: bytes) -> list[str]:
        """Who may add a value to an entry."""
        return self.able(lambda own: own.modify(dn, [Change(ChangeKind.ADD, attribute, (value,))]))

    def takes_a_list(self, dn: str) -> list[str]:
        """Who may give themselves rights, by any way that the server offers."""

        def work(own: LdapConnection) -> None:
            mine = child(ANNE, own.dialect.contexts.users).encode()
            refused = 0
            groups = [entry.dn for entry in own.search(dn, "(objectClass=group)", ("1.1",), Scope.LEVEL)]
            tries: list[Callable[[], object]] = [
                lambda: own.modify(dn, [Change(ChangeKind.REPLACE, "nTSecurityDescriptor", (b"\1",))]),
                lambda: own.add(child("allow set_properties more", dn), ("top", "group"), {"member": (mine,)}),
                *(
                    lambda group=group: own.modify(group, [Change(ChangeKind.ADD, "member", (mine,))])
                    for group in groups
                ),
            ]
            for attempt in tries:
                try:
                    attempt()
                except DirectoryError:
                    refused += 1
            if refused == len(tries):
                raise AccessRefused("all were refused")

        return self.able(work)

    def _made(self, own: LdapConnection, dn: str, classes: tuple[str, ...], values: dict[str, Any]) -> None:
        own.add(dn, classes, values)
        self.administrator.connection.delete(dn)


def _write(own: LdapConnection, dn: str, attribute: str) -> None:
    """Write the value that is there, or one of its kind: who is refused leaves no trace, nor does the other."""
    present = own.read(dn, (attribute,)).first(attribute) or b"2"
    own.modify(dn, [Change(ChangeKind.REPLACE, attribute, (present,))])
