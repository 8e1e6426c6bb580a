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
    the site gates, one at a time, then other routing servers, then all other hosts together.
  - A host without a site comes last.
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


def batches(hosts, hostvars, one_at_a_time=False):
    """Return the batches in the order in which they are worked on."""
    sites = {}
    for host in hosts:
        variables = hostvars[host]
        site = next(iter(variables.get("msmq_sites") or ()), "")
        gates, routers, others = sites.setdefault(site, ([], [], []))
        if variables.get("msmq_is_gate"):
            gates.append(host)
        elif "routing_server" in (variables.get("msmq_roles") or ()):
            routers.append(host)
        else:
            others.append(host)
    ordered = []
    for _site, (gates, routers, others) in sorted(sites.items(), key=lambda item: not item[0]):
        ordered += [[host] for host in gates]
        ordered += [batch for batch in (routers, others) if batch]
    if one_at_a_time:
        return [[host] for batch in ordered for host in batch]
    return ordered


class FilterModule:
    """Make the filter of this file known to Ansible."""

    def filters(self):
        """Return the filter by its name."""
        return {"batches": batches}
