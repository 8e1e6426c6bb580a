"""A whole simulation: draw messages, send them, receive some, and write the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mqenterprise.pipeline.simulation.journeys import NEVER, Journeys, travel
from mqenterprise.pipeline.simulation.network import MICRO, Network, SimulatedQueue
from mqenterprise.pipeline.simulation.queues import stay
from mqenterprise.pipeline.simulation.traffic import Load, Traffic
from mqenterprise.topology.names import fold
from qmnode.errors import ConfigurationError
from qmnode.structures.enumerations import MessageClass

if TYPE_CHECKING:
    from mqenterprise.pipeline.graph import Flags, Integers
    from mqenterprise.topology.declaration import Declaration


@dataclass(slots=True)
class Messages:
    """The sent messages: arrays over messages, in order of time. Times are in microseconds since 1970."""

    load: Integers
    sender: Integers
    queue: Integers
    receiver: Integers
    sent: Integers
    number: Integers
    """Counts the messages of each sender from 1."""
    size: Integers
    deadline: Integers
    patience: Integers
    refused: Flags


@dataclass(slots=True)
class Outcome:
    """The outcome of a simulation: the sent messages and the end of each. NEVER means no time."""

    traffic: Traffic
    network: Network
    loads: tuple[Load, ...]
    queues: tuple[SimulatedQueue, ...]
    messages: Messages
    journeys: Journeys
    reached: Integers
    received: Integers
    died: Integers
    reason: Integers
    died_at: Integers
    died_before: Integers
    horizon: int
    """The end of the simulation: later events have not happened."""


def simulate(declaration: Declaration, traffic: Traffic) -> Outcome:
    """Run it. ConfigurationError if the traffic does not fit the enterprise."""
    random = np.random.default_rng(traffic.seed)
    network = Network(declaration, traffic)
    loads = traffic.loads or tuple(Load(queue=rf"{queue.machine}\{queue.name}") for queue in declaration.public_queues)
    if not loads:
        raise ConfigurationError("there is nothing to send to: declare queues, or loads in the traffic")
    queues = tuple(network.queue(load.queue, traffic.seed) for load in loads)
    messages = _draw(network, traffic, loads, queues, random)
    journeys = travel(network, messages.sender, messages.receiver, messages.sent, messages.deadline, random)
    outcome = Outcome(
        traffic,
        network,
        loads,
        queues,
        messages,
        journeys,
        journeys.arrived.copy(),
        np.full_like(messages.sent, NEVER),
        journeys.died.copy(),
        np.where(journeys.died < NEVER, MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT, -1),
        journeys.died_at.copy(),
        journeys.died_before.copy(),
        network.start + traffic.seconds * MICRO,
    )
    _refuse(outcome)
    _receive(outcome)
    return outcome


def _draw(
    network: Network,
    traffic: Traffic,
    loads: tuple[Load, ...],
    queues: tuple[SimulatedQueue, ...],
    random: np.random.Generator,
) -> Messages:
    count = traffic.messages
    weights = np.array([load.weight for load in loads])
    load = random.choice(len(loads), count, p=weights / weights.sum())
    sent = network.start + np.sort(random.integers(0, traffic.seconds * MICRO, count))
    sender = np.empty(count, dtype=np.int64)
    for index, one in enumerate(loads):
        names = one.senders or [name for name in network.names if network.machine(name) != queues[index].machine]
        if not names:
            raise ConfigurationError(f"nobody sends to {one.queue}: name the senders")
        mine = np.flatnonzero(load == index)
        sender[mine] = np.array([network.machine(name) for name in names])[random.integers(0, len(names), len(mine))]
    order = np.argsort(sender, kind="stable")
    first = np.searchsorted(sender[order], np.arange(len(network.names)))
    number = np.empty(count, dtype=np.int64)
    number[order] = np.arange(count) - first[sender[order]] + 1

    def of_load(values: list[int]) -> Integers:
        return np.array(values, dtype=np.int64)[load]

    size = of_load([one.size[0] for one in loads])
    size += (random.random(count) * (of_load([one.size[1] for one in loads]) - size + 1)).astype(np.int64)
    reach = of_load([(one.time_to_reach_queue or 0) * MICRO for one in loads])
    wait = of_load([(one.time_to_be_received or 0) * MICRO for one in loads])
    return Messages(
        load,
        sender,
        _same_queues(queues)[load],
        np.array([queue.machine for queue in queues], dtype=np.int64)[load],
        sent,
        number,
        size,
        np.where(reach > 0, sent + reach, NEVER),
        np.where(wait > 0, wait, NEVER),
        random.random(count) < np.array([one.refused for one in loads])[load],
    )


def _same_queues(queues: tuple[SimulatedQueue, ...]) -> Integers:
    """Return, for each load, the first load to the same queue, which identifies the queue."""
    first: dict[str, int] = {}
    return np.array([first.setdefault(queue.identifier, index) for index, queue in enumerate(queues)], dtype=np.int64)


def _refuse(outcome: Outcome) -> None:
    """Refuse messages that their queue does not accept on arrival."""
    missing = np.array([not queue.declared for queue in outcome.queues])[outcome.messages.queue]
    arrived = outcome.reached < NEVER
    for which, reason in (
        (arrived & missing, MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q),
        (arrived & ~missing & outcome.messages.refused, MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED),
    ):
        _not_taken(outcome, np.flatnonzero(which), reason)


def _not_taken(outcome: Outcome, which: Integers, reason: int) -> None:
    outcome.died[which] = outcome.reached[which]
    outcome.reached[which] = NEVER
    outcome.reason[which] = reason
    outcome.died_at[which] = outcome.messages.receiver[which]


def _receive(outcome: Outcome) -> None:
    messages, traffic = outcome.messages, outcome.traffic
    paces = {fold(receiver.queue): receiver.per_second for receiver in traffic.receivers}
    if unknown := paces.keys() - {fold(queue.path) for queue in outcome.queues}:
        raise ConfigurationError(f"the traffic has a receiver for {min(unknown)}, which no load sends to")
    present = outcome.reached < NEVER
    for index in np.unique(messages.queue[present]).tolist():
        queue = outcome.queues[index]
        mine = np.flatnonzero(present & (messages.queue == index))
        mine = mine[np.lexsort((messages.number[mine], messages.sender[mine], outcome.reached[mine]))]
        pace = paces.get(fold(queue.path), traffic.per_second)
        pause = round(MICRO / pace) if pace else None
        arrivals = outcome.reached[mine]
        there = stay(arrivals, messages.size[mine], messages.patience[mine], pause, queue.quota)
        outcome.received[mine] = there.received
        expired = there.expired < NEVER
        outcome.died[mine[expired]] = there.expired[expired]
        outcome.reason[mine[expired]] = MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT
        outcome.died_at[mine[expired]] = queue.machine
        _not_taken(outcome, mine[there.full], MessageClass.MQMSG_CLASS_NACK_Q_EXCEED_QUOTA)
