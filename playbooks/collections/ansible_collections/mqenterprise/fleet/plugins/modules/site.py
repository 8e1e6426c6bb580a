#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: site
short_description: A site of the enterprise
version_added: 0.1.0
description:
  - Creates, changes and deletes a site, or a foreign site, in the directory.
  - Values that are not given are left as they are; for a new site they are the specification's defaults.
  - A site is deleted only when nothing is in it or refers to it, and only when it was made by this tool.
author: The qmnode authors (@qmnode)
options:
  name:
    description: The site's name.
    type: str
  <<: &properties
    # properties: options
    foreign:
      description: A network of another message system behind a connector.
      type: bool
    intra_site_replication_interval:
      description: Seconds, within the site; from 0 to 2147483647.
      type: int
    inter_site_replication_interval:
      description: Seconds, between sites; from 0 to 2147483647.
      type: int
    migrated_from_msmq10:
      description: The site came from MSMQ 1.0.
      type: bool
    access:
      description: The whole access list. When it is not given, the access list is left as it is.
      type: list
      elements: dict
      suboptions:
        to:
          description:
            - A user or group by its account or its name in the directory, V(Everyone), V(Anonymous), or C(S-1-...).
          type: str
          required: true
        allow:
          description: Rights that it has.
          type: list
          elements: str
          default: []
          choices: &rights
            - create_machine
            - set_properties
            - get_properties
            - delete
            - get_permissions
            - change_permissions
            - take_ownership
            - generic_all
        deny:
          description: Rights that it is refused.
          type: list
          elements: str
          default: []
          choices: *rights
    # end of properties
  # properties: several
  sites:
    description:
      - Several sites in one task, which reads the directory once. All are possible, or none is changed.
      - Each takes the options of a single site. Those beside the list hold for each site in it that says
        nothing else.
    type: list
    elements: dict
    suboptions:
      name:
        description: The site's name.
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
  - module: mqenterprise.fleet.site_info
  - module: mqenterprise.fleet.enterprise
  - module: mqenterprise.fleet.routing_link
"""

EXAMPLES = r"""
- name: Two sites and a network behind a connector
  mqenterprise.fleet.site:
    sites:
      - name: Amsterdam
      - name: Bremen
      - name: Mainframe
        foreign: true
  delegate_to: localhost

- name: A site that was closed
  mqenterprise.fleet.site:
    name: Zwolle
    state: absent
  delegate_to: localhost
"""

RETURN = r"""
# properties: answer
site:
  description: The site as it is now, or would be; none when it is absent.
  returned: success, without O(sites)
  type: dict
# end of properties
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
    access:
      description: The access list, when it was given.
      type: list
      elements: dict
      returned: when access was given
    # end of properties
  sample:
    name: Amsterdam
    identifier: 3f0e9a4e-0c55-4a49-a0a1-0fd2a4a8f4b1
    foreign: false
    intra_site_replication_interval: 2
    inter_site_replication_interval: 10
    migrated_from_msmq10: false
# properties: answers
sites:
  description: The sites as they are now, in the order of the list; each says whether it C(changed).
  returned: success, with O(sites)
  type: list
  elements: dict
# end of properties
"""

from ansible_collections.mqenterprise.fleet.plugins.module_utils._object import ObjectModule


class SiteModule(ObjectModule):
    kind = "site"
    result = "site"
    several = "sites"
    properties = {
        # properties: specification
        "foreign": {"type": "bool"},
        "intra_site_replication_interval": {"type": "int"},
        "inter_site_replication_interval": {"type": "int"},
        "migrated_from_msmq10": {"type": "bool"},
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
                        "create_machine",
                        "set_properties",
                        "get_properties",
                        "delete",
                        "get_permissions",
                        "change_permissions",
                        "take_ownership",
                        "generic_all",
                    ],
                },
                "deny": {
                    "type": "list",
                    "elements": "str",
                    "default": [],
                    "choices": [
                        "create_machine",
                        "set_properties",
                        "get_properties",
                        "delete",
                        "get_permissions",
                        "change_permissions",
                        "take_ownership",
                        "generic_all",
                    ],
                },
            },
        },
        # end of properties
    }


def main():
    SiteModule.main()


if __name__ == "__main__":
    main()
