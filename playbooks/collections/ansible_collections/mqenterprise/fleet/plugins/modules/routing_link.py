#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: routing_link
short_description: A routing link between two sites
version_added: 0.1.0
description:
  - Creates, changes and deletes a routing link in the directory.
  - The two sites have no order.
  - Values that are not given are left as they are; for a new link they are the specification's defaults.
author: The qmnode authors (@qmnode)
options:
  sites:
    description: The two sites that the link joins.
    type: list
    elements: str
  <<: &properties
    # properties: options
    cost:
      description: The lower, the better the link; from 1 to 999999.
      type: int
    site_gates:
      description: Routing servers of either site that all messages over the link pass.
      type: list
      elements: str
    description:
      description: What it is, for people.
      type: str
    # end of properties
  # properties: several
  routing_links:
    description:
      - Several links in one task, which reads the directory once. All are possible, or none is changed.
      - Each takes the options of a single link. Those beside the list hold for each link in it that says
        nothing else.
    type: list
    elements: dict
    suboptions:
      sites:
        description: The two sites that the link joins.
        type: list
        elements: str
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
  - module: mqenterprise.fleet.routing_link_info
  - module: mqenterprise.fleet.site
  - module: mqenterprise.fleet.queue_manager
"""

EXAMPLES = r"""
- name: A leased line, which all messages pass through the gates
  mqenterprise.fleet.routing_link:
    sites: [Amsterdam, Bremen]
    cost: 1
    site_gates: [ams-router, bre-router]
    description: Leased line
  delegate_to: localhost
"""

RETURN = r"""
# properties: answer
routing_link:
  description: The link as it is now, or would be; none when it is absent.
  returned: success, without O(routing_links)
  type: dict
# end of properties
  contains:
    sites:
      description: The two sites.
      type: list
      elements: str
      returned: always
    identifier:
      description: The link's GUID; none in check mode for a new one.
      type: str
      returned: always
    # properties: results
    cost:
      description: The lower, the better the link.
      type: int
      returned: always
    site_gates:
      description: Routing servers of either site that all messages over the link pass.
      type: list
      elements: str
      returned: always
    description:
      description: What it is, for people.
      type: str
      returned: always
    # end of properties
  sample:
    sites: [Amsterdam, Bremen]
    identifier: 0b7f3a9e-6c0e-4f3c-9a52-53e5a0b5c111
    cost: 1
    site_gates: [ams-router, bre-router]
    description: Leased line
# properties: answers
routing_links:
  description: The links as they are now, in the order of the list; each says whether it C(changed).
  returned: success, with O(routing_links)
  type: list
  elements: dict
# end of properties
"""

from ansible_collections.mqenterprise.fleet.plugins.module_utils._object import ObjectModule


class RoutingLinkModule(ObjectModule):
    kind = "routing link"
    result = "routing_link"
    several = "routing_links"
    names = {"sites": {"type": "list", "elements": "str"}}
    properties = {
        # properties: specification
        "cost": {"type": "int"},
        "site_gates": {"type": "list", "elements": "str"},
        "description": {"type": "str"},
        # end of properties
    }


def main():
    RoutingLinkModule.main()


if __name__ == "__main__":
    main()
