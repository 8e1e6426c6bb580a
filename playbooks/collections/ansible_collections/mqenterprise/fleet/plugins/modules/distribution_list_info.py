#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: distribution_list_info
short_description: The distribution lists in the directory
version_added: 0.1.0
description:
  - Says which distribution lists there are, with their members.
  - Groups of people are no lists, so lists that another tool created are left out.
author: The qmnode authors (@qmnode)
options:
  name:
    description: Only the list of this name; all when not given.
    type: str
extends_documentation_fragment:
  - mqenterprise.fleet.directory
  - mqenterprise.fleet.directory.reading
seealso:
  - module: mqenterprise.fleet.distribution_list
"""

EXAMPLES = r"""
- name: Where to send for all shops
  mqenterprise.fleet.distribution_list_info:
    name: prices
  delegate_to: localhost
  register: found
"""

RETURN = r"""
distribution_lists:
  description: The lists, by name.
  returned: success
  type: list
  elements: dict
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
"""

from ansible_collections.mqenterprise.fleet.plugins.module_utils._object import ObjectInfoModule


class DistributionListInfoModule(ObjectInfoModule):
    kind = "distribution list"
    result = "distribution_lists"
    options = {
        "name": {"type": "str"},
    }


def main():
    DistributionListInfoModule.main()


if __name__ == "__main__":
    main()
