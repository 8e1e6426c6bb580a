"""The console while a node hangs, is killed or the directory is down: it shows what is true, or says that it is old."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import qmnode
from mqenterprise.console.enterprise import Crossings, DirectoryEnterprise, look_up
from mqenterprise.directory.errors import DirectoryUnavailable
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.operations.settings import OperationsSettings
from mqenterprise.routes.enterprise import of_directory
from qmnode.directory.port import Queue
from qmnode.structures.guid import guid_to_text, new_guid
from tests.console.browser import awaited
from tests.lab.waiting import holds, wait_until

if TYPE_CHECKING:
    import httpx

    from mqenterprise.directory.private_slapd import EmbeddedDirectory
    from tests.console.conftest import ConsoleLab

pytestmark = [pytest.mark.servers]

TIMEOUT = 10.0
"""Seconds after which the console gives up a request to a node of the lab."""
POLL = 3.0
"""Seconds between two questions of a browser."""


def states(client: httpx.Client) -> dict[str, str]:
    return {node["machine"]: node["state"] for node in client.get("overview").json()["nodes"]}


def test_a_node_that_hangs_is_said_to_be_unknown_and_no_list_waits_for_it(lab: ConsoleLab) -> None:
    with lab.signed_in("administer") as client:
        wait_until(lambda: states(client)["BETA"] == "up", 60, "BETA is up")
        lab.nodes["BETA"].send_signal(signal.SIGSTOP)
        try:
            wait_until(lambda: states(client)["BETA"] != "up", TIMEOUT, "BETA is not called up any more")
            (link,) = client.get("overview").json()["links"]
            assert (link["state"], link["reason"]) == ("unknown", "no gate of Berlin has answered lately: BETA")
            stale = {one["machine"]: one for one in client.get("queues").json()["stale"]}
            assert stale["BETA"]["as_of"] is not None
            for place in ("jobs", "failures", "audit", "messages"):
                page = client.get(place).json()
                assert "BETA" in {one["machine"] for one in page["stale"]}, place
                assert "ALPHA" not in {one["machine"] for one in page["stale"]}, place
            refused = client.get(r"nodes/BETA/v1/queues/BETA%5Cprivate$%5Cnone")
            assert refused.status_code == 503
            assert refused.json()["detail"].startswith("BETA cannot be asked: it ")
        finally:
            lab.nodes["BETA"].send_signal(signal.SIGCONT)
        wait_until(lambda: states(client)["BETA"] == "up", 60, "BETA is up again")


def test_a_directory_that_hangs_is_said_to_and_its_last_answer_stays(slapd: EmbeddedDirectory) -> None:
    awake = threading.Event()

    async def look() -> None:
        enterprise = DirectoryEnterprise(OperationsSettings(), slapd.client_settings)
        read = enterprise._read_directory

        def hang() -> Any:
            awake.wait(240)
            return read()

        try:
            first = await enterprise.outline()
            assert (first.reason, first.as_of is None) == ("", False)
            enterprise._read_directory = hang  # type: ignore[method-assign]

            async def is_late() -> bool:
                return bool((await enterprise.outline()).reason)

            await holds(is_late, TIMEOUT, "the directory is late")
            late = await enterprise.outline()
            assert "it has not answered for" in late.reason
            assert (late.machines, late.as_of) == (first.machines, first.as_of)
            request = asyncio.ensure_future(enterprise.outline())
            for _ in range(100):
                await asyncio.sleep(0)
            assert request.done() and request.result().reason, "once it is late, no request waits for it"
            began = time.monotonic()
            while time.monotonic() - began < 2.5:  # it goes on
                assert await is_late()
                await asyncio.sleep(0.1)
            awake.set()

            async def has_answered() -> bool:
                return not await is_late()

            await holds(has_answered, TIMEOUT, "the directory answers again")

            def fail() -> Any:
                raise DirectoryUnavailable("it is down")

            enterprise._read_directory = fail  # type: ignore[method-assign]

            async def is_down() -> bool:
                return "it is down" in (await enterprise.outline()).reason

            await holds(is_down, 5.0, "a reading that hung makes no later one rare")
        finally:
            awake.set()
            await enterprise.close()

    asyncio.run(look())


@pytest.mark.soak  # the clock counts
def test_what_is_shown_is_true_within_five_seconds(lab: ConsoleLab) -> None:
    """A browser asks every three seconds."""
    with lab.signed_in("administer") as client:
        wait_until(lambda: states(client)["BETA"] == "up", 60, "BETA is up")
        for stop, go in ((signal.SIGSTOP, signal.SIGCONT), (signal.SIGKILL, None)):
            began = time.monotonic()
            lab.nodes["BETA"].send_signal(stop)
            while states(client)["BETA"] == "up":
                time.sleep(POLL)  # the interval is the subject: what a person sees is as old as this
            took = time.monotonic() - began
            print(f"{stop.name} is seen after {took:.1f} s")
            assert took < 5.0
            for place in ("overview", "queues", "jobs", "failures", "audit", "messages"):
                began = time.monotonic()
                assert client.get(place).status_code == 200
                assert time.monotonic() - began < 5.0, place
            if go is None:
                lab.nodes["BETA"].process.wait(240)
                lab.nodes["BETA"].start()
            else:
                lab.nodes["BETA"].send_signal(go)
            wait_until(lambda: states(client)["BETA"] == "up", 60, "BETA is up again")


def test_messages_wait_at_the_link_that_they_cross_next(lab: ConsoleLab, slapd: EmbeddedDirectory) -> None:
    with EnterpriseDirectory(slapd.client_settings()) as directory:
        beta = directory.queue_managers.find("BETA")
    assert beta is not None and beta.identifier is not None
    name = rf"PRIVATE={guid_to_text(beta.identifier)}\00000001"

    async def send() -> None:
        async with (
            await lab.nodes["ALPHA"].connect() as qm,
            await qm.open_queue(name, qmnode.Access.SEND) as queue,
            await qm.open_queue(r"DIRECT=OS:elsewhere\private$\none", qmnode.Access.SEND) as direct,
        ):
            for one in (queue, direct):
                await one.send_many([qmnode.Message(b"x", recoverable=True)] * 3)

    def waiting(client: httpx.Client) -> int:
        return int(client.get("overview").json()["links"][0]["waiting"] or 0)

    with lab.signed_in("read") as client:
        awaited(send)
        wait_until(lambda: waiting(client) == 3, 60, "the messages are counted at the link")


def test_the_way_to_a_public_queue_is_known_once_its_computer_was_looked_up(
    lab: ConsoleLab, slapd: EmbeddedDirectory
) -> None:
    with EnterpriseDirectory(slapd.client_settings()) as directory:
        public = directory.queues.add(Queue(pathname=r"BETA\crossed")).identifier
        assert public is not None
        topology, name = of_directory(directory), f"PUBLIC={guid_to_text(public)}"
        asked = Crossings(topology)
        assert asked.link("ALPHA", name) is None
        assert asked.link("ALPHA", f"PUBLIC={guid_to_text(new_guid())}") is None
        assert asked.is_incomplete
        known = Crossings(topology, look_up(directory, asked))
    assert set(known.link("ALPHA", name) or ()) == {"Amsterdam", "Berlin"}
    assert known.link("BETA", name) is None
    assert sorted(map(str, known.pathnames.values())) == ["None", "beta\\crossed"]
    assert not known.is_incomplete
