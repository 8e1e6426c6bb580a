#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

# This is a virtual module that is entirely implemented server side

from __future__ import annotations

DOCUMENTATION = r"""
module: check_settings
short_description: Whether a node would start with its settings
version_added: 0.2.0
description:
  - Checks settings, tokens and the document of a machine on the controller, as the node does when it starts.
author: The qmnode authors (@qmnode)
options:
  host:
    description: The host, for the message.
    type: str
    required: true
  given:
    description: One JSON document with C(settings), C(tokens) and the C(document) of the machine.
    type: str
    required: true
attributes:
  check_mode:
    description: Changes nothing.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
notes:
  - The Python that runs Ansible needs C(qmnode).
"""

EXAMPLES = r"""
- name: Check the node's settings
  mqenterprise.fleet.check_settings:
    host: "{{ inventory_hostname }}"
    given: "{{ {'settings': settings, 'tokens': [], 'document': {}} | to_json }}"
"""

RETURN = r"""
msg:
  description: All that is wrong with them, and what to do.
  returned: failure
  type: str
  sample: The node of ams-shop would not start with its settings, and nothing was done to it
amqp:
  description: Whether they open an AMQP door or a bridge, for which the node needs a release with AMQP.
  returned: success
  type: bool
  sample: false
tls_mode:
  description: The mode of TLS with other nodes; empty for plain connections.
  returned: success
  type: str
  sample: offer
"""
