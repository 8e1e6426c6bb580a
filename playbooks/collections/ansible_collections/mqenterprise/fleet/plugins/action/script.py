# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Run a Python program of a role on the host, in one exchange: it comes over the connection's standard input."""

from __future__ import annotations

import contextlib
import json
import shlex
import time
from pathlib import Path

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.mqenterprise.fleet.plugins.plugin_utils._templates import keep_compiled

LOADER = "import sys; exec(compile(sys.stdin.buffer.read(int(sys.argv.pop(1))), sys.argv.pop(1), 'exec'))"
"""Python reads the program by its length, so that what follows is the program's own standard input."""

keep_compiled()  # before Ansible forks


def first_of(names):
    """The word of a shell that stands for the first of these programs that the host has."""
    if len(names) == 1:
        return shlex.quote(names[0])
    return '"$(' + " || ".join(f"command -v {shlex.quote(name)}" for name in names) + ')"'


class ActionModule(ActionBase):
    """Send the program and its input, and return what it prints."""

    TRANSFERS_FILES = False
    _requires_connection = True

    def run(self, tmp=None, task_vars=None):
        """Run it; in check mode a program that changes the host is only said to."""
        result = super().run(tmp, task_vars)
        options = {
            "cmd": {"type": "str", "required": True},
            "executable": {"type": "list", "elements": "str", "default": ["python3"]},
            "input": {"type": "str", "default": ""},
            "input_file": {"type": "path"},
        }
        _validation, given = self.validate_argument_spec(options)
        if self._task.check_mode:
            return result | {"changed": True}
        name, *arguments = shlex.split(given["cmd"])
        try:
            source = Path(self._loader.get_real_file(self._find_needle("files", name))).read_bytes()
            more = Path(given["input_file"]).read_bytes() if given["input_file"] else given["input"].encode()
        except (AnsibleError, OSError) as error:
            raise AnsibleActionFail(str(error)) from error
        command = shlex.join(["-c", LOADER, str(len(source)), name, *arguments])
        began = time.time()
        try:
            done = self._low_level_execute_command(f"{first_of(given['executable'])} {command}", in_data=source + more)
        except AnsibleConnectionFailure as error:  # not `unreachable`, which no rescue sees
            return result | {"failed": True, "away": True, "msg": str(error)}
        result |= {"changed": True, **done, "began": began, "ended": time.time()}
        if done["rc"] != 0:
            said = (done["stderr"].strip() or done["stdout"].strip())[-1500:]
            return result | {"failed": True, "msg": said or f"{name} ended with exit code {done['rc']}"}
        with contextlib.suppress(ValueError):
            result["document"] = json.loads(done["stdout"])
        return result
