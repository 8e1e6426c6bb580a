"""Request and reply as the projects of other clients publish it (clients/NOTICE), over two nodes in two sites,
between which a routing server is.

The asking program is at ASKER's door with a temporary queue, the answering one at ANSWERER's. On the machine of each,
``localhost`` is the node.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from qmnode.structures.security_descriptor import ANONYMOUS, EVERYONE, Acl, QueueAccess, SecurityDescriptor, allow
from tests.amqp.foreign import CLIENTS, installed, run
from tests.forwarding.enterprise import Directory, Machine, Node
from tests.lab.waiting import holds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.servers, pytest.mark.slow]

LINES = [
    "Twas brillig, and the slithy toves", "Did gire and gymble in the wabe.", "All mimsy were the borogroves,",
    "And the mome raths outgrabe.",
]  # fmt: skip
ANSWERS = [f"{line} => {line.upper()}" for line in LINES]
MAVEN = ("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib")


class Two:
    """The nodes, with the format name of each queue of ANSWERER."""

    def __init__(self, folder: Path) -> None:
        machines = [
            Machine("ASKER", ["south"]),
            Machine("ANSWERER", ["north"]),
            Machine("ROUTER", ["south", "north"], routing_server=True),
        ]
        self.directory = Directory(folder / "directory.yaml", {one.name: one for one in machines})
        self.directory.write()
        self.folder = folder
        self.queues: dict[str, str] = {}
        self.asker, self.answerer, self.router = self.nodes = [
            Node(
                folder / one.name, one, self.directory.file,
                amqp={"enabled": True, "address": one.listens, "anonymous": True},
                security={"anonymous_sends_elsewhere": True},
            )
            for one in machines
        ]  # fmt: skip

    async def start(self) -> None:
        await asyncio.gather(*(node.start_again() for node in self.nodes))
        everybody = [allow(who, QueueAccess.MQSEC_QUEUE_GENERIC_ALL) for who in (EVERYONE, ANONYMOUS)]
        security = SecurityDescriptor(owner=EVERYONE, group=EVERYONE, dacl=Acl.of(*everybody)).write()
        for name in ("examples", "my-queue"):
            self.queues[name] = await self.answerer.create_queue(name, security=security)

    def at(self, node: Node, *command: str) -> tuple[str, ...]:
        """A command as it runs on the machine of a node."""
        hosts = self.folder / f"{node.machine.name}.hosts"
        hosts.write_text(f"{node.machine.listens} localhost\n")
        bound = 'mount --bind "$0" /etc/hosts && exec "$@"'
        return "unshare", "--mount", "--propagation", "private", "sh", "-c", bound, str(hosts), *command

    async def asks(self, *command: str, cwd: Path) -> list[str]:
        """The lines that the asking program prints."""
        return (await run(*self.at(self.asker, *command), cwd=cwd)).splitlines()

    @asynccontextmanager
    async def answering(self, *command: str, cwd: Path) -> AsyncIterator[None]:
        """Until the answering program has its link, and until it has ended and has none."""
        with (self.folder / "answering.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self.at(self.answerer, *command), cwd=cwd, stdout=log, stderr=log
            )
        try:
            await holds(lambda: self._has_links(process), 120, f"{command} receives")
            yield
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            await holds(self._has_no_links, 60, "the answering program is gone")

    async def _has_links(self, process: asyncio.subprocess.Process) -> bool:
        assert process.returncode is None, (self.folder / "answering.log").read_text()
        return await self._links() > 0

    async def _has_no_links(self) -> bool:
        return await self._links() == 0

    async def _links(self) -> int:
        async with await self.answerer.connect() as qm:
            return (await qm.status()).amqp_links


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    found = Two(tmp_path_factory.mktemp("two"))
    asyncio.run(found.start())
    yield found
    for node in found.nodes:
        node.kill()


async def test_rhea_asks_and_answers(two: Two) -> None:
    place = installed("rhea_samples", "npm", "ci", "--no-audit", "--no-fund")
    async with two.answering("node", "server.js", cwd=place):
        assert await two.asks("node", "client.js", "--node", two.queues["examples"], cwd=place) == ANSWERS


@pytest.mark.parametrize("sample", ["client.py", "sync_client.py"])
async def test_proton_asks_and_answers(two: Two, sample: str) -> None:
    place = CLIENTS / "proton_samples"
    address = f"localhost:5672/{two.queues['examples']}"
    async with two.answering(sys.executable, "server.py", cwd=place):
        assert await two.asks(sys.executable, sample, "--address", address, cwd=place) == ANSWERS


@pytest.mark.soak
async def test_qpid_jms_asks_and_answers(two: Two) -> None:
    place = installed("jms_samples", *MAVEN)
    for node, queue in ((two.asker, two.queues["examples"]), (two.answerer, "examples")):
        (node.folder / "jndi.properties").write_text(
            "java.naming.factory.initial = org.apache.qpid.jms.jndi.JmsInitialContextFactory\n"
            "connectionfactory.myFactoryLookup = amqp://localhost:5672\n"
            f"queue.myQueueLookup = {queue}\n".replace("\\", "\\\\")
        )
    asking, answering = (
        ("java", "-DUSER=anybody", "-cp", f"lib/*:{node.folder}", program)
        for node, program in ((two.asker, "Client.java"), (two.answerer, "Server.java"))
    )
    async with two.answering(*answering, cwd=place):
        lines = await two.asks(*asking, cwd=place)
    assert [line for line in lines if line.startswith("[CLIENT]")] == [
        f"[CLIENT] {line} ---> {line.upper()}" for line in LINES
    ]


@pytest.mark.soak
async def test_vertx_asks_and_answers(two: Two) -> None:
    place = installed("vertx_samples", *MAVEN)
    await run("javac", "-cp", "lib/*", "-d", "classes", "AmqpClientExamples.java", "Main.java", cwd=place)
    addresses = [node.machine.listens for node in (two.asker, two.answerer)]
    lines = await two.asks("java", "-cp", "lib/*:classes", "Main", *addresses, two.queues["my-queue"], cwd=place)
    assert lines[-1] == "Got the reply! my response to your request"


@pytest.mark.soak
async def test_go_amqp_asks_and_answers(two: Two) -> None:
    place = installed("go_samples", "go", "build", "-o", "client", "main.go")
    async with two.answering("./client", "answer", "amqp://localhost:5672", "examples", cwd=place):
        lines = await two.asks("./client", "ask", "amqp://localhost:5672", two.queues["examples"], cwd=place)
    assert lines == [f"0 {ANSWERS[0]}", f"1 {ANSWERS[-1]}"]
