"""Two nodes send each other encrypted messages without pause while both rotate their keys, on both servers.

At the level of the nodes' security services: what is between them here is a list of messages under way, each for a
random time. Time is false, the directory real; its replica lags, and is down once.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mqenterprise.directory.cache import DirectoryCache
from mqenterprise.directory.port import LdapPort, PortSettings
from mqenterprise.keys.publication import Node, Publication
from mqenterprise.keys.rotation import Rotation
from qmnode.directory.port import (
    DirectoryOperationError,
    DirectoryOperationResult,
    QueueManager,
    WorkgroupDirectory,
    equals,
)
from qmnode.security.arrival_checks import Arrival, QueueRules
from qmnode.security.key_stores import KeyPurpose, KeyState
from qmnode.security.message_security import SecurityService
from qmnode.security.protector import Admitted, Deferred, Protected, ProtectionRequest, Refused
from qmnode.security.published_keys import PublishedKeys
from qmnode.structures.enumerations import EncryptionAlgorithm, MessageClass, PrivacyLevel
from qmnode.structures.guid import Guid
from qmnode.structures.user_message import (
    BaseFlags,
    BaseHeader,
    DirectQueueFormatName,
    MessagePropertiesHeader,
    PublicQueueFormatName,
    UserFlags,
    UserHeader,
    UserMessage,
)
from tests.keys.lab import NEEDED_FOR, SECURITY, SETTINGS, WAITING, Clock, MemoryStore
from tests.security.messages import on_the_wire

if TYPE_CHECKING:
    from mqenterprise.directory.open_directory import EnterpriseDirectory
    from tests.lab.servers import DirectoryServer

pytestmark = pytest.mark.servers
TICK = 4.0
"""Seconds between two messages of a node. Ten rotations go by in ten times the wait for a new key."""
LONGEST = WAITING.longest_time_to_reach_queue
AWAY = DirectoryOperationError(DirectoryOperationResult.DIRECTORY_NOT_CONNECTED, "the replica is down")


class Replica(WorkgroupDirectory):
    """A real directory as it was some seconds ago, by the false clock."""

    def __init__(self, port: LdapPort, clock: Clock) -> None:
        self._port, self._clock = port, clock
        self._seen: dict[Guid, list[tuple[float, QueueManager]]] = {}
        self.lag = 0.0
        self.down = False

    async def note(self, identifier: Guid) -> None:
        """The directory changed now."""
        found = await self._port.read_directory(
            QueueManager, [equals("identifier", identifier)], ["public_encryption_key_list"], force_directory_read=True
        )
        self._seen.setdefault(identifier, []).append((self._clock(), found))

    async def read_directory(self, object_type: Any, filters: Any = (), attributes: Any = None, **_: Any) -> Any:
        if self.down:
            raise AWAY
        (condition,) = filters
        history = self._seen[condition.value]
        shown = [found for at, found in history if at <= self._clock() - self.lag]
        return shown[-1] if shown else history[0][1]


class Peer:
    """A node with its keys."""

    def __init__(self, node: Node, lists: Publication, replica: Replica, clock: Clock) -> None:
        self.node, self.replica, self._clock = node, replica, clock
        self.store = MemoryStore()
        self.rotation = Rotation(node, self.store, lists, WAITING, clock)
        self.service = SecurityService(node.identifier, SECURITY, replica, self.store)
        self.rotations = 0

    async def step(self, rotations: int) -> None:
        """What happens at a tick: keys are read again, the rotation under way goes on, old keys are put away."""
        await self.service.load_keys()
        if await self.rotation.publish() is None:
            await self.replica.note(self.node.identifier)
            if self.rotations < rotations:
                self.rotations += 1
                await self.rotation.prepare(self._clock() + 1)
        await self.rotation.retire()

    async def states(self) -> Counter[KeyState]:
        pairs = (await self.store.read()).pairs
        return Counter(pair.state for pair in pairs if pair.purpose is KeyPurpose.ENCRYPTION)


def packet(source: Guid, destination: Guid, body: bytes, now: float) -> UserMessage:
    return UserMessage(
        base_header=BaseHeader(flags=BaseFlags.of(PR=5)),
        user_header=UserHeader(
            source_queue_manager=source,
            queue_manager_address=destination,
            sent_time=int(now),
            message_id=7,
            flags=UserFlags.of(MP=1, DM=1, JN=1),
            destination_queue=PublicQueueFormatName(public_queue_identifier=Guid(b"a public queue 1")),
            admin_queue=DirectQueueFormatName(direct_format_name="OS:here\\private$\\admin"),
        ),
        message_properties_header=MessagePropertiesHeader(
            message_body=body,
            privacy_level=PrivacyLevel.ADVANCED,
            encryption_algorithm=EncryptionAlgorithm.AES256,
        ),
    )


class Enterprise:
    """Two nodes, and what is under way between them."""

    def __init__(self, peers: list[Peer], replica: Replica, clock: Clock) -> None:
        self.peers, self.replica, self.clock = peers, replica, clock
        self.under_way: list[tuple[float, Peer, bytes, UserMessage]] = []
        self.unsent: list[tuple[Peer, Peer, bytes]] = []
        self.received: Counter[bytes] = Counter()
        self.refused: list[str] = []
        self.sent = 0
        self._randomness = random.Random(10)

    async def tick(self, rotations: int, *, sending: bool = True) -> None:
        self.clock.now += TICK
        for peer in self.peers:
            await peer.step(rotations)
        await self._deliver()
        if sending:
            for source, destination in (self.peers, reversed(self.peers)):
                self.unsent.append((source, destination, b"message %d" % self.sent))
                self.sent += 1
        waiting, self.unsent = self.unsent, []
        for source, destination, body in waiting:
            await self._send(source, destination, body)

    async def _send(self, source: Peer, destination: Peer, body: bytes) -> None:
        now = self.clock()
        private = packet(source.node.identifier, destination.node.identifier, body, now)
        (outcome,) = await source.service.protect([ProtectionRequest(private.write())], now)
        if isinstance(outcome, Deferred):
            self.unsent.append((source, destination, body))
            return
        assert isinstance(outcome, Protected), outcome
        assert body not in outcome.packet.write()
        # One in five takes as long as it may.
        delay = self._randomness.choice(
            [LONGEST - TICK, *(self._randomness.uniform(0, LONGEST - TICK) for _ in range(4))]
        )
        self.under_way.append((now + delay, destination, body, on_the_wire(outcome.packet)))

    async def _deliver(self) -> None:
        arrived = [one for one in self.under_way if one[0] <= self.clock()]
        self.under_way = [one for one in self.under_way if one[0] > self.clock()]
        for _, destination, body, arriving in arrived:
            (verdict,) = await destination.service.admission.judge(
                [Arrival(arriving.write(), QueueRules())], self.clock()
            )
            match verdict:
                case Admitted():
                    assert bytes(verdict.packet.message_properties_header.message_body) == body
                    self.received[body] += 1
                case Refused():
                    self.refused.append(verdict.sentence)
                case Deferred():
                    self.under_way.append((self.clock(), destination, body, arriving))


@pytest.fixture
async def enterprise(
    directory_server: DirectoryServer,
    directory: EnterpriseDirectory,
    fresh_name: Callable[[str], str],
    tmp_path: Path,
) -> AsyncIterator[Enterprise]:
    clock = Clock()
    publication = Publication(directory)
    names = [fresh_name("PEER"), fresh_name("PEER")]
    for name in names:
        directory.queue_managers.add(QueueManager(computer_name=name))
    reached = PortSettings(directory=directory_server.settings, fresh_for=0)
    port = LdapPort(reached, DirectoryCache(tmp_path / "cache"))
    replica = Replica(port, clock)
    peers = [Peer(node, publication, replica, clock) for node in publication.nodes(computers=names)]
    for peer in peers:
        await peer.rotation.prepare(clock())
    clock.now += SETTINGS.reload_interval
    for peer in peers:
        await peer.rotation.publish()
        await replica.note(peer.node.identifier)
    yield Enterprise(peers, replica, clock)
    for peer in peers:
        await peer.service.close()
    await port.close()


@pytest.mark.slow
async def test_ten_rotations_on_both_sides_lose_nothing(enterprise: Enterprise) -> None:
    ticks = 0
    while any(peer.rotations < 10 for peer in enterprise.peers) or ticks < 60:
        ticks += 1
        enterprise.replica.lag = SETTINGS.replication_delay if ticks % 7 < 5 else 0.0
        enterprise.replica.down = 20 <= ticks < 25
        await enterprise.tick(10)
    for _ in range(int((2 * NEEDED_FOR) / TICK)):
        await enterprise.tick(10, sending=False)
    assert enterprise.refused == []
    assert enterprise.unsent == []
    assert enterprise.under_way == []
    assert enterprise.sent == 2 * ticks
    assert set(enterprise.received.values()) == {1}
    assert len(enterprise.received) == enterprise.sent
    for peer in enterprise.peers:
        assert await peer.states() == {KeyState.CURRENT: 1, KeyState.DESTROYED: 10}


class TestWrongKeys:
    """Messages that none of the node's keys opens."""

    async def refused(self, enterprise: Enterprise, arriving: UserMessage) -> Refused:
        here = enterprise.peers[1].service
        (verdict,) = await here.admission.judge([Arrival(arriving.write(), QueueRules())], enterprise.clock())
        assert isinstance(verdict, Refused), verdict
        assert verdict.message_class is MessageClass.MQMSG_CLASS_NACK_BAD_ENCRYPTION
        return verdict

    async def encrypted(self, enterprise: Enterprise, keys: PublishedKeys | None = None) -> UserMessage:
        there, here = enterprise.peers
        await here.service.load_keys()
        private = packet(there.node.identifier, here.node.identifier, b"a body", enterprise.clock())
        (outcome,) = await there.service.protect([ProtectionRequest(private.write(), keys=keys)], enterprise.clock())
        assert isinstance(outcome, Protected)
        return on_the_wire(outcome.packet)

    async def test_to_a_destroyed_key(self, enterprise: Enterprise) -> None:
        arriving = await self.encrypted(enterprise)
        here = enterprise.peers[1]
        await enterprise.tick(1, sending=False)
        while not (await here.states())[KeyState.DESTROYED]:
            await enterprise.tick(1, sending=False)
        refused = await self.refused(enterprise, arriving)
        assert here.service.status.fingerprints
        assert any(fingerprint in refused.sentence for fingerprint in here.service.status.fingerprints)

    async def test_to_another_nodes_key(self, enterprise: Enterprise) -> None:
        there, here = enterprise.peers
        found = await enterprise.replica.read_directory(QueueManager, [equals("identifier", there.node.identifier)])
        keys = PublishedKeys.parse(here.node.identifier, found.public_encryption_key_list, enterprise.clock())
        refused = await self.refused(enterprise, await self.encrypted(enterprise, keys))
        assert any(fingerprint in refused.sentence for fingerprint in here.service.status.fingerprints)

    async def test_altered(self, enterprise: Enterprise) -> None:
        arriving = await self.encrypted(enterprise)
        encoded = bytearray(arriving.write())
        key = bytes(arriving.security_header.encryption_key) if arriving.security_header else b""
        encoded[encoded.index(key) + 20] ^= 0x10
        refused = await self.refused(enterprise, UserMessage.parse(bytes(encoded)))
        here = enterprise.peers[1]
        assert any(fingerprint in refused.sentence for fingerprint in here.service.status.fingerprints)
