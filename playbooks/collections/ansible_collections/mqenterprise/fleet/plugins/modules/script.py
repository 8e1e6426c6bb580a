#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

# This is a virtual module that is entirely implemented server side

from __future__ import annotations

DOCUMENTATION = r"""
module: script
short_description: Run a Python program of a role on the host
version_added: 0.2.0
description:
  - Does for Python programs what M(ansible.builtin.script) does, in one exchange with the host instead of five. Nothing
    is written to the host.
author: The qmnode authors (@qmnode)
options:
  cmd:
    description: The program, a file of the role, and its arguments, as a shell has them.
    type: str
    required: true
  executable:
    description: Python on the host; of several, the first that it has.
    type: list
    elements: str
    default: [python3]
  input:
    description: What the program reads from its standard input.
    type: str
    default: ''
  input_file:
    description: A file of the controller in place of O(input).
    type: path
attributes:
  check_mode:
    description: The program is not run, and counts as a change. With C(check_mode=false) it is run.
    support: partial
  diff_mode:
    description: Shows nothing.
    support: none
"""

EXAMPLES = r"""
- name: Wait until the node is ready
  mqenterprise.fleet.script:
    cmd: wait.py /run/qmnode/management.sock
    executable: [python3.13, python3.11]
  changed_when: false
"""

RETURN = r"""
rc:
  description: The exit code of the program.
  returned: when it was run
  type: int
  sample: 0
stdout:
  description: What it printed.
  returned: when it was run
  type: str
  sample: '{"ready": true}'
document:
  description: The JSON document that it printed.
  returned: when it printed one
  type: raw
  sample: {"ready": true}
stderr:
  description: What it printed to its standard error.
  returned: when it was run
  type: str
  sample: ''
away:
  description: Whether the host could not be reached, so that nothing was run.
  returned: when it could not
  type: bool
  sample: true
began:
  description: When the controller asked, in seconds since 1970.
  returned: when it was run
  type: float
  sample: 1767225600.1
ended:
  description: When the controller had the answer, in seconds since 1970.
  returned: when it was run
  type: float
  sample: 1767225600.4
"""
