# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Shared by the modules for queues: private ones, which no directory holds, at their nodes."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

try:
    from mqenterprise.operations.errors import NodeError
    from mqenterprise.operations.machine_documents import bring_queues, list_queues, remove_queues
    from mqenterprise.operations.nodes import chosen_nodes
    from mqenterprise.operations.settings import load_settings
    from mqenterprise.topology.names import fold
    from mqenterprise.topology.some_objects import Change
except ImportError:
    pass  # told by EnterpriseModule.run


_NAMING = ("machine", "name", "private", "state")


def _nodes(directory, file, machines):
    settings = load_settings(Path(file) if file else None)
    return settings, chosen_nodes(settings, lambda: nullcontext(directory), machines=machines, site=None)


def private_queue_changes(directory, given, objects, check):
    """Make the changes of private queues at their nodes, or foresee them; in the order of the objects."""
    groups = {}
    names = set()
    for item in objects:
        machine, name = fold(item["machine"]), fold(item["name"])
        if (machine, name) in names:
            raise NodeError(f"{item['machine']} - {item['name']}: it is there twice: say what holds once")
        names.add((machine, name))
        groups.setdefault((machine, item["state"]), []).append(item)
    settings, nodes = _nodes(directory, given["nodes_file"], sorted({item["machine"] for item in objects}, key=fold))
    by_name = {fold(node.machine): node for node in nodes}
    changes = {}
    for (machine, state), items in groups.items():
        values = {item["name"]: {key: item[key] for key in item if key not in _NAMING} for item in items}
        try:
            if state == "absent":
                options = {"with_messages": given["with_messages"], "dry_run": check}
                done = remove_queues(settings, by_name[machine], list(values), **options)
            else:
                done = bring_queues(settings, by_name[machine], values, dry_run=check)
        except NodeError as error:
            raise NodeError(f"{items[0]['machine']}: {error.sentence}") from None
        for item, change in zip(items, done, strict=True):
            name = (item["machine"], item["name"])
            changes[machine, item["name"]] = Change(name, change.before, change.after, change.changed)
    return [changes[fold(item["machine"]), item["name"]] for item in objects]


def private_queues(directory, given):
    """All private queues of the machine, or of all nodes of the directory."""
    machine = given["machine"]
    settings, nodes = _nodes(directory, given["nodes_file"], () if machine is None else [machine])
    found, errors = list_queues(settings, nodes)
    if errors:
        raise NodeError("\n".join(f"{name}: {error.sentence}" for name, error in sorted(errors.items())))
    return found
