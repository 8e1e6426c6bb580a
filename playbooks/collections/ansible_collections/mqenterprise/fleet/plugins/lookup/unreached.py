# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Settings that reach no node."""

from __future__ import annotations

DOCUMENTATION = r"""
name: unreached
short_description: Variables of nodes that reach no node
version_added: 0.2.0
author: The qmnode authors (@qmnode)
description:
  - Finds variables of the roles P(mqenterprise.fleet.queue_manager#role) and P(mqenterprise.fleet.routing_server#role)
    that are given and count nowhere. They are given to a group or host that the inventory lacks, to a group without
    nodes, to a host that is not a queue manager, or to routing servers where there is none.
  - Names that are nearly those of such a variable are found as well, at any level.
  - An inventory of one site only (O(mqenterprise.fleet.directory#inventory:site)) is not held against files of others.
options:
  _terms:
    description: The hosts that are worked on, for what the command line gives; all of the inventory if none is named.
    type: list
    elements: str
"""

EXAMPLES = r"""
- name: Stop when a setting reaches no node
  ansible.builtin.assert:
    that: query('mqenterprise.fleet.unreached') | length == 0
"""

RETURN = r"""
_raw:
  description: A sentence for each, empty if there is none.
  type: list
  elements: str
"""

import difflib
from functools import lru_cache
from pathlib import Path

import yaml
from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase
from ansible_collections.mqenterprise.fleet.plugins.plugin_utils._levels import Levels

ROLES = Path(__file__).resolve().parents[2] / "roles"
ROUTING_SERVER = "routing_server_"
OF_THE_CONTROLLER = {
    "queue_manager_state",
    "queue_manager_source",
    "queue_manager_directory_file",
    "queue_manager_renew_before",
    "queue_manager_unreached",
    "queue_manager_failures",
    "queue_manager_failures_percent",
    "queue_manager_sites_at_once",
}
CLOSE = 0.88
"""Return how alike two names are, of which one may be a misspelling of the other."""


@lru_cache
def known():
    """The variables of both roles."""
    files = (ROLES / role / "defaults/main.yml" for role in ("queue_manager", "routing_server"))
    return frozenset(name for file in files for name in yaml.safe_load(file.read_text("utf-8")))


def meant(name):
    """The variable that a name is nearly the name of."""
    if name in known() or not name.startswith(("queue_", "queues_", "routing_")):
        return None
    return next(iter(difflib.get_close_matches(name, known(), 1, CLOSE)), None)


class Given:
    """Variables that one place gives, and the hosts that they reach."""

    def __init__(self, where, variables, nodes, routing_servers, reason):
        self.where, self.variables, self.reason = where, variables, reason
        self.nodes, self.routing_servers = nodes, routing_servers

    def sentences(self):
        """Return the faults of the variables, as sentences."""
        for name in sorted(self.variables):
            other = meant(name)
            if other is not None:
                yield f"{name}, which {self.where} gives, is no variable of a node: did you mean {other}?"
            elif name in known() - OF_THE_CONTROLLER and not self.nodes:
                yield f"{name}, which {self.where} gives, reaches no node: {self.reason}"
            elif name in known() and name.startswith(ROUTING_SERVER) and not self.routing_servers:
                yield f"{name}, which {self.where} gives, reaches no node: no routing server is among its hosts"


class LookupModule(LookupBase):
    """Make the lookup of this file known to Ansible."""

    def run(self, terms, variables=None, **kwargs):
        """Return a sentence for each fault."""
        self.set_options(var_options=variables, direct=kwargs)
        levels = Levels(variables["hostvars"])
        inventory = levels.inventory
        nodes = {host.name for host in inventory.groups["queue_managers"].get_hosts()}
        routing = {name for name in nodes if self._is_routing_server(variables["hostvars"], name)}
        if "kubernetes_machines" in inventory.groups:  # their settings are in a manifest
            nodes |= {host.name for host in inventory.groups["kubernetes_machines"].get_hosts()}
        partial = inventory.groups["all"].get_vars().get("msmq_inventory_site")

        def given(where, found, hosts, reason):
            return Given(where, found, nodes & set(hosts), routing & set(hosts), reason)

        places = []
        for group in inventory.groups.values():
            hosts = {host.name for host in group.get_hosts()}
            if hosts or not partial:
                reason = "none of its hosts is a queue manager" if hosts else "the group has no hosts"
                places.append(given(f"the group {group.name}", levels.own(group), hosts, reason))
        for host in inventory.hosts.values():
            if host.name != "localhost":
                reason = "it is not a queue manager"
                places.append(given(f"the host {host.name}", levels.own(host), {host.name}, reason))
        if not partial:
            places += self._files(levels, given)
        worked_on = set(terms) if terms else nodes
        places.append(given("the command line", levels.extra, worked_on, "no queue manager is worked on"))
        return [sentence for place in places for sentence in place.sentences()]

    @staticmethod
    def _is_routing_server(hostvars, name):
        return "routing_server" in (hostvars[name].get("msmq_roles") or ())

    def _files(self, levels, given):
        """Find variables in files of groups and hosts that the inventory does not have."""
        inventory = levels.inventory
        for kind, have, read in (
            ("group", inventory.groups, levels.group_file),
            ("host", {*inventory.hosts, "localhost"}, levels.host_file),
        ):
            for name in sorted(self._names(levels, f"{kind}_vars") - set(have)):
                try:
                    found = read(name)
                except AnsibleError:
                    continue  # Ansible itself reads only files of groups and hosts that there are
                near = difflib.get_close_matches(name, have, 1)
                hint = f", did you mean {near[0]}?" if near else "."
                reason = f"there is no {kind} {name} in the inventory{hint} If the {kind} is gone, delete the file."
                yield given(f"{kind}_vars/{name}", found, (), reason)

    @staticmethod
    def _names(levels, folder):
        """The groups or hosts that there are files of."""
        found = (path for place in levels.folders() for path in (place / folder).glob("[!.]*"))
        return {path.name if path.is_dir() else path.name.removesuffix(path.suffix) for path in found}
