"""Access lists of new objects in Active Directory: MS-MQDSSM 3.1.6.1.1.8, 3.1.6.1.2.2 and 3.1.6.1.3.4.

The text writes masks of MS-MQMQ into the entries. Active Directory would take them for its own rights (MS-ADTS 5.1.3.2)
and, for one, let everyone change every queue manager. So they are written as the rights that MS-MQDSSM 5.1 asks for.
For mSMQSettings and mSMQSiteLink objects 5.1 leaves the list to their class. OpenLDAP has no access lists on objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from mqenterprise.directory.errors import DirectoryError
from mqenterprise.directory.names import normalized
from mqenterprise.directory.security import (
    QUEUE_MANAGER_RIGHTS,
    QUEUE_RIGHTS,
    SITE_RIGHTS,
    RightsTable,
    to_active_directory,
)
from mqenterprise.directory.settings import ServerKind
from qmnode.security.access_check import (
    default_queue_manager_security,
    default_queue_security,
    default_site_security,
)
from qmnode.structures.errors import PacketError
from qmnode.structures.security_descriptor import SecurityDescriptor, Sid

if TYPE_CHECKING:
    from mqenterprise.directory.connection import LdapConnection

log = structlog.get_logger(__name__)

_COMPUTERS_KEPT: Final = 4096
_ACCOUNTS: Final = frozenset({b"user", b"computer", b"inetorgperson"})


class NewDescriptors:
    """Descriptors for the objects that one connection creates. An empty answer leaves the list to the object's class.

    It is empty on OpenLDAP, and where the server does not say who the connection's user is: with a list that does not
    name its creator, an object could be out of the creator's reach.
    """

    def __init__(self, connection: LdapConnection) -> None:
        self._connection = connection
        self._creator: Sid | None = None
        self._is_creator_known = False
        self._computers: dict[str, Sid | None] = {}

    def queue_manager(self, computer: str, *, is_foreign: bool = False) -> tuple[bytes, ...]:
        """That of the mSMQConfiguration object of the computer with this distinguished name (3.1.6.1.1.8)."""
        if (creator := self._creator_of()) is None:
            return ()
        self._computers.pop(normalized(computer), None)  # of a computer that was deleted and made again
        machine = self._machine(computer)
        return _written(
            default_queue_manager_security(creator, machine=machine, is_foreign=is_foreign), QUEUE_MANAGER_RIGHTS
        )

    def queue(self, computer: str) -> tuple[bytes, ...]:
        """That of a public queue of this computer for which nobody has chosen one (MS-MQDMPR 3.1.7.1.3.1)."""
        if (creator := self._creator_of()) is None:
            return ()
        machine = self._machine(computer)
        return _written(default_queue_security(creator, is_domain_user=True, machine=machine), QUEUE_RIGHTS)

    def site(self) -> tuple[bytes, ...]:
        """That of a site (3.1.6.1.3.4)."""
        creator = self._creator_of()
        return () if creator is None else _written(default_site_security(creator), SITE_RIGHTS)

    def _machine(self, computer: str) -> Sid | None:
        key = normalized(computer)
        if key not in self._computers:
            if len(self._computers) >= _COMPUTERS_KEPT:
                self._computers.clear()
            self._computers[key] = _sid(self._connection.read(computer, ("objectSid",)).first("objectSid"))
        return self._computers[key]

    def _creator_of(self) -> Sid | None:
        """The user of this connection: the first of tokenGroups of the root DSE (MS-ADTS 3.1.1.3.2), if that is one."""
        if self._connection.dialect.kind is not ServerKind.ACTIVE_DIRECTORY:
            return None
        if not self._is_creator_known:
            self._creator = self._asked()
            self._is_creator_known = True
        return self._creator

    def _asked(self) -> Sid | None:
        found = _sid(self._connection.read("", ("tokenGroups",)).first("tokenGroups"))
        try:
            classes = self._connection.read(f"<SID={found}>", ("objectClass",)).attributes if found else {}
        except DirectoryError as error:
            log.warning(
                "new objects get the access lists of their classes: the user of this connection is not in the domain",
                user=str(found),
                reason=error.sentence,
            )
            return None
        # A group must not get what is for one user.
        kinds = {name.lower() for name in classes.get("objectclass", ())}
        return found if kinds & _ACCOUNTS else None


def _sid(value: bytes | None) -> Sid | None:
    try:
        return Sid.parse(value) if value else None
    except PacketError:
        return None


def _written(descriptor: SecurityDescriptor, rights: RightsTable) -> tuple[bytes, ...]:
    """The list alone: the owner is the server's to say, and 3.1.6.1.1.8 and 3.1.6.1.3.4 name none."""
    return (to_active_directory(SecurityDescriptor(dacl=descriptor.dacl).write(), rights),)
