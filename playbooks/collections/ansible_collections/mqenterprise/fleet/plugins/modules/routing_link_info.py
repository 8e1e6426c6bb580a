#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: routing_link_info
short_description: The routing links of the enterprise
version_added: 0.1.0
description:
  - Says which routing links there are, with their values.
author: The qmnode authors (@qmnode)
options:
  site:
    description: Only the links of this site; all when not given.
    type: str
extends_documentation_fragment:
  - mqenterprise.fleet.directory
  - mqenterprise.fleet.directory.reading
seealso:
  - module: mqenterprise.fleet.routing_link
"""

EXAMPLES = r"""
- name: The links of a site
  mqenterprise.fleet.routing_link_info:
    site: Bremen
  delegate_to: localhost
  register: found
"""

RETURN = r"""
routing_links:
  description: The links, by their sites.
  returned: success
  type: list
  elements: dict
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
"""

from ansible_collections.mqenterprise.fleet.plugins.module_utils._object import ObjectInfoModule


class RoutingLinkInfoModule(ObjectInfoModule):
    kind = "routing link"
    result = "routing_links"
    others = {"site": "site"}
    options = {
        "site": {"type": "str"},
    }

    def wanted(self, item):
        site = self.given["site"]
        return site is None or site.casefold() in map(str.casefold, item["sites"])


def main():
    RoutingLinkInfoModule.main()


if __name__ == "__main__":
    main()
