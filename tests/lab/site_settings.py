"""The mSMQSettings objects of a queue manager, as a server holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqenterprise.directory.ldap_names import escape_filter, name_of

if TYPE_CHECKING:
    from mqenterprise.directory.entries import Entry
    from mqenterprise.directory.open_directory import EnterpriseDirectory
    from qmnode.directory.port import QueueManager


def site_settings(directory: EnterpriseDirectory, manager: QueueManager) -> dict[str, Entry]:
    """The objects that name this queue manager, by the name of their site."""
    assert manager.identifier is not None
    filter = f"(&(objectClass=mSMQSettings)(mSMQQMID={escape_filter(bytes(manager.identifier))}))"
    found = directory.connection.search(directory.connection.dialect.contexts.sites, filter)
    return {name_of(entry.dn, 3): entry for entry in found}
