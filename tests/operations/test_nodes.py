"""The nodes that a command means, from the directory and from the file of settings."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NoReturn

import pytest

from mqenterprise.operations.errors import OperationsError
from mqenterprise.operations.nodes import Node, chosen_nodes
from mqenterprise.operations.settings import NodeSettings, OperationsSettings, split_address
from qmnode.directory.port import QueueManager, Site
from tests.lab.directory_objects import create

if TYPE_CHECKING:
    from collections.abc import Callable

    from mqenterprise.directory.open_directory import EnterpriseDirectory


def no_directory() -> NoReturn:
    raise AssertionError("the directory was opened")


@pytest.mark.servers
def test_machines_are_those_of_the_directory_by_site_and_by_name(
    directory: EnterpriseDirectory, fresh_name: Callable[[str], str]
) -> None:
    site = fresh_name("Bremen")
    within = create(directory, Site(name=site)).identifier
    assert within is not None
    names = [fresh_name(name) for name in ("ops-a", "ops-b", "ops-c")]
    for name, foreign in zip(names, (False, False, True), strict=True):
        directory.queue_managers.add(
            QueueManager(
                computer_name=name,
                qualified_computer_name=f"{name}.lab.test",
                site_identifier_list=(within,),
                foreign_system=foreign,
            )
        )
    settings = OperationsSettings(machines={names[1]: NodeSettings(address="10.1.2.3:9443")})

    def chosen(*machines: str, site: str | None = None) -> list[Node]:
        return chosen_nodes(settings, lambda: contextlib.nullcontext(directory), machines=machines, site=site)

    a, b = Node(names[0], f"{names[0]}.lab.test", 8443), Node(names[1], "10.1.2.3", 9443)
    assert chosen(site=site) == [a, b]
    assert chosen(names[0].upper()) == [a]
    assert {a, b} <= set(chosen())
    for machines, place, word in (
        (("nobody",), None, "nobody"),
        (("nobody",), site, site),
        ((names[2],), None, names[2]),
        ((), "no-such-site", "no-such-site"),
    ):
        with pytest.raises(OperationsError) as caught:
            chosen(*machines, site=place)
        assert word in caught.value.sentence


def test_machines_with_addresses_need_no_directory() -> None:
    settings = OperationsSettings(
        machines={"Alpha": NodeSettings(address="[::1]:9000"), "b": NodeSettings(address="x")}
    )

    found = chosen_nodes(settings, no_directory, machines=["ALPHA", "b", "alpha"], site=None)

    assert found == [Node("Alpha", "[::1]", 9000), Node("b", "x", 8443)]


@pytest.mark.parametrize(
    "text", ["", "a:", "a:0", "a:65536", "a:-1", "a:١", "http://a", "u@a", "a/b", "[::1", "a b", "a#"]
)
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        split_address(text, 1)
