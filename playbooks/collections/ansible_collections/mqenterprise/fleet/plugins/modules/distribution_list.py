#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: distribution_list
short_description: A distribution list in the directory
version_added: 0.1.0
description:
  - Creates, changes and deletes a list of public queues, which each get the messages that are sent to the list.
  - A list holds public queues, queue aliases and other lists. For any other queue, create an alias first.
  - Values that are not given are left as they are; a new list has no members.
  - Groups of people are no lists. Only lists that this product created are changed and deleted.
author: The qmnode authors (@qmnode)
options:
  name:
    description: The list's name, which no user and no queue alias has.
    type: str
  <<: &properties
    # properties: options
    members:
      description: Public queues, queue aliases and lists that get its messages.
      type: list
      elements: str
    # end of properties
  # properties: several
  distribution_lists:
    description:
      - Several lists in one task, which reads the directory once. All are possible, or none is changed.
      - Each takes the options of a single list. Those beside the list hold for each list in it that says
        nothing else.
    type: list
    elements: dict
    suboptions:
      name:
        description: The list's name, which no user and no queue alias has.
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
  - module: mqenterprise.fleet.distribution_list_info
  - module: mqenterprise.fleet.queue_alias
  - module: mqenterprise.fleet.queue
"""

EXAMPLES = r"""
- name: All shops get what is sent to the list
  mqenterprise.fleet.distribution_list:
    name: prices
    members:
      - ams-shop\prices
      - bre-shop\prices
      - partner
  register: prices
  delegate_to: localhost

- name: The name to send to
  ansible.builtin.debug:
    msg: "DL={{ prices.distribution_list.identifier }}"

- name: A list that nobody sends to
  mqenterprise.fleet.distribution_list:
    name: old-prices
    state: absent
  delegate_to: localhost
"""

RETURN = r"""
# properties: answer
distribution_list:
  description: The list as it is now, or would be; none when it is absent.
  returned: success, without O(distribution_lists)
  type: dict
# end of properties
  contains:
    name:
      description: The list's name.
      type: str
      returned: always
    identifier:
      description: The list's GUID, as in its C(DL=) format name; none in check mode for a new one.
      type: str
      returned: always
    # properties: results
    members:
      description: Public queues, queue aliases and lists that get its messages.
      type: list
      elements: str
      returned: always
    # end of properties
  sample:
    name: prices
    identifier: 6a0d4a51-2b1c-4f38-8d52-3d8c7a5b9e10
    members: ['ams-shop\prices', 'bre-shop\prices', partner]
# properties: answers
distribution_lists:
  description: The lists as they are now, in the order of the list; each says whether it C(changed).
  returned: success, with O(distribution_lists)
  type: list
  elements: dict
# end of properties
"""

from ansible_collections.mqenterprise.fleet.plugins.module_utils._object import ObjectModule


class DistributionListModule(ObjectModule):
    kind = "distribution list"
    result = "distribution_list"
    several = "distribution_lists"
    properties = {
        # properties: specification
        "members": {"type": "list", "elements": "str"},
        # end of properties
    }


def main():
    DistributionListModule.main()


if __name__ == "__main__":
    main()
