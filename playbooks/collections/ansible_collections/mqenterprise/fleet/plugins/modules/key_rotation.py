#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: key_rotation
short_description: New keys for queue managers, and old ones put away
version_added: 0.1.0
description:
  - Makes and publishes new keys, goes back to the ones before, or puts old ones away.
  - Old keys go on decrypting until no message encrypted to them can arrive, so no message is lost.
  - The module must reach the nodes' key stores. It runs on the node when keys are files, anywhere when they are
    in AWS Secrets Manager.
  - Without O(begun) and O(maximum_age) every run rotates; with one of them a second run changes nothing.
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

  state:
    description:
      - V(rotated) makes new keys and publishes them.
      - V(rolled_back) publishes the keys before the present ones again.
      - V(retired) retires keys that no message can be encrypted to any more, and destroys those retired for
        long enough.
    type: str
    choices: [rotated, rolled_back, retired]
    default: rotated
  begun:
    description:
      - When this rotation began, such as V(2026-01-31T08:00:00+00:00). Keys that were published since are left
        alone.
    type: str
  maximum_age:
    description: Only keys that were published longer ago than this, in seconds, are replaced.
    type: float
  until_published:
    description: Wait until the nodes know their new keys, and publish them; without it a later run publishes them.
    type: bool
    default: true
extends_documentation_fragment:
  - mqenterprise.fleet.directory
  - mqenterprise.fleet.directory.writing
seealso:
  - module: mqenterprise.fleet.key_rotation_info
  - module: mqenterprise.fleet.queue_manager
"""

EXAMPLES = r"""
- name: New keys for what is older than 90 days
  mqenterprise.fleet.key_rotation:
    computers: ["{{ inventory_hostname }}"]
    maximum_age: "{{ 90 * 86400 }}"
    keys:
      directory: /var/lib/qmnode

- name: Old keys that nobody needs
  mqenterprise.fleet.key_rotation:
    computers: ["{{ inventory_hostname }}"]
    state: retired
"""

RETURN = r"""
keys:
  description: The keys as they are now, one row for each.
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
waiting:
  description: By computer, from when on its next key may be published, in seconds since 1970.
  returned: success
  type: dict
"""

import asyncio
import time
from datetime import datetime

from ansible_collections.mqenterprise.fleet.plugins.module_utils._keys import CHOOSING, KeysModule

try:
    from mqenterprise.keys.report import to_retire, to_roll_back, to_rotate
    from mqenterprise.keys.settings import KeyRotationError
except ImportError:
    pass  # told by EnterpriseModule.run


class KeyRotationModule(KeysModule):
    options = {
        **CHOOSING,
        "state": {"type": "str", "choices": ["rotated", "rolled_back", "retired"], "default": "rotated"},
        "begun": {"type": "str"},
        "maximum_age": {"type": "float"},
        "until_published": {"type": "bool", "default": True},
    }
    rules = {"mutually_exclusive": [("begun", "maximum_age"), ("keys_file", "keys")]}

    def work(self, directory):
        chosen = self.chosen(directory)
        begun = self._begun()
        before = asyncio.run(chosen.fleet(chosen.nodes).status())
        due = {keys.node: found for keys in before.done if (found := self._due(keys, chosen.waiting, begun))}
        waiting = {}
        if due and not before.failed and not self.module.check_mode:
            waiting = self._done(chosen, list(due), begun)
        after = asyncio.run(chosen.fleet(chosen.nodes).status()) if not self.module.check_mode else before
        self.told(after.failed)
        lines = [f"{node.computer_name}: {line}\n" for node, found in due.items() for line in found]
        return {
            "changed": bool(due),
            "keys": self.rows(after, chosen),
            "waiting": waiting,
            "diff": {"prepared": "".join(f"+ {line}" for line in lines)},
        }

    def _due(self, keys, waiting, begun):
        now = time.time()
        match self.given["state"]:
            case "rotated":
                found = to_rotate(keys, waiting, now, begun)
            case "rolled_back":
                found = to_roll_back(keys, waiting, now, begun)
            case _:
                found = to_retire(keys, waiting, now)
        return found

    def _done(self, chosen, nodes, begun):
        fleet, wait = chosen.fleet(nodes), self.given["until_published"]
        match self.given["state"]:
            case "rotated":
                outcome = asyncio.run(fleet.rotate(begun, wait=wait))
            case "rolled_back":
                outcome = asyncio.run(fleet.roll_back(wait=wait))
            case _:
                outcome = asyncio.run(fleet.retire())
        self.told(outcome.failed)
        return outcome.waiting

    def _begun(self):
        if self.given["maximum_age"] is not None:
            return time.time() - self.given["maximum_age"]
        if self.given["begun"] is None:
            return time.time()
        try:
            return datetime.fromisoformat(self.given["begun"]).timestamp()
        except ValueError:
            raise KeyRotationError(
                f"begun: {self.given['begun']!r} is no time such as 2026-01-31T08:00:00+00:00"
            ) from None


def main():
    KeyRotationModule.main()


if __name__ == "__main__":
    main()
