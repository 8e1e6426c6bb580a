#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

# This is a virtual module that is entirely implemented server side

from __future__ import annotations

DOCUMENTATION = r"""
module: credentials
short_description: Have the credentials of a node on the controller
version_added: 0.2.0
description:
  - Admits a node to the directory if it has no login, or one that the directory refuses, and issues the certificate of
    its host if that is due. Both are files of the controller.
author: The qmnode authors (@qmnode)
options:
  login:
    description: Folder for the login; none is looked at without it.
    type: path
  computer:
    description: NetBIOS name of the node's computer.
    type: str
  directory_file:
    description: How the administrator reaches the directory; by default as C(mqenterprise) finds it.
    type: str
  certificate:
    description: Options of M(mqenterprise.fleet.host_certificate); none is issued without them.
    type: dict
attributes:
  check_mode:
    description: Says what would be done.
    support: full
  diff_mode:
    description: RV(done) says what is done.
    support: none
notes:
  - It runs in the process of the playbook, whose Python needs C(qmnode[enterprise]).
"""

EXAMPLES = r"""
- name: Let the node into the directory
  mqenterprise.fleet.credentials:
    computer: AMS-SHOP
    login: "/var/lib/mqenterprise/hosts/{{ inventory_hostname }}/directory"
"""

RETURN = r"""
done:
  description: What was done, or would be.
  type: list
  elements: str
  returned: always
  sample: [AMS-SHOP is admitted to the directory]
"""
