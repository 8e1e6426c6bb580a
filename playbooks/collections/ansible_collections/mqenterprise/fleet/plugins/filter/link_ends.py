# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Find the hosts that a routing link joins."""

from __future__ import annotations

DOCUMENTATION = r"""
name: link_ends
short_description: Pairs of hosts at the two ends of routing links
version_added: 0.1.0
author: The qmnode authors (@qmnode)
description:
  - For each routing link, every site gate at its one end with every site gate at its other, in both directions. Where
    a link names no gate in a site, the routing servers of that site are the end.
  - Links to foreign sites have no pairs, as there is no host at their other end.
  - Hosts of the group C(windows) have queue managers of Windows, which send no probes. Each is probed by a host of its
    site, or by the first of all.
  - An enterprise without a directory has no links. There each host is paired with the next one by name, and the last
    with the first, as machines send to each other directly.
  - Of the hosts of one machine the one that runs its node is the end.
options:
  _input:
    description: The links, as the inventory plugin P(mqenterprise.fleet.directory#inventory) has them in C(msmq_links).
    type: list
    elements: dict
    required: true
  hostvars:
    description: The variables of all hosts, as that plugin sets them.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Where this host sends probes to
  ansible.builtin.debug:
    msg: "{{ msmq_links | mqenterprise.fleet.link_ends(hostvars) | selectattr('from', 'equalto', inventory_hostname) }}"
"""

RETURN = r"""
_value:
  description: Pairs with C(link), C(from) and C(to).
  type: list
  elements: dict
"""


def link_ends(links, hostvars):
    """Return the pairs of hosts that the links join."""
    known = {host: hostvars[host] for host in hostvars if hostvars[host].get("msmq_computer")}
    machines = {host: machine for host, machine in known.items() if not _stands_by(host, machine, known)}
    windows = [host for host, machine in machines.items() if "windows" in (machine.get("group_names") or ())]
    nodes = [host for host in machines if host not in windows]
    pairs = []
    if any(machine.get("msmq_directory") == "none" for machine in machines.values()):
        ring = sorted(nodes)
        pairs = [
            {"link": "direct", "from": start, "to": end}
            for start, end in zip(ring, [*ring[1:], *ring[:1]], strict=True)
            if start != end
        ]
        links = []
    for link in links:
        one, other = (_end(link, site, machines) for site in link["sites"])
        name = " - ".join(link["sites"])
        ways = [(a, b) for a in one for b in other] + [(b, a) for a in one for b in other]
        pairs += [
            {"link": name, "from": start, "to": end} for start, end in ways if start != end and start not in windows
        ]
    for host in windows if nodes else ():
        if host not in {pair["to"] for pair in pairs}:
            sites = set(machines[host].get("msmq_sites") or ())
            near = [node for node in nodes if sites.intersection(machines[node].get("msmq_sites") or ())]
            pairs.append({"link": "Windows", "from": (near or nodes)[0], "to": host})
    return pairs


def _stands_by(host, machine, known):
    """Whether another host of the machine runs its node; before anybody has looked, all but the first stand by."""
    hosts = [one for one in machine.get("msmq_hosts") or () if one in known]
    running = [
        one for one in hosts if ((known[one].get("queue_manager_looked") or {}).get("document") or {}).get("running")
    ]
    return bool(hosts) and host != [*running, *hosts][0]


def _end(link, site, machines):
    """The gates of a link in one of its sites, or the site's routing servers."""
    here = [host for host, known in machines.items() if site in (known.get("msmq_sites") or ())]
    named = {gate.casefold() for gate in link["site_gates"]}
    gates = [host for host in here if machines[host]["msmq_computer"].casefold() in named]
    return gates or [host for host in here if "routing_server" in (machines[host].get("msmq_roles") or ())]


class FilterModule:
    """Make the filter of this file known to Ansible."""

    def filters(self):
        """Return the filter by its name."""
        return {"link_ends": link_ends}
