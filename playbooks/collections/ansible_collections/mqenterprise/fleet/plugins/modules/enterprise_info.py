#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: enterprise_info
short_description: The enterprise as it is
version_added: 0.1.0
description:
  - Says what the directory holds as the declaration that says the same, and its settings.
  - Compares it with a declaration, when one is given.
author: The qmnode authors (@qmnode)
options:
  declared:
    description: A declaration to compare with.
    type: path
  name:
    description: What the enterprise is called in the declaration that is returned; the directory does not hold it.
    type: str
    default: Enterprise
extends_documentation_fragment:
  - mqenterprise.fleet.directory
  - mqenterprise.fleet.directory.reading
seealso:
  - module: mqenterprise.fleet.enterprise
"""

EXAMPLES = r"""
- name: What was changed by hand
  mqenterprise.fleet.enterprise_info:
    declared: ../inventory/contoso.yaml
  delegate_to: localhost
  run_once: true
  register: found
  failed_when: found.steps | length > 0
"""

RETURN = r"""
root:
  description: The name of the directory's root.
  returned: success
  type: str
enterprise:
  description: The settings of the whole enterprise.
  returned: success
  type: dict
  contains:
    weakened_security:
      description: Whether queue managers use their own identity for the directory.
      type: bool
      returned: always
    default_time_to_live:
      description: Seconds that a message has to reach its queue.
      type: int
      returned: always
    change_notification:
      description: Whether queue managers without LDAP are told of changes.
      type: bool
      returned: always
    old_directory:
      description: Whether the directory is MSMQ 1.0's.
      type: bool
      returned: always
    access:
      description: The access list, an entry for each text; none where the directory has no list.
      type: list
      elements: str
      returned: always
declaration:
  description: The declaration that says the same, as YAML text.
  returned: success
  type: str
remarks:
  description: What is in the directory and not declared.
  returned: when declared was given
  type: list
  elements: str
steps:
  description: What it would take to make the directory as declared.
  returned: when declared was given
  type: list
  elements: dict
  contains:
    action:
      description: V(create), V(update) or V(delete).
      type: str
      returned: always
    kind:
      description: What kind of object it is.
      type: str
      returned: always
    name:
      description: Its names.
      type: list
      elements: str
      returned: always
    before:
      description: The values that differ, as they were.
      type: dict
      returned: always
    after:
      description: The values that differ, as they are to be.
      type: dict
      returned: always
"""

from pathlib import Path

from ansible_collections.mqenterprise.fleet.plugins.module_utils._module import EnterpriseModule
from ansible_collections.mqenterprise.fleet.plugins.module_utils._plan import loaded, told

try:
    from mqenterprise.topology.apply import plan_declared
    from mqenterprise.topology.export import export
    from mqenterprise.topology.normal_form import Kind
except ImportError:
    pass  # told by EnterpriseModule.run


class WholeInfoModule(EnterpriseModule):
    options = {"declared": {"type": "path"}, "name": {"type": "str", "default": "Enterprise"}}

    def work(self, directory):
        target = self.target(directory, access=True)
        table = target.snapshot().table
        settings = next((row.values for row in table if row.kind is Kind.ENTERPRISE), {})
        found = {
            "root": target.directory,
            "enterprise": dict(settings),
            "declaration": export(table, self.given["name"]),
        }
        if self.given["declared"]:
            plan = told(plan_declared(loaded(Path(self.given["declared"])), target))
            found |= {"steps": plan["steps"], "remarks": plan["remarks"]}
        return found | {"changed": False}


def main():
    WholeInfoModule.main()


if __name__ == "__main__":
    main()
