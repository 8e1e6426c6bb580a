"""Clients that nobody here wrote, each with a program of its own: what they send is what they receive.

Each sends, receives, browses (go-amqp cannot), releases or rejects, is refused a queue, has 1 and 1,000 credits, bodies
of 0 bytes to 4 MB, and goes on after its connection is cut.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest
from proton.handlers import MessagingHandler
from proton.reactor import Container

from tests.amqp.conftest import SECRET, Browsing, amqp_message, in_thread
from tests.amqp.foreign import CLIENTS, go, jms, rhea, run
from tests.lab.waiting import holds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.amqp.conftest import Door

pytestmark = [pytest.mark.servers, pytest.mark.slow]


@pytest.fixture(autouse=True)
async def cut(door: Door) -> AsyncIterator[None]:
    """A message in the queue ``cut`` cuts all connections."""
    security = await door.manager.queue_security(r".\private$\orders")
    await door.manager.create_queue(r".\private$\cut", security=security)

    async def asked() -> bool:
        return bool(await door.bodies("cut"))

    async def cutter() -> None:
        await holds(asked, 300, "somebody asks for a cut")
        for connection in list(door.door.connections):
            connection.abort()

    cutting = asyncio.create_task(cutter())
    yield
    assert cutting.done(), "the client asked for no cut"
    await cutting


class Proton(MessagingHandler):  # type: ignore[misc]
    """Sends all, browses all with much credit, receives with one credit at a time, releases one, and goes on after a
    cut.
    """

    bodies = (b"", b"proton", b"x" * (1 << 20), b"y" * 4_000_000, b"cut", b"again")

    def __init__(self, url: str) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.url = url
        self.found: list[bytes] = []
        self.browsed: list[bytes] = []
        self.refused: list[str] = []
        self.accepted = 0
        self.released = False
        self.left = list(self.bodies[:4])

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.connection = self.container.connect(self.url, allowed_mechs="ANONYMOUS")
        self.sender = self.container.create_sender(self.connection, "orders")

    def on_sendable(self, event: Any) -> None:
        if event.sender == self.sender:
            while self.left and self.sender.credit:
                self.sender.send(amqp_message(self.left.pop(0)))
        elif event.sender.target.address == "cut" and b"cut" not in self.found:
            self.found.append(b"cut")
            event.sender.send(amqp_message(b"cut"))

    def on_accepted(self, event: Any) -> None:
        self.accepted += 1
        if self.accepted == 4:
            self.browser = self.container.create_receiver(self.connection, "orders", name="browser", options=Browsing())
            self.browser.flow(1000)

    def on_message(self, event: Any) -> None:
        body = bytes(event.message.body)
        if event.receiver == getattr(self, "browser", None):
            self.browsed.append(body)
            self.accept(event.delivery)
            if len(self.browsed) == 4:
                event.receiver.close()
                self.receiver = self.container.create_receiver(self.connection, "orders")
                self.receiver.flow(1)
            return
        if not self.released:
            self.released = True
            self.release(event.delivery)
        else:
            self.found.append(body)
            self.accept(event.delivery)
        if len(self.found) == 4:
            self.container.create_sender(self.connection, "cut")
        elif body == b"again":
            self.container.create_sender(self.connection, "nothing")
        else:
            event.receiver.flow(1)

    def on_disconnected(self, event: Any) -> None:
        self.left = [b"again"]

    def on_link_opened(self, event: Any) -> None:
        if b"cut" in self.found and event.link.is_receiver and event.link.source.address == "orders":
            event.link.flow(1)

    def on_link_error(self, event: Any) -> None:
        self.refused.append(event.link.remote_condition.name)
        self.connection.close()


async def test_proton_for_python(door: Door) -> None:
    client = Proton(door.url)
    await in_thread(lambda: Container(client).run())
    assert client.browsed == list(client.bodies[:4])
    assert client.found == list(client.bodies)
    assert client.refused == ["amqp:not-found"]
    assert await door.bodies("orders") == []


async def test_rhea_for_javascript(door: Door) -> None:
    place = rhea()
    output = await run("node", "client.js", str(door.door.port), "orders", cwd=place)
    assert output.splitlines() == ["refused: amqp:not-found", "done"]
    assert await door.bodies("orders") == [bytes([ord("a") + number]) * 200_000 for number in range(20)]


async def test_go_amqp(door: Door) -> None:
    place = go()
    output = await run("./client", door.url, "orders", cwd=place)
    assert output.splitlines() == ["refused: true", "done"]
    assert await door.bodies("orders") == []
    assert await door.bodies(r".\SYSTEM$;DEADLETTER") == [b"go"]


async def test_qpid_jms_browses_and_moves_in_transactions(door: Door) -> None:
    place = jms()
    output = await run("java", "-cp", "lib/*", "Client.java", f"{door.url}?jms.username=x", cwd=place)
    assert output.splitlines()[-2:] == ["refused: InvalidDestinationException", "done"]
    assert await door.bodies("orders") == []
    done = [message.decoded().value for message in await door.messages("done")]
    assert done == [str(number) for number in range(20)]
    assert await door.bodies("exact") == []


async def test_the_client_of_the_azure_sdk(door: Door) -> None:
    output = await run(
        sys.executable, str(CLIENTS / "azure_client.py"), str(door.door.port), "orders", "ops", SECRET, cwd=CLIENTS
    )
    assert output.splitlines() == ["refused: b'amqp:not-found'", "done"]
    assert await door.bodies("orders") == []
    assert await door.bodies(r".\SYSTEM$;DEADLETTER") == [b"azure"]
