# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Properties that queues do not have."""

from __future__ import annotations

DOCUMENTATION = r"""
name: unknown_properties
short_description: Names that are no property of a queue
version_added: 0.1.0
author: The qmnode authors (@qmnode)
description:
  - Returns each name in a list of queues that is no option of the module M(mqenterprise.fleet.queue) for one queue.
options:
  _input:
    description: The queues, as dictionaries.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Stop when a queue has an unknown property
  ansible.builtin.assert:
    that: queues | mqenterprise.fleet.unknown_properties | length == 0
"""

RETURN = r"""
_value:
  description: The names, each once, in alphabetical order.
  type: list
  elements: str
"""

from ansible.errors import AnsibleFilterError

try:
    from qmnode.objects.rows import Door
    from qmnode.objects.table import QUEUE

    MISSING = None
except ImportError as error:
    MISSING = error


def unknown_properties(queues):
    """Return the names that no queue has, sorted."""
    if MISSING is not None:
        raise AnsibleFilterError(
            f"mqenterprise is missing: pip install 'qmnode[enterprise]' on the controller ({MISSING})"
        )
    known = {"machine", "name", "state"}
    known.update(*((row.name, *row.aliases) for row in QUEUE.at(Door.DECLARATION)))
    return sorted({str(name) for queue in queues for name in queue} - known)


class FilterModule:
    """Make the filter of this file known to Ansible."""

    def filters(self):
        """Return the filter by its name."""
        return {"unknown_properties": unknown_properties}
