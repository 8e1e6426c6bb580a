# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Variables that an inventory gives a host at each level, lowest first, in the order in which Ansible itself ranks the
levels.
"""

from __future__ import annotations

import multiprocessing
from pathlib import Path

from ansible import constants
from ansible.inventory.group import Group
from ansible.inventory.helpers import sort_groups
from ansible.inventory.host import Host
from ansible.vars.plugins import get_vars_from_inventory_sources, get_vars_from_path

STAGE = "task"
_KNOWN = {}
"""Levels by host. Ansible runs each task of a host in a process of its own, in which no inventory changes."""


class Levels:
    """The inventory behind ``hostvars``, level by level. Values are as they are written: templates are not expanded."""

    def __init__(self, hostvars):
        self.inventory = hostvars._inventory
        self.extra = hostvars._variable_manager.extra_vars
        self._loader = hostvars._loader

    def of(self, name):
        """The levels of a host: each where it is from, and its variables."""
        if multiprocessing.parent_process() is None:
            return list(self._of(name))
        if name not in _KNOWN:
            _KNOWN[name] = list(self._of(name))
        return _KNOWN[name]

    def _of(self, name):
        host = self.inventory.get_host(name)
        groups = {"all": [self.inventory.groups["all"]]}
        groups["groups"] = sort_groups([group for group in host.get_groups() if group.name != "all"])
        for entry in constants.VARIABLE_PRECEDENCE:
            which, _separator, place = entry.partition("_")
            for group in groups.get(which, ()):
                yield f"the group {group.name}", self._read(group, place)
        for place in ("inventory", "plugins_inventory", "plugins_play"):
            yield f"the host {name}", self._read(host, place)

    def own(self, entity):
        """Return the variables of a group or host itself."""
        found = {}
        for place in ("inventory", "plugins_inventory", "plugins_play"):
            found.update(self._read(entity, place))
        return found

    def folders(self):
        """Where files of groups and hosts may be: beside the inventory and the playbook."""
        sources = [Path(source) for source in self.inventory._sources if source and "," not in source]
        places = [source if source.is_dir() else source.parent for source in sources]
        return list(dict.fromkeys([*places, Path(self._loader.get_basedir())]))

    def group_file(self, name):
        """Return the variables from files of a group that the inventory does not have."""
        return self._of_files(Group(name))

    def host_file(self, name):
        """Return the variables from files of a host that the inventory does not have."""
        return self._of_files(Host(name, gen_uuid=False))

    def _of_files(self, entity):
        return self._read(entity, "plugins_inventory") | self._read(entity, "plugins_play")

    def _read(self, entity, place):
        match place:
            case "inventory":
                return dict(entity.get_vars())
            case "plugins_inventory":
                return get_vars_from_inventory_sources(self._loader, self.inventory._sources, [entity], STAGE)
            case "plugins_play":
                return get_vars_from_path(self._loader, self._loader.get_basedir(), [entity], STAGE)
        return {}
