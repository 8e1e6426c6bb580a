"""Writes the numbers of Ansible's recap to the file that LAB_STATS names."""

from __future__ import annotations

import json
import os
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

    def v2_playbook_on_stats(self, stats):
        """The end of a playbook."""
        found = {host: stats.summarize(host) for host in stats.processed}
        Path(os.environ["LAB_STATS"]).write_text(json.dumps(found))
