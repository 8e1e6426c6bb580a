"""The documents of many machines at their nodes: what is to change, made true, and read back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from mqenterprise.operations.errors import NodeError
from mqenterprise.operations.many import each
from mqenterprise.operations.nodes import connected, declared_nodes
from mqenterprise.topology.machine_documents import machine_document
from mqenterprise.topology.names import fold

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AbstractContextManager

    from mqenterprise.directory.service import EnterpriseDirectory
    from mqenterprise.operations.node_client import NodeClient
    from mqenterprise.operations.nodes import Node
    from mqenterprise.operations.settings import OperationsSettings
    from mqenterprise.topology.declaration import Declaration
    from qmnode.management.machine_document_routes import DocumentChanges, MachineDocument

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AtNode:
    """The changes by one machine's document, or why its node did not name any."""

    machine: str
    declared: int
    """The number of private queues and bridges that the machine should have, and 1 for its addresses."""
    changes: DocumentChanges | None
    error: NodeError | None = None

    @property
    def differences(self) -> int:
        """The number of things that are to be created, changed or deleted, or were."""
        return 0 if self.changes is None else sum(step.action != "keep" for step in self.changes.steps)

    @property
    def is_unknown(self) -> bool:
        """Whether the node of a machine whose document is not empty did not answer."""
        return self.error is not None and self.declared > 0

    def document(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        changes = {} if self.changes is None else self.changes.model_dump(mode="json", exclude={"dry_run"})
        return {"machine": self.machine, **changes, "error": None if self.error is None else self.error.sentence}


def bring_documents(
    settings: OperationsSettings,
    directory: Callable[[], AbstractContextManager[EnterpriseDirectory]],
    declaration: Declaration,
    *,
    prune: bool = False,
    with_messages: bool = False,
    dry_run: bool,
) -> list[AtNode]:
    """Bring its document to the node of each machine, or ask what that would change. By machine.

    Nodes of machines with an empty document are asked as well: they may have what is declared no longer.
    Raises :class:`OperationsError`.
    """
    nodes = declared_nodes(settings, directory, declaration)
    documents = {node.machine: machine_document(declaration, node.machine) for node in nodes}

    async def bring(client: NodeClient) -> DocumentChanges:
        document = documents[client.machine]
        return await client.apply_document(document, prune=prune, with_messages=with_messages, dry_run=dry_run)

    def result(client: NodeClient, answer: DocumentChanges | NodeError) -> AtNode:
        document = documents[client.machine]
        declared = len(document["queues"]) + len(document["bridges"]) + bool(document["addresses"])
        if isinstance(answer, NodeError):
            return AtNode(client.machine, declared, None, answer)
        return AtNode(client.machine, declared, answer)

    found = asyncio.run(_asked(settings, nodes, bring))
    return sorted((result(*one) for one in found), key=lambda one: fold(one.machine))


def present_documents(
    settings: OperationsSettings, nodes: Sequence[Node]
) -> list[tuple[NodeClient, MachineDocument | NodeError]]:
    """Return the document of each node with all that it has, or why it did not answer."""

    async def read(client: NodeClient) -> MachineDocument:
        return await client.document(everything=True)

    return sorted(asyncio.run(_asked(settings, nodes, read)), key=lambda one: fold(one[0].machine))


async def _asked(
    settings: OperationsSettings, nodes: Sequence[Node], work: Callable[[NodeClient], Awaitable[T]]
) -> list[tuple[NodeClient, T | NodeError]]:
    async with connected(settings, nodes) as clients:
        return [answer async for answer in each(clients, work, settings.concurrency)]
