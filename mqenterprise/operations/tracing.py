"""The way of a message over nodes, asked live: its places in order of time, what is unknown, and what it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from mqenterprise.operations.errors import NodeError
from mqenterprise.operations.nodes import each

if TYPE_CHECKING:
    from datetime import datetime

    from mqenterprise.operations.node_client import NodeClient
    from qmnode.management.documents import WaitingDocument
    from qmnode.management.operation_routes import TraceDocument

ANSWER_SECONDS: Final = 1.5
"""Seconds that each node has to answer: those that do not are down for this question."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a node knows of the message."""

    time: datetime | None
    machine: str
    text: str
    message: str
    """Identifier of the message, as far as the node says it."""
    label: str = ""
    reason: str = ""
    """The reason why it waits there, or why it is a dead letter; empty if nothing keeps it."""


@dataclass(slots=True)
class Way:
    """The steps in order of time; those without a time come last."""

    steps: list[Step] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)
    """By machine: what it could not say, and why."""
    source: str = ""
    """The machine that sent the message."""
    reached: str = ""
    """The last machine on the way that has it, or took it."""

    def add_unrecorded(self, path: Sequence[str]) -> None:
        """Add the machines between the source and the last one, by the directory, that keep nothing of the message."""
        known = {step.machine.casefold() for step in self.steps} | {name.casefold() for name in self.unknown}
        text = "passed, not recorded: on the way by the directory, and nodes on the way keep no entry"
        passed = [Step(None, name, text, "") for name in path[1:-1] if name.casefold() not in known]
        end = next((place for place, step in enumerate(self.steps) if step.machine == self.reached), len(self.steps))
        self.steps[end:end] = passed

    def as_json(self) -> dict[str, Any]:
        """The way as plain values."""
        steps = [asdict(one) | {"time": one.time and one.time.isoformat()} for one in self.steps]
        return {"steps": steps, "waits": [one for one in steps if one["reason"]], "unknown": self.unknown}


async def way(
    clients: Sequence[NodeClient], criteria: Mapping[str, str], concurrency: int, seconds: float = ANSWER_SECONDS
) -> Way:
    """Ask the nodes for a message; ``criteria`` are ``message``, ``label`` and ``correlation``."""
    found = Way()

    async def ask(client: NodeClient) -> TraceDocument:
        try:
            async with asyncio.timeout(seconds):
                return await client.trace(criteria)
        except TimeoutError:
            raise NodeError(f"no answer within {seconds:g} s", unavailable=True) from None

    async for client, answer in each(clients, ask, concurrency):
        if isinstance(answer, NodeError):
            found.unknown[client.machine] = answer.sentence
        else:
            _add(found, client.machine, answer, criteria.get("message", ""))
    found.steps.sort(key=lambda step: (step.time is None, step.time.timestamp() if step.time else 0.0, step.machine))
    return found


def _add(found: Way, machine: str, answer: TraceDocument, message: str) -> None:
    for report in answer.reports:
        text = f"sent to {report.next_hop} after {report.hops} hops" if report.next_hop else "arrived"
        found.steps.append(Step(report.time, report.machine, f"reported: {text}", report.message))
    for place in answer.places:
        found.steps.append(Step(place.arrived, machine, place.text(), place.identifier, place.label, place.reason))
    if not answer.places and answer.began:
        found.steps.append(Step(None, machine, "sent it; no copy is kept", message))
    elif not answer.places and answer.passed:
        text = "took it within half an hour; it went on or was received, and no copy is kept"
        found.steps.append(Step(None, machine, text, message))
    if answer.began or not found.source:
        found.source = machine if answer.began else next((place.source for place in answer.places), "")
    roles = {place.role for place in answer.places}
    if answer.passed or "queue" in roles or ("outgoing" in roles and not (answer.began or found.reached)):
        found.reached = machine
    faults = []
    if not answer.complete:
        faults.append(f"only {answer.scanned:,} messages were looked at in the time for it")
    if answer.refused:
        faults.append(f"{answer.refused} queues may not be read")
    if faults:
        found.unknown[machine] = "; ".join(faults)


@dataclass(frozen=True, slots=True)
class Present:
    """The reasons of one machine, or why it gives none."""

    waiting: tuple[WaitingDocument, ...] = ()
    unknown: str = ""


async def present(
    clients: Sequence[NodeClient], path: Sequence[str], concurrency: int, seconds: float = ANSWER_SECONDS
) -> dict[str, Present]:
    """Ask the nodes of a way why messages to the next and to the last machine of the ``path`` wait. By machine."""
    names = [name.casefold() for name in path]
    after = dict(zip(names, path[1:], strict=False))

    async def ask(client: NodeClient) -> Present:
        itself = client.machine.casefold()
        others = {after[itself], path[-1]} if itself in after else set()
        try:
            async with asyncio.timeout(seconds):
                own, *of_others = await asyncio.gather(*map(client.waiting, (client.machine, *sorted(others))))
        except TimeoutError:
            raise NodeError(f"no answer within {seconds:g} s", unavailable=True) from None
        # Of its own reasons, those of the whole node stop every message; those of its queues, the messages to it.
        whole = [one for one in own.waiting if not one.queue or (not others and one.machine.casefold() == itself)]
        found = {one.queue: one for one in (*whole, *(one for answer in of_others for one in answer.waiting))}
        return Present(tuple(found.values()))

    answers = {
        client.machine.casefold(): Present(unknown=answer.sentence) if isinstance(answer, NodeError) else answer
        async for client, answer in each(clients, ask, concurrency)
    }
    return {name: answers[name.casefold()] for name in path if name.casefold() in answers}
