# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Paths that are given on the command line."""

from __future__ import annotations

DOCUMENTATION = r"""
name: from_here
short_description: A path as whoever runs the playbook means it
version_added: 0.1.0
author: The qmnode authors (@qmnode)
description:
  - Makes a path absolute from the folder in which Ansible was started. Modules, commands and lookups would take a
    relative path from the folder of the playbook.
  - What is a URL, such as C(s3://bucket/prefix), stays as it is.
options:
  _input:
    description: The path.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Make the directory as declared
  mqenterprise.fleet.enterprise:
    declared: "{{ declared | mqenterprise.fleet.from_here }}"
"""

RETURN = r"""
_value:
  description: The absolute path.
  type: str
"""

from pathlib import Path


def from_here(path):
    """Return the absolute form of a path."""
    text = str(path)
    return text if "://" in text else str(Path(text).expanduser().absolute())


class FilterModule:
    """Make the filter of this file known to Ansible."""

    def filters(self):
        """Return the filter by its name."""
        return {"from_here": from_here}
