#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: site_info
short_description: The sites of the enterprise
version_added: 0.1.0
description:
  - Says which sites and foreign sites there are, with their values.
author: The qmnode authors (@qmnode)
options:
  name:
    description: Only the site of this name; all when not given.
    type: str
  access:
    description: Also the access list of each site.
    type: bool
    default: false
extends_documentation_fragment:
  - mqenterprise.fleet.directory
  - mqenterprise.fleet.directory.reading
seealso:
  - module: mqenterprise.fleet.site
"""

EXAMPLES = r"""
- name: All sites
  mqenterprise.fleet.site_info:
  delegate_to: localhost
  register: found

- name: Their names
  ansible.builtin.debug:
    msg: "{{ found.sites | map(attribute='name') }}"
"""

RETURN = r"""
sites:
  description: The sites, by name.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The site's name.
      type: str
      returned: always
    identifier:
      description: Its GUID; none in check mode for a new one.
      type: str
      returned: always
    # properties: results
    foreign:
      description: A network of another message system behind a connector.
      type: bool
      returned: always
    intra_site_replication_interval:
      description: Seconds, within the site.
      type: int
      returned: always
    inter_site_replication_interval:
      description: Seconds, between sites.
      type: int
      returned: always
    migrated_from_msmq10:
      description: The site came from MSMQ 1.0.
      type: bool
      returned: always
    # end of properties
    access:
      description: The access list, when it was asked for.
      type: list
      elements: dict
      returned: when access was given
"""

from ansible_collections.mqenterprise.fleet.plugins.module_utils._object import ObjectInfoModule


class SiteInfoModule(ObjectInfoModule):
    kind = "site"
    result = "sites"
    options = {
        "name": {"type": "str"},
        "access": {"type": "bool", "default": False},
    }


def main():
    SiteInfoModule.main()


if __name__ == "__main__":
    main()
