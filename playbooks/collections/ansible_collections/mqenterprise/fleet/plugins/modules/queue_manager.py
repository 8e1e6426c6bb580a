#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: queue_manager
short_description: A queue manager of the enterprise
version_added: 0.1.0
description:
  - Creates, changes and deletes a computer's queue manager in the directory.
  - Values that are not given are left as they are; for a new queue manager they are the specification's defaults.
  - A computer that joined the domain by itself is used, and stays when its queue manager is deleted.
  - A queue manager is deleted only when no public queue is on it and no link or other machine refers to it.
author: The qmnode authors (@qmnode)
options:
  name:
    description: The computer's name, 1 to 15 characters.
    type: str
  <<: &properties
    # properties: options
    sites:
      description: Sites that it belongs to; at most 64.
      type: list
      elements: str
    out_routing_servers:
      description: Routing servers that all its outgoing messages pass; at most 3.
      type: list
      elements: str
    in_routing_servers:
      description: Routing servers that all its incoming messages pass; at most 3.
      type: list
      elements: str
    quota:
      description: Most that all its queues may hold; in KB, or a size such as C(10MB); C(none) is no limit.
      type: str
    journal_quota:
      description: Most that all its journals may hold; in KB, or a size such as C(10MB); C(none) is no limit.
      type: str
    foreign:
      description: Not a queue manager but a foreign system.
      type: bool
    operating_system:
      description: What it runs on.
      type: str
      choices: [other, foreign, win95, win_client, win_server, win_enterprise]
    version:
      description: Version of the queue manager.
      type: str
    dns_name:
      description: Fully qualified name.
      type: str
    # end of properties
    roles:
      description: What it does for others.
      type: list
      elements: str
      choices: [routing_server, supporting_server, directory_server, client, connector]
    foreign_sites:
      description: Foreign sites that this connector, or foreign machine, belongs to.
      type: list
      elements: str
  # properties: several
  queue_managers:
    description:
      - Several queue managers in one task, which reads the directory once. All are possible, or none is changed.
      - Each takes the options of a single queue manager. Those beside the list hold for each in it that says
        nothing else.
    type: list
    elements: dict
    suboptions:
      name:
        description: The computer's name, 1 to 15 characters.
        type: str
        required: true
      state:
        description: Whether it is to be there; by default as O(state) says.
        type: str
        choices: [present, absent]
      <<: *properties
  # end of properties
extends_documentation_fragment:
  - mqenterprise.fleet.directory.state
  - mqenterprise.fleet.directory
  - mqenterprise.fleet.directory.waiting
  - mqenterprise.fleet.directory.writing
seealso:
  - module: mqenterprise.fleet.queue_manager_info
  - module: mqenterprise.fleet.site
  - module: mqenterprise.fleet.queue
  - module: mqenterprise.fleet.key_rotation
"""

EXAMPLES = r"""
- name: A routing server, and a machine that sends everything through it
  mqenterprise.fleet.queue_manager:
    name: "{{ item.name }}"
    sites: [Amsterdam]
    roles: "{{ item.roles }}"
    out_routing_servers: "{{ item.through | default([]) }}"
  loop:
    - name: ams-router
      roles: [routing_server]
    - name: ams-shop
      roles: [client]
      through: [ams-router]
  delegate_to: localhost
"""

RETURN = r"""
# properties: answer
queue_manager:
  description: The queue manager as it is now, or would be; none when it is absent.
  returned: success, without O(queue_managers)
  type: dict
# end of properties
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
  sample:
    name: ams-shop
    identifier: 6d4b0cb5-4a7a-4a2b-8f02-5d5a2a0c7d10
    sites: [Amsterdam]
    roles: [client]
    out_routing_servers: [ams-router]
    in_routing_servers: []
# properties: answers
queue_managers:
  description: The queue managers as they are now, in the order of the list; each says whether it C(changed).
  returned: success, with O(queue_managers)
  type: list
  elements: dict
# end of properties
"""

from ansible_collections.mqenterprise.fleet.plugins.module_utils._object import ObjectModule


class QueueManagerModule(ObjectModule):
    kind = "machine"
    result = "queue_manager"
    several = "queue_managers"
    properties = {
        # properties: specification
        "sites": {"type": "list", "elements": "str"},
        "out_routing_servers": {"type": "list", "elements": "str"},
        "in_routing_servers": {"type": "list", "elements": "str"},
        "quota": {"type": "str"},
        "journal_quota": {"type": "str"},
        "foreign": {"type": "bool"},
        "operating_system": {
            "type": "str",
            "choices": ["other", "foreign", "win95", "win_client", "win_server", "win_enterprise"],
        },
        "version": {"type": "str"},
        "dns_name": {"type": "str"},
        # end of properties
        "roles": {
            "type": "list",
            "elements": "str",
            "choices": ["routing_server", "supporting_server", "directory_server", "client", "connector"],
        },
        "foreign_sites": {"type": "list", "elements": "str"},
    }


def main():
    QueueManagerModule.main()


if __name__ == "__main__":
    main()
