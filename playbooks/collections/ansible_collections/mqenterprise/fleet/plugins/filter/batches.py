# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""The order in which hosts are worked on."""

from __future__ import annotations

DOCUMENTATION = r"""
name: batches
short_description: Order hosts site by site, gates first
version_added: 0.1.0
author: The qmnode authors (@qmnode)
description:
  - Makes batches of hosts for C(serial). Sites are in the order in which the inventory names them; in each site come
    the site gates, one at a time, then other routing servers, at most half of the site's at a time, then all other
    hosts together. A host without a site comes last.
  - Hosts that have no node yet, as P(mqenterprise.fleet.queue_manager#role) found them, come before all others and
    together, since nothing depends on them. One host goes ahead of all.
  - Hosts of one machine are in batches of their own, those that stand by before the one that runs the node.
  - Hosts at fault (C(queue_manager_fault)) are left out.
options:
  _input:
    description: Names of the hosts.
    type: list
    elements: str
    required: true
  hostvars:
    description: The variables of all hosts, as the inventory P(mqenterprise.fleet.directory#inventory) sets them.
    type: dict
    required: true
  sites_at_once:
    description: So many sites side by side, but never hosts at the two ends of a routing link.
    type: int
    default: 1
  joined:
    description: Pairs of hosts at the two ends of routing links, as P(mqenterprise.fleet.link_ends#filter) finds them.
    type: list
    elements: dict
    default: []
  one_at_a_time:
    description: Batches of one host each, in the same order.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Order the hosts
  ansible.builtin.set_fact:
    batches: "{{ groups['queue_managers'] | mqenterprise.fleet.batches(hostvars) }}"
"""

RETURN = r"""
_value:
  description: Lists of hosts, to be worked on one list after the other.
  type: list
  elements: list
"""


def batches(hosts, hostvars, one_at_a_time=False, sites_at_once=1, joined=()):
    """Return the batches in the order in which they are worked on."""
    hosts = [host for host in hosts if "queue_manager_fault" not in hostvars[host]]
    hosts = _standbys_first(hosts, hostvars)
    new = [] if one_at_a_time else [host for host in hosts if _is_new(hostvars[host])]
    sites = {}
    for host in hosts:
        if host not in new:
            sites.setdefault(next(iter(hostvars[host].get("msmq_sites") or ()), ""), []).append(host)
    ordered = sorted(sites.items(), key=lambda item: not item[0])
    steps = [_steps(here, hostvars) for _site, here in ordered]
    if one_at_a_time:
        return [[host] for site in steps for step in site for host in step]
    found = [new] if new else []
    found = found + _side_by_side(steps, max(1, int(sites_at_once)), {(pair["from"], pair["to"]) for pair in joined})
    found = [part for batch in found for part in _apart(batch, hostvars)]
    # One goes ahead, so that what is wrong everywhere is seen at one host.
    return [found[0][:1], *[batch for batch in (found[0][1:], *found[1:]) if batch]] if found else []


def _standbys_first(hosts, hostvars):
    """Each machine's hosts where the first of them was, the one that runs the node last."""
    places = {}
    for place, host in enumerate(hosts):
        places.setdefault(hostvars[host].get("msmq_computer") or host, place)

    def order(host):
        looked = (hostvars[host].get("queue_manager_looked") or {}).get("document") or {}
        return places[hostvars[host].get("msmq_computer") or host], bool(looked.get("running"))

    return sorted(hosts, key=order)


def _apart(batch, hostvars):
    """Parts of a batch in each of which no machine has two hosts."""
    parts = []
    for host in batch:
        machine = hostvars[host].get("msmq_computer") or host
        for part in parts:
            if machine not in part:
                part[machine] = host
                break
        else:
            parts.append({machine: host})
    return [list(part.values()) for part in parts]


def _is_new(variables):
    """Whether it was looked at, and has no node: nothing depends on it yet."""
    found = (variables.get("queue_manager_looked") or {}).get("document")
    return bool(found) and not found["current"]


def _steps(hosts, hostvars):
    """Gates one at a time, other routing servers by halves of all that the site has, then the others."""
    gates = [host for host in hosts if hostvars[host].get("msmq_is_gate")]
    routers = [
        host for host in hosts if host not in gates and "routing_server" in (hostvars[host].get("msmq_roles") or ())
    ]
    half = max(1, (len(gates) + len(routers)) // 2)
    parts = [routers[start : start + half] for start in range(0, len(routers), half)]
    others = [host for host in hosts if host not in gates and host not in routers]
    return [*([gate] for gate in gates), *parts, *([others] if others else [])]


def _side_by_side(sites, at_once, joined):
    """Join the steps of so many sites, but for the two ends of a routing link."""
    left = [list(site) for site in sites]
    found = []
    while left:
        batch = []
        for site in left[:at_once]:
            if not any((here, there) in joined for here in site[0] for there in batch):
                batch += site.pop(0)
        found.append(batch)
        left = [site for site in left if site]
    return found


class FilterModule:
    """Make the filter of this file known to Ansible."""

    def filters(self):
        """Return the filter by its name."""
        return {"batches": batches}
