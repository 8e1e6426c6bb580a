"""Private queues one by one, at their nodes: values that are not given stay as they are."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mqenterprise.operations.errors import NodeError
from mqenterprise.operations.machine_documents import present_documents
from mqenterprise.operations.nodes import connected
from mqenterprise.topology.names import fold
from qmnode.objects.table import PRIVATE_QUEUE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mqenterprise.operations.node_client import NodeClient
    from mqenterprise.operations.nodes import Node
    from mqenterprise.operations.settings import OperationsSettings

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


def bring_queue(
    settings: OperationsSettings, node: Node, name: str, given: Mapping[str, Any], *, dry_run: bool
) -> Change:
    """Give a queue these values; a new one gets the defaults of the others. Raises :class:`NodeError`."""

    async def bring(client: NodeClient) -> Change:
        before = await _present(client, name)
        kept = {key: value for key, value in (before or {"name": name}).items() if key != "access"}
        document = {"queues": [kept | dict(given)]}
        answer = await client.apply_document(
            document, prune=False, with_messages=False, dry_run=dry_run, declares=False
        )
        changes = {key: change["to"] for step in answer.steps for key, change in step.changes.items()}
        if before is None:
            return Change(None, _complete(client.machine, {"name": name} | changes))
        present = _complete(client.machine, before)
        return Change(present, present | changes)

    return _at(settings, node, bring)


def remove_queue(settings: OperationsSettings, node: Node, name: str, *, with_messages: bool, dry_run: bool) -> Change:
    """Delete a queue, with messages only on request. Raises :class:`NodeError`."""

    async def remove(client: NodeClient) -> Change:
        before = await _present(client, name)
        if before is None:
            return Change(None, None)
        held = await _held(client, before["name"])
        if held and not with_messages:
            raise HoldsMessagesError(
                f"private$\\{before['name']} holds {held} message{'s' if held != 1 else ''}: receive the messages "
                "first, or say with_messages"
            )
        if not dry_run:
            await client.delete_queue(before["name"])
        return Change(_complete(client.machine, before), None)

    return _at(settings, node, remove)


async def _present(client: NodeClient, name: str) -> Item | None:
    queues = (await client.document(everything=True)).queues
    return next((queue for queue in queues if fold(queue["name"]) == fold(name)), None)


async def _held(client: NodeClient, name: str) -> int:
    """The messages of a queue, its journal and its subqueues."""
    queue = await client.queue(f".\\private$\\{name}")
    parts = [await client.queue(f".\\private$\\{name};{part}") for part in queue.subqueues]
    return queue.message_count + queue.journal_message_count + sum(part.message_count for part in parts)


def _complete(machine: str, queue: Mapping[str, Any]) -> Item:
    return {"machine": machine, "name": queue["name"], "private": True} | _DEFAULTS | dict(queue)


def _at(settings: OperationsSettings, node: Node, work: Any) -> Change:
    async def there() -> Change:
        async with connected(settings, [node]) as (client,):
            change: Change = await work(client)
            return change

    return asyncio.run(there())
