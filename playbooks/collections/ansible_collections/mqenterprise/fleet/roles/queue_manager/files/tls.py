"""Whether this host's node can change its mode of TLS with others, or has changed it.

Arguments: its management socket, ``look`` or ``wait``, and a JSON document: the ``mode`` to come, ``peers``
(identifiers of the nodes that must not speak in clear any more, with their hosts) and ``seconds`` to wait. ``look``
prints one JSON document with the ``fault``, empty if there is none; ``wait`` fails with it.
"""

import http.client
import json
import socket
import sys
import time

PAUSE = 0.2
LOOK = 20.0
"""Seconds that sessions in clear have to become TLS."""


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


def get(path: str, resource: str) -> dict:
    """The document of a resource."""
    node = Node(path)
    try:
        node.request("GET", resource)
        return json.loads(node.getresponse().read())
    finally:
        node.close()


def in_clear(path: str, peers: dict) -> list[str]:
    """Hosts of ``peers`` with which the node has a session that is not TLS."""
    found = get(path, "/v1/connections")["connections"]
    plain = (one["queue_manager_identifier"] or "" for one in found if one["state"] == "open" and not one["encrypted"])
    return sorted({peers[each.lower()] for each in plain if each.lower() in peers})


def unready(path: str, asked: dict) -> str:
    """Why the node cannot change to the mode; empty if it can."""
    node = get(path, "/v1/node")
    if "tls_mode" not in node:
        return (
            f"its release, {node['version']}, has no modes of TLS: run upgrade.yml first, or leave it out with --limit"
        )
    if asked["mode"] != "require" or node["tls_mode"] == "require":
        return ""
    if node["tls_mode"] != "prefer":
        return "it does not prefer TLS yet: run this playbook with queue_manager_tls=prefer first"
    plain = in_clear(path, asked["peers"])
    if plain:
        return (
            f"it still speaks in clear with {', '.join(plain)}: have them in mode prefer, look at their logs, or "
            "declare them in queue_manager_plain_peers"
        )
    return ""


def unchanged(path: str, asked: dict) -> str:
    """Why the node is not in the mode; empty if it is."""
    node = get(path, "/v1/node")
    refused = [each for each in node["warnings"] if each.startswith("TLS:")]
    if refused:
        return refused[0]
    return "" if node["tls_mode"] == asked["mode"] else f"it is in mode {node['tls_mode'] or 'none'}"


def main() -> None:
    """Print or exit with the fault, once the time to wait is over."""
    path, action, text = sys.argv[1:4]
    asked = json.loads(text)
    until = time.monotonic() + (LOOK if action == "look" else asked["seconds"])
    work = unready if action == "look" else unchanged
    while True:
        try:
            fault = work(path, asked)
        except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
            fault = f"the node does not answer ({error}): see that it runs"
        if not fault or time.monotonic() > until or "upgrade.yml" in fault or "does not prefer" in fault:
            break
        time.sleep(PAUSE)
    if action == "wait":
        sys.exit(fault or 0)
    print(json.dumps({"fault": fault}))


main()
