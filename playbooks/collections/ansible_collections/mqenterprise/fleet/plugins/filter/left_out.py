# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""The hosts without which a run went on."""

from __future__ import annotations

DOCUMENTATION = r"""
name: left_out
short_description: The hosts without which a run went on
version_added: 0.2.0
author: The qmnode authors (@qmnode)
description:
  - Names hosts at fault, and those that were passed over because their site has one, as
    P(mqenterprise.fleet.queue_manager#role) remembers them with C(queue_manager_failures).
options:
  _input:
    description: The variables of all hosts.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Report the hosts that were left out
  hosts: "{{ hostvars | default({}) | mqenterprise.fleet.left_out }}"
"""

RETURN = r"""
_value:
  description: A pattern of hosts, which matches none if none was left out.
  type: str
"""

NOBODY = "localhost,!localhost"


def left_out(hostvars):
    """Return a pattern of the hosts at fault and of those that were passed over."""
    known = {host: hostvars[host] for host in hostvars}
    at_fault = [host for host, variables in known.items() if "queue_manager_fault" in variables]
    passed_over = [host for host, variables in known.items() if "queue_manager_passed_over" in variables]
    return ",".join(dict.fromkeys(at_fault + passed_over)) or NOBODY


class FilterModule:
    """Make the filter of this file known to Ansible."""

    def filters(self):
        """Return the filter by its name."""
        return {"left_out": left_out}
