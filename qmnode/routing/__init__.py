"""The next hops of messages: the Binary Reliable Message Routing Algorithm (MS-MQBR) over an immutable snapshot.

``snapshot`` holds the directory's sites, links and machines, ``table`` the least-cost tree from one site, ``router``
the rules that turn both into the next possible hops of a message, ``paths`` whole journeys, for explanation and for
what-if questions. Nothing here does input or output, waits, or keeps time.
"""

from qmnode.routing.paths import CIRCLE_HINT, Journey, follow, step
from qmnode.routing.router import NextHops, NoRouteError, Router, Rule
from qmnode.routing.snapshot import Machine, RoutingLink, Site, TopologySnapshot
from qmnode.routing.table import Route, RoutingTable, build_routing_table

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
