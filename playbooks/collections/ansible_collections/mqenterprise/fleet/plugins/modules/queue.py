#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: queue
short_description: A public queue in the directory, or a private one at its node
version_added: 0.1.0
description:
  - Publishes, changes and withdraws a public queue, or creates, changes and deletes a private one.
  - The node that holds a public queue learns of it from the directory, and keeps its messages when it is withdrawn.
  - Values that are not given are left as they are; for a new queue they are the specification's defaults.
  - Whether a queue is transactional is fixed when it is made.
author: The qmnode authors (@qmnode)
options:
  machine:
    description: The computer that holds the queue.
    type: str
  name:
    description: The queue's name, without the computer.
    type: str
  nodes_file:
    description:
      - YAML file with the ports, the authority and the token of the nodes' management APIs, as C(mqenterprise --nodes)
        takes it.
      - Without it, the environment variable E(MQENTERPRISE_NODES) names the file.
    type: path
  with_messages:
    description: With O(state=absent), delete a private queue also when it holds messages, which are lost.
    type: bool
    default: false
  <<: &properties
    private:
      description:
        - The queue is private. No directory has it, so its node is asked, over its management API.
        - It needs O(nodes_file) with a token of the role C(administer).
        - One that this module creates is marked as declared, so a roll-out that prunes deletes it if the declaration
          does not have it.
      type: bool
    # properties: options
    label:
      description: What it is, for people.
      type: str
    type:
      description: Type of service; Message Queuing gives it no meaning; a GUID, or C(none).
      type: str
    transactional:
      description: Messages are accepted in transactions only; fixed when it is created.
      type: bool
    journaling:
      description: Copies of received messages go to the queue's journal.
      type: bool
      aliases: [journal]
    quota:
      description: Most that the queue may hold; in KB, or a size such as C(10MB); C(none) is no limit.
      type: str
    journal_quota:
      description: Most that its journal may hold; in KB, or a size such as C(10MB); C(none) is no limit.
      type: str
    authentication:
      description: Only messages with a signature are taken.
      type: bool
      aliases: [authenticate, authenticated]
    privacy_level:
      description: Whether bodies must, may or must not be encrypted on their way.
      type: str
      choices: [none, optional, body]
      aliases: [privacy]
    multicast_address:
      description: Address of the group that it belongs to; C(ADDRESS:PORT), or C(none).
      type: str
      aliases: [multicast]
    base_priority:
      description:
        - Priority of its messages against others with the same next hop; only a public queue has one but 0; from
          -32768 to 32767.
      type: int
    duplicate_window:
      description:
        - Seconds within which messages with the same AMQP message id are accepted once; 0 for none; from 0 to
          604800.
      type: int
    max_deliveries:
      description:
        - Deliveries of a message, the first included, after which it is a dead letter; 0 for no limit; from 0
          to 255.
      type: int
    retry_pause:
      description:
        - Seconds until the next delivery of a message after the first that failed; 0 for none; from 0 to 604800.
      type: int
    retry_factor:
      description: What each further failure multiplies the pause by; from 1 to 100.
      type: int
    retry_longest_pause:
      description: The longest pause between two deliveries of a message; from 0 to 604800.
      type: int
    access:
      description: The whole access list. When it is not given, the access list is left as it is.
      type: list
      elements: dict
      suboptions:
        to:
          description:
            - A user or group by its account or its name in the directory, V(Everyone), V(Anonymous), or C(S-1-...).
              For a private queue an account of the machine, such as C(user:alice), in place of the directory's.
          type: str
          required: true
        allow:
          description: Rights that it has.
          type: list
          elements: str
          default: []
          choices: &rights
            - receive
            - receive_journal
            - peek
            - send
            - set_properties
            - get_properties
            - delete
            - get_permissions
            - change_permissions
            - take_ownership
            - generic_read
            - generic_write
            - generic_all
        deny:
          description: Rights that it is refused.
          type: list
          elements: str
          default: []
          choices: *rights
    # end of properties
  # properties: several
  queues:
    description:
      - Several queues in one task, which reads the directory once. All are possible, or none is changed.
      - Each takes the options of a single queue. Those beside the list hold for each queue in it that says
        nothing else.
    type: list
    elements: dict
    suboptions:
      machine:
        description: The computer that holds the queue.
        type: str
      name:
        description: The queue's name, without the computer.
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
  - module: mqenterprise.fleet.queue_info
  - module: mqenterprise.fleet.queue_manager
"""

EXAMPLES = r"""
- name: A queue for orders
  mqenterprise.fleet.queue:
    machine: ams-shop
    name: orders
    label: Orders of the shop
    transactional: true
    journaling: true
    quota: 1GB
    access:
      - to: Everyone
        allow: [get_properties, get_permissions]
      - to: Order Desk
        allow: [send]
  delegate_to: localhost

- name: A private queue, at its node
  mqenterprise.fleet.queue:
    machine: ams-shop
    name: billing
    private: true
    nodes_file: /etc/mqenterprise/nodes.yaml
    transactional: true
    access:
      - to: user:billing
        allow: [generic_all]
  delegate_to: localhost

- name: All queues of a machine, in one task
  mqenterprise.fleet.queue:
    machine: ams-shop
    journaling: true
    queues:
      - name: returns
      - name: refunds
        transactional: true
      - name: scratch
        machine: ams-test
        journaling: false
  delegate_to: localhost

- name: A queue that nobody needs
  mqenterprise.fleet.queue:
    machine: ams-shop
    name: old-orders
    state: absent
  delegate_to: localhost
"""

RETURN = r"""
# properties: answer
queue:
  description: The queue as it is now, or would be; none when it is absent.
  returned: success, without O(queues)
  type: dict
# end of properties
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
      description: A public queue's GUID, as in a C(PUBLIC=) format name; none in check mode for a new one.
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
    access:
      description: The access list, when it was given.
      type: list
      elements: dict
      returned: when access was given
    # end of properties
  sample:
    machine: ams-shop
    name: orders
    identifier: 2f1d2a70-9a2f-4b9c-9d55-0c2f6f1f7a11
    label: Orders of the shop
    transactional: true
# properties: answers
queues:
  description: The queues as they are now, in the order of the list; each says whether it C(changed).
  returned: success, with O(queues)
  type: list
  elements: dict
# end of properties
"""

from ansible_collections.mqenterprise.fleet.plugins.module_utils._object import ObjectModule, grouped
from ansible_collections.mqenterprise.fleet.plugins.module_utils._private import private_queue_changes


class QueueModule(ObjectModule):
    kind = "queue"
    result = "queue"
    several = "queues"
    names = {"machine": {"type": "str"}, "name": {"type": "str"}}
    inherited = ("machine",)
    properties = {
        "private": {"type": "bool"},
        # properties: specification
        "label": {"type": "str"},
        "type": {"type": "str"},
        "transactional": {"type": "bool"},
        "journaling": {
            "type": "bool",
            "aliases": ["journal"],
            "deprecated_aliases": [
                {"name": "journal", "version": "0.2.0", "collection_name": "mqenterprise.fleet"},
            ],
        },
        "quota": {"type": "str"},
        "journal_quota": {"type": "str"},
        "authentication": {
            "type": "bool",
            "aliases": ["authenticate", "authenticated"],
            "deprecated_aliases": [
                {"name": "authenticate", "version": "0.2.0", "collection_name": "mqenterprise.fleet"},
                {"name": "authenticated", "version": "0.2.0", "collection_name": "mqenterprise.fleet"},
            ],
        },
        "privacy_level": {
            "type": "str",
            "choices": ["none", "optional", "body"],
            "aliases": ["privacy"],
            "deprecated_aliases": [
                {"name": "privacy", "version": "0.2.0", "collection_name": "mqenterprise.fleet"},
            ],
        },
        "multicast_address": {
            "type": "str",
            "aliases": ["multicast"],
            "deprecated_aliases": [
                {"name": "multicast", "version": "0.2.0", "collection_name": "mqenterprise.fleet"},
            ],
        },
        "base_priority": {"type": "int"},
        "duplicate_window": {"type": "int"},
        "max_deliveries": {"type": "int"},
        "retry_pause": {"type": "int"},
        "retry_factor": {"type": "int"},
        "retry_longest_pause": {"type": "int"},
        "access": {
            "type": "list",
            "elements": "dict",
            "options": {
                "to": {"type": "str", "required": True},
                "allow": {
                    "type": "list",
                    "elements": "str",
                    "default": [],
                    "choices": [
                        "receive",
                        "receive_journal",
                        "peek",
                        "send",
                        "set_properties",
                        "get_properties",
                        "delete",
                        "get_permissions",
                        "change_permissions",
                        "take_ownership",
                        "generic_read",
                        "generic_write",
                        "generic_all",
                    ],
                },
                "deny": {
                    "type": "list",
                    "elements": "str",
                    "default": [],
                    "choices": [
                        "receive",
                        "receive_journal",
                        "peek",
                        "send",
                        "set_properties",
                        "get_properties",
                        "delete",
                        "get_permissions",
                        "change_permissions",
                        "take_ownership",
                        "generic_read",
                        "generic_write",
                        "generic_all",
                    ],
                },
            },
        },
        # end of properties
    }
    more = {"nodes_file": {"type": "path"}, "with_messages": {"type": "bool", "default": False}}

    def changes(self, directory, objects):
        private = [item for item in objects if item.get("private")]
        if private and len(objects) > 1 and not self.module.check_mode:
            self._at_nodes(directory, private, check=True)  # all are possible, or none is changed
        ways = {True: self._at_nodes, False: super().changes, None: super().changes}
        done = {private: iter(ways[private](directory, group)) for private, group in grouped(objects, "private")}
        return [next(done[item.get("private")]) for item in objects]

    def _planned(self, snapshot, kind, objects):
        public = [{name: value for name, value in item.items() if name != "private"} for item in objects]
        return super()._planned(snapshot, kind, public)

    def _at_nodes(self, directory, objects, check=None):
        check = self.module.check_mode if check is None else check
        changes = private_queue_changes(directory, self.given, objects, check)
        return [(change, change.after and {"identifier": None, **change.after}) for change in changes]

    def header(self, change):
        is_private = (change.before or change.after or {}).get("private", False)
        return f"{'private ' if is_private else ''}{super().header(change)}"


def main():
    QueueModule.main()


if __name__ == "__main__":
    main()
