#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: key_rotation_info
short_description: The keys of queue managers
version_added: 0.1.0
description:
  - Says which keys there are, who may still use them, and what is due.
author: The qmnode authors (@qmnode)
options:
  computers:
    description: The computers whose keys are meant; all when not given.
    type: list
    elements: str
  site:
    description: Only the queue managers of this site.
    type: str
  keys_file:
    description:
      - YAML file that says where keys are kept and how long old ones are waited for, as C(mqenterprise keys
        --keys) takes it. Without it the environment variable E(MQENTERPRISE_KEYS) names the file.
    type: path
  keys:
    description: The same settings in place of a file.
    type: dict
  destroyed:
    description: Also the records of destroyed keys.
    type: bool
    default: false
extends_documentation_fragment:
  - mqenterprise.fleet.directory
  - mqenterprise.fleet.directory.reading
seealso:
  - module: mqenterprise.fleet.key_rotation
"""

EXAMPLES = r"""
- name: How the keys of a node are
  mqenterprise.fleet.key_rotation_info:
    computers: ["{{ inventory_hostname }}"]
  register: found

- name: Something is to be done
  ansible.builtin.debug:
    msg: "{{ found.keys | selectattr('is_due') | map(attribute='due') | list }}"
  when: found.due
"""

RETURN = r"""
keys:
  description: The keys, one row for each.
  returned: success
  type: list
  elements: dict
  contains:
    node:
      description: The computer.
      type: str
      returned: always
    purpose:
      description: What the key is for.
      type: str
      returned: always
    provider:
      description: The cryptographic provider.
      type: str
      returned: always
    algorithm:
      description: Its algorithm.
      type: str
      returned: always
    length:
      description: Its length in bits.
      type: int
      returned: always
    fingerprint:
      description: The key's fingerprint.
      type: str
      returned: always
    state:
      description: V(next), V(current), V(previous), V(retired) or V(destroyed).
      type: str
      returned: always
    shown:
      description: Whether the directory shows it.
      type: bool
      returned: always
    age_seconds:
      description: Its age.
      type: int
      returned: always
    senders:
      description: Who may still send to it, in words.
      type: str
      returned: always
    needed_until:
      description: Until when a message encrypted to it may arrive, in UTC.
      type: str
      returned: always
    due:
      description: The step that is due next.
      type: str
      returned: always
    due_from:
      description: From when on, in UTC.
      type: str
      returned: always
    is_due:
      description: Whether it is due now.
      type: bool
      returned: always
due:
  description: Whether something is due now.
  returned: success
  type: bool
"""

import asyncio

from ansible_collections.mqenterprise.fleet.plugins.module_utils._keys import CHOOSING, KeysModule


class KeyRotationInfoModule(KeysModule):
    options = {**CHOOSING, "destroyed": {"type": "bool", "default": False}}
    rules = {"mutually_exclusive": [("keys_file", "keys")]}

    def work(self, directory):
        chosen = self.chosen(directory)
        outcome = asyncio.run(chosen.fleet(chosen.nodes).status())
        self.told(outcome.failed)
        rows = self.rows(outcome, chosen, destroyed=self.given["destroyed"])
        return {"changed": False, "keys": rows, "due": any(row["is_due"] for row in rows)}


def main():
    KeyRotationInfoModule.main()


if __name__ == "__main__":
    main()
