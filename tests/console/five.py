"""An enterprise of three sites and five nodes, with what an administrator meets in a week."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import qmnode
from mqenterprise.directory.admission import SETTINGS_FILE, admit
from mqenterprise.directory.open_directory import EnterpriseDirectory
from qmnode import Message
from qmnode.directory.port import QueueManager, RoutingLink, Site
from qmnode.structures.guid import guid_to_text
from tests.console.conftest import ConsoleLab, write_tokens
from tests.console.shown import EVIL, failed
from tests.directory.test_commands import written_settings
from tests.lab.addresses import HOST, free_alias, free_port
from tests.lab.directory_objects import create
from tests.lab.nodes import NodeProcess
from tests.management.conftest import write_certificate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mqenterprise.directory.private_slapd import EmbeddedDirectory

MACHINES = {
    "AMS-1": "Amsterdam", "AMS-2": "Amsterdam", "BRE-1": "Bremen", "BRE-2": "Bremen", "CPH-1": "Copenhagen",
}  # fmt: skip
LINKS = {("Amsterdam", "Bremen"): ("AMS-1", "BRE-1"), ("Bremen", "Copenhagen"): ("BRE-1", "CPH-1")}
JOURNALED = 230
STUCK = 41
"""Messages that wait at AMS-1 for a queue of BRE-2, whose name has no address here."""
ORDER = "4711"
"""A number that one order has in its body, and nothing else anywhere."""


def declare(directory: EnterpriseDirectory) -> dict[str, bytes]:
    """The sites, links and machines; returns the identifiers of the queue managers."""
    sites = {name: create(directory, Site(name=name)).identifier for name in dict.fromkeys(MACHINES.values())}
    managers: dict[str, Any] = {}
    for name, site in MACHINES.items():
        identifier = sites[site]
        assert identifier is not None
        made = directory.queue_managers.add(
            QueueManager(computer_name=name, site_identifier_list=(identifier,), routing_server=name.endswith("1"))
        )
        managers[name] = made.identifier
    for (first, second), gates in LINKS.items():
        one, other = sites[first], sites[second]
        assert one is not None and other is not None
        link = RoutingLink(
            site1_identifier=one, site2_identifier=other, actual_cost=5,
            site_gate_identifier_list=tuple(managers[name] for name in gates),
        )  # fmt: skip
        create(directory, link)
    return managers


async def _send(qm: Any, queue: str, messages: list[Message], **properties: Any) -> None:
    name = rf".\private$\{queue}"
    await qm.create_queue(name, **properties)
    async with await qm.open_queue(rf"DIRECT=OS:{name}", qmnode.Access.SEND) as opened:
        for first in range(0, len(messages), 1000):
            await opened.send_many(messages[first : first + 1000])


async def _taken(qm: Any, queue: str, number: int) -> None:
    async with await qm.open_queue(rf"DIRECT=OS:.\private$\{queue}", qmnode.Access.RECEIVE) as opened:
        left = number
        while left:
            left -= len(await opened.receive_many(left, 5))


def orders(*numbers: int, **others: Any) -> list[Message]:
    """Orders with their numbers in label and body."""
    return [
        Message(
            json.dumps({"order": n, "customer": "Contoso"}).encode(), label=f"order {n}", recoverable=True, **others
        )
        for n in numbers
    ]


async def fill(lab: ConsoleLab, identifiers: dict[str, bytes], many: int) -> None:
    """Messages of each kind; ``many`` in the largest queue."""
    async with await lab.nodes["AMS-1"].connect() as qm:
        await _send(qm, "orders", orders(*range(100_000, 100_000 + many)))
        await _send(qm, "billing", orders(*range(200_000, 200_000 + JOURNALED + 20)), journaling=True)
        await _taken(qm, "billing", JOURNALED)
        await _send(qm, "sales", [])
        await _send(
            qm, "error", [failed(n, "System.TimeoutException" if n % 3 else "Sales.PriceMissing") for n in range(9)]
        )
        hostile = Message(b"<script>alert(1)</script>", label=EVIL, recoverable=True)
        await _send(qm, "<b>evil</b>=\u202ex", [hostile, *orders(1, 2)])
        waiting = rf"PRIVATE={guid_to_text(identifiers['BRE-2'])}\00000009"
        async with await qm.open_queue(waiting, qmnode.Access.SEND) as queue:
            await queue.send_many(orders(*range(300_000, 300_000 + STUCK)))
        far = rf"PRIVATE={guid_to_text(identifiers['CPH-1'])}\00000009"
        async with await qm.open_queue(far, qmnode.Access.SEND) as queue:
            await queue.send_many(orders(*range(310_000, 310_007)))
    async with await lab.nodes["BRE-1"].connect() as qm:
        lost = orders(*range(400_000, 400_027), negative_journaling_requested=True)
        await _send(qm, "expired", lost)
        async with await qm.open_queue(r"DIRECT=OS:.\private$\expired", qmnode.Access.RECEIVE) as opened:
            await opened.purge()
        await _send(qm, "invoices", orders(*range(500_000, 500_000 + max(many // 5, 150))))
    async with await lab.nodes["BRE-2"].connect() as qm:
        await _send(qm, "archive", [*orders(int(ORDER)), *orders(*range(600_000, 600_400))])
    async with await lab.nodes["CPH-1"].connect() as qm:
        await _send(qm, "scratch", orders(*range(700_000, 700_030)))
        await _send(qm, "tänk $%", orders(*range(3)))


@contextmanager
def enterprise(folder: Path, slapd: EmbeddedDirectory, many: int) -> Iterator[ConsoleLab]:
    """The five nodes, the directory and the console over them."""
    certificate, key = write_certificate(folder)
    tokens = write_tokens(folder)
    lab = ConsoleLab(folder, {})
    with EnterpriseDirectory(slapd.client_settings()) as directory:
        identifiers = declare(directory)
        for name in MACHINES:
            admit(directory, name, folder / f"admitted-{name}")
    addresses: dict[str, Any] = {}
    taken: list[str] = []
    try:
        for name in MACHINES:
            home = folder / name
            home.mkdir()
            lab.ports[name] = free_port()
            taken.append(free_alias((1801, 3527), taken))
            lab.nodes[name] = node = NodeProcess(
                home,
                computer_name=name,
                transport={"enabled": True, "address": taken[-1]},
                directory={"name": "ldap", "settings": {"file": str(folder / f"admitted-{name}" / SETTINGS_FILE)}},
                management={
                    "socket": str(home / "management.sock"), "listen": f"{HOST}:{lab.ports[name]}",
                    "tokens": str(tokens), "certificate": str(certificate), "private_key": str(key),
                    "audit_log": str(home / "audit.log"), "console": name == "CPH-1",
                    "key_rotation": {"enabled": name == "BRE-1", "modulus_length": 2048},
                },
            )  # fmt: skip
            node.launch()
            addresses[name] = {"address": f"{HOST}:{lab.ports[name]}"}
        for node in lab.nodes.values():
            node.wait_for("ready")
        asyncio.run(fill(lab, identifiers, many))
        settings = {"authority": "certificate.pem", "connect_timeout": 2, "timeout": 10, "machines": addresses}
        (folder / "nodes.yaml").write_text(json.dumps(settings))
        lab.url = f"https://{HOST}:{free_port()}/"
        lab.start(written_settings(slapd.client_settings(), folder))
        yield lab
    finally:
        lab.stop()
        for node in lab.nodes.values():
            if node.running:
                node.stop()
