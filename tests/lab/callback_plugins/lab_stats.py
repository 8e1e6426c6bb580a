"""Writes the numbers of Ansible's recap, and the seconds of each task, to the file that LAB_STATS names."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: lab_stats
type: aggregate
short_description: Writes the recap as JSON
description: For tests.
"""


class CallbackModule(CallbackBase):
    """The callback."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "lab_stats"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self):
        super().__init__()
        self._seconds = {}
        self._task, self._since = "", time.monotonic()

    def _go_on(self, task):
        """Count the time until now for the task before this one; all hosts are at the same task."""
        now = time.monotonic()
        if self._task:
            self._seconds[self._task] = round(self._seconds.get(self._task, 0) + now - self._since, 2)
        self._task, self._since = task, now

    def v2_playbook_on_task_start(self, task, is_conditional):
        """The hosts begin with a task."""
        self._go_on(task.get_name())

    def v2_playbook_on_stats(self, stats):
        """The end of a playbook."""
        self._go_on("")
        found = {host: stats.summarize(host) for host in stats.processed}
        Path(os.environ["LAB_STATS"]).write_text(json.dumps({"stats": found, "seconds": self._seconds}))
