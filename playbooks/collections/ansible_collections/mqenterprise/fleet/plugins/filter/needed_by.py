# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Find the objects that depend on the place of a machine."""

from __future__ import annotations

DOCUMENTATION = r"""
name: needed_by
short_description: Routing links and machines that name a machine
version_added: 0.1.0
author: The qmnode authors (@qmnode)
description:
  - Names the routing links whose site gate a machine is, and the machines that send or receive through it.
options:
  _input:
    description: The machine's name.
    type: str
    required: true
  links:
    description: The routing links, as M(mqenterprise.fleet.routing_link_info) returns them.
    type: list
    elements: dict
    required: true
  machines:
    description: The queue managers, as M(mqenterprise.fleet.queue_manager_info) returns them.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Stop when a link or a machine needs it
  ansible.builtin.assert:
    that: "'bre-router' | mqenterprise.fleet.needed_by(found.routing_links, known.queue_managers) | length == 0"
"""

RETURN = r"""
_value:
  description: What names it.
  type: list
  elements: str
"""


def needed_by(machine, links, machines):
    """Return the objects that name the machine."""
    known = machine.casefold()
    found = [f"the routing link {' - '.join(link['sites'])}" for link in links if known in _folded(link["site_gates"])]
    for other in machines:
        through = [*other["in_routing_servers"], *other["out_routing_servers"]]
        if known in _folded(through):
            found.append(other["name"])
    return found


def _folded(names):
    return [name.casefold() for name in names]


class FilterModule:
    """Make the filter of this file known to Ansible."""

    def filters(self):
        """Return the filter by its name."""
        return {"needed_by": needed_by}
