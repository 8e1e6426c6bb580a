# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""The queues of a declaration."""

from __future__ import annotations

DOCUMENTATION = r"""
name: declared_queues
short_description: The queues that are declared, as they are declared
version_added: 0.1.0
author: The qmnode authors (@qmnode)
description:
  - Reads and checks the declaration of an enterprise on the controller, and returns its queues with what is said of
    each, as the options of the module M(mqenterprise.fleet.queue).
options:
  _input:
    description: The declaration, a YAML file or a folder of them.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Name them
  ansible.builtin.debug:
    msg: "{{ '/srv/contoso.yaml' | mqenterprise.fleet.declared_queues | map(attribute='name') }}"
"""

RETURN = r"""
_value:
  description: The queues.
  type: list
  elements: dict
"""

from pathlib import Path

from ansible.errors import AnsibleFilterError

try:
    from mqenterprise.topology.check import load
    from mqenterprise.topology.problems import DeclarationError

    MISSING = None
except ImportError as error:
    MISSING = error


def declared_queues(declared):
    """The queues; what is not said of them is not in them."""
    if MISSING is not None:
        raise AnsibleFilterError(
            f"mqenterprise is missing: pip install 'qmnode[enterprise]' on the controller ({MISSING})"
        )
    try:
        declaration = load(Path(str(declared)), for_directory=True).declaration
    except DeclarationError as error:
        raise AnsibleFilterError(str(error)) from error
    return [
        queue.model_dump(mode="json", exclude_unset=True, exclude={"private"}) for queue in declaration.public_queues
    ]


class FilterModule:
    """Make the filter of this file known to Ansible."""

    def filters(self):
        """Return the filter by its name."""
        return {"declared_queues": declared_queues}
