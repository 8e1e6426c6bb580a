"""One enterprise of two hosts, rolled out once for all tests that look at it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.lab.enterprise import PROJECT, LabEnterprise

if TYPE_CHECKING:
    from collections.abc import Iterator

SMALL = ("ams-router", "ams-shop")


def sample(*machines: str) -> dict[str, Any]:
    """The sample enterprise with these machines only; all if none is named."""
    declared: dict[str, Any] = yaml.safe_load((PROJECT / "inventory/contoso.yaml").read_text("utf-8"))
    if not machines:
        return declared
    declared["machines"] = [each for each in declared["machines"] if each["name"] in machines]
    declared["routing_links"] = [each for each in declared["routing_links"] if set(each["site_gates"]) <= set(machines)]
    declared["queues"] = [each for each in declared["queues"] if each["machine"] in machines]
    return declared


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where wheels are kept for all tests of a run: they are built once."""
    return tmp_path_factory.getbasetemp().parent / "qmnode-releases"


@pytest.fixture(scope="module")
def small() -> Iterator[LabEnterprise]:
    """One site: a routing server and a client. Nothing is rolled out yet."""
    enterprise = LabEnterprise(sample(*SMALL))
    try:
        enterprise.start()
        yield enterprise
    finally:
        enterprise.close()
