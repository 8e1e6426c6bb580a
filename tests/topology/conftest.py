"""Fixtures: a declaration brought about on both real servers, and everything taken away again at the end."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.topology.apply import apply_declared, plan_declared
from mqenterprise.topology.check import load
from mqenterprise.topology.ldap_target import LdapTarget
from tests.lab.servers import leave_to_soak

OVER_ACTIVE_DIRECTORY = {
    "test_a_declaration_is_brought_about_and_the_second_apply_changes_nothing",
    "test_a_deletion_is_conditional_where_the_server_can",
    "test_a_machine_of_others_goes_without_the_computer_of_an_apply",
    "test_a_new_site_has_the_objects_that_its_directory_expects",
    "test_a_plan_is_rolled_back",
    "test_a_queue_is_the_same",
    "test_a_queue_manager_and_its_computer_are_the_same",
    "test_access_rights_are_written_and_read_back",
    "test_an_apply_deletes_a_machine_whose_computer_somebody_has_deleted",
    "test_an_export_has_an_empty_plan",
    "test_any_enterprise_is_brought_about_and_exported",
    "test_everything_is_marked_as_ours_and_nothing_else_is_touched",
    "test_half_an_object_that_someone_else_made_is_completed_and_stays_theirs",
    "test_names_of_every_kind_are_escaped",
    "test_names_that_fold_into_others_are_applied_and_found_again",
    "test_the_settings_objects_follow_the_roles",
    "test_users_are_found_by_the_digest_of_their_certificates",
}
"""What the product of the directory makes a difference to."""


def pytest_collection_modifyitems(items):
    leave_to_soak(items, Path(__file__).parent, OVER_ACTIVE_DIRECTORY)


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
