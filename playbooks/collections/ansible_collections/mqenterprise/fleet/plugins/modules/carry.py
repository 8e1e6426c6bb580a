#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

DOCUMENTATION = r"""
module: carry
short_description: The messages of a queue of Windows, carried to a node
version_added: 0.1.0
description:
  - Carries the messages of a queue to a node with all their properties, in order and each once.
  - A run that was interrupted goes on where it was. In check mode the messages are read and counted.
author: The qmnode authors (@qmnode)
options:
  queue:
    description: The queue at the source. C(orders) is private, C(.\\orders) public; C(orders;journal) works too.
    type: str
    required: true
  into:
    description: The queue of the node; the same name when not given.
    type: str
extends_documentation_fragment:
  - mqenterprise.fleet.carrying
  - mqenterprise.fleet.directory
  - mqenterprise.fleet.directory.writing
seealso:
  - module: mqenterprise.fleet.switch
"""

EXAMPLES = r"""
- name: The messages of a private queue
  mqenterprise.fleet.carry:
    queue: orders
    source: winshop
    node: ams-shop
    sole_reader: true
  delegate_to: localhost
"""

RETURN = r"""
summary:
  description: The messages and bytes that were carried or, in check mode, counted; and how often a side did not answer.
  returned: success
  type: dict
"""

from dataclasses import asdict

from ansible_collections.mqenterprise.fleet.plugins.module_utils._module import EnterpriseModule
from ansible_collections.mqenterprise.fleet.plugins.module_utils._moving import (
    CARRYING,
    at_node,
    options_of,
    source_of,
)

try:
    from mqenterprise.operations.carrying import Carrier
    from mqenterprise.operations.errors import OperationsError
except ImportError:
    pass  # told by EnterpriseModule.run


class CarryModule(EnterpriseModule):
    options = {**CARRYING, "queue": {"type": "str", "required": True}, "into": {"type": "str"}}

    def work(self, directory):
        given, source = self.given, source_of(self.given)

        async def carried(client):
            carrier = Carrier(client, source, given["queue"], given["into"] or given["queue"], options_of(given))
            return await (carrier.rehearse() if self.module.check_mode else carrier.carry())

        summary = at_node(directory, given, carried)
        if summary.undecided and not self.module.check_mode:
            raise OperationsError(
                f"{given['queue']}: {len(summary.undecided)} messages are undecided, first {summary.undecided[0]}: "
                "say sole_reader if nobody else has received there, and drop those that somebody has"
            )
        return {"changed": summary.messages > 0, "summary": asdict(summary)}


def main():
    CarryModule.main()


if __name__ == "__main__":
    main()
