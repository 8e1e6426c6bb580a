#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: enterprise
short_description: The whole enterprise as it is declared
version_added: 0.1.0
description:
  - Makes the directory as a declaration says, as C(mqenterprise apply) does, with sites, routing links,
    machines, queues and users.
  - Can be cut at any point and run again.
  - A value that the declaration leaves out means the specification's default.
  - Objects that are not declared are deleted only with O(prune), and only if this tool made them.
author: The qmnode authors (@qmnode)
options:
  declared:
    description: The declaration, a YAML file or a directory of them.
    type: path
  content:
    description: The declaration itself, a mapping or YAML text, in place of O(declared).
    type: raw
  prune:
    description: Delete what this tool made and the declaration has no more.
    type: bool
    default: false
  workers:
    description: Changes that are under way at a time.
    type: int
    default: 4
extends_documentation_fragment:
  - mqenterprise.fleet.directory
  - mqenterprise.fleet.directory.waiting
  - mqenterprise.fleet.directory.writing
seealso:
  - module: mqenterprise.fleet.enterprise_info
  - module: mqenterprise.fleet.site
  - module: mqenterprise.fleet.queue_manager
  - module: mqenterprise.fleet.queue
"""

EXAMPLES = r"""
- name: The enterprise as it is declared
  mqenterprise.fleet.enterprise:
    declared: ../inventory/contoso.yaml
  delegate_to: localhost
  run_once: true

- name: A small one, declared in place
  mqenterprise.fleet.enterprise:
    content:
      enterprise:
        name: Tailspin
      sites:
        - name: Oslo
      machines:
        - name: osl-shop
          sites: [Oslo]
    prune: true
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
steps:
  description: What was done, or would be, in order.
  returned: success
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
remarks:
  description: What is left as it is, and why.
  returned: success
  type: list
  elements: str
done:
  description: How many steps were carried out.
  returned: success
  type: int
record:
  description: The file with the plan, for C(mqenterprise rollback).
  returned: when something was done
  type: str
"""

import json
import tempfile
from pathlib import Path

from ansible_collections.mqenterprise.fleet.plugins.module_utils._module import EnterpriseModule, Observer
from ansible_collections.mqenterprise.fleet.plugins.module_utils._plan import loaded, told

try:
    from mqenterprise.topology.apply import apply_declared, plan_declared
    from mqenterprise.topology.plan import Note
except ImportError:
    pass  # told by EnterpriseModule.run


class WholeModule(EnterpriseModule):
    plans = True
    options = {
        "declared": {"type": "path"},
        "content": {"type": "raw"},
        "prune": {"type": "bool", "default": False},
        "workers": {"type": "int", "default": 4},
    }
    rules = {"required_one_of": [("declared", "content")], "mutually_exclusive": [("declared", "content")]}

    def _settings(self):
        self._declared = self._checked()  # first: the declared enterprise may have no directory
        return super()._settings()

    def work(self, directory):
        checked = self._declared
        target = self.target(directory, access=checked.declaration.has_access_lists)
        prune = self.given["prune"]
        if self.module.check_mode:
            return self._told(plan_declared(checked, target, prune=prune))
        done = apply_declared(
            checked,
            target,
            Observer(self.module),
            prune=prune,
            patience=self.module.params["wait"],
            workers=self.given["workers"],
        )
        record = {"record": str(done.record)} if done.record else {}
        return self._told(done.plan) | {"done": done.done} | record

    def _told(self, plan):
        self.warn_of(remark for remark in plan.remarks if remark.note is Note.DENIES_NOBODY)
        return told(plan)

    def _checked(self):
        if self.given["declared"]:
            return loaded(Path(self.given["declared"]))
        content = self.given["content"]
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "content.yaml"
            file.write_text(text, "utf-8")
            return loaded(file)


def main():
    WholeModule.main()


if __name__ == "__main__":
    main()
