"""One enterprise of two hosts, rolled out once for all tests that look at it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.lab import releases
from tests.lab.enterprise import PROJECT, LabEnterprise
from tests.playbooks.secrecy import plant

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SMALL = ("ams-router", "ams-shop")
BILLING = {
    "machine": "ams-shop", "name": "billing", "private": True, "label": "Billing", "transactional": True,
    "access": [
        {"to": "everyone", "allow": ["send", "get_properties"]}, {"to": "administrators", "allow": ["generic_all"]},
    ],
}  # fmt: skip
"""A private queue, which the roll-out brings to its node."""


def sample(*machines: str) -> dict[str, Any]:
    """The sample enterprise with these machines only; all if none is named."""
    declared: dict[str, Any] = yaml.safe_load((PROJECT / "inventory/contoso.yaml").read_text("utf-8"))
    if not machines:
        return declared
    declared["machines"] = [each for each in declared["machines"] if each["name"] in machines]
    declared["routing_links"] = [each for each in declared["routing_links"] if set(each["site_gates"]) <= set(machines)]
    declared["queues"] = [each for each in declared["queues"] if each["machine"] in machines]
    return declared


@contextmanager
def rolled_out(machines: Sequence[str], queues: list[dict[str, Any]]) -> Iterator[LabEnterprise]:
    """These machines of the sample with these queues, provisioned and rolled out; taken away at the end."""
    declared = sample(*machines)
    foreign = {site["name"] for site in declared["foreign_sites"]}
    declared["routing_links"] = [each for each in declared["routing_links"] if foreign.isdisjoint(each["sites"])]
    for machine in declared["machines"]:
        if machine.pop("foreign_sites", None):
            machine["roles"] = [role for role in machine["roles"] if role != "connector"]
    enterprise = LabEnterprise(declared | {"foreign_sites": [], "users": [], "queues": queues})
    try:
        enterprise.start()
        plant(enterprise)
        releases.give(enterprise)
        enterprise.play("provision", declared=str(enterprise.declared)).ok()
        # A session that broke is tried again soon, so that the test ends soon.
        retry = {"transfer": {"retry_interval": 1, "retry_maximum": 5}}
        settings = {"queue_manager_settings": retry, "routing_server_more_settings": retry}
        enterprise.play("rollout", "-vvv", "--diff", **settings).ok()
        releases.keep(enterprise.hosts.folder)
        yield enterprise
    finally:
        enterprise.close()


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=pytest.mark.soak)], ids=["short", "whole"])
def whole(request: pytest.FixtureRequest) -> bool:
    """Whether a story is told whole, as ``make soak`` does: each playbook checked first and run again, all chapters."""
    return bool(request.param)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Chapters of the whole story alone are not in the short one."""
    items[:] = [item for item in items if not (is_short(item) and item.get_closest_marker("soak"))]


def is_short(item: pytest.Item) -> bool:
    """Whether it is a chapter of a story that is not told whole."""
    callspec = getattr(item, "callspec", None)
    return callspec is not None and callspec.params.get("whole") is False


@pytest.fixture(scope="module")
def small(whole: bool) -> Iterator[LabEnterprise]:
    """One site: a routing server and a client, which is to have an AMQP door. Nothing is rolled out yet."""
    del whole  # each story has an enterprise of its own
    declared = sample(*SMALL)
    declared["queues"] = [*declared["queues"], BILLING]
    enterprise = LabEnterprise(declared)
    try:
        enterprise.start()
        variables = enterprise.host_variables(SMALL[1])
        variables.write_text(yaml.safe_dump(yaml.safe_load(variables.read_text()) | {"queue_manager_amqp": True}))
        plant(enterprise)
        yield enterprise
    finally:
        enterprise.close()
