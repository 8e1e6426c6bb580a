"""The story: what is done, what it promises, and how that is seen."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import qmnode
from qmnode import Access, Message, MessageQueuingError, QueueType
from qmnode.structures.enumerations import AuthenticationLevel, PrivacyLevel
from qmnode.structures.error_codes import ErrorCode
from qmnode.structures.guid import guid_from_text
from tests.lab.demo.declared import BEFORE, MACHINES, MIDDLE, RECEIVER, SENDER, UNLINKED, queues, register_signer
from tests.lab.demo.flow import Flow
from tests.lab.demo.telling import BrokenPromise, Outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tests.lab.enterprise import LabEnterprise, Played

COUNT = 200
"""Messages of each kind."""
ENOUGH = 400
"""Messages of a flow before and after what happens to it."""
PATIENCE = 120.0
"""Seconds that messages may take on a slow machine."""
SHOWN = 40
"""Lines of what Ansible said that are shown when it failed."""


@dataclass
class Story:
    """What the chapters have in common."""

    enterprise: LabEnterprise
    note: Callable[[str], None]
    """Says how far a chapter has come."""
    formats: dict[str, str] = field(default_factory=dict)
    """The format names of the published queues."""

    async def play(self, playbook: str, *arguments: str, **variables: Any) -> Played:
        """Run a playbook. What it says is in a file, and shown only when it fails."""
        played = await asyncio.to_thread(self.enterprise.play, playbook, *arguments, **variables)
        (self.enterprise.folder / f"{playbook}.log").write_text(played.said, "utf-8")
        if played.code != 0:
            said = "\n".join(played.said.splitlines()[-SHOWN:])
            raise BrokenPromise(f"{playbook}.yml ended with exit code {played.code}", said)
        return played

    def flow(self, **properties: int) -> Flow:
        """Transactional messages from Amsterdam to Córdoba."""
        sockets = self.enterprise.socket(SENDER), self.enterprise.socket(RECEIVER)
        return Flow(*sockets, self.formats["stock"], rf"DIRECT=OS:{RECEIVER}\stock", **properties)

    async def send(self, name: str, bodies: Sequence[bytes], *, transactional: bool = False, **properties: Any) -> None:
        """Messages out of Amsterdam, by the queue's public format name."""
        messages = [Message(body, **properties) for body in bodies]
        socket, name = self.enterprise.socket(SENDER), self.formats[name]
        async with qmnode.connect(socket) as node, await node.open_queue(name, Access.SEND) as queue:
            if not transactional:
                await queue.send_many(messages)
                return
            async with node.transaction() as unit:
                await queue.send_many(messages, transaction=unit)

    async def receive(self, host: str, name: str, count: int, limit: float = PATIENCE) -> list[Message]:
        """So many messages of a queue, or those that came in time."""
        found: list[Message] = []
        own_name = rf"DIRECT=OS:{host}\{name}"
        async with qmnode.connect(self.enterprise.socket(host)) as node, await node.open_queue(own_name) as queue:
            try:
                while len(found) < count:
                    found += await queue.receive_many(count - len(found), timeout=limit)
            except MessageQueuingError as error:
                if error.code != ErrorCode.MQ_ERROR_IO_TIMEOUT:
                    raise
        return found


@dataclass(frozen=True, slots=True)
class Chapter:
    """One of them. After a vital one has failed there is nothing more to tell."""

    doing: str
    promise: str
    tell: Callable[[Story], Awaitable[Outcome]]
    vital: bool = False


async def start(story: Story) -> Outcome:
    """Hosts, and a directory with nothing in it."""
    enterprise = story.enterprise
    await asyncio.to_thread(enterprise.start)
    enterprise.read_keys_often()
    enterprise.let_operate()
    if enterprise.is_real:
        enterprise.lab.network.cut(*UNLINKED)
        return Outcome("they run; the network lets nothing pass between Amsterdam and Córdoba")
    return Outcome("they are folders and addresses of this machine")


async def provision(story: Story) -> Outcome:
    """The declaration into the directory."""
    await story.play("provision", declared=str(story.enterprise.declared))
    await asyncio.to_thread(register_signer, story.enterprise)
    return Outcome("the directory is as declared", "the sample: 3 sites, a foreign site, 3 links, 6 machines, 3 queues")


async def roll_out(story: Story) -> Outcome:
    """From bare hosts to nodes that serve."""
    rolling = asyncio.create_task(story.play("rollout"))
    while not (await asyncio.wait([rolling], timeout=1))[0]:
        running = sum(story.enterprise.socket(host).exists() for host in MACHINES)
        story.note(f"{running} of {len(MACHINES)} nodes run" if running else "each host installs the release")
    played = await rolling
    identities = set()
    for host in MACHINES:
        async with qmnode.connect(story.enterprise.socket(host)) as node:
            identities.add(node.identifier)
    if len(identities) != len(MACHINES):
        raise BrokenPromise(f"{len(identities)} identities on {len(MACHINES)} nodes")
    return Outcome("every node runs and is who the directory says", f"6 of 6 ready, {played.changed} changes")


async def publish(story: Story) -> Outcome:
    """Queues into the directory and onto their nodes."""
    await story.play("publish_queues", queues=queues())
    listed = await asyncio.to_thread(story.enterprise.command, "queue", "list", "--json")
    for queue in json.loads(listed.stdout):
        story.formats[queue["pathname"].partition("\\")[2]] = f"PUBLIC={queue['identifier']}"
    return Outcome("they are in the directory and on their nodes", f"{len(story.formats)} queues")


async def trace(story: Story) -> Outcome:
    """Each node on the way reports to a queue in Amsterdam to whom it sent the message."""
    explained = await asyncio.to_thread(story.enterprise.command, "route", "explain", SENDER, RECEIVER, "--json")
    foretold = json.loads(explained.stdout)["path"]
    reports = guid_from_text(story.formats["reports"].partition("=")[2])
    await story.send("offers", [b"traced"], recoverable=True, tracing_requested=True, tracing_queue_identifier=reports)
    if not await story.receive(RECEIVER, "offers", 1):
        raise BrokenPromise("the traced message did not arrive")
    names = {address: host for host, address in story.enterprise.hosts.addresses.items()}
    nodes = {}
    for host in MACHINES:
        async with qmnode.connect(story.enterprise.socket(host)) as node:
            nodes[node.identifier] = host
    sent_to: dict[str, str] = {}
    # Every hop is reported twice: by who sends and by who receives.
    for report in await story.receive(SENDER, "reports", 2 * (len(foretold) - 1), limit=30):
        _, found, rest = report.body.decode("utf-16-le").partition("<NEXT HOP>")
        if found:
            sent_to[nodes[report.source_machine_identifier]] = names[rest.partition("<")[0]]
    path = [SENDER]
    while path[-1] in sent_to and len(path) <= len(MACHINES):
        path.append(sent_to[path[-1]])
    if path != foretold or MIDDLE not in path:
        raise BrokenPromise(f"reported was {' → '.join(path)}, foretold {' → '.join(foretold)}")
    return Outcome(" → ".join(path), f"{len(path) - 1} hops, as `route explain` foretold")


async def express(story: Story) -> Outcome:
    """Held in memory only."""
    return await _delivered(story, "offers")


async def recoverable(story: Story) -> Outcome:
    """On the disk of each node before the next one hears of it."""
    return await _delivered(story, "offers", recoverable=True)


async def transactional(story: Story) -> Outcome:
    """Sent as one transaction."""
    return await _delivered(story, "payments", transactional=True)


async def signed(story: Story) -> Outcome:
    """To a queue that takes no others: one that is not signed goes before them, and never arrives."""
    await story.send("contracts", [b"not signed"], recoverable=True)
    level = AuthenticationLevel.SIG20
    outcome = await _delivered(story, "contracts", recoverable=True, authentication_level=level)
    return Outcome(f"{outcome.happened}; one that is not signed was refused", outcome.figures)


async def encrypted(story: Story) -> Outcome:
    """For the destination alone: nobody on the way can read it."""
    return await _delivered(story, "salaries", recoverable=True, privacy_level=PrivacyLevel.ADVANCED)


async def _delivered(story: Story, name: str, **properties: Any) -> Outcome:
    bodies = [f"{name} {number}".encode() for number in range(COUNT)]
    await story.send(name, bodies, **properties)
    arrived = await story.receive(RECEIVER, name, COUNT)
    if len(arrived) != COUNT:
        raise BrokenPromise(f"{len(arrived)} of {COUNT} arrived")
    if [message.body for message in arrived] != bodies:
        raise BrokenPromise(f"{COUNT} arrived, but not once each and in order")
    for wanted in {"authentication_level", "privacy_level"} & set(properties):
        if any(getattr(message, wanted) != properties[wanted] for message in arrived):
            raise BrokenPromise(f"{COUNT} arrived, but not all with the {wanted.replace('_', ' ')} that was asked for")
    return Outcome("all arrived, once and in order", f"{COUNT} sent, {COUNT} arrived")


async def killed(story: Story) -> Outcome:
    """The only way between the sites is killed while transactional messages are on it, and started again."""
    hosts = story.enterprise.hosts
    async with story.flow() as flow:
        await flow.more(ENOUGH, PATIENCE)
        before = await asyncio.to_thread(hosts.node_process, MIDDLE)
        await asyncio.to_thread(hosts.kill_node, MIDDLE)
        waited = await _most_that_wait(story, before)
        await flow.more(ENOUGH, PATIENCE)
        await flow.end(PATIENCE)
    return _of(flow, f"up to {waited} waited in Amsterdam")


async def _most_that_wait(story: Story, killed_process: str) -> int:
    """How many messages wait before the killed node at most, until another process serves in its place."""
    enterprise = story.enterprise
    most = 0
    async with qmnode.connect(enterprise.socket(BEFORE)) as before, asyncio.timeout(PATIENCE):
        while True:
            outgoing = await before.queues([QueueType.OUTGOING])
            most = max(most, sum(queue.message_count for queue in outgoing))
            if await asyncio.to_thread(enterprise.hosts.node_process, MIDDLE) != killed_process:
                with suppress(OSError, MessageQueuingError):
                    async with qmnode.connect(enterprise.socket(MIDDLE)):
                        return most
            await asyncio.sleep(0.1)


async def rotated(story: Story) -> Outcome:
    """Every encryption key is replaced while encrypted messages are under way."""
    before = await asyncio.to_thread(_keys, story.enterprise)
    begun = datetime.now(UTC).isoformat(timespec="seconds")
    async with story.flow(privacy_level=PrivacyLevel.ADVANCED) as flow:
        await flow.more(ENOUGH, PATIENCE)
        await story.play("rotate_keys", rotation_begun=begun, rotate_at_a_time=len(MACHINES))
        await flow.more(ENOUGH, PATIENCE)
        await flow.end(PATIENCE)
    after = await asyncio.to_thread(_keys, story.enterprise)
    new = [host for host in MACHINES if after[host] - before[host] and before[host] - after[host]]
    if len(new) != len(MACHINES):
        raise BrokenPromise(f"{len(new)} of {len(MACHINES)} nodes have another key")
    return _of(flow, f"{len(new)} of {len(MACHINES)} keys are new")


def _keys(enterprise: LabEnterprise) -> dict[str, frozenset[str]]:
    return {host: enterprise.published_keys(host) for host in MACHINES}


def _of(flow: Flow, more: str) -> Outcome:
    if flow.mistakes or flow.arrived != flow.sent:
        raise BrokenPromise(f"{flow.arrived} of {flow.sent} arrived; {'; '.join(flow.mistakes[:3])}")
    pauses = f"longest pause {flow.longest_pause:.2f} s for the receiver, {flow.longest_commit:.2f} s for the sender"
    return Outcome("all arrived, once and in order", f"{flow.sent:,} sent, {flow.arrived:,} arrived; {more}; {pauses}")


CHAPTERS = (
    Chapter("Starting six hosts and a directory", "Three sites of two hosts, an empty directory", start, vital=True),
    Chapter(
        "Provisioning, from the declaration to the directory",
        "One file declares the enterprise; one playbook makes the directory so",
        provision, vital=True,
    ),
    Chapter(
        "Rolling out, site by site, gates first",
        "One playbook installs, certifies, configures and starts a node on every host",
        roll_out, vital=True,
    ),
    Chapter("Publishing queues", "One playbook publishes queues", publish, vital=True),
    Chapter(
        "Tracing a message from Amsterdam to Córdoba",
        f"Sites without a link reach each other: messages pass {MIDDLE}",
        trace,
    ),
    Chapter("Sending express messages", "Express messages arrive", express),
    Chapter("Sending recoverable messages", "Recoverable messages arrive", recoverable),
    Chapter("Sending a transaction", "Transactional messages arrive once and in order", transactional),
    Chapter("Sending signed messages", "A queue that wants signatures takes messages of known senders only", signed),
    Chapter("Sending encrypted messages", "Encrypted messages are readable at their destination", encrypted),
    Chapter(
        f"Killing {MIDDLE} (SIGKILL) while transactional messages pass it",
        f"Killing {MIDDLE} loses no message, doubles none, changes no order",
        killed,
    ),
    Chapter(
        "Rotating every encryption key while messages flow",
        "New keys for every node: messages that are encrypted meanwhile arrive all the same",
        rotated,
    ),
)  # fmt: skip
