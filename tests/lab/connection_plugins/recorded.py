"""ssh, and a note of each exchange in the file that LAB_EXCHANGES names."""

from __future__ import annotations

import json
import os
import time

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection import ssh

from tests.lab.exchanges import OPTIONS, identity, question

DOCUMENTATION = ssh.DOCUMENTATION.replace("name: ssh", "name: recorded").replace(
    "    options:\n", f"    options:{OPTIONS}"
)


class Connection(ssh.Connection):
    """The connection."""

    transport = "recorded"

    def exec_command(self, cmd, in_data=None, sudoable=True):
        """Run it, and note it."""
        if "LAB_EXCHANGES" not in os.environ:
            return super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        began, asked_at = time.monotonic(), time.time()
        try:
            code, out, errors = super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        except AnsibleConnectionFailure as error:
            self._note(cmd, in_data, began, {"failure": str(error)})
            raise
        self._note(cmd, in_data, began, {"answer": [code, out.decode(), errors.decode()], "asked_at": asked_at})
        return code, out, errors

    def _note(self, cmd, in_data, began, noted):
        """One line in one piece, as other processes write to the same file."""
        host = identity(self)
        name, asked = question(cmd, in_data, host)
        seconds = round(time.monotonic() - began, 3)
        line = json.dumps({"host": host, "name": name, "asked": asked, "seconds": seconds, **noted}) + "\n"
        file = os.open(os.environ["LAB_EXCHANGES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            written = os.write(file, line.encode())
        finally:
            os.close(file)
        assert written == len(line.encode())
