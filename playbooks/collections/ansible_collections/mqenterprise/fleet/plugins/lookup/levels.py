# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""A variable as all levels together give it."""

from __future__ import annotations

DOCUMENTATION = r"""
name: levels
short_description: Merge a variable by key over all levels at which it is given
version_added: 0.2.0
author: The qmnode authors (@qmnode)
description:
  - Ansible takes a variable from the nearest level alone. This lookup merges what every level gives to the host.
  - The levels are, each over those before it, O(base), the group C(all), the other groups, the host, and last the play
    (its C(vars), C(set_fact), an C(include_role)) or the command line (C(-e)).
  - Groups rank as Ansible ranks them. The inventory P(mqenterprise.fleet.directory#inventory) has C(queue_managers)
    first, then the groups of roles, then groups of the operator's own, then those of sites.
  - Mappings are merged key by key, at any depth. With O(by), lists of mappings are merged item by item. Everything
    else, other lists as well, is replaced.
options:
  _terms:
    description: Names of variables. At the same level, a later one counts more.
    required: true
    type: list
    elements: str
  base:
    description: What all levels are merged over.
    type: raw
  by:
    description: The variables are lists of mappings, and this key tells which items are the same.
    type: str
notes:
  - Where several of the play, C(set_fact) and the command line give a variable, one of them counts, as everywhere in
    Ansible.
"""

EXAMPLES = r"""
- name: Show the settings of the node
  ansible.builtin.debug:
    msg: "{{ query('mqenterprise.fleet.levels', 'queue_manager_settings') | first }}"
"""

RETURN = r"""
_raw:
  description: One item, the mapping or list.
  type: list
"""

from collections.abc import Mapping, Sequence

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.mqenterprise.fleet.plugins.plugin_utils._levels import Levels

NEAREST = "the play or the command line"


def merged(below, above):
    """Mappings key by key; anything else is replaced."""
    if not (isinstance(below, Mapping) and isinstance(above, Mapping)):
        return above
    return dict(below) | {name: merged(below[name], value) if name in below else value for name, value in above.items()}


def merged_list(below, above, key):
    """Items with the same key are merged in their place, others come after."""
    found = list(below)
    for item in above:
        place = next((place for place, known in enumerate(found) if _same(known, item, key)), len(found))
        found[place:] = [merged(known, item) for known in found[place : place + 1] or [{}]] + found[place + 1 :]
    return found


def _same(one, other, key):
    both = isinstance(one, Mapping) and isinstance(other, Mapping)
    return both and key in one and one[key] == other.get(key)


class LookupModule(LookupBase):
    """Make the lookup of this file known to Ansible."""

    def run(self, terms, variables=None, **kwargs):
        """Return the merged value of one variable."""
        self.set_options(var_options=variables, direct=kwargs)
        by = self.get_option("by")
        base = self.get_option("base")
        found = ([] if by else {}) if base is None else base
        for name, where, value in self._given(terms, variables):
            self._check(name, where, value, by)
            found = merged_list(found, value, by) if by else merged(found, value)
        return [found]

    def _given(self, names, variables):
        """Name, level and value, lowest first."""
        levels = list(Levels(variables["hostvars"]).of(variables["inventory_hostname"]))
        nearest = {}
        for where, given in levels:
            for name in names:
                if name in given:
                    nearest[name] = self._templar.template(given[name])
                    yield name, where, nearest[name]
        for name in names:
            if name in variables:
                value = self._templar.template(variables[name])
                # Else it is what the nearest level of the inventory gives, which has its rank already.
                if name not in nearest or value != nearest[name]:
                    yield name, NEAREST, value

    def _check(self, name, where, value, by):
        if by is None and not isinstance(value, Mapping):
            raise AnsibleLookupError(f"{name}, as {where} gives it, is not a mapping")
        if by is not None and (not isinstance(value, Sequence) or isinstance(value, str)):
            raise AnsibleLookupError(f"{name}, as {where} gives it, is not a list")
