# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Modules for one kind of object of the declared enterprise, and their ``_info`` twins."""

from __future__ import annotations

import json

from ansible_collections.mqenterprise.fleet.plugins.module_utils._module import EnterpriseModule

try:
    from mqenterprise.directory.distribution import declared_lists
    from mqenterprise.topology.names import fold
    from mqenterprise.topology.problems import did_you_mean
    from mqenterprise.topology.resources import Kind, resource
    from mqenterprise.topology.single import carry_out, items, names_in, plan_absent, plan_present
    from qmnode.structures.guid import guid_to_text
except ImportError:
    pass  # told by EnterpriseModule.run

STATE = {"state": {"type": "str", "choices": ["present", "absent"], "default": "present"}}


def identifiers(directory, kind):
    """The GUIDs of all objects of a kind, in the directory's own form of their names."""
    match kind:
        case Kind.DISTRIBUTION_LIST:
            lists = declared_lists(directory.connection)
            return {resource(kind, (name,), {}).reference.key: guid_to_text(guid) for name, guid in lists}
        case Kind.QUEUE_ALIAS:
            aliases = directory.queue_aliases.list(attributes=("name", "identifier"))
            found = {(alias.name,): alias for alias in aliases}
        case Kind.SITE:
            found = {(site.name,): site for site in directory.sites.list(attributes=("name", "identifier"))}
        case Kind.MACHINE:
            machines = directory.queue_managers.list(attributes=("computer_name", "identifier"))
            found = {(machine.computer_name,): machine for machine in machines}
        case Kind.QUEUE:
            queues = directory.queues.list(attributes=("pathname", "identifier"))
            found = {tuple(queue.pathname.split("\\", 1)): queue for queue in queues}
        case Kind.ROUTING_LINK:
            names = {site.identifier: site.name for site in directory.sites.list(attributes=("name", "identifier"))}
            found = {
                (names.get(link.site1_identifier, ""), names.get(link.site2_identifier, "")): link
                for link in directory.routing_links.list()
            }
    return {resource(kind, name, {}).reference.key: guid_to_text(each.identifier) for name, each in found.items()}


def rows(directory, snapshot, kind):
    """All objects of a kind with their values and GUIDs, by name."""
    known = identifiers(directory, kind)
    listed = list(items(snapshot, kind))
    for item in listed:
        item["identifier"] = known.get(resource(kind, names_in(kind, item), {}).reference.key)
    return sorted(listed, key=lambda item: [fold(name) for name in names_in(kind, item)])


def shown(item):
    """A side of a difference."""
    return "" if item is None else json.dumps(item, ensure_ascii=False, indent=2, sort_keys=True) + "\n"


def difference(change, header):
    """The results of a change that is done, or foreseen."""
    return {
        "changed": change.changed,
        "diff": {
            "before_header": header,
            "after_header": header,
            "before": shown(change.before),
            "after": shown(change.after if change.changed else change.before),
        },
    }


class ObjectModule(EnterpriseModule):
    """One object, present or absent."""

    kind = ""
    """The kind, in the topology's word."""
    result = ""
    """Under which name the object is returned."""
    naming = ("name",)
    """The options that name the object."""
    apart = ("state",)
    """The options that are no properties of the object."""
    plans = True

    def work(self, directory):
        kind = Kind(self.kind)
        said = self.said()
        target = self.target(directory, access="access" in said)
        snapshot = target.snapshot()
        if self.given["state"] == "absent":
            change = plan_absent(snapshot, kind, names_in(kind, said))
        else:
            change = plan_present(snapshot, kind, self.item(said), foresee=self.module.check_mode)
            for sentence in change.missing:
                self.module.warn(f"{sentence}: check mode takes it that an earlier task would have made it")
            self.warn_of(change.remarks)
        if not self.module.check_mode:
            carry_out(change, target, directory, patience=self.module.params["wait"])
        header = f"{self.kind} {' - '.join(names_in(kind, said))}"
        return {self.result: self._returned(directory, kind, change), **difference(change, header)}

    def said(self):
        """Return the properties that are given."""
        return {name: value for name, value in self.given.items() if name not in self.apart and value is not None}

    def item(self, said):
        """Return the given options in the form of a declaration."""
        return said

    def _returned(self, directory, kind, change):
        if change.after is None:
            return None
        after = change.after if change.changed else change.before
        key = resource(kind, names_in(kind, after), {}).reference.key
        return after | {"identifier": identifiers(directory, kind).get(key)}


class ObjectInfoModule(EnterpriseModule):
    """All objects of a kind, or those that are asked for."""

    kind = ""
    result = ""
    """Under which name the list is returned."""
    others = {}
    """The kinds of the options that name other objects, which have to exist."""

    def work(self, directory):
        kind = Kind(self.kind)
        snapshot = self.target(directory, access=bool(self.given.get("access"))).snapshot()
        for option, other in self.others.items():
            named = Kind(other)
            missing = self._missing(named, option, (item["name"] for item in items(snapshot, named)))
            if missing:
                self.module.fail_json(msg=missing)
        listed = rows(directory, snapshot, kind)
        found = [item for item in listed if self.wanted(item)]
        if not found and (missing := self._missing(kind, "name", (item.get("name") for item in listed))):
            self.module.warn(missing)
        return {"changed": False, self.result: found}

    def _missing(self, kind, option, known):
        """A sentence if no object has the given name: a misspelt one selects nothing."""
        name, known = self.given.get(option), list(known)
        if name is None or fold(name) in map(fold, known):
            return ""
        return f"there is no {kind.value} {name!r} in the directory{did_you_mean(name, known)}"

    def wanted(self, item):
        """Whether an object is one that was asked for; without names all are."""
        name = self.given.get("name")
        return name is None or fold(item["name"]) == fold(name)
