# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""What looking at all nodes and probing all links has shown."""

from __future__ import annotations

DOCUMENTATION = r"""
name: verification
short_description: What is known and what is wrong after nodes were looked at and links were probed
version_added: 0.1.0
author: The qmnode authors (@qmnode)
description:
  - Brings together what the entry points C(look), C(probe_prepare) and C(probe) of the role
    P(msmq.enterprise.queue_manager#role) have found on each host.
options:
  _input:
    description: Pairs of hosts, as P(msmq.enterprise.link_ends#filter) makes them.
    type: list
    elements: dict
    required: true
  hostvars:
    description: The variables of all hosts.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Tell what was found
  ansible.builtin.debug:
    msg: "{{ msmq_links | msmq.enterprise.link_ends(hostvars) | msmq.enterprise.verification(hostvars) }}"
"""

RETURN = r"""
_value:
  description: Sentences, C(seen) for each node and link, and C(faults).
  type: dict
"""


def verification(pairs, hostvars):
    """Sentences about nodes and links, and about what is wrong."""
    nodes = {host: hostvars[host] for host in hostvars if "queue_manager_looked" in hostvars[host]}
    faults = [f"{host}: {fault}" for host, node in nodes.items() for fault in node.get("queue_manager_faults") or ()]
    faults += _twins(nodes)
    seen = [f"{host}: {_node(node)}" for host, node in nodes.items()]
    for pair in pairs:
        start, end = nodes.get(pair["from"]), nodes.get(pair["to"])
        if start is None or end is None:
            seen += _outside(pair, [host for host in (pair["from"], pair["to"]) if host not in nodes])
            continue
        sentence, is_fault = _link(pair, start)
        seen.append(sentence)
        faults += [sentence] if is_fault else []
    return {"seen": seen, "faults": faults}


def _outside(pair, missing):
    """That a pair was not probed, when one of its hosts was looked at and the other was not."""
    if len(missing) == 2:
        return []
    return [f"{pair['from']} → {pair['to']} ({pair['link']}): not probed, as --limit leaves {missing[0]} out"]


def _node(node):
    clock = node.get("queue_manager_clock")
    told = (
        "no answer" if clock is None else f"its clock is {clock:+.1f} s from the controller's, the way there included"
    )
    identifier = (node.get("queue_manager_probed") or {}).get("identifier")
    return f"{told}, its node is {identifier}" if identifier else f"{told}, its node does not answer"


def _twins(nodes):
    known = {}
    for host, node in nodes.items():
        identifier = (node.get("queue_manager_probed") or {}).get("identifier")
        if identifier:
            known.setdefault(identifier, []).append(host)
    return [
        f"{' and '.join(hosts)} are one queue manager ({identifier}) to everybody else: one was copied from the other. "
        "Stop the copy, empty its data directory, and roll it out again"
        for identifier, hosts in known.items()
        if len(hosts) > 1
    ]


def _link(pair, start):
    """What became of the probe of a pair, and whether that is a fault."""
    name = f"{pair['from']} → {pair['to']} ({pair['link']})"
    found = (start.get("queue_manager_answers") or {}).get(pair["to"])
    if found is None:
        return f"{name}: no probe was sent", False
    if found["seconds"] is None:
        return f"{name}: {found['why']}", True
    way = " → ".join(found["path"])
    return f"{name}: {found['seconds']} s there and back, by {way}", False


class FilterModule:
    """The filter."""

    def filters(self):
        """By name."""
        return {"verification": verification}
