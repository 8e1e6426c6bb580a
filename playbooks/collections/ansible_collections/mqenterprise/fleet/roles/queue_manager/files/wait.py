"""Wait until the node of this host is ready, make the document of its machine true, and print one JSON document.

Arguments: its management socket, the identifier that the directory has for it (or nothing), seconds, where its log is
(a file, or ``journal``), and an action for a document on standard input. ``apply`` makes it true, ``prune`` also
deletes queues that it no longer has, ``check`` waits for nothing and changes nothing. Exit code 1 with the reason when
the node is not ready, or refuses the document.
"""

import http.client
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

PAUSE = 0.2
SECONDS = 60
SERVICE_MANAGER = ("qmnode.service:", "Started ", "Starting ", "Stopped ", "Stopping ", "Failed to start ")


class Node(http.client.HTTPConnection):
    """The node, over its Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("node", timeout=SECONDS)
        self._path = path

    def connect(self) -> None:
        """Instead of a host and a port."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(SECONDS)
        self.sock.connect(self._path)


def get(path: str, resource: str, method: str = "GET", content: str | None = None) -> tuple[int, dict]:
    """Status and document of a resource."""
    node = Node(path)
    try:
        node.request(method, resource, content, {"Content-Type": "application/json"} if content else {})
        answer = node.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        node.close()


def problem(path: str, wanted: str) -> tuple[str, dict]:
    """Return the reason why the node is not ready, empty if it is, and the node's description of itself."""
    try:
        status, document = get(path, "/readyz")
        if status != 200:
            return f"it says: {document.get('detail', status)}", {}
        node = get(path, "/v1/node")[1]
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"it does not answer ({error})", {}
    if wanted and node["identifier"].lower() != wanted.lower():
        return f"the directory has it as {wanted}, and it calls itself {node['identifier']}", node
    if node.get("directory") == "not joined":
        reasons = [each for each in node["warnings"] if "has not joined the directory" in each]
        return "; ".join(reasons) or f"{node['computer_name']} has not joined the directory", node
    return "", node


def is_telling(line: str) -> bool:
    """Whether a line of the log may say why the node ended: it is neither information nor the service manager's."""
    return '"level": "info"' not in line and not line.startswith(SERVICE_MANAGER)


def said(log: str) -> str:
    """The end of its log, and before it what it said last that is no information: it may be starting once more."""
    try:
        if log == "journal":
            read = ["journalctl", "--unit", "qmnode", "--lines", "200", "--output", "cat", "--no-pager"]
            text = subprocess.run(read, capture_output=True, text=True, check=False).stdout
        else:
            text = Path(log).read_text(errors="replace")
    except OSError as error:
        return str(error)
    lines = text.splitlines()[-200:]
    end = lines[-8:]
    while len(end) > 1 and sum(map(len, end)) > 900:
        del end[0]
    telling = [line for line in lines[: -len(end)] if is_telling(line)] if not any(map(is_telling, end)) else []
    return "\n".join([*(line[:400] for line in telling[-1:]), "\n".join(end)[-900:]])


def applied(path: str, content: str, action: str) -> dict:
    """Have the document made true; return how much was changed, and which queues it no longer has."""
    query = {"apply": "", "prune": "?prune=true", "check": "?dry_run=true"}[action]
    status, done = get(path, f"/v1/document{query}", "PUT", content)
    if status in (404, 405):  # a release of before has no documents; the role stops where one is needed
        return {}
    if status >= 400:
        raise ValueError(f"it refuses the document of its machine: {done.get('detail', status)}")
    return {"changes": sum(step["action"] != "keep" for step in done["steps"]), "left_over": done["left_over"]}


def main() -> None:
    """Wait and apply, and say how it is."""
    path, wanted, seconds, log, *action = sys.argv[1:6]
    content = sys.stdin.read() if action else ""
    began = time.monotonic()
    missing, node = ("", {}) if action == ["check"] else problem(path, wanted)
    while missing and time.monotonic() < began + float(seconds):
        time.sleep(PAUSE)
        missing, node = problem(path, wanted)
    found = {"ready": not missing, "problem": missing, "node": node, "said": said(log) if missing else ""}
    found["seconds"] = round(time.monotonic() - began, 1)
    fault = f"the node is not ready after {found['seconds']} s: {missing}.\nIts log ends with: {found['said'].strip()}"
    if not missing:
        fault = ""
        try:
            found |= applied(path, content, action[0]) if content else {}
        except (OSError, ValueError, http.client.HTTPException) as error:
            fault = f"the node does not take the document of its machine: {error}"
    print(json.dumps(found))
    sys.exit(fault or 0)


main()
