"""Rotate the encryption keys of this host's node: make, have the node read, publish, put old ones away.

Arguments: the folder with the ``mqenterprise`` to run, the account (or nothing), the settings' folder, the node's
directory, its management socket, the computer's name, when the rotation began, and ``check`` or ``do``. Prints one JSON
document. It can be cut anywhere and run again with the same beginning.

A new key is published only after the node has it: the node reads its key store on request, and answers with the keys
that it found. So
nobody encrypts to a key that the node cannot use, and nothing has to be waited for.
"""

import http.client
import json
import socket
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path


class Node(http.client.HTTPConnection):
    """The node, over its Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("node", timeout=60)
        self._path = path

    def connect(self) -> None:
        """Instead of a host and a port."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(60)
        self.sock.connect(self._path)


class Keys:
    """``mqenterprise keys`` as the node's account."""

    def __init__(self, programs: str, account: str, settings: str, data: str, computer: str) -> None:
        self._as = ["runuser", "-u", account, "--"] if account else []
        self._program = str(Path(programs) / "mqenterprise")
        self._settings, self._data, self._computer = Path(settings), data, computer

    def run(self, action: str, *arguments: str, wait: int = 3600) -> list[dict]:
        """The rows after an action; those that the directory should show are marked so."""
        file = self._settings / "keys.yaml"
        file.write_text(json.dumps({"directory": self._data, "reload_interval": wait}) + "\n")
        file.chmod(0o644)
        command = [*self._as, self._program, "keys", action, self._computer, "--json"]
        command += ["--directory", str(self._settings / "directory.yaml"), "--keys", str(file), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
        if done.returncode not in (0, 2):
            sys.exit(f"mqenterprise keys {action}: {done.stderr.strip()[-600:]}")
        return json.loads(done.stdout)


def fingerprints_read(path: str) -> set[str]:
    """The keys that the node has after it read its key store again."""
    node = Node(path)
    try:
        node.request("POST", "/v1/keys/reload", body=b"")
        answer = node.getresponse()
        document = json.loads(answer.read())
    finally:
        node.close()
    if answer.status != 200 or document.get("fault"):
        sys.exit(f"the node cannot read its key store: {document.get('fault') or document.get('detail')}")
    return set(document["fingerprints"])


def main() -> None:
    """Rotate, or say what is to be rotated."""
    programs, account, settings, data, path, computer, begun, mode = sys.argv[1:9]
    keys = Keys(programs, account, settings, data, computer)
    since = moment(begun)
    rows = keys.run("status")
    if not any(is_due(row, since) for row in rows) or mode == "check":
        print(json.dumps({"changed": any(is_due(row, since) for row in rows), "keys": rows}))
        return
    made = keys.run("rotate", "--no-wait", "--begun", begun)
    missing = {row["fingerprint"] for row in made if row.get("state") == "next"} - fingerprints_read(path)
    if missing:
        sys.exit(f"the node did not take over the keys {', '.join(sorted(missing))}: see its log, and run this again")
    keys.run("rotate", "--no-wait", "--begun", begun, wait=0)
    after = keys.run("retire", wait=0)
    fingerprints_read(path)
    print(json.dumps({"changed": states(rows) != states(after), "keys": after}))


def moment(begun: str) -> float:
    """When the rotation began; ends the program when that is no moment, or is still to come."""
    try:
        given = datetime.fromisoformat(begun)
    except ValueError:
        given = None
    if given is None or given.tzinfo is None:
        sys.exit(f"rotation_begun is {begun!r}: write a moment with its time zone, such as 2026-01-31T08:00:00+00:00")
    if given.timestamp() > time.time() + 60:
        sys.exit(f"rotation_begun is {begun}, which is still to come: each run would replace every key again")
    return given.timestamp()


def is_due(row: dict, since: float) -> bool:
    """Whether a key is from before the rotation began, or one waits for its publication."""
    if row["purpose"] != "encryption":
        return False
    return row.get("state") in (None, "next") or (
        row["state"] == "current" and time.time() - row["age_seconds"] < since
    )


def states(rows: list[dict]) -> set[tuple]:
    """The parts of the report that a rotation changes: fingerprints with their states."""
    return {(row.get("fingerprint"), row.get("state")) for row in rows}


main()
