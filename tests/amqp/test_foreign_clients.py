"""Clients that nobody here wrote, each with a program of its own: what they send is what they receive."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.amqp.conftest import SECRET
from tests.amqp.foreign import CLIENTS, go, jms, rhea, run

if TYPE_CHECKING:
    from tests.amqp.conftest import Door

pytestmark = [pytest.mark.servers, pytest.mark.slow]


async def test_rhea_for_javascript(door: Door) -> None:
    place = rhea()
    output = await run("node", "client.js", str(door.door.port), "orders", cwd=place)
    assert output.splitlines() == ["refused: amqp:not-found", "done"]
    assert await door.bodies("orders") == []


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
    assert output.splitlines() == ["done"]
