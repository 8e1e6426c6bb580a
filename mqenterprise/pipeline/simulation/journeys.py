"""Messages on their way: all of them at once, one hop per round, as arrays over messages.

A machine sends directly to a machine of its own site, and otherwise to its site's router. A router sends to the router
of the next site on the least-cost path over the links that are up; without a path, the message waits until that
changes. A message whose time to reach its queue ends before it would arrive at the next machine dies at that moment,
where it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from qmnode.errors import ConfigurationError

if TYPE_CHECKING:
    from mqenterprise.pipeline.graph import Integers
    from mqenterprise.pipeline.simulation.network import Network

NEVER = np.int64(1) << 62
"""A time that never comes: later than all others."""


@dataclass(slots=True)
class Hop:
    """Messages that went from ``tail`` to ``head`` in the same round, and arrived there at ``time``."""

    message: Integers
    tail: Integers
    head: Integers
    time: Integers
    count: Integers


@dataclass(slots=True)
class Journeys:
    """The end of each message: the arrival at its destination, or the time and place of its death and the next hop."""

    arrived: Integers
    died: Integers
    died_at: Integers
    died_before: Integers
    hops: list[Hop] = field(default_factory=list)


def travel(
    network: Network,
    sender: Integers,
    receiver: Integers,
    sent: Integers,
    deadline: Integers,
    random: np.random.Generator,
) -> Journeys:
    """Send messages from machine to machine. ``deadline`` (NEVER: none) is the latest arrival of each."""
    total = len(sender)
    never, nowhere = np.full(total, NEVER), np.full(total, -1, dtype=np.int64)
    journeys = Journeys(never, never.copy(), nowhere, nowhere.copy())
    moving = np.arange(total)
    place, time, count = sender.copy(), sent.copy(), np.zeros(total, dtype=np.int64)
    while True:
        there = place[moving] == receiver[moving]
        journeys.arrived[moving[there]] = time[moving[there]]
        moving = moving[~there]
        if not len(moving):
            return journeys
        head, link, usual = _next(network, place[moving], receiver[moving], time[moving])
        waits = head < 0
        moment = time[moving]
        moment[waits] = _next_change(network, moment[waits])
        arrival = np.where(waits, moment, moment + _delays(network, link, random))
        late = (arrival > deadline[moving]) | (waits & (arrival >= NEVER))
        expired = late & (deadline[moving] < NEVER)
        lost = moving[expired]
        journeys.died[lost] = deadline[lost]
        journeys.died_at[lost] = place[lost]
        journeys.died_before[lost] = np.where(waits, usual, head)[expired]
        goes = ~late & ~waits
        gone = moving[goes]
        count[gone] += 1
        journeys.hops.append(Hop(gone, place[gone].copy(), head[goes], arrival[goes], count[gone].copy()))
        place[gone] = head[goes]
        time[moving[~late]] = arrival[~late]
        moving = moving[~late]


def _next(network: Network, place: Integers, receiver: Integers, time: Integers) -> tuple[Integers, Integers, Integers]:
    """Return the next machine (-1: none now), the link to it, and the machine that would be next with all links up."""
    here, there = network.site_of[place], network.site_of[receiver]
    router = network.router_of[here]
    epoch = np.searchsorted(network.boundaries, time, side="right")
    site = network.next_site[epoch, here, there]
    usual_site = network.usual_next_site[here, there]
    if ((here != there) & ((router < 0) | ((place == router) & (usual_site < 0)))).any():
        stuck = np.flatnonzero((here != there) & ((router < 0) | (usual_site < 0)))[0]
        raise ConfigurationError(
            f"no way from {network.sites[here[stuck]]} to {network.sites[there[stuck]]}: "
            "declare a routing server in each site, and routing links"
        )
    crossing = (here != there) & (place == router)
    head = np.where(here == there, receiver, router)
    head = np.where(crossing, np.where(site >= 0, network.router_of[site], -1), head)
    usual = np.where(crossing, network.router_of[usual_site], head)
    link = np.where(crossing, network.link_of[here, site], network.within_site)
    if (crossing & (site >= 0) & (head < 0)).any():
        lacking = network.sites[site[crossing & (site >= 0) & (head < 0)][0]]
        raise ConfigurationError(f"site {lacking} has no routing server to pass messages on; declare one")
    return head, link, usual


def _next_change(network: Network, time: Integers) -> Integers:
    """Return the time at which the next link goes down or up."""
    changes = np.append(network.boundaries, NEVER)
    following: Integers = changes[np.searchsorted(network.boundaries, time, side="right")]
    return following


def _delays(network: Network, link: Integers, random: np.random.Generator) -> Integers:
    behaviours = network.behaviours
    lost = random.geometric(1 - behaviours.loss[link]) - 1
    jitter = (random.random(len(link)) * (behaviours.jitter[link] + 1)).astype(np.int64)
    # A message never arrives in the microsecond in which it left.
    delays: Integers = np.maximum(behaviours.delay[link] + jitter + lost * behaviours.retry[link], 1)
    return delays
