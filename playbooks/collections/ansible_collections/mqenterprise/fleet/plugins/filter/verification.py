# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""The result of looking at all nodes and probing all links."""

from __future__ import annotations

DOCUMENTATION = r"""
name: verification
short_description: What is known and what is wrong after nodes were looked at and links were probed
version_added: 0.1.0
author: The qmnode authors (@qmnode)
description:
  - Hosts of the group C(windows) are not looked at; the answer to a probe shows that their queue managers take messages
    from nodes, and that messages from there arrive.
  - Brings together what the entry points C(look), C(probe_prepare) and C(probe) of the role
    P(mqenterprise.fleet.queue_manager#role) have found on each host.
options:
  _input:
    description: Pairs of hosts, as P(mqenterprise.fleet.link_ends#filter) makes them.
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
    msg: "{{ msmq_links | mqenterprise.fleet.link_ends(hostvars) | mqenterprise.fleet.verification(hostvars) }}"
"""

RETURN = r"""
_value:
  description:
    - Sentences, C(seen) for each node and link, and C(faults) by host.
    - A probe that did not come back is the fault of the host that was last seen to have it.
  type: dict
"""


def verification(pairs, hostvars):
    """Sentences about nodes and links, and about what is wrong."""
    nodes = {host: hostvars[host] for host in hostvars if "queue_manager_looked" in hostvars[host]}
    faults = {
        host: [f"{host}: {fault}" for fault in node.get("queue_manager_faults") or ()] for host, node in nodes.items()
    }
    for hosts, sentence in _twins(nodes):
        for host in hosts:
            faults[host].append(sentence)
    for host, node in nodes.items():
        faults[host] += [f"{host}: {fault}" for fault in (*_certificate(node), *_amqp(node))]
    seen = [f"{host}: {_node(node)}" for host, node in nodes.items()]
    seen += [f"{host}: {sentence}" for host, node in nodes.items() for sentence in _transport(node)]
    seen += [f"{host}: {sentence}" for host, node in nodes.items() for sentence in _doors(node)]
    for pair in pairs:
        start = nodes.get(pair["from"])
        is_windows = "windows" in (hostvars.get(pair["to"], {}).get("group_names") or ())
        if start is None or not (is_windows or pair["to"] in nodes):
            seen += _outside(pair, [host for host in (pair["from"], pair["to"]) if host not in nodes], is_windows)
            continue
        sentence, culprit = _link(pair, start)
        seen.append(sentence)
        if culprit is not None:
            faults[culprit if culprit in nodes else pair["from"]].append(sentence)
    return {"seen": seen, "faults": {host: sentences for host, sentences in faults.items() if sentences}}


def _outside(pair, missing, is_windows):
    """That a pair was not probed, when one of its hosts was looked at and the other was not, or needs not be."""
    if len(missing) == 2 and not is_windows:
        return []
    return [f"{pair['from']} → {pair['to']} ({pair['link']}): not probed, as --limit leaves {missing[0]} out"]


def _node(node):
    told = _clock(node.get("queue_manager_clock") or {})
    if node.get("queue_manager_fit"):
        return f"{told}, it stands by and could run {node['msmq_computer']}: {node['queue_manager_fit']}"
    identifier = (node.get("queue_manager_probed") or {}).get("identifier")
    return f"{told}, its node is {identifier}" if identifier else f"{told}, its node does not answer"


def _transport(node):
    """How a node speaks with others, and each machine with which it may speak in clear."""
    probed = node.get("queue_manager_probed") or {}
    if not probed.get("tls_mode"):
        return []
    peers = [f"speaks in clear with {peer}, as declared (plain_peers)" for peer in probed["plain_peers"]]
    return [f"its mode of TLS with other nodes is {probed['tls_mode']}", *peers]


def _doors(node):
    """The AMQP door of a node, and its bridges."""
    probed = node.get("queue_manager_probed") or {}
    port = probed.get("amqp_port")
    sentences = [f"its AMQP door is at port {port}"] if port else []
    return sentences + [
        f"its bridge {one['name']} is connected" for one in probed.get("bridges", ()) if one["connected"]
    ]


def _amqp(node):
    """That programs cannot use the AMQP door that a node is to have, and that a bridge is down."""
    probed = node.get("queue_manager_probed") or {}
    found = [probed["door_fault"]] if probed.get("door_fault") else []
    down = [one for one in probed.get("bridges", ()) if not one["connected"]]
    return found + [f"its bridge {one['name']} is down: {one['reason'] or 'connecting'}" for one in down]


def _certificate(node):
    """That the certificate of a node is not that of the queue manager which the directory has."""
    probed = node.get("queue_manager_probed") or {}
    if not probed.get("tls_mode"):
        return []
    known = str(node.get("msmq_identifier") or probed["identifier"]).lower()
    if probed["certificate"].lower() == known:
        return []
    named = f"names {probed['certificate']}" if probed["certificate"] else "names no queue manager, or has ended"
    where = "its node is" if node.get("msmq_directory") == "none" else "the directory has"
    return [f"its certificate {named}, and {where} {known}: run tls.yml, which issues another"]


def _clock(compared):
    """How a clock differs from the controller's, as far as that can be known."""
    difference, uncertainty = compared.get("difference"), compared.get("uncertainty")
    if difference is None:
        return "no answer"
    if abs(difference) <= uncertainty:
        return f"its clock agrees with the controller's within {uncertainty:.2f} s"
    ahead = "ahead of" if difference > 0 else "behind"
    return f"its clock is {abs(difference):.2f} s (± {uncertainty:.2f} s) {ahead} the controller's"


def _twins(nodes):
    """Hosts whose nodes have one identity, and the sentence."""
    known = {}
    for host, node in nodes.items():
        identifier = (node.get("queue_manager_probed") or {}).get("identifier")
        if identifier:
            known.setdefault(identifier, []).append(host)
    return [
        (
            hosts,
            f"{' and '.join(hosts)} are one queue manager ({identifier}) to everybody else: one was copied from the "
            "other. Stop the copy, empty its data directory, and roll it out again",
        )
        for identifier, hosts in known.items()
        if len(hosts) > 1
    ]


def _link(pair, start):
    """Return the outcome of the probe of a pair; for one that did not come back, the last host that reported it."""
    name = f"{pair['from']} → {pair['to']} ({pair['link']})"
    found = (start.get("queue_manager_answers") or {}).get(pair["to"])
    if found is None:
        return f"{name}: no probe was sent", None
    if found["seconds"] is None:
        way = found["path"] or [pair["from"]]
        return f"{name}: {found['why']}, last seen at {way[-1]}", way[-1]
    way = " → ".join(found["path"] or [pair["from"], pair["to"]])
    return f"{name}: {found['seconds']} s there and back, by {way}", None


class FilterModule:
    """Make the filter of this file known to Ansible."""

    def filters(self):
        """Return the filter by its name."""
        return {"verification": verification}
