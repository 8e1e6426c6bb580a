"""The documents of many machines at their nodes: what is to change, made true, and read back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mqenterprise.operations.errors import NodeError
from mqenterprise.operations.nodes import connected, declared_nodes, each
from mqenterprise.topology.declaration import machine_document
from mqenterprise.topology.names import fold
from qmnode.objects.table import PRIVATE_QUEUE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from mqenterprise.directory.open_directory import EnterpriseDirectory
    from mqenterprise.operations.node_client import NodeClient
    from mqenterprise.operations.nodes import Node
    from mqenterprise.operations.settings import OperationsSettings
    from mqenterprise.topology.declaration import Declaration
    from qmnode.management.machine_document_routes import DocumentChanges, MachineDocument

Item = dict[str, Any]
"""A private queue in the form of a declaration."""
_DEFAULTS: Final = {row.name: row.form.write(row.default) for row in PRIVATE_QUEUE.values()}


class HoldsMessagesError(NodeError):
    """A queue with messages is deleted only on request."""


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one queue, done or only planned; None where there is no queue."""

    before: Item | None
    after: Item | None

    @property
    def changed(self) -> bool:
        return self.before != self.after


def list_queues(settings: OperationsSettings, nodes: Sequence[Node]) -> tuple[list[Item], dict[str, NodeError]]:
    """Return all private queues of nodes, by machine and name, and the errors of nodes that did not name theirs."""
    found: list[Item] = []
    errors: dict[str, NodeError] = {}
    for client, answer in present_documents(settings, nodes):
        if isinstance(answer, NodeError):
            errors[client.machine] = answer
        else:
            found += (_complete(client.machine, queue) for queue in answer.queues)
    return sorted(found, key=lambda item: (fold(item["machine"]), fold(item["name"]))), errors


def bring_queues(
    settings: OperationsSettings, node: Node, given: Mapping[str, Mapping[str, Any]], *, dry_run: bool
) -> list[Change]:
    """Give queues these values, by name; a new one gets the defaults of the others. Raises :class:`NodeError`."""

    async def bring(client: NodeClient) -> list[Change]:
        present = await _present(client)
        document: list[Item] = []
        for name, values in given.items():
            before = present.get(fold(name), {"name": name})
            document.append({key: value for key, value in before.items() if key != "access"} | dict(values))
        answer = await client.apply_document(
            {"queues": document}, prune=False, with_messages=False, dry_run=dry_run, declares=False
        )
        changed = {
            fold(step.queue): {key: change["to"] for key, change in step.changes.items()} for step in answer.steps
        }
        found = []
        for name in given:
            changes = changed.get(fold(name), {})
            if fold(name) in present:
                complete = _complete(client.machine, present[fold(name)])
                found.append(Change(complete, complete | changes))
            else:
                found.append(Change(None, _complete(client.machine, {"name": name} | changes)))
        return found

    return _at(settings, node, bring)


def remove_queues(
    settings: OperationsSettings, node: Node, names: Sequence[str], *, with_messages: bool, dry_run: bool
) -> list[Change]:
    """Delete queues, with messages only on request: all of them or, of a queue with messages, none.

    Raises :class:`NodeError`.
    """

    async def remove(client: NodeClient) -> list[Change]:
        present = await _present(client)
        leaving = {name: present.get(fold(name)) for name in names}
        for before in leaving.values():
            held = 0 if before is None or with_messages else await _held(client, before["name"])
            if before is not None and held:
                raise HoldsMessagesError(
                    f"private$\\{before['name']} holds {held} message{'s' if held != 1 else ''}: receive the messages "
                    "first, or say with_messages"
                )
        for before in leaving.values():
            if before is not None and not dry_run:
                await client.delete_queue(before["name"])
        found = (None if before is None else _complete(client.machine, before) for before in leaving.values())
        return [Change(before, None) for before in found]

    return _at(settings, node, remove)


async def _present(client: NodeClient) -> dict[str, Item]:
    return {fold(queue["name"]): queue for queue in (await client.document(everything=True)).queues}


async def _held(client: NodeClient, name: str) -> int:
    """The messages of a queue, its journal and its subqueues."""
    queue = await client.queue(f".\\private$\\{name}")
    parts = [await client.queue(f".\\private$\\{name};{part}") for part in queue.subqueues]
    return queue.message_count + queue.journal_message_count + sum(part.message_count for part in parts)


def _complete(machine: str, queue: Mapping[str, Any]) -> Item:
    return {"machine": machine, "name": queue["name"], "private": True} | _DEFAULTS | dict(queue)


def _at(settings: OperationsSettings, node: Node, work: Any) -> list[Change]:
    async def there() -> list[Change]:
        async with connected(settings, [node]) as (client,):
            changes: list[Change] = await work(client)
            return changes

    return asyncio.run(there())


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
