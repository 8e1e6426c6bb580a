"""Wait until the node of this host is ready, and print how it is as one JSON document.

Arguments: its management socket, the identifier that the directory has for it (or nothing), seconds, and where its log
is (a file, or ``journal``).
"""

import http.client
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

PAUSE = 0.2
SERVICE_MANAGER = ("qmnode.service:", "Started ", "Starting ", "Stopped ", "Stopping ", "Failed to start ")


class Node(http.client.HTTPConnection):
    """The node, over its Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("node", timeout=10)
        self._path = path

    def connect(self) -> None:
        """Instead of a host and a port."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(10)
        self.sock.connect(self._path)


def get(path: str, resource: str) -> tuple[int, dict]:
    """Status and document of a resource."""
    node = Node(path)
    try:
        node.request("GET", resource)
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


def main() -> None:
    """Wait, and say how it is."""
    path, wanted, seconds, log = sys.argv[1:5]
    began = time.monotonic()
    missing, node = problem(path, wanted)
    while missing and time.monotonic() < began + float(seconds):
        time.sleep(PAUSE)
        missing, node = problem(path, wanted)
    found = {"ready": not missing, "problem": missing, "node": node, "said": said(log) if missing else ""}
    print(json.dumps(found | {"seconds": round(time.monotonic() - began, 1)}))


main()
