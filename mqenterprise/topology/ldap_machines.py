"""Machines in the directory: a computer, its mSMQConfiguration object, an mSMQSettings object in each site it serves.

The order of writes makes an interruption harmless. A machine is created from its computer to its settings and deleted
in reverse order, so that the remainder is always either a machine or a computer with our mark.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from mqenterprise.directory.names import child, normalized, parent_of
from mqenterprise.directory.queue_managers import COMPUTER_CLASSES
from mqenterprise.topology.ldap_reading import (
    COMPUTER,
    CONFIGURATION,
    SERVICE_FLAGS,
    SETTINGS,
    VALUES,
    Index,
    MachinePlace,
    Place,
    encode,
)
from mqenterprise.topology.names import fold
from mqenterprise.topology.resources import Kind, Value
from mqenterprise.topology.target import MovedOn

if TYPE_CHECKING:
    from mqenterprise.topology.ldap_target import Writer
    from mqenterprise.topology.plan import Values

ROUTING: Final = 0x01
"""The routing server's bit of mSMQServiceType (MS-MQDSSM 3.1.6.1.1.5)."""
_SERVICES: Final = frozenset({"routing_server", "supporting_server", "directory_server", "settings"})
_ROUTES: Final = {"out_routing_servers": "mSMQOutRoutingServers", "in_routing_servers": "mSMQInRoutingServers"}


def _names(value: Value) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _on_computer(values: Values) -> dict[str, tuple[bytes, ...]]:
    return {COMPUTER.row.name: COMPUTER.encode(values["dns_name"])} if "dns_name" in values else {}


class Machines:
    """Write machines, and keep ``index`` up to date for objects that refer to them."""

    def __init__(self, writer: Writer, index: Index) -> None:
        self._writer, self._index = writer, index

    def configurations(self, machines: Iterable[str]) -> tuple[bytes, ...]:
        """Return the distinguished names of machines' mSMQConfiguration objects, as references hold them."""
        found = []
        for name in machines:
            place = self._index.machines.get(fold(name))
            if place is None or place.configuration is None:
                raise MovedOn(f"the machine {name} is gone")
            found.append(place.configuration.dn.encode())
        return tuple(found)

    def _attributes(self, values: Values, service_type: int) -> dict[str, tuple[bytes, ...]]:
        found = dict(encode(Kind.MACHINE, values))
        if "sites" in values:
            found["mSMQSites"] = tuple(self._site(site).guid for site in _names(values["sites"]))
        for name, attribute in _ROUTES.items():
            if name in values:
                found[attribute] = self.configurations(_names(values[name]))
        if "routing_server" in values:
            found["mSMQServiceType"] = (str(service_type).encode(),)
        return found

    def _site(self, name: str) -> Place:
        place = self._index.sites.get(fold(name))
        if place is None:
            raise MovedOn(f"the site {name} is gone")
        return place

    def create(self, name: str, usual_dn: str, values: Values, token: int) -> None:
        """Create a machine, or complete an unfinished one."""
        place = self._index.machines.get(fold(name))
        computer = _on_computer(values)
        if place is None:
            dialect = self._writer.connection.dialect
            begun = {**dialect.account("computer", name), **computer}
            made = self._writer.create(usual_dn, COMPUTER_CLASSES[dialect.gives_guid], begun, token)
            place = MachinePlace(made)
        elif computer:
            self._writer.change(place.computer.dn, computer, token)
        service_type = ROUTING if values.get("routing_server") else 0
        place.service_type = service_type
        dn = child(CONFIGURATION, place.computer.dn)
        attributes = self._attributes(values, service_type)
        is_foreign = bool(values.get("foreign"))
        if descriptor := self._writer.descriptors.queue_manager(place.computer.dn, is_foreign=is_foreign):
            attributes["nTSecurityDescriptor"] = descriptor
        place.configuration = self._writer.create(dn, ("top", "mSMQConfiguration"), attributes, token)
        with self._writer.lock:
            self._index.machines[fold(name)] = place
            self._index.machine_names[normalized(dn)] = name
        self._keep_settings(name, place, values, token)

    def update(self, name: str, before: Values, after: Values, token: int) -> None:
        """Bring a machine from ``before`` to ``after``, which hold only the values that differ."""
        place = self._index.machines[fold(name)]
        if place.configuration is None:
            raise MovedOn(f"the queue manager of {name} is gone")
        if "routing_server" in after:
            place.service_type = place.service_type & ~ROUTING | (ROUTING if after["routing_server"] else 0)
        attributes = self._attributes(after, place.service_type)
        entry = self._writer.read(place.configuration.dn, tuple(attributes))
        for field_name, field in VALUES[Kind.MACHINE].items():
            if field_name in after and field.decode(entry) not in (before.get(field_name), after[field_name]):
                raise MovedOn(f"{field_name} of {name} is {field.decode(entry)!r} now")
        self._writer.change(place.configuration.dn, attributes, token, present=entry)
        if computer := _on_computer(after):
            self._writer.change(place.computer.dn, computer, token)
        if _SERVICES & after.keys():
            self._keep_settings(name, place, after, token)

    def _keep_settings(self, name: str, place: MachinePlace, values: Values, token: int) -> None:
        """Keep mSMQSettings objects in the machine's sites only, equal to its values (MS-MQDSSM 3.1.6.7.1.9)."""
        assert place.configuration is not None
        declared = values.get("settings")
        wanted = set(place.settings) if declared is None else {fold(site) for site in _names(declared)}
        if not wanted and not place.settings:
            return
        said = self._writer.read(
            place.configuration.dn, ("objectGUID", "mSMQServiceType", *(flag for _, flag, _ in SERVICE_FLAGS))
        )
        attributes = {
            "mSMQQMID": said.attributes.get("objectguid", ()),
            "mSMQServices": said.attributes.get("mSMQServiceType".lower(), (b"0",)),
            **{there: said.attributes.get(here.lower(), (b"FALSE",)) for there, here, _ in SERVICE_FLAGS},
        }
        for site in wanted:
            known = place.settings.get(site)
            if known is not None:
                self._writer.change(known.dn, attributes, token)
                continue
            server = child(name, child("Servers", self._site(site).dn))
            self._writer.ensure(parent_of(server), ("top", "serversContainer"), token)
            self._writer.ensure(server, ("top", "server"), token)
            dn = child(SETTINGS, server)
            place.settings[site] = self._writer.create(dn, ("top", "mSMQSettings"), attributes, token, or_theirs=True)
        for site in set(place.settings) - wanted:
            self._remove_settings(place.settings.pop(site).dn, token)

    def _remove_settings(self, dn: str, token: int) -> None:
        """Delete a machine's settings object in one site, ours or not: it means nothing without the machine."""
        self._writer.discard(dn)
        self._writer.remove_if_empty(parent_of(dn), token)

    def delete(self, name: str, token: int) -> None:
        """Delete a machine of ours. Its queues are separate steps; a computer that is not ours stays."""
        place = self._index.machines.get(fold(name))
        if place is None:
            return
        for site in tuple(place.settings):
            self._remove_settings(place.settings.pop(site).dn, token)
        for server in place.servers:
            self._writer.remove_if_empty(server, token)
        if place.configuration is not None:
            self._writer.remove(place.configuration.dn, token)
        if place.computer.token is not None:
            self._writer.remove(place.computer.dn, token)
        with self._writer.lock:
            self._index.machines.pop(fold(name), None)
