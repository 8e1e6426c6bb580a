# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
name: directory
short_description: Hosts, sites and roles from the directory of the enterprise
version_added: 0.1.0
author: The qmnode authors (@qmnode)
description:
  - Reads the queue managers of an enterprise from its directory, or from its declaration, as hosts.
  - Hosts are grouped by site (C(site_NAME)) and role, in C(queue_managers), C(routing_servers), C(site_gates),
    C(connectors), C(supporting_servers), C(directory_servers) and C(clients). Foreign systems are not hosts.
  - The file of this inventory ends with C(.msmq.yaml) or C(.msmq.yml).
  - Each host has the variables C(msmq_computer), C(msmq_identifier), C(msmq_dns_name), C(msmq_sites), C(msmq_roles),
    C(msmq_foreign_sites), C(msmq_in_routing_servers), C(msmq_out_routing_servers), C(msmq_addresses),
    C(msmq_is_gate), C(msmq_hosts) and C(msmq_failover), C(msmq_bridges), which are its declared bridges by name,
    C(msmq_private_queues), which are its declared private queues, C(msmq_remote_copy), which are the settings of its
    declared copy, C(msmq_probes), which are its declared heartbeats, and C(ansible_host), which is the first declared
    address or else the DNS name.
  - "All hosts have C(msmq_links), the routing links with sites, cost and site gates, and C(msmq_directory): V(ldap), or
    V(none) for an enterprise that is declared with C(directory: none). Such a one is always read from its declaration."
  - A machine that is declared with C(hosts) is not a host itself, but each of these is. They have the variables of the
    machine, with its declared C(failover), and Ansible reaches each by its own name. One that Kubernetes runs is a
    host of the group C(kubernetes_machines) alone, which is this controller.
  - Names and other values of the directory are data. A template among them is never evaluated; a machine whose name
    cannot be a host's, and a DNS name that begins with a dash, are left out with a warning.
  - Variables of C(queue_managers) count least, then those of the groups of roles, then those of the operator's own
    groups, then those of sites (C(ansible_group_priority)).
extends_documentation_fragment:
  - constructed
options:
  plugin:
    description: Says that the file is of this plugin. The second name is the former one, for one release.
    required: true
    choices: [mqenterprise.fleet.directory, msmq.enterprise.directory]
  source:
    description:
      - V(directory) has what is; V(declared) has what is declared, before there is a directory.
    type: str
    choices: [directory, declared]
    default: directory
  directory_file:
    description:
      - YAML file of the directory's settings, as C(mqenterprise --directory) takes it, relative to this inventory.
      - When neither this nor O(directory) is given, the private directory of this machine is used.
    type: str
    env:
      - name: MQENTERPRISE_DIRECTORY
  directory:
    description: The directory's settings in place of a file, as the modules' O(directory) takes them.
    type: dict
  declared:
    description:
      - The declaration, relative to this inventory. It gives the addresses, bridges and private queues of hosts, which
        the directory does not hold.
    type: str
  site:
    description: Only the hosts of this site.
    type: str
requirements:
  - qmnode[enterprise], in the Python that runs Ansible
"""

EXAMPLES = r"""
# contoso.msmq.yaml: what is in the directory, with the addresses of the declaration
plugin: mqenterprise.fleet.directory
directory_file: directory.yaml
declared: contoso.yaml

# before there is a directory
---
plugin: mqenterprise.fleet.directory
source: declared
declared: contoso.yaml

# ansible-inventory -i contoso.msmq.yaml --graph
# @all:
#   |--@queue_managers:
#   |  |--ams-router
#   |  |--ams-shop
#   |--@routing_servers:
#   |  |--ams-router
#   |--@site_amsterdam:
#   |  |--ams-router
#   |  |--ams-shop
"""

import re
import sys
import unicodedata
from hashlib import sha256
from pathlib import Path

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Constructable
from ansible.utils.unsafe_proxy import wrap_var
from yaml import YAMLError

try:
    from mqenterprise.directory.chosen_directory import load_settings, settings_from
    from mqenterprise.directory.open_directory import EnterpriseDirectory
    from mqenterprise.topology.check import load
    from mqenterprise.topology.declaration import machine_document
    from mqenterprise.topology.ldap_target import LdapTarget
    from mqenterprise.topology.names import fold
    from mqenterprise.topology.normal_form import Kind
    from mqenterprise.topology.plan import TargetError
    from mqenterprise.topology.problems import DeclarationError
    from mqenterprise.topology.some_objects import items
    from qmnode.directory.port import DirectoryOperationError
    from qmnode.settings.yaml_text import refuse_duplicate_names
    from qmnode.structures.guid import guid_to_text

    MISSING = None
except ImportError as error:
    MISSING = error

RANKS = {"nodes": -2, "roles": -1, "site": 10}
"""Ansible merges groups of the same depth by this rank, then by name; an operator's own groups have 1."""
GROUPS = {
    "routing_server": "routing_servers",
    "supporting_server": "supporting_servers",
    "directory_server": "directory_servers",
    "connector": "connectors",
    "client": "clients",
}
NO_HOST = re.compile(r"^[-.]|[/\\{}\x00-\x20\x7f]")
"""A name that would be an option of ssh, a path out of the controller's folders, or a template, is no host's."""
FORMER = "msmq.enterprise.directory"
VARIABLES = ("dns_name", "sites", "roles", "foreign_sites", "in_routing_servers", "out_routing_servers")


def group_name(site):
    """The group of a site: Ansible's group names are letters, digits and underscores."""
    letters = [each for each in unicodedata.normalize("NFKD", site.casefold()) if not unicodedata.combining(each)]
    plain = "".join(letters)
    name = "site_" + re.sub(r"[^a-z0-9]+", "_", plain).strip("_")
    # A name in another script would become nothing, or the same as another.
    return name if plain.isascii() else f"{name.rstrip('_')}_{sha256(site.casefold().encode()).hexdigest()[:8]}"


class InventoryModule(BaseInventoryPlugin, Constructable):
    """Hosts, groups and variables of an enterprise."""

    NAME = "mqenterprise.fleet.directory"

    def verify_file(self, path):
        return super().verify_file(path) and path.endswith((".msmq.yaml", ".msmq.yml"))

    def parse(self, inventory, loader, path, cache=True):
        super().parse(inventory, loader, path, cache)
        if MISSING is not None:
            raise AnsibleParserError(
                f"{path}: {sys.executable} lacks mqenterprise; pip install 'qmnode[enterprise]' there ({MISSING})"
            )
        try:
            refuse_duplicate_names(Path(path).read_text("utf-8"))
        except YAMLError as error:
            raise AnsibleParserError(f"{path}: {error}") from None
        self._redirected_names = [self.NAME, FORMER]
        if self._read_config_data(path)["plugin"] == FORMER:
            self.display.warning(f"{path}: write 'plugin: {self.NAME}', the next release does not have {FORMER}")
        self._folder = Path(path).resolve().parent
        try:
            declared = self._declared()
            self._directory = declared.directory if declared else "ldap"
            only_declared = self._only_declared() or self._directory == "none"
            machines, links, identifiers = self._from_declaration(declared) if only_declared else self._read()
        except (DirectoryOperationError, TargetError, DeclarationError) as error:
            raise AnsibleParserError(f"{path}: {error}") from None  # Ansible would say it again for each cause
        addresses = {fold(each.name): list(each.addresses) for each in declared.machines} if declared else {}
        self._documents = {
            fold(each.name): machine_document(declared, each.name) for each in (declared.machines if declared else ())
        }
        self._copies = {
            fold(each.name): each.remote_copy.model_dump(mode="json", exclude_unset=True)
            for each in (declared.machines if declared else ())
            if each.remote_copy
        }
        self._failovers = {
            fold(each.name): (list(each.hosts), each.failover.model_dump(mode="json"))
            for each in (declared.machines if declared else ())
            if each.failover
        }
        self._probes = {
            fold(each.name): {
                name: one.model_dump(mode="json", exclude_unset=True) for name, one in each.probes.items()
            }
            for each in (declared.machines if declared else ())
        }
        self._bridges = {}
        for bridge in declared.bridges if declared else ():
            self._bridges.setdefault(fold(bridge.machine), {})[bridge.name] = bridge.settings
        self._fill(machines, links, identifiers, addresses)

    def _only_declared(self):
        return self.get_option("source") == "declared"

    def _path(self, name):
        value = self.get_option(name)
        return self._folder / self.templar.template(value) if value else None

    def _declared(self):
        file = self._path("declared")
        if file is None:
            if self._only_declared():
                raise AnsibleParserError("source: declared needs declared: the declaration's file")
            return None
        if not file.exists():
            raise AnsibleParserError(f"there is no declaration {file}")
        return load(file).declaration

    def _from_declaration(self, declared):
        machines = [each.model_dump(mode="json") for each in declared.machines]
        links = [each.model_dump(mode="json") for each in declared.routing_links]
        return machines, links, {}

    def _read(self):
        settings = self.get_option("directory")
        file = self._path("directory_file")
        with EnterpriseDirectory(settings_from(settings) if settings else load_settings(file)) as directory:
            snapshot = LdapTarget(directory, access=False).snapshot()
            found = directory.queue_managers.list(attributes=("computer_name", "identifier"))
            identifiers = {fold(each.computer_name): guid_to_text(each.identifier) for each in found}
            return list(items(snapshot, Kind.MACHINE)), list(items(snapshot, Kind.ROUTING_LINK)), identifiers

    def _fill(self, machines, links, identifiers, addresses):
        gates = {fold(name) for link in links for name in link["site_gates"]}
        site = self.get_option("site")
        for group in ("queue_managers", "kubernetes_machines", "site_gates", *GROUPS.values()):
            self.inventory.add_group(group)
            rank = RANKS["nodes" if group == "queue_managers" else "roles"]
            self.inventory.set_variable(group, "ansible_group_priority", rank)
        if site is not None:
            self._set("all", "msmq_inventory_site", site)
        self._set("all", "msmq_directory", self._directory)
        self._set(
            "all",
            "msmq_links",
            [{name: link[name] for name in ("sites", "cost", "site_gates")} for link in links],
        )
        for machine in sorted(machines, key=lambda each: fold(each["name"])):
            if machine["foreign"] or (site is not None and fold(site) not in map(fold, machine["sites"])):
                continue
            if NO_HOST.search(machine["name"]):
                self.display.warning(f"{machine['name']!r} is no host's name: this queue manager is left out")
                continue
            self._host(machine, fold(machine["name"]) in gates, identifiers, addresses)
        if site is not None and machines and not self.inventory.hosts:
            known = sorted({each for machine in machines for each in machine["sites"]}, key=fold)
            self.display.warning(f"no queue manager is in the site {site!r}; there are some in {', '.join(known)}")

    def _set(self, owner, name, value):
        """A variable with a value of the directory: no template, whatever is in it."""
        self.inventory.set_variable(owner, name, wrap_var(value))

    def _host(self, machine, is_gate, identifiers, addresses):
        known = fold(machine["name"])
        hosts, failover = self._failovers.get(known, ([], {}))
        rendered = failover.get("way") == "kubernetes"
        if rendered:
            groups = ["kubernetes_machines"]
        else:
            groups = ["queue_managers", *(GROUPS[role] for role in machine["roles"])]
            groups += ["site_gates"] if is_gate else []
            for site in machine["sites"]:
                groups.append(self.inventory.add_group(group_name(site)))
                self._set(group_name(site), "msmq_site", site)
                self.inventory.set_variable(group_name(site), "ansible_group_priority", RANKS["site"])
        names = [host.lower() for host in hosts]
        variables = {f"msmq_{each}": machine[each] for each in VARIABLES} | {
            "msmq_computer": machine["name"],
            "msmq_identifier": identifiers.get(known),
            "msmq_addresses": addresses.get(known, []),
            "msmq_is_gate": is_gate,
            "msmq_hosts": names,
            "msmq_failover": failover,
            "msmq_bridges": self._bridges.get(known, {}),
            "msmq_remote_copy": self._copies.get(known, {}),
            "msmq_probes": self._probes.get(known, {}),
            "msmq_private_queues": self._documents.get(known, {}).get("queues", []),
        }
        name = machine["name"].lower()
        reached = next(iter(variables["msmq_addresses"]), None) or machine["dns_name"]
        if reached and NO_HOST.search(reached):
            self.display.warning(f"{reached!r} of {name} is no host's name: ansible_host is not set")
        elif reached and not names:  # an address that moves is that of another host tomorrow
            variables["ansible_host"] = reached
        variables = {key: wrap_var(value) for key, value in variables.items()}
        if rendered:
            local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
            names, variables = [name], variables | local
        for host in names or [name]:
            self.inventory.add_host(host)
            for group in groups:
                self.inventory.add_host(host, group=group)
            self._describe(host, variables)

    def _describe(self, name, variables):
        for key, value in variables.items():
            self.inventory.set_variable(name, key, value)
        strict = self.get_option("strict")
        self._set_composite_vars(self.get_option("compose"), variables, name, strict=strict)
        self._add_host_to_composed_groups(self.get_option("groups"), variables, name, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), variables, name, strict=strict)
