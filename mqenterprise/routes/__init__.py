"""Explain routing to people: the reason of each hop, whole tables, and the effect of an outage.

``enterprise`` reads the topology from the directory or from a declaration. ``explanation`` names the rule of MS-MQBR
that decides at each hop, ``journeys`` finds all ways to one destination, and ``simulation`` compares two states.
The routing itself is in ``qmnode.routing``.
"""
