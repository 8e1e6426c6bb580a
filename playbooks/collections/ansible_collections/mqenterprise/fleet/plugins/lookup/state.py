# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Where the controller keeps what belongs to an enterprise."""

from __future__ import annotations

DOCUMENTATION = r"""
name: state
short_description: The folder of the controller that a variable names
version_added: 0.2.0
author: The qmnode authors (@qmnode)
description:
  - Makes the folder absolute, so that all plays and all folders that Ansible is started in mean the same one.
  - A relative path is taken from the folder of the inventory, wherever it is given. An inventory that is no file has no
    folder; then it is taken from the folder of the playbook.
  - On the controller itself (C(localhost)), a variable that is given to the queue managers counts as well.
options:
  _terms:
    description: The name of the variable.
    required: true
    type: list
    elements: str
"""

EXAMPLES = r"""
- name: Show where it is
  ansible.builtin.debug:
    msg: "{{ lookup('mqenterprise.fleet.state', 'queue_manager_state') }}"
"""

RETURN = r"""
_raw:
  description: The absolute path.
  type: list
  elements: path
"""

import os
from pathlib import Path

from ansible.plugins.lookup import LookupBase
from ansible_collections.mqenterprise.fleet.plugins.plugin_utils._levels import Levels


class LookupModule(LookupBase):
    """Make the lookup of this file known to Ansible."""

    def run(self, terms, variables=None, **kwargs):
        """One path for each name."""
        self.set_options(var_options=variables, direct=kwargs)
        levels = Levels(variables["hostvars"])
        return [self._folder(levels, name, variables) for name in terms]

    def _folder(self, levels, name, variables):
        given = self._templar.template(self._given(levels, name, variables))
        path = Path(str(given)).expanduser()
        return os.path.normpath(levels.folders()[0] / path)

    @staticmethod
    def _given(levels, name, variables):
        """As it is written: by the host of the task, or by the first queue manager if this is the controller."""
        host = variables["inventory_hostname"]
        nodes = levels.inventory.groups.get("queue_managers")
        managers = [each.name for each in nodes.get_hosts()] if nodes else []
        if name in levels.extra or host in managers or any(name in found for _where, found in levels.of(host)):
            return variables[name]
        given = [found[name] for _where, found in levels.of(managers[0]) if name in found] if managers else []
        return given[-1] if given else variables[name]
