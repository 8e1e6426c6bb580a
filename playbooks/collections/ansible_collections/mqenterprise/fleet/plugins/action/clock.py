# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Measure the difference of a host's clock from the controller's. It runs here, as only the controller knows when it
asked.
"""

from __future__ import annotations

import shlex
import time

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.mqenterprise.fleet.plugins.action.script import first_of

ASK = "import time; print(repr(time.time()))"


class ActionModule(ActionBase):
    """Compare the clocks on the controller, which alone knows when it asked."""

    TRANSFERS_FILES = False
    _requires_connection = True

    def run(self, tmp=None, task_vars=None):
        """Ask several times; the quickest answer says most."""
        result = super().run(tmp, task_vars)
        options = {
            "python": {"type": "list", "elements": "str", "default": ["python3"]},
            "tries": {"type": "int", "default": 4},
        }
        _validation, given = self.validate_argument_spec(options)
        command = f"{first_of(given['python'])} -c {shlex.quote(ASK)}"
        uncertainty, difference = min(self._ask(command) for _try in range(max(1, given["tries"])))
        return result | {
            "changed": False,
            "difference": round(difference, 3),
            "uncertainty": round(uncertainty, 3),
        }

    def _ask(self, command):
        """Half of the time that it took, and how far the host's clock was from the middle of that time."""
        asked, began = time.time(), time.monotonic()
        answer = self._low_level_execute_command(command, sudoable=False)
        half = (time.monotonic() - began) / 2
        try:
            there = float(answer["stdout"])
        except ValueError:
            said = (answer.get("stderr") or answer["stdout"]).strip()
            raise AnsibleActionFail(f"the host does not say what time it is: {said[-300:]}") from None
        return half, there - (asked + half)
