"""Answers that a real host gave before, after as many seconds: ``lab_answers`` is the file with them."""

from __future__ import annotations

import difflib
import json
import time
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection import ConnectionBase

from tests.lab.exchanges import OPTIONS, exchanged, identity, question

DOCUMENTATION = f"""
    name: replayed
    short_description: Plays answers of hosts again
    description: For tests.
    options:{OPTIONS}
      host:
        description: Its address.
        vars: [{{name: ansible_host}}]
      lab_answers:
        description: The file with the answers.
        vars: [{{name: lab_answers}}]
      pipelining:
        description: Programs come with their command.
        type: bool
        default: true
"""


class Connection(ConnectionBase):
    """The connection."""

    transport = "replayed"
    has_pipelining = True

    def _connect(self):
        self._connected = True
        return self

    def exec_command(self, cmd, in_data=None, sudoable=True):
        """Answer when the host did."""
        began, asked_at = time.monotonic(), time.time()
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        host = identity(self)
        name, asked = question(cmd, in_data, host)
        known = json.loads(Path(self.get_option("lab_answers")).read_text())
        noted = known.get(asked)
        if noted is None:
            raise AssertionError(f"no answer of {name} was recorded to\n{self._difference(name, asked, known)}")
        time.sleep(max(0.0, began + noted["seconds"] - time.monotonic()))
        words = {word: host[mark] for mark, word in noted["host"].items()}
        if "failure" in noted:
            raise AnsibleConnectionFailure(exchanged(noted["failure"], words))
        code, out, errors = noted["answer"]
        return code, self._later(exchanged(out, words), asked_at - noted["asked_at"]).encode(), errors.encode()

    @staticmethod
    def _later(out, seconds):
        """The answer, with the clock of the host as it would be now."""
        if not out.startswith("{"):
            return out
        answer = json.loads(out)
        if "clock" in answer:
            answer["clock"] = [moment + seconds for moment in answer["clock"]]
        return json.dumps(answer)

    @staticmethod
    def _difference(name, asked, known):
        """From the most similar question with the same name, or the question."""
        others = [other for other, noted in known.items() if noted["name"] == name]
        lines = difflib.unified_diff(others[0].splitlines(), asked.splitlines(), lineterm="") if others else [asked]
        return "\n".join(lines)[:3000]

    def put_file(self, in_path, out_path):
        """Refuse it."""
        raise AssertionError("files are sent with programs")

    fetch_file = put_file

    def close(self):
        """End it."""
        self._connected = False
