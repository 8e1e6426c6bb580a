# Copyright: the qmnode authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Modules for one kind of object of the declared enterprise, and their ``_info`` twins."""

from __future__ import annotations

import json

from ansible_collections.mqenterprise.fleet.plugins.module_utils._module import EnterpriseModule

try:
    from mqenterprise.directory.repositories import declared_lists
    from mqenterprise.topology.names import fold
    from mqenterprise.topology.normal_form import Kind, names_in, resource
    from mqenterprise.topology.problems import did_you_mean
    from mqenterprise.topology.some_objects import NotPossible, carry_out, items, plan_absent, plan_present
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


def grouped(objects, name):
    """Return the values of an option, each with the objects that have it."""
    groups = {}
    for item in objects:
        groups.setdefault(item.get(name), []).append(item)
    return list(groups.items())


def check_states(kind, objects):
    """Raise NotPossible if an object is to be both there and absent."""
    states = {}
    for item in objects:
        names = names_in(kind, item)
        if states.setdefault(resource(kind, names, {}).reference, item["state"]) != item["state"]:
            raise NotPossible(f"{' - '.join(names)}: it is there twice, present and absent: say what holds once")


def side(change, header):
    """The difference of one object."""
    return {
        "before_header": header,
        "after_header": header,
        "before": shown(change.before),
        "after": shown(change.after if change.changed else change.before),
    }


class ObjectModule(EnterpriseModule):
    """One object, or several of one kind: present or absent."""

    kind = ""
    """The kind, in the topology's word."""
    result = ""
    """Under which name the object is returned."""
    several = ""
    """The option with a list of objects, under which they are returned too."""
    names = {"name": {"type": "str"}}
    """The options that name the object, in the order of a declaration."""
    inherited = ()
    """Those names that an object of the list may take from beside the list."""
    properties = {}
    """The options that may be given to the object; those beside a list hold for all objects in it."""
    more = {}
    """Options that are no properties of the object."""
    plans = True

    def __init_subclass__(cls, **keywords):
        super().__init_subclass__(**keywords)
        own = [name for name in cls.names if name not in cls.inherited]
        item = {name: option | {"required": name in own} for name, option in cls.names.items()}
        item |= cls.properties | {"state": {"type": "str", "choices": STATE["state"]["choices"]}}
        listed = {"type": "list", "elements": "dict", "options": item}
        cls.options = {**cls.names, **cls.properties, **cls.more, cls.several: listed, **STATE}
        cls.rules = {
            "required_one_of": [(*own, cls.several)],
            "mutually_exclusive": [(*own, cls.several)],
            "required_by": {name: list(cls.inherited) for name in own},
        }

    def work(self, directory):
        objects = self.objects()
        changes = self.changes(directory, objects)
        sides = [side(change, self.header(change)) for change, _item in changes]
        if self.given[self.several] is None:
            ((change, item),) = changes
            return {self.result: item, "changed": change.changed, "diff": sides[0]}
        return {
            self.several: [
                (item or {name: given[name] for name in self.names}) | {"changed": change.changed}
                for given, (change, item) in zip(objects, changes, strict=True)
            ],
            "changed": any(change.changed for change, _item in changes),
            "diff": [each for each, (change, _item) in zip(sides, changes, strict=True) if change.changed],
        }

    def objects(self):
        """Return the properties that are given to each object."""
        kept = (*self.names, *self.properties, *STATE)
        common = {name: self.given[name] for name in kept if self.given[name] is not None}
        if self.given[self.several] is None:
            return [common]
        found = []
        for number, item in enumerate(self.given[self.several], 1):
            found.append(common | {name: value for name, value in item.items() if value is not None})
            for name in self.inherited:
                if name not in found[-1]:
                    where = f"{self.several}, number {number}"
                    self.module.fail_json(msg=f"{where}: say the {name} there or beside the list")
        return found

    def changes(self, directory, objects):
        """Make the changes, or foresee them. Return each with the object as it is then, in the order of the objects."""
        kind = Kind(self.kind)
        check_states(kind, objects)
        target = self.target(directory, access=any("access" in item for item in objects))
        snapshot = target.snapshot()
        groups = dict(grouped(objects, "state"))
        planned = {}
        if "present" in groups:
            planned["present"] = self._planned(snapshot, kind, groups["present"])
        if "absent" in groups:  # after the others, which may no longer need what is deleted, or begin to need it
            names = [names_in(kind, item) for item in groups["absent"]]
            changed = planned["present"].wanted if planned else ()
            planned["absent"] = plan_absent(snapshot, kind, names, changed=changed)
        if not self.module.check_mode:
            for changes in planned.values():
                carry_out(changes, target, patience=self.module.params["wait"])
        each = {state: iter(changes.each) for state, changes in planned.items()}
        found = [next(each[item["state"]]) for item in objects]
        known = identifiers(directory, kind) if any(change.after for change in found) else {}
        return [(change, self._returned(kind, change, known)) for change in found]

    def _planned(self, snapshot, kind, objects):
        wanted = [{name: value for name, value in item.items() if name != "state"} for item in objects]
        changes = plan_present(snapshot, kind, wanted, foresee=self.module.check_mode)
        for sentence in changes.missing:
            self.module.warn(f"{sentence}: check mode takes it that an earlier task would have made it")
        self.warn_of(changes.remarks)
        return changes

    def header(self, change):
        """Return the title of an object."""
        return f"{self.kind} {' - '.join(change.name)}"

    @staticmethod
    def _returned(kind, change, known):
        if change.after is None:
            return None
        after = change.after if change.changed else change.before
        return after | {"identifier": known.get(resource(kind, names_in(kind, after), {}).reference.key)}


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
