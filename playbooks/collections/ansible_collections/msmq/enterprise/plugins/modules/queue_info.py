#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: queue_info
short_description: The public queues in the directory
version_added: 0.1.0
description:
  - Says which public queues there are, with their values.
author: The qmnode authors (@qmnode)
options:
  machine:
    description: Only the queues of this computer; all when not given.
    type: str
  name:
    description: Only queues of this name.
    type: str
  access:
    description: Also the access list of each queue.
    type: bool
    default: false
extends_documentation_fragment:
  - msmq.enterprise.directory
  - msmq.enterprise.directory.reading
seealso:
  - module: msmq.enterprise.queue
"""

EXAMPLES = r"""
- name: The queues of a machine, with who may do what
  msmq.enterprise.queue_info:
    machine: ams-shop
    access: true
  delegate_to: localhost
  register: found
"""

RETURN = r"""
queues:
  description: The queues, by machine and name.
  returned: success
  type: list
  elements: dict
  contains:
    machine:
      description: The computer that holds the queue.
      type: str
      returned: always
    name:
      description: The queue's name.
      type: str
      returned: always
    identifier:
      description: The queue's GUID, as in a C(PUBLIC=) format name; none in check mode for a new one.
      type: str
      returned: always
    label:
      description: What people read.
      type: str
      returned: always
    type:
      description: GUID of the service that the queue offers.
      type: str
      returned: always
    transactional:
      description: Whether it takes messages in transactions only.
      type: bool
      returned: always
    journal:
      description: Whether copies of received messages are kept.
      type: bool
      returned: always
    quota:
      description: Kilobytes that it may hold; 4294967295 is no limit.
      type: int
      returned: always
    journal_quota:
      description: Kilobytes that its journal may hold.
      type: int
      returned: always
    authenticate:
      description: Whether it takes signed messages only.
      type: bool
      returned: always
    privacy_level:
      description: Whether bodies are encrypted on their way.
      type: str
      returned: always
    base_priority:
      description: Its priority among queues.
      type: int
      returned: always
    multicast_address:
      description: C(ADDRESS:PORT) of its multicast group.
      type: str
      returned: always
    access:
      description: The access list, when it was asked for.
      type: list
      elements: dict
      returned: when access was given
"""

from ansible_collections.msmq.enterprise.plugins.module_utils._object import ObjectInfoModule


class QueueInfoModule(ObjectInfoModule):
    kind = "queue"
    result = "queues"
    options = {
        "machine": {"type": "str"},
        "name": {"type": "str"},
        "access": {"type": "bool", "default": False},
    }

    def wanted(self, item):
        machine = self.given["machine"]
        return super().wanted(item) and (machine is None or machine.casefold() == item["machine"].casefold())


def main():
    QueueInfoModule.main()


if __name__ == "__main__":
    main()
