# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Where the servers of a directory answer."""

from __future__ import annotations

DOCUMENTATION = r"""
name: directory_urls
short_description: URLs of directory servers, by host
version_added: 0.1.0
author: The qmnode authors (@qmnode)
description:
  - Makes the URL of each host from its C(ansible_host), or its name in the inventory if it has none.
options:
  _input:
    description: Names of the hosts.
    type: list
    elements: str
    required: true
  hostvars:
    description: The variables of all hosts.
    type: dict
    required: true
  port:
    description: The port of LDAP over TLS.
    type: int
    default: 636
"""

EXAMPLES = r"""
- name: Show where the directory is
  ansible.builtin.debug:
    msg: "{{ (groups['directory_servers'] | mqenterprise.fleet.directory_urls(hostvars)).values() | list }}"
"""

RETURN = r"""
_value:
  description: The URLs by host, in the order of the hosts.
  type: dict
"""


def directory_urls(hosts, hostvars, port=636):
    """Return the URLs of the directory servers."""
    addresses = {host: str(hostvars[host].get("ansible_host") or host) for host in hosts}
    return {
        host: f"ldaps://[{address}]:{port}" if ":" in address else f"ldaps://{address}:{port}"
        for host, address in addresses.items()
    }


class FilterModule:
    """Make the filter of this file known to Ansible."""

    def filters(self):
        """Return the filter by its name."""
        return {"directory_urls": directory_urls}
