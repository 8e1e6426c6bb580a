#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: queue_alias_info
short_description: The queue aliases in the directory
version_added: 0.1.0
description:
  - Says which queue aliases there are, with the queues that they stand for.
author: The qmnode authors (@qmnode)
options:
  name:
    description: Only the alias of this name; all when not given.
    type: str
extends_documentation_fragment:
  - mqenterprise.fleet.directory
  - mqenterprise.fleet.directory.reading
seealso:
  - module: mqenterprise.fleet.queue_alias
"""

EXAMPLES = r"""
- name: Which queue an alias stands for
  mqenterprise.fleet.queue_alias_info:
    name: partner
  delegate_to: localhost
  register: found
"""

RETURN = r"""
queue_aliases:
  description: The aliases, by name.
  returned: success
  type: list
  elements: dict
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
"""

from ansible_collections.mqenterprise.fleet.plugins.module_utils._object import ObjectInfoModule


class QueueAliasInfoModule(ObjectInfoModule):
    kind = "queue alias"
    result = "queue_aliases"
    options = {
        "name": {"type": "str"},
    }


def main():
    QueueAliasInfoModule.main()


if __name__ == "__main__":
    main()
