"""Where messages go, for people: why each hop, whole tables, and what happens when something is out.

``enterprise`` takes the topology from the directory or from a declaration, ``explanation`` says which rule of MS-MQBR
decided at each hop and why, ``journeys`` are all ways to one destination, ``simulation`` compares those of two states.
The routing itself is in ``qmnode.routing``.
"""
