#!/usr/bin/python
# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

# This is a virtual module that is entirely implemented server side

from __future__ import annotations

DOCUMENTATION = r"""
module: clock
short_description: Compare a host's clock with the controller's
version_added: 0.2.0
description:
  - Asks the host several times what time it is, and takes the answer that came quickest.
  - The clock of the host is somewhere within C(difference) - C(uncertainty) and C(difference) + C(uncertainty). The
    time of the question itself is not in the difference.
author: The qmnode authors (@qmnode)
options:
  python:
    description: Python on the host; of several, the first that it has.
    type: list
    elements: str
    default: [python3]
  tries:
    description: How often it is asked.
    type: int
    default: 4
attributes:
  check_mode:
    description: Changes nothing.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
"""

EXAMPLES = r"""
- name: Compare the clock of {{ inventory_hostname }}
  mqenterprise.fleet.clock:
  register: compared
  failed_when: compared.difference | abs > 30 + compared.uncertainty
"""

RETURN = r"""
difference:
  description: Seconds by which the host's clock is ahead of the controller's; behind if it is negative.
  returned: success
  type: float
  sample: 0.004
uncertainty:
  description: By how many seconds at most the difference may be wrong.
  returned: success
  type: float
  sample: 0.035
"""
