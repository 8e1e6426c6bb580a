"""The documents of machines: what a declaration says of them and no directory holds.

A node makes its document true: ``qmnode apply``, :mod:`qmnode.administration.machine_documents`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from mqenterprise.topology.names import fold

if TYPE_CHECKING:
    from mqenterprise.topology.declaration import Declaration, Queue

_KNOWN_TO_NODES: Final = re.compile(
    r"s-1-[0-9-]+|(user|group|uid|gid):.+|everyone|anonymous|authenticated-users|administrators|users|system|local|network"
)


def path_of(queue: Queue) -> str:
    """The path name of a declared queue (MS-MQMQ 2.1.1)."""
    return f"{queue.machine}\\{'private$' + chr(92) if queue.private else ''}{queue.name}"


def is_known_to_nodes(who: str) -> bool:
    """Whether a node can tell whom an entry of an access list means, without a directory."""
    return _KNOWN_TO_NODES.fullmatch(fold(who)) is not None


def machine_document(declaration: Declaration, machine: str) -> dict[str, Any]:
    """The document of one machine, with the values that are declared."""
    machines = (one for one in declaration.machines if fold(one.name) == fold(machine))
    return {
        "addresses": [address for one in machines for address in one.addresses],
        "bridges": {one.name: one.settings for one in declaration.bridges if fold(one.machine) == fold(machine)},
        "queues": [
            queue.model_dump(mode="json", exclude_unset=True, exclude={"machine", "private"})
            for queue in declaration.queues
            if queue.private and fold(queue.machine) == fold(machine)
        ],
    }
