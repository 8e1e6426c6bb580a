# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Settings that a machine keeps when it moves to other sites."""

from __future__ import annotations

DOCUMENTATION = r"""
name: moved
short_description: Routing servers that a machine keeps in its new sites
version_added: 0.1.0
author: The qmnode authors (@qmnode)
description:
  - The routing servers of a machine are of its own sites. Those that are in none of the new ones are lost.
options:
  _input:
    description: The queue managers, as M(mqenterprise.fleet.queue_manager_info) returns them.
    type: list
    elements: dict
    required: true
  machine:
    description: The machine's name.
    type: str
    required: true
  sites:
    description: Its new sites.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Name the routing servers that it loses
  ansible.builtin.debug:
    msg: "{{ (known.queue_managers | mqenterprise.fleet.moved('ams-shop', ['Bremen'])).lost }}"
"""

RETURN = r"""
_value:
  description: Names, those that it keeps in C(in_routing_servers) and C(out_routing_servers), and the C(lost).
  type: dict
"""


def moved(machines, machine, sites):
    """Return the settings that it keeps and those that it loses."""
    wanted = _folded(sites)
    there = {each["name"].casefold() for each in machines if wanted & _folded(each["sites"])}
    (found,) = (each for each in machines if each["name"].casefold() == machine.casefold())
    before = {name.casefold(): name for key in ("in", "out") for name in found[f"{key}_routing_servers"]}
    return {
        "in_routing_servers": [name for name in found["in_routing_servers"] if name.casefold() in there],
        "out_routing_servers": [name for name in found["out_routing_servers"] if name.casefold() in there],
        "lost": [name for known, name in before.items() if known not in there],
    }


def _folded(names):
    return {name.casefold() for name in names}


class FilterModule:
    """Make the filter of this file known to Ansible."""

    def filters(self):
        """Return the filter by its name."""
        return {"moved": moved}
