"""Fixtures: a declaration brought about on both real servers, and everything taken away again at the end."""

from __future__ import annotations

import pytest
import yaml

from mqenterprise.directory.service import EnterpriseDirectory
from mqenterprise.topology.check import load
from mqenterprise.topology.ldap_target import LdapTarget
from mqenterprise.topology.session import apply_declared, plan_declared


class Silent:
    """An observer that counts and says nothing."""

    def __init__(self):
        self.waited, self.steps = [], 0

    def waiting(self, holder):
        self.waited.append(holder)

    def begin(self, total):
        pass

    def step(self):
        self.steps += 1


class Bench:
    """A real directory and declarations written for it."""

    def __init__(self, server, folder):
        self.server, self.folder = server, folder
        self.file = folder / "directory.yaml"
        values = server.settings.model_dump(mode="json", exclude_none=True)
        if server.settings.password is not None:
            values["password"] = server.settings.password.get_secret_value()
        self.file.write_text(yaml.safe_dump(values), "utf-8")
        self.directory = EnterpriseDirectory(server.settings)
        self.target = LdapTarget(self.directory)

    def declare(self, data, name="enterprise.yaml"):
        file = self.folder / name
        file.write_text(yaml.safe_dump(data, allow_unicode=True), "utf-8")
        return load(file)

    def apply(self, checked, *, prune=False, **options):
        return apply_declared(checked, self.target, Silent(), prune=prune, patience=30, **options)

    def plan(self, checked, *, prune=False):
        return plan_declared(checked, self.target, prune=prune)

    def ours(self):
        """What is there of ours, without GUIDs: equal for equal enterprises."""
        return {row.reference: (row.name, dict(row.values), row.partial) for row in self._rows() if row.owned}

    def _rows(self):
        return self.target.snapshot().table

    def clear(self):
        self.apply(self.declare({"enterprise": {"name": "Nothing"}}, "nothing.yaml"), prune=True)


@pytest.fixture(autouse=True)
def state_home(tmp_path, monkeypatch):
    """Records of applied plans go where nobody else's are."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def bench(directory_server, tmp_path):
    bench = Bench(directory_server, tmp_path)
    bench.clear()
    yield bench
    bench.clear()
    bench.directory.close()
