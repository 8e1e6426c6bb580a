"""Check a node's settings on the controller, as the node does when it starts.

Standard input is one JSON document with ``settings``, ``tokens`` and the ``document`` of the machine. Exit code 1 with
all that is wrong.
"""

import json
import socket
import sys
import tempfile
from pathlib import Path

from qmnode.administration.document_faults import DocumentFault
from qmnode.administration.local_settings import read_local
from qmnode.management.tokens import Tokens
from qmnode.settings.node import ConfigurationError, read_settings


def check(folder: Path, settings: dict, tokens: list) -> None:
    """ConfigurationError when the node would not start with these."""
    written = folder / "node.yaml"
    written.write_text(json.dumps(settings))
    listen = read_settings(written).management.listen
    if not listen:
        return
    host, port = listen.rpartition(":")[::2]
    try:
        socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"management.listen: {listen!r} is not ADDRESS:PORT: {error}") from error
    file = folder / "tokens.yaml"
    file.touch(mode=0o600)
    file.write_text(json.dumps(tokens))
    Tokens(file)


def fault_of(given: dict) -> str:
    """Return all that is wrong; empty if the node would start."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            check(Path(folder), given["settings"], given["tokens"])
            read_local(given.get("document"))  # its queues have accounts of the host, which the node alone knows
        except DocumentFault as fault:
            return f"the document of the machine: {fault.where}: {fault.sentence_alone}"
        except ConfigurationError as error:
            # The line of a file that is written here says nothing to those who set the variables.
            return str(error).replace(f"{folder}/node.yaml:1:", "node.yaml:").replace(f"{folder}/", "")
    return ""


if __name__ == "__main__":
    sys.exit(fault_of(json.load(sys.stdin)) or 0)
