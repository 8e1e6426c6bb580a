#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: queue
short_description: A public queue in the directory
version_added: 0.1.0
description:
  - Publishes, changes and withdraws a public queue.
  - The node that holds the queue learns of it from the directory, and keeps its messages when it is withdrawn.
  - Values that are not given are left as they are; for a new queue they are the specification's defaults.
  - Whether a queue is transactional is fixed when it is made.
author: The qmnode authors (@qmnode)
options:
  machine:
    description: The computer that holds the queue.
    type: str
    required: true
  name:
    description: The queue's name, without the computer.
    type: str
    required: true
  state:
    description: Whether the queue is to be there.
    type: str
    choices: [present, absent]
    default: present
  label:
    description: What people read.
    type: str
  type:
    description: GUID of the service that the queue offers.
    type: str
  transactional:
    description: Whether it takes messages in transactions only.
    type: bool
  journal:
    description: Whether copies of received messages are kept.
    type: bool
  quota:
    description: Kilobytes that it may hold, or a size such as C(10MB); C(none) or 4294967295 is no limit.
    type: str
  journal_quota:
    description: Kilobytes that its journal may hold, or a size such as C(10MB); C(none) or 4294967295 is no limit.
    type: str
  authenticate:
    description: Whether it takes signed messages only.
    type: bool
  privacy_level:
    description: Whether bodies are encrypted on their way.
    type: str
    choices: [none, optional, body]
  base_priority:
    description: Its priority among queues, -32768 to 32767.
    type: int
  multicast_address:
    description: C(ADDRESS:PORT) of a multicast group; the empty text is none.
    type: str
  access:
    description:
      - The whole access list. When it is not given, the access list is left as it is.
    type: list
    elements: dict
    suboptions:
      to:
        description:
          - A user or group by its account or its name in the directory, V(Everyone), V(Anonymous), or
            C(S-1-...).
        type: str
        required: true
      allow:
        description: Rights that it has.
        type: list
        elements: str
        default: []
        choices: &rights
          - receive
          - peek
          - send
          - receive_journal
          - get_properties
          - set_properties
          - get_permissions
          - change_permissions
          - take_ownership
          - delete
          - generic_read
          - generic_write
          - generic_all
      deny:
        description: Rights that it is refused.
        type: list
        elements: str
        default: []
        choices: *rights
extends_documentation_fragment:
  - msmq.enterprise.directory
  - msmq.enterprise.directory.waiting
  - msmq.enterprise.directory.writing
seealso:
  - module: msmq.enterprise.queue_info
  - module: msmq.enterprise.queue_manager
"""

EXAMPLES = r"""
- name: A queue for orders
  msmq.enterprise.queue:
    machine: ams-shop
    name: orders
    label: Orders of the shop
    transactional: true
    journal: true
    quota: 1GB
    access:
      - to: Everyone
        allow: [get_properties, get_permissions]
      - to: Order Desk
        allow: [send]
  delegate_to: localhost

- name: A queue that nobody needs
  msmq.enterprise.queue:
    machine: ams-shop
    name: old-orders
    state: absent
  delegate_to: localhost
"""

RETURN = r"""
queue:
  description: The queue as it is now, or would be; none when it is absent.
  returned: success
  type: dict
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
  sample:
    machine: ams-shop
    name: orders
    identifier: 2f1d2a70-9a2f-4b9c-9d55-0c2f6f1f7a11
    label: Orders of the shop
    transactional: true
"""

from ansible_collections.msmq.enterprise.plugins.module_utils._object import STATE, ObjectModule

RIGHTS = [
    "receive",
    "peek",
    "send",
    "receive_journal",
    "get_properties",
    "set_properties",
    "get_permissions",
    "change_permissions",
    "take_ownership",
    "delete",
    "generic_read",
    "generic_write",
    "generic_all",
]


class QueueModule(ObjectModule):
    kind = "queue"
    result = "queue"
    options = {
        "machine": {"type": "str", "required": True},
        "name": {"type": "str", "required": True},
        "label": {"type": "str"},
        "type": {"type": "str"},
        "transactional": {"type": "bool"},
        "journal": {"type": "bool"},
        "quota": {"type": "str"},
        "journal_quota": {"type": "str"},
        "authenticate": {"type": "bool"},
        "privacy_level": {"type": "str", "choices": ["none", "optional", "body"]},
        "base_priority": {"type": "int"},
        "multicast_address": {"type": "str"},
        "access": {
            "type": "list",
            "elements": "dict",
            "options": {
                "to": {"type": "str", "required": True},
                "allow": {"type": "list", "elements": "str", "default": [], "choices": RIGHTS},
                "deny": {"type": "list", "elements": "str", "default": [], "choices": RIGHTS},
            },
        },
        **STATE,
    }

    def item(self, said):
        return said | {"multicast_address": said["multicast_address"] or None} if "multicast_address" in said else said


def main():
    QueueModule.main()


if __name__ == "__main__":
    main()
