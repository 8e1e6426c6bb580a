"""``migrate.yml`` over a list of queues, with its questions answered at a terminal; and a whole machine."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import select
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import qmnode
from tests.lab.nodes import PROJECT
from tests.operations.switched import Enterprise, Sender, bodies, outcome
from tests.remote_read.conftest import OPEN

if TYPE_CHECKING:
    from mqenterprise.directory.private_slapd import EmbeddedDirectory

pytestmark = [
    pytest.mark.soak,
    pytest.mark.servers,
    pytest.mark.one_server(reason="how queues move does not depend on the directory's product"),
]
_ENTER = "Enter to"
PRIVATE = r"DIRECT=OS:.\private$\plain"


def played(enterprise: Enterprise, *answers: str) -> str:
    """The output of the playbook, whose questions are answered at a terminal, one after the other."""
    values = {
        "source": f"{enterprise.addresses['SWOLD']}:{enterprise.mapper}", "node": "SWNEW", "follow": 2,
        "queues": [r"SWOLD\orders", r"SWOLD\bills", "plain"], "plans": str(enterprise.folder / "plans"),
        "nodes_file": str(enterprise.folder / "nodes.yaml"),
        "directory_file": str(enterprise.folder / "directory.yaml"),
    }  # fmt: skip
    person, terminal = pty.openpty()
    playing = subprocess.Popen(
        [str(Path(sys.executable).with_name("ansible-playbook")), "migrate.yml", "-e", json.dumps(values)],
        cwd=PROJECT / "playbooks", env=os.environ | {"PYTHONPATH": str(PROJECT), "ANSIBLE_NOCOLOR": "1"},
        stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # the playbook asks at its terminal
    )  # fmt: skip
    os.close(terminal)
    said, asked, heard = "", 0, 0.0
    deadline = time.monotonic() + 900
    while time.monotonic() < deadline:
        if select.select([person], [], [], 0.2)[0]:
            try:
                said += os.read(person, 65536).decode(errors="replace")
                heard = time.monotonic()
            except OSError:  # the terminal is closed: the playbook has ended
                break
        # A question throws away what was typed before it.
        if said.count(_ENTER) > asked and asked < len(answers) and time.monotonic() > heard + 3:
            os.write(person, f"{answers[asked]}\r".encode())
            asked += 1
    os.close(person)
    if playing.poll() is None:
        playing.terminate()
    assert playing.wait(60) == 0, said
    return said


@pytest.mark.timeout(0)
async def test_a_list_of_queues_is_moved_under_traffic_and_taken_back(slapd: EmbeddedDirectory, tmp_path: Path) -> None:
    enterprise, senders = Enterprise(tmp_path, slapd), dict[str, Sender]()
    try:
        await enterprise.start()
        publics = {name: await enterprise.publish(name, transactional=True) for name in ("orders", "bills")}
        for node in (enterprise.old, enterprise.new):
            async with qmnode.connect(node.socket) as manager:
                await manager.create_queue(r".\private$\plain", security=OPEN)
        private = Sender(enterprise.old, PRIVATE, transactional=False)
        senders = {name: Sender(enterprise.sender, public, transactional=True) for name, public in publics.items()}
        filling = asyncio.ensure_future(private.run())
        sending = [asyncio.ensure_future(sender.run()) for sender in senders.values()]
        while private.sent < 50 or min(sender.sent for sender in senders.values()) < 50:
            await asyncio.sleep(0.1)
        private.ends.set()
        await filling
        said = await asyncio.to_thread(played, enterprise, "", "")
        assert f"Private queues have {private.sent} messages" in " ".join(said.split())
        assert await bodies(enterprise.new, PRIVATE) == list(range(private.sent))
        assert await bodies(enterprise.old, PRIVATE) == []
        for name, public in publics.items():
            assert enterprise.directory.queues.find(rf"SWNEW\{name}") is not None
            numbers = await bodies(enterprise.new, public)
            assert outcome(numbers, len(numbers)) == (0, 0, 0) and len(numbers) >= 50
        said = await asyncio.to_thread(played, enterprise, "", "back")
        assert "changed=1" in said, "nothing but the way back is left to do"
        for sender in senders.values():
            sender.ends.set()
        await asyncio.gather(*sending)
        for name, public in publics.items():
            assert enterprise.directory.queues.find(rf"SWOLD\{name}") is not None
            while len(numbers := await bodies(enterprise.old, public)) < senders[name].sent:
                await asyncio.sleep(0.2)
            lost, doubled, disordered = outcome(numbers, senders[name].sent)
            print(f"{name}: {senders[name].sent} sent, {lost} lost, {doubled} doubled, {disordered} out of order")
            assert (lost, doubled) == (0, 0)
    finally:
        for sender in senders.values():
            sender.ends.set()
        enterprise.stop()


@pytest.mark.timeout(0)
async def test_a_whole_machine_is_switched_and_its_name_is_left_to_do(slapd: EmbeddedDirectory, tmp_path: Path) -> None:
    enterprise = Enterprise(tmp_path, slapd)
    try:
        await enterprise.start()
        publics = {name: await enterprise.publish(name) for name in ("orders", "bills", "news")}
        senders = {name: Sender(enterprise.sender, public, transactional=False) for name, public in publics.items()}
        sending = [asyncio.ensure_future(sender.run()) for sender in senders.values()]
        while min(sender.sent for sender in senders.values()) < 50:
            await asyncio.sleep(0.1)
        words = ("--machine", "SWOLD", "--sole-reader", "--follow", "2")
        _, errors = await asyncio.to_thread(enterprise.switch, *words, code=2)
        assert "DIRECT= names still lead to SWOLD" in errors
        for sender in senders.values():
            sender.ends.set()
        await asyncio.gather(*sending)
        for name, public in publics.items():
            while len(numbers := await bodies(enterprise.new, public)) < senders[name].sent:
                await asyncio.sleep(0.2)
            assert outcome(numbers, senders[name].sent) == (0, 0, 0)
        await asyncio.to_thread(enterprise.switch, *words, "--back")
        for name, public in publics.items():
            assert enterprise.directory.queues.find(rf"SWOLD\{name}") is not None
            while len(numbers := await bodies(enterprise.old, public)) < senders[name].sent:
                await asyncio.sleep(0.2)
            assert outcome(numbers, senders[name].sent) == (0, 0, 0)
    finally:
        enterprise.stop()
