# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Shared by the modules for queues: private ones, which no directory holds, at their nodes."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

try:
    from mqenterprise.operations.errors import NodeError
    from mqenterprise.operations.nodes import chosen_nodes
    from mqenterprise.operations.private_queues import bring_queue, list_queues, remove_queue
    from mqenterprise.operations.settings import load_settings
except ImportError:
    pass  # told by EnterpriseModule.run

NODES = {"private": {"type": "bool", "default": False}, "nodes_file": {"type": "path"}}


def _nodes(directory, file, machines):
    settings = load_settings(Path(file) if file else None)
    return settings, chosen_nodes(settings, lambda: nullcontext(directory), machines=machines, site=None)


def private_queue(directory, given, said, check):
    """The change of one private queue."""
    settings, (node,) = _nodes(directory, given["nodes_file"], [given["machine"]])
    try:
        if given["state"] == "absent":
            return remove_queue(settings, node, given["name"], with_messages=given["with_messages"], dry_run=check)
        values = {name: value for name, value in said.items() if name not in ("machine", "name")}
        return bring_queue(settings, node, given["name"], values, dry_run=check)
    except NodeError as error:
        raise NodeError(f"{given['machine']}: {error.sentence}") from None


def private_queues(directory, given):
    """All private queues of the machine, or of all nodes of the directory."""
    machine = given["machine"]
    settings, nodes = _nodes(directory, given["nodes_file"], () if machine is None else [machine])
    found, errors = list_queues(settings, nodes)
    if errors:
        raise NodeError("\n".join(f"{name}: {error.sentence}" for name, error in sorted(errors.items())))
    return found
