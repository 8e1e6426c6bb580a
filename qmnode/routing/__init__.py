"""The next hops of messages: the Binary Reliable Message Routing Algorithm (MS-MQBR) over an immutable snapshot.

``snapshot`` holds the directory's sites, links and machines, ``table`` the least-cost tree from one site, ``router``
the rules that turn both into the next possible hops of a message, ``paths`` whole journeys, for explanation and for
what-if questions. Nothing here does input or output, waits, or keeps time.
"""

from qmnode.routing.router import (
    CIRCLE_HINT,
    Journey,
    NextHops,
    NoRouteError,
    Route,
    Router,
    RoutingTable,
    Rule,
    build_routing_table,
    follow,
    step,
)
from qmnode.routing.snapshot import Machine, RoutingLink, Site, TopologySnapshot

__all__ = [
    "CIRCLE_HINT",
    "Journey",
    "Machine",
    "NextHops",
    "NoRouteError",
    "Route",
    "Router",
    "RoutingLink",
    "RoutingTable",
    "Rule",
    "Site",
    "TopologySnapshot",
    "build_routing_table",
    "follow",
    "step",
]
