#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: queue_info
short_description: The public queues in the directory, or the private ones at their nodes
version_added: 0.1.0
description:
  - Says which public queues there are, or which private ones, with their values.
author: The qmnode authors (@qmnode)
options:
  machine:
    description: Only the queues of this computer; all when not given.
    type: str
  name:
    description: Only queues of this name.
    type: str
  private:
    description:
      - Private queues in place of public ones. No directory has them, so their nodes are asked.
      - It needs O(nodes_file) with a token of the role C(administer).
    type: bool
    default: false
  nodes_file:
    description:
      - YAML file with the ports, the authority and the token of the nodes' management APIs, as C(mqenterprise --nodes)
        takes it.
      - Without it, the environment variable E(MQENTERPRISE_NODES) names the file.
    type: path
  access:
    description: Also the access list of each queue; private ones have it anyway.
    type: bool
    default: false
extends_documentation_fragment:
  - mqenterprise.fleet.directory
  - mqenterprise.fleet.directory.reading
seealso:
  - module: mqenterprise.fleet.queue
"""

EXAMPLES = r"""
- name: The queues of a machine, with who may do what
  mqenterprise.fleet.queue_info:
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
      description: A public queue's GUID, as in a C(PUBLIC=) format name.
      type: str
      returned: always
    # properties: results
    label:
      description: What it is, for people.
      type: str
      returned: always
    type:
      description: Type of service; Message Queuing gives it no meaning.
      type: str
      returned: always
    transactional:
      description: Messages are accepted in transactions only.
      type: bool
      returned: always
    journaling:
      description: Copies of received messages go to the queue's journal.
      type: bool
      returned: always
    quota:
      description: Most that the queue may hold, in KB; none is no limit.
      type: int
      returned: always
    journal_quota:
      description: Most that its journal may hold, in KB; none is no limit.
      type: int
      returned: always
    authentication:
      description: Only messages with a signature are taken.
      type: bool
      returned: always
    privacy_level:
      description: Whether bodies must, may or must not be encrypted on their way.
      type: str
      returned: always
    multicast_address:
      description: Address of the group that it belongs to.
      type: str
      returned: always
    base_priority:
      description: Priority of its messages against others with the same next hop; only a public queue has one but 0.
      type: int
      returned: always
    duplicate_window:
      description: Seconds within which messages with the same AMQP message id are accepted once; 0 for none.
      type: int
      returned: for private queues
    max_deliveries:
      description: Deliveries of a message, the first included, after which it is a dead letter; 0 for no limit.
      type: int
      returned: for private queues
    retry_pause:
      description: Seconds until the next delivery of a message after the first that failed; 0 for none.
      type: int
      returned: for private queues
    retry_factor:
      description: What each further failure multiplies the pause by.
      type: int
      returned: for private queues
    retry_longest_pause:
      description: The longest pause between two deliveries of a message.
      type: int
      returned: for private queues
    # end of properties
    access:
      description: The access list, when it was asked for.
      type: list
      elements: dict
      returned: when access was given
"""

from ansible_collections.mqenterprise.fleet.plugins.module_utils._object import ObjectInfoModule
from ansible_collections.mqenterprise.fleet.plugins.module_utils._private import private_queues


class QueueInfoModule(ObjectInfoModule):
    kind = "queue"
    result = "queues"
    others = {"machine": "machine"}
    options = {
        "machine": {"type": "str"},
        "name": {"type": "str"},
        "access": {"type": "bool", "default": False},
        "private": {"type": "bool", "default": False},
        "nodes_file": {"type": "path"},
    }

    def work(self, directory):
        if not self.given["private"]:
            return super().work(directory)
        found = private_queues(directory, self.given)
        return {"changed": False, "queues": [{"identifier": None, **item} for item in found if self.wanted(item)]}

    def wanted(self, item):
        machine = self.given["machine"]
        return super().wanted(item) and (machine is None or machine.casefold() == item["machine"].casefold())


def main():
    QueueInfoModule.main()


if __name__ == "__main__":
    main()
