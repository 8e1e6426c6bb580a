# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Shared by the modules that carry and switch queues: how a carry reads, and the node that it brings messages to."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path

try:
    import typer

    from mqenterprise.operations.carrying import CarryOptions
    from mqenterprise.operations.errors import OperationsError
    from mqenterprise.operations.nodes import chosen_nodes, connected
    from mqenterprise.operations.settings import load_settings
    from qmnode.commands.remote import RemoteTarget
except ImportError:
    pass  # told by EnterpriseModule.run

CARRYING = {
    "source": {"type": "str", "required": True},
    "node": {"type": "str", "required": True},
    "rate": {"type": "float", "default": 0.0},
    "follow": {"type": "float", "default": 0.0},
    "patience": {"type": "float", "default": 60.0},
    "sole_reader": {"type": "bool", "default": False},
    "drop": {"type": "list", "elements": "str", "default": [], "no_log": False},
    "user": {"type": "str", "default": ""},
    "password_file": {"type": "path", "no_log": False},
    "nodes_file": {"type": "path"},
}


def source_of(given):
    """The machine to carry from, with the account. OperationsError for options that do not fit together."""
    file = given["password_file"]
    try:
        return RemoteTarget.parse(given["source"], given["user"], Path(file) if file else None)
    except typer.BadParameter as error:
        raise OperationsError(error.message) from None


def options_of(given, **more):
    """The options of a carry."""
    names = ("rate", "follow", "patience", "sole_reader")
    return CarryOptions(**{name: given[name] for name in names}, drop=frozenset(given["drop"]), **more)


def at_node(directory, given, work):
    """Do something with the client of the node, and return what comes of it."""
    file = given["nodes_file"]
    settings = load_settings(Path(file) if file else None)
    nodes = chosen_nodes(settings, lambda: nullcontext(directory), machines=[given["node"]], site=None)

    async def there():
        async with connected(settings, nodes) as (client,):
            return await work(client)

    return asyncio.run(there())
