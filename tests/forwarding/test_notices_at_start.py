"""Notices about messages that end at the start, before the directory has answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from qmnode import Access, QueueManager
from qmnode.directory.file import FileDirectory
from qmnode.model.positions import SystemClock
from qmnode.structures.enumerations import MessageClass
from tests.adversary.lab import enterprise_in, packets_of, send
from tests.lab.waiting import eventually
from tests.transport.conftest import PLAIN, settings_of

pytestmark = pytest.mark.servers


class Later(SystemClock):
    """The clock an hour from now."""

    def time(self) -> float:
        return super().time() + 3600


async def test_a_negative_acknowledgment_has_its_body_while_the_directory_is_silent(tmp_path: Path) -> None:
    """Its message is of a machine of the enterprise, which the node can't know yet."""
    async with enterprise_in(tmp_path) as enterprise:
        source, target = await enterprise.start("SOURCE"), await enterprise.start("TARGET")
        await enterprise.start("ROUTER")
        await target.create_queue(PLAIN)
        await send(
            source, enterprise.name("TARGET", 5), [b"an order"], transactional=False,
            acknowledgements_requested=0x0C, administration_queue_format_name=enterprise.name("SOURCE", 5),
            time_to_be_received=600,
        )  # fmt: skip
        async with await target.open_queue(f"DIRECT=OS:{PLAIN}", Access.PEEK) as queue:
            await queue.peek(timeout=60)
        machine, folder = enterprise.machines["TARGET"], tmp_path / "TARGET"
        await enterprise.stop("TARGET")
        directory = FileDirectory(tmp_path / "not-there.yaml")
        settings = settings_of("TARGET", machine.listens)
        node = await QueueManager.open(folder, settings, directory=directory, clock=Later())
        enterprise.nodes["TARGET"] = node
        node.adopt_identifier(machine.identifier)
        await node.network.start()
        await eventually(lambda: bool(packets_of(node)), "the message expires")
        (packet,) = packets_of(node)
        assert packet.message_class == MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT
        assert packet.body == b"an order"
