# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""The options of the modules that carry messages of Windows to a node."""

from __future__ import annotations


class ModuleDocFragment:
    """The options of a carry."""

    DOCUMENTATION = r"""
options:
  source:
    description: The machine to carry from, C(HOST) or C(HOST:PORT) with the port of its endpoint mapper.
    type: str
    required: true
  node:
    description: The machine of the node to carry to.
    type: str
    required: true
  rate:
    description: Messages a second at most; V(0) for no limit.
    type: float
    default: 0.0
  follow:
    description: Seconds without a message after which nothing more is expected at the source.
    type: float
    default: 0.0
  patience:
    description: Seconds to wait for a side that does not answer.
    type: float
    default: 60.0
  sole_reader:
    description: >-
      Whether nobody else receives from the source. Then a message that an interrupted carry left, and that is gone
      there, was carried.
    type: bool
    default: false
  drop:
    description: Keys of undecided messages that somebody else has received.
    type: list
    elements: str
    default: []
  user:
    description: The account that reads, C(DOMAIN\\USER) with a password, or C(USER@REALM) with the tickets of kinit.
    type: str
    default: ''
  password_file:
    description: File with the password, mode 0600.
    type: path
  nodes_file:
    description:
      - YAML file with the ports, the authority and the token of the nodes' management APIs, as C(mqenterprise --nodes)
        takes it.
      - Without it, the environment variable E(MQENTERPRISE_NODES) names the file.
    type: path
"""
