"""A directory in memory with the manners of a real one: compare and set, marks, writes that can be cut."""

from __future__ import annotations

import threading
from dataclasses import replace

from mqenterprise.topology.names import fold
from mqenterprise.topology.normal_form import Kind, Resource, Table, resource
from mqenterprise.topology.plan import Action, ConflictingChange, Snapshot, TargetError, TargetUnavailable

ENTERPRISE = {
    "weakened_security": False,
    "default_time_to_live": 345_600,
    "change_notification": True,
    "old_directory": False,
    "access": None,
}
DEFAULTS = {
    Kind.SITE: {
        "foreign": False,
        "intra_site_replication_interval": 2,
        "inter_site_replication_interval": 10,
        "migrated_from_msmq10": False,
        "access": None,
    },
    Kind.USER: {"certificates": ()},
    Kind.MACHINE: {"dns_name": None},
    Kind.QUEUE: {"access": ()},
}


class MemoryLease:
    """A text under compare and set."""

    def __init__(self):
        self.text = None
        self.away = False
        self._lock = threading.Lock()

    def read(self):
        if self.away:
            raise TargetUnavailable("no answer")
        return self.text

    def swap(self, old, new):
        with self._lock:
            if self.away:
                raise TargetUnavailable("no answer")
            if self.text != old:
                return False
            self.text = new
            return True


class MemoryTarget:
    """Rows and the token of their last writer. ``writes_left`` counts down to a directory that is away."""

    def __init__(self, groups=("Everyone",)):
        self.rows = Table()
        self.tokens = {}
        self.groups = {fold(name): name for name in groups}
        self.writes = 0
        self.writes_left = None
        self.before_write = lambda step: None
        self.lease = MemoryLease()
        self._lock = threading.Lock()
        self.put(resource(Kind.ENTERPRISE, (), ENTERPRISE))

    def put(self, row: Resource, token=None):
        self.rows.put(row)
        if token is not None:
            self.tokens[row.reference] = token

    def snapshot(self, users=()):
        table = Table(dict(self.rows.rows))
        names = self.groups | {row.reference.key[0]: row.name[0] for row in table if row.kind is Kind.USER}
        return Snapshot("memory", table, lambda name: names.get(fold(name)))

    def prepare(self):
        pass

    def lease_entry(self):
        return self.lease

    def _write(self):
        if self.writes_left is not None:
            if self.writes_left == 0:
                raise TargetUnavailable("connection refused")
            self.writes_left -= 1
        self.writes += 1

    def carry_out(self, step, token):
        self.before_write(step)
        with self._lock:
            present = self.rows.get(step.reference)
            if self.tokens.get(step.reference, 0) > token:
                raise ConflictingChange("a later apply wrote it")
            match step.action:
                case Action.CREATE:
                    self._create(step, present, token)
                case Action.UPDATE:
                    self._update(step, present, token)
                case Action.DELETE:
                    self._delete(step, present)

    def _create(self, step, present, token):
        if present is not None and not present.owned:
            raise ConflictingChange("it exists")
        self._check(step)
        row = resource(step.reference.kind, step.name, {**DEFAULTS.get(step.reference.kind, {}), **step.after})
        row = replace(row, owned=True)
        if row.kind is Kind.MACHINE:
            self._write()
            self.put(replace(row, values={}, partial=True), token)
        self._write()
        self.put(row, token)

    def _update(self, step, present, token):
        if present is None:
            raise ConflictingChange("it is gone")
        self._check(step)
        self._write()
        self.put(replace(present, values={**present.values, **step.after}), token)

    def _delete(self, step, present):
        if present is None:
            return
        if not present.owned:
            raise TargetError("it is not ours")
        if present.kind is Kind.MACHINE and not present.partial:
            self._write()
            self.put(replace(present, values={**present.values, "settings": ()}))
            self._write()
            self.put(replace(present, values={}, partial=True))
        self._write()
        del self.rows.rows[step.reference]
        self.tokens.pop(step.reference, None)

    def _check(self, step):
        """What a real directory refuses: references to what is not there."""
        kinds = {"sites": Kind.SITE, "settings": Kind.SITE}
        for field in ("sites", "settings", "site_gates", "out_routing_servers", "in_routing_servers"):
            for name in step.after.get(field) or ():
                target = resource(kinds.get(field, Kind.MACHINE), (name,), {}).reference
                assert target in self.rows, f"{step.title} refers to {name}, which is not there"
        if step.reference.kind is Kind.QUEUE:
            assert resource(Kind.MACHINE, step.name[:1], {}).reference in self.rows
        if step.reference.kind is Kind.ROUTING_LINK:
            assert all(resource(Kind.SITE, (name,), {}).reference in self.rows for name in step.name)
