"""Addresses and bridges of a machine's document: what holds, what loses, and what stays."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import qmnode
from qmnode.administration.asker import Asker
from qmnode.administration.document_faults import DocumentFault
from qmnode.administration.local_settings import Bridges, read_local
from qmnode.errors import ConfigurationError, MessageQueuingError
from qmnode.model.message import Message
from qmnode.settings.node import NodeSettings
from qmnode.structures.names import machine_address

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


NODE = Asker("the node")
OUT: dict[str, Any] = {"direction": "out", "queue": "orders", "peer": "amqp://127.0.0.1:1", "address": "orders"}
WITH_PASSWORD = OUT | {"user": "shop", "password_file": "/etc/broker.password"}


class Runner:
    """What runs bridges, or refuses to."""

    def __init__(self) -> None:
        self.running: Bridges = {}
        self.fault = ""

    async def prepare_bridges(self) -> None:
        if self.fault:
            raise ConfigurationError(self.fault)

    async def run_bridges(self, bridges: Bridges) -> None:
        if bridges:
            await self.prepare_bridges()
        self.running = bridges


@pytest.fixture
async def qm(tmp_path: Path) -> AsyncIterator[qmnode.QueueManager]:
    async with qmnode.QueueManager.open(tmp_path / "store") as manager:
        yield manager


async def running(qm: qmnode.QueueManager) -> Runner:
    runner = Runner()
    await qm.operations.local_settings.run_with(runner)
    return runner


async def apply(
    qm: qmnode.QueueManager, asker: Asker = NODE, *, dry_run: bool = False, **sections: Any
) -> list[tuple[str, str]]:
    done = await qm.operations.apply_document(asker, sections, dry_run=dry_run)
    return [(step["action"], step["bridge"] or "addresses") for step in done["steps"]]


async def is_own(qm: qmnode.QueueManager, address: str) -> bool:
    """Whether a message to the address is at once in the queue of this machine."""
    before = (await qm.queue(r".\private$\here")).message_count
    async with await qm.open_queue(rf"DIRECT=TCP:{address}\private$\here", qmnode.Access.SEND) as queue:
        await queue.send(Message(b"7"))
    return (await qm.queue(r".\private$\here")).message_count > before


async def test_a_declared_address_is_one_of_the_machine_until_it_is_declared_no_more(qm: qmnode.QueueManager) -> None:
    await qm.create_queue(r".\private$\here")
    assert not await is_own(qm, "192.0.2.7")
    assert await apply(qm, addresses=["192.0.2.7"], dry_run=True) == [("create", "addresses")]
    assert not await is_own(qm, "192.0.2.7")
    assert await apply(qm, addresses=["192.0.2.7"]) == [("create", "addresses")]
    assert await is_own(qm, "192.0.2.7")
    assert await apply(qm, addresses=["192.0.2.7"]) == []
    assert await apply(qm, addresses=["192.0.2.8"]) == [("change", "addresses")]
    assert (await is_own(qm, "192.0.2.7"), await is_own(qm, "192.0.2.8")) == (False, True)
    assert await apply(qm, queues=[]) == []
    assert await is_own(qm, "192.0.2.8"), "a document without the section leaves it alone"
    assert await apply(qm, addresses=[]) == [("delete", "addresses")]
    assert not await is_own(qm, "192.0.2.8")


async def test_addresses_of_the_document_hold_in_place_of_those_of_the_settings(tmp_path: Path) -> None:
    own = NodeSettings(addresses=("192.0.2.1", "shop.contoso.test"))
    async with qmnode.QueueManager.open(tmp_path / "store", own) as qm:
        await qm.create_queue(r".\private$\here")
        assert await is_own(qm, "192.0.2.1")
        assert (await qm.operations.show_document(NODE, everything=True))["addresses"] == ["192.0.2.1"]
        await apply(qm, addresses=["192.0.2.7"])
        assert (await is_own(qm, "192.0.2.1"), await is_own(qm, "192.0.2.7")) == (False, True)
        found = (await qm.status()).local_settings
    assert (found["addresses"], found["addresses_source"]) == (["192.0.2.7"], "document")
    assert found["addresses_settings"] == ["192.0.2.1", "shop.contoso.test"]


async def test_bridges_run_change_and_stop_as_documents_say(qm: qmnode.QueueManager) -> None:
    runner = await running(qm)
    assert await apply(qm, bridges={"billing": OUT}, dry_run=True) == [("create", "billing")]
    assert not runner.running
    assert await apply(qm, bridges={"billing": OUT}) == [("create", "billing")]
    assert runner.running["billing"].peer == "amqp://127.0.0.1:1"
    assert await apply(qm, bridges={"billing": OUT | {"window": 200}}) == [], "the default is no change"
    done = await qm.operations.apply_document(NODE, {"bridges": {"billing": OUT | {"window": 7}}})
    assert done["steps"][0]["changes"] == {"window": {"from": None, "to": 7}}
    assert runner.running["billing"].window == 7
    assert await apply(qm, queues=[]) == [] and runner.running
    assert await apply(qm, bridges={}) == [("delete", "billing")]
    assert not runner.running


async def test_of_a_bridge_that_both_have_the_documents_settings_hold(tmp_path: Path) -> None:
    own = NodeSettings(bridges={"billing": OUT | {"window": 3}, "own": OUT})
    async with qmnode.QueueManager.open(tmp_path / "store", own) as qm:
        runner = await running(qm)
        assert runner.running["billing"].window == 3
        await apply(qm, bridges={"billing": OUT})
        assert runner.running["billing"].window == 200 and "own" in runner.running
        found = (await qm.status()).local_settings
        assert found["bridges"] == {"billing": "document", "own": "settings"}
        assert found["bridges_settings"] == ["billing", "own"]
        assert set((await qm.operations.show_document(NODE))["bridges"]) == {"billing"}
        assert set((await qm.operations.show_document(NODE, everything=True))["bridges"]) == {"billing", "own"}
        await apply(qm, bridges={})
        assert runner.running["billing"].window == 3, "that of node.yaml is there again"


async def test_a_document_outlives_a_restart_and_is_in_a_backup(tmp_path: Path) -> None:
    async with qmnode.QueueManager.open(tmp_path / "store") as qm:
        await qm.create_queue(r".\private$\here")
        await apply(qm, addresses=["192.0.2.7"], bridges={"billing": OUT})
        await qm.backup(tmp_path / "copy")
        await apply(qm, addresses=["192.0.2.8"], bridges={})
    async with qmnode.QueueManager.open(tmp_path / "store") as qm:
        assert await is_own(qm, "192.0.2.8") and not (await running(qm)).running
    async with qmnode.QueueManager.open(tmp_path / "copy") as qm:
        runner = await running(qm)
        assert await is_own(qm, "192.0.2.7") and set(runner.running) == {"billing"}
        changed = [("change", "addresses"), ("delete", "billing")]
        assert await apply(qm, addresses=["192.0.2.8"], bridges={}) == changed, "and is made true again"


async def test_a_node_that_cannot_run_a_bridge_takes_no_document_with_one(qm: qmnode.QueueManager) -> None:
    runner = await running(qm)
    runner.fault = "bridges needs the extra amqp"
    with pytest.raises(MessageQueuingError, match="needs the extra amqp"):
        await apply(qm, bridges={"billing": OUT}, queues=[{"name": "new"}])
    assert await apply(qm, bridges={}) == []
    assert not [queue for queue in await qm.queues() if "new" in queue.pathname]


async def test_a_node_starts_without_what_bridges_of_its_document_need(qm: qmnode.QueueManager) -> None:
    """Nobody could apply a better document while it is down."""
    await apply(qm, bridges={"billing": OUT})
    runner = Runner()
    runner.fault = "bridges needs the extra amqp"
    await qm.operations.local_settings.run_with(runner)
    assert "needs the extra amqp. Apply the document" in qm.troubles["document"]


async def test_what_a_later_release_wrote_is_left_out_and_said(tmp_path: Path) -> None:
    async with qmnode.QueueManager.open(tmp_path / "store") as qm:
        qm.store.put_meta(
            "document", b'{"addresses": [], "bridges": {"a": {"new": 1}, "b": %s}}' % json.dumps(OUT).encode()
        )
    async with qmnode.QueueManager.open(tmp_path / "store") as qm:
        assert set((await running(qm)).running) == {"b"}
        assert "bridges.a.new: unknown" in qm.troubles["document"]
        await apply(qm, bridges={"b": OUT, "c": OUT})
        assert "document" not in qm.troubles


async def test_only_who_could_read_the_file_sends_a_password_to_a_new_peer(qm: qmnode.QueueManager) -> None:
    for asker in (Asker("ann", "tcp"), Asker("uid:4242", "unix"), Asker("uid:4242"), Asker("uid:0", "tcp")):
        assert await apply(qm, asker, bridges={"billing": WITH_PASSWORD}, dry_run=True)
        with pytest.raises(MessageQueuingError, match="root and the account of the node alone"):
            await apply(qm, asker, bridges={"billing": WITH_PASSWORD})
    assert await apply(qm, Asker("uid:0"), bridges={"billing": WITH_PASSWORD}) == [("create", "billing")]
    ann = Asker("ann", "tcp")
    assert await apply(qm, ann, bridges={"billing": WITH_PASSWORD | {"window": 7}, "plain": OUT})
    for other in ({"peer": "amqp://127.0.0.1:2"}, {"password_file": "/etc/shadow"}, {"user": "root"}):
        with pytest.raises(MessageQueuingError, match="bridge billing"):
            await apply(qm, ann, bridges={"billing": WITH_PASSWORD | other})
    assert await apply(qm, ann, bridges={}) == [("delete", name) for name in ("billing", "plain")]


@pytest.mark.parametrize(
    ("section", "wrong", "place", "words"),
    [
        ("addresses", "192.0.2.7", ("addresses",), "expected a list of IP addresses"),
        ("addresses", ["192.0.2.7", "shop"], ("addresses", 1), "'shop' is no IPv4 or IPv6 address"),
        ("addresses", [3], ("addresses", 0), "3 is no IPv4"),
        ("addresses", ["::1"] * 1001, ("addresses",), "at most 1000"),
        ("bridges", [OUT], ("bridges",), "by name"),
        ("bridges", {"a b": OUT}, ("bridges", "'a b'"), "the name of a bridge"),
        ("bridges", {3: OUT}, ("bridges", "3"), "the name of a bridge"),
        ("bridges", {"a": 3}, ("bridges", "a"), "expected a bridge"),
        ("bridges", {"a": OUT | {"pear": "x"}}, ("bridges", "a", "pear"), "did you mean peer?"),
        ("bridges", {"a": {"queue": "x"}}, ("bridges", "a", "direction"), "it is missing"),
        ("bridges", {"a": OUT | {"direction": "up"}}, ("bridges", "a", "direction"), "give 'out' or 'in'"),
        ("bridges", {"a": OUT | {"peer": "http://x"}}, ("bridges", "a", "peer"), "peer is amqp://HOST"),
        ("bridges", {"a": OUT | {"user": "x"}}, ("bridges", "a"), "user goes with"),
        ("bridges", {"a": OUT | {"password": "x"}}, ("bridges", "a", "password"), "unknown"),
        ("bridges", {"a": OUT | {"message_size": "1 foot"}}, ("bridges", "a", "message_size"), ""),
    ],
)
def test_a_mistake_has_its_place_and_what_to_write(
    section: str, wrong: Any, place: tuple[Any, ...], words: str
) -> None:
    with pytest.raises(DocumentFault) as caught:
        read_local({section: wrong})
    assert caught.value.place == place and words in caught.value.sentence_alone


BRIDGES = st.dictionaries(
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True),
    st.fixed_dictionaries(
        {
            "direction": st.sampled_from(["out", "in"]),
            "queue": st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20),
            "peer": st.sampled_from(["amqps://broker.example", "amqp://[::1]:5672"]),
            "address": st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20),
        },
        optional={
            "virtual_host": st.text(st.characters(exclude_categories=("Cs",)), max_size=5),
            "window": st.integers(1, 10_000),
            "message_size": st.integers(1024, 2**40) | st.just("3MB"),
            "idle_timeout": st.floats(1, 1e6),
        },
    )
    | st.just(WITH_PASSWORD)
    | st.just(
        OUT
        | {"peer": "amqps://b", "certificate": "/c.pem", "private_key": "/k.pem", "authorities": "/a.pem"}
        | {"guarantee": "exactly-once", "ledger": "l"}
    )
    | st.just(OUT | {"user": "u", "password_secret": {"name": "s", "settings": {"region": "x"}}}),
    max_size=4,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(addresses=st.lists(st.ip_addresses().map(str).filter(machine_address), max_size=4), bridges=BRIDGES)
async def test_the_document_of_a_node_makes_another_like_it(
    qm: qmnode.QueueManager, addresses: list[str], bridges: dict[str, Any]
) -> None:
    await qm.operations.apply_document(NODE, {"addresses": addresses, "bridges": bridges})
    shown = await qm.operations.show_document(NODE)
    assert await apply(qm, **shown) == [], "the node is as its document says"
    assert await apply(qm, addresses=addresses, bridges=bridges) == []
    await apply(qm, addresses=[], bridges={})
    await apply(qm, **shown)
    assert await qm.operations.show_document(NODE) == shown


async def test_a_token_shows_no_certificate_of_the_node_to_a_new_peer(qm: qmnode.QueueManager) -> None:
    await running(qm)
    shown = OUT | {
        "peer": "amqps://mallory.example",
        "certificate": "/etc/qmnode/c.pem",
        "private_key": "/etc/qmnode/k",
    }
    with pytest.raises(MessageQueuingError, match="alone may log in to a peer"):
        await apply(qm, Asker("ann", "tcp"), bridges={"billing": shown})
    assert await apply(qm, bridges={}) == []


async def test_a_plan_says_what_the_node_would_refuse(qm: qmnode.QueueManager) -> None:
    runner = await running(qm)
    planned = {"bridges": {"billing": WITH_PASSWORD, "plain": OUT}}
    done = await qm.operations.apply_document(Asker("ann", "tcp"), planned, dry_run=True)
    reasons = {step["bridge"]: step["reason"] for step in done["steps"]}
    assert reasons["plain"] is None
    assert reasons["billing"].startswith("will be refused: bridge billing: root and the account of the node alone")
    runner.fault = "bridges needs the extra amqp"
    done = await qm.operations.apply_document(NODE, planned, dry_run=True)
    assert {step["reason"] for step in done["steps"]} == {"will be refused: bridges needs the extra amqp"}


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255"])
def test_an_address_that_no_machine_has_is_refused(address: str) -> None:
    with pytest.raises(DocumentFault, match="address of a machine"):
        read_local({"addresses": [address]})
