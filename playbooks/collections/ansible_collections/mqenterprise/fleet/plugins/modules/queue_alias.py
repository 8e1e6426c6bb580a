#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: queue_alias
short_description: A queue alias in the directory
version_added: 0.1.0
description:
  - Creates, changes and deletes an object of the directory that stands for a queue. Distribution lists can then hold
    the queue, such as a private or a remote one.
  - Values that are not given are left as they are; a new alias needs its format name.
  - To move an alias to another queue, change its format name. Nodes follow within seconds.
author: The qmnode authors (@qmnode)
options:
  name:
    description: The alias's name, which no user and no distribution list has.
    type: str
  <<: &properties
    # properties: options
    format_name:
      description: Format name of the queue that it stands for.
      type: str
    # end of properties
  # properties: several
  queue_aliases:
    description:
      - Several aliases in one task, which reads the directory once. All are possible, or none is changed.
      - Each takes the options of a single alias. Those beside the list hold for each alias in it that says
        nothing else.
    type: list
    elements: dict
    suboptions:
      name:
        description: The alias's name, which no user and no distribution list has.
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
  - module: mqenterprise.fleet.queue_alias_info
  - module: mqenterprise.fleet.distribution_list
"""

EXAMPLES = r"""
- name: A queue of a partner that lists can hold
  mqenterprise.fleet.queue_alias:
    name: partner
    format_name: DIRECT=OS:partner.example\private$\prices
  delegate_to: localhost

- name: An alias that no list holds
  mqenterprise.fleet.queue_alias:
    name: old-partner
    state: absent
  delegate_to: localhost
"""

RETURN = r"""
# properties: answer
queue_alias:
  description: The alias as it is now, or would be; none when it is absent.
  returned: success, without O(queue_aliases)
  type: dict
# end of properties
  contains:
    name:
      description: The alias's name.
      type: str
      returned: always
    identifier:
      description: The alias's GUID; none in check mode for a new one.
      type: str
      returned: always
    # properties: results
    format_name:
      description: Format name of the queue that it stands for.
      type: str
      returned: always
    # end of properties
  sample:
    name: partner
    identifier: 0f8fad5b-d9cb-469f-a165-70867728950e
    format_name: DIRECT=OS:partner.example\private$\prices
# properties: answers
queue_aliases:
  description: The aliases as they are now, in the order of the list; each says whether it C(changed).
  returned: success, with O(queue_aliases)
  type: list
  elements: dict
# end of properties
"""

from ansible_collections.mqenterprise.fleet.plugins.module_utils._object import ObjectModule


class QueueAliasModule(ObjectModule):
    kind = "queue alias"
    result = "queue_alias"
    several = "queue_aliases"
    properties = {
        # properties: specification
        "format_name": {"type": "str"},
        # end of properties
    }


def main():
    QueueAliasModule.main()


if __name__ == "__main__":
    main()
