#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: switch
short_description: Public queues of Windows, switched to a node
version_added: 0.1.0
description:
  - Switches public queues to a node. Their senders follow the C(PUBLIC=) name, and go on meanwhile.
  - Stop the readers first. A run that was interrupted goes on where it was, by the plan of each queue.
  - In check mode the plans are returned.
author: The qmnode authors (@qmnode)
options:
  queues:
    description: Public queues, C(COMPUTER\\QUEUE), switched in this order.
    type: list
    elements: str
    required: true
  plans:
    description: The folder of the plans, a file for each queue.
    type: path
    required: true
  until:
    description: The last step to do, such as V(carry); all when not given.
    type: str
    choices: [check, prepare, carry, redirect, follow]
  state:
    description: V(taken_back) undoes a switch, with the messages that came meanwhile.
    type: str
    choices: [switched, taken_back]
    default: switched
extends_documentation_fragment:
  - mqenterprise.fleet.carrying
  - mqenterprise.fleet.directory
  - mqenterprise.fleet.directory.writing
seealso:
  - module: mqenterprise.fleet.carry
"""

EXAMPLES = r"""
- name: A queue whose readers have stopped
  mqenterprise.fleet.switch:
    queues: ['winshop\orders']
    source: winshop
    node: ams-shop
    plans: plans
    sole_reader: true
    follow: 5
  delegate_to: localhost
"""

RETURN = r"""
plans:
  description: For each queue its name, the steps that are done, and whether it was taken back.
  returned: success
  type: list
  elements: dict
messages:
  description: Messages that were carried, or sent back.
  returned: success
  type: int
"""

from contextlib import nullcontext
from pathlib import Path

from ansible_collections.mqenterprise.fleet.plugins.module_utils._module import EnterpriseModule
from ansible_collections.mqenterprise.fleet.plugins.module_utils._moving import (
    CARRYING,
    at_node,
    options_of,
    source_of,
)

try:
    from mqenterprise.operations.switching import FORWARD, Switch, plan_of
except ImportError:
    pass  # told by EnterpriseModule.run


class SwitchModule(EnterpriseModule):
    options = {
        **CARRYING,
        "queues": {"type": "list", "elements": "str", "required": True},
        "plans": {"type": "path", "required": True},
        "until": {"type": "str", "choices": ["check", "prepare", "carry", "redirect", "follow"]},
        "state": {"type": "str", "choices": ["switched", "taken_back"], "default": "switched"},
    }

    def work(self, directory):
        given, source = self.given, source_of(self.given)
        back = given["state"] == "taken_back"
        folder = Path(given["plans"])
        plans = [plan_of(folder, lambda: directory, queue, given["source"], given["node"]) for queue in given["queues"]]
        before = [(len(plan.done), plan.taken_back) for plan in plans]

        async def switched(client):
            messages = 0
            for plan in [one for one in reversed(plans) if one.has_begun] if back else plans:
                options = options_of(given, until=given["until"] or "")
                one = Switch(plan, client, source, lambda: nullcontext(directory), options, self.module.log)
                await (one.take_back() if back else one.run())
                messages += one.messages
            return messages

        if self.module.check_mode:
            messages = 0
            names = list(FORWARD)
            last = names.index(given["until"]) if given["until"] else len(names) - 1
            left = [plan.has_begun and not plan.taken_back if back else names[last] not in plan.done for plan in plans]
            changed = any(left)
        else:
            messages = at_node(directory, given, switched)
            changed = before != [(len(plan.done), plan.taken_back) for plan in plans]
        shown = [{"queue": plan.queue, "done": plan.done, "taken_back": plan.taken_back} for plan in plans]
        return {"changed": changed, "plans": shown, "messages": messages}


def main():
    SwitchModule.main()


if __name__ == "__main__":
    main()
