#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: queue_manager_info
short_description: The queue managers of the enterprise
version_added: 0.1.0
description:
  - Says which queue managers there are, with their values.
author: The qmnode authors (@qmnode)
options:
  name:
    description: Only the queue manager of this computer; all when not given.
    type: str
  site:
    description: Only those of this site.
    type: str
extends_documentation_fragment:
  - mqenterprise.fleet.directory
  - mqenterprise.fleet.directory.reading
seealso:
  - module: mqenterprise.fleet.queue_manager
"""

EXAMPLES = r"""
- name: The routing servers of a site
  mqenterprise.fleet.queue_manager_info:
    site: Bremen
  delegate_to: localhost
  register: found

- name: Their names
  ansible.builtin.debug:
    msg: "{{ found.queue_managers | selectattr('roles', 'contains', 'routing_server') | map(attribute='name') }}"
"""

RETURN = r"""
queue_managers:
  description: The queue managers, by name.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The computer's name.
      type: str
      returned: always
    identifier:
      description: The queue manager's GUID; none in check mode for a new one.
      type: str
      returned: always
    # properties: results
    sites:
      description: Sites that it belongs to.
      type: list
      elements: str
      returned: always
    out_routing_servers:
      description: Routing servers that all its outgoing messages pass.
      type: list
      elements: str
      returned: always
    in_routing_servers:
      description: Routing servers that all its incoming messages pass.
      type: list
      elements: str
      returned: always
    quota:
      description: Most that all its queues may hold, in KB; none is no limit.
      type: int
      returned: always
    journal_quota:
      description: Most that all its journals may hold, in KB; none is no limit.
      type: int
      returned: always
    foreign:
      description: Not a queue manager but a foreign system.
      type: bool
      returned: always
    operating_system:
      description: What it runs on.
      type: str
      returned: always
    version:
      description: Version of the queue manager.
      type: str
      returned: always
    dns_name:
      description: Fully qualified name.
      type: str
      returned: always
    # end of properties
    foreign_sites:
      description: The foreign sites that this connector, or foreign machine, belongs to.
      type: list
      elements: str
      returned: always
    roles:
      description: What it does for others.
      type: list
      elements: str
      returned: always
"""

from ansible_collections.mqenterprise.fleet.plugins.module_utils._object import ObjectInfoModule


class QueueManagerInfoModule(ObjectInfoModule):
    kind = "machine"
    result = "queue_managers"
    others = {"site": "site"}
    options = {
        "name": {"type": "str"},
        "site": {"type": "str"},
    }

    def wanted(self, item):
        site = self.given["site"]
        member = [name.casefold() for name in (*item["sites"], *item["foreign_sites"])]
        return super().wanted(item) and (site is None or site.casefold() in member)


def main():
    QueueManagerInfoModule.main()


if __name__ == "__main__":
    main()
