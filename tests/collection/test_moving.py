"""The modules that carry and switch queues of Windows, between nodes that run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from qmnode import Message
from tests.collection.conftest import ModuleFailed, Modules
from tests.operations.carried import Estate, at, create, messages_of, send
from tests.operations.switched import Enterprise

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mqenterprise.directory.private_slapd import EmbeddedDirectory

pytestmark = [pytest.mark.servers, pytest.mark.one_server(reason="how messages move does not depend on the product")]


@pytest.fixture
def estate(tmp_path: Path) -> Iterator[Estate]:
    one = Estate(tmp_path)
    try:
        one.start()
        yield one
    finally:
        one.stop()


@pytest.mark.usefixtures("in_process")
def test_a_queue_is_counted_in_check_mode_and_carried_once(
    estate: Estate, slapd: EmbeddedDirectory, tmp_path: Path
) -> None:
    for node in (estate.old, estate.new):
        at(create(node, "orders"))
    at(send(estate.old, "orders", [Message(b"%d" % number, recoverable=True) for number in range(30)]))
    directory = slapd.client_settings().model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    modules = Modules(directory=directory, nodes_file=str(tmp_path / "nodes.yaml"))
    options = {"queue": "orders", "source": f"{estate.old_address}:{estate.mapper}", "node": "new"}
    counted = modules.run("carry", check=True, **options)
    assert (counted["changed"], counted["summary"]["messages"]) == (True, 30)
    assert at(messages_of(estate.new, "orders")) == []
    assert modules.run("carry", **options)["summary"]["messages"] == 30
    assert not modules.run("carry", **options)["changed"]
    assert [message.body for message in at(messages_of(estate.new, "orders"))] == [b"%d" % n for n in range(30)]
    with pytest.raises(ModuleFailed, match="there is no such queue there"):
        modules.run("carry", **options | {"queue": "absent", "into": "orders"})


@pytest.mark.soak
@pytest.mark.usefixtures("in_process")
def test_queues_are_switched_and_taken_back(slapd: EmbeddedDirectory, tmp_path: Path) -> None:
    enterprise = Enterprise(tmp_path, slapd)
    try:
        asyncio.run(enterprise.start())
        asyncio.run(enterprise.publish("orders"))
        modules = Modules(
            directory_file=str(tmp_path / "directory.yaml"), nodes_file=str(tmp_path / "nodes.yaml"),
            source=f"{enterprise.addresses['SWOLD']}:{enterprise.mapper}", node="SWNEW", plans=str(tmp_path),
            queues=["SWOLD\\orders"],
        )  # fmt: skip
        assert modules.run("switch", check=True)["plans"] == [
            {"queue": "swold\\orders", "done": [], "taken_back": False}
        ]
        assert modules.run("switch", until="carry")["plans"][0]["done"] == ["check", "prepare", "carry"]
        assert [modules.run("switch")["changed"], modules.run("switch")["changed"]] == [True, False]
        assert enterprise.directory.queues.find("SWNEW\\orders") is not None
        back = [modules.run("switch", state="taken_back")["changed"] for _ in range(2)]
        assert back == [True, False]
        assert enterprise.directory.queues.find("SWOLD\\orders") is not None
    finally:
        enterprise.stop()
