"""A node rotates its own keys: the plan, the steps, and two nodes that exchange messages while one of them does it."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import qmnode
from mqenterprise.directory.admission import SETTINGS_FILE, admit
from mqenterprise.directory.errors import DirectoryUnavailable
from mqenterprise.directory.open_directory import EnterpriseDirectory
from mqenterprise.keys.life_cycle import Waiting
from mqenterprise.keys.own_node import OwnKeys
from mqenterprise.keys.publication import Node, Publication, Shown
from mqenterprise.keys.rotation import Rotation
from qmnode import Access, Message
from qmnode.directory.port import QueueManager
from qmnode.security.key_stores import (
    FileKeyStore,
    KeyPurpose,
    KeyRotationOptions,
    KeyState,
    RotationAction,
    RotationFailure,
    RotationPlan,
    RotationStage,
    StepKind,
)
from qmnode.settings.node import KeyRotationSettings
from qmnode.structures.enumerations import PrivacyLevel
from qmnode.structures.guid import Guid
from tests.keys.lab import NEEDED_FOR, NODE, SECURITY, SHOWN_FOR, Bench, Lists
from tests.keys.processes import QUEUE, NodeProcess, ReplicatedDirectory
from tests.lab.directory_objects import delete
from tests.lab.servers import start_slapd

if TYPE_CHECKING:
    from mqenterprise.directory.private_slapd import EmbeddedDirectory

ROTATE, ROLLBACK, RETIRE = RotationAction.ROTATE, RotationAction.ROLLBACK, RotationAction.RETIRE
CURRENT, PREVIOUS, NEXT = KeyState.CURRENT, KeyState.PREVIOUS, KeyState.NEXT


def options_of(folder: Path, identifier: Guid = NODE.identifier, **settings: Any) -> KeyRotationOptions:
    return KeyRotationOptions(
        computer_name="NODE",
        identifier=lambda: identifier,
        data=folder,
        security=SECURITY,
        settings=KeyRotationSettings(enabled=True, modulus_length=1024, **settings),
    )


class BenchKeys(OwnKeys):
    """On a directory in memory, with a false clock."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        super().__init__(options_of(folder), {}, bench.clock)
        self.bench = bench
        self.stages: list[RotationStage] = []
        self.blind = False
        """Whether the node does not find a new key."""
        self.shown_when_read: frozenset[str] = frozenset()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[tuple[Rotation, Waiting]]:
        yield self.bench.rotation, self.bench.waiting

    async def read(self) -> frozenset[str]:
        self.shown_when_read = self.bench.lists.shown()
        pairs = (await self.bench.store.read()).pairs
        return frozenset(pair.fingerprint for pair in pairs if not (self.blind and pair.state is NEXT))

    async def do(self, action: RotationAction) -> dict[str, KeyState]:
        begun = self.bench.clock.now
        changes = await self.carry_out(action, begun, self.read, self.stages.append)
        return {change.fingerprint: change.state for change in changes if change.purpose is KeyPurpose.ENCRYPTION}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
async def keys(bench: Bench, tmp_path: Path) -> BenchKeys:
    """Of a node with published keys."""
    await bench.rotate()
    bench.clock.now += 1000
    return BenchKeys(bench, tmp_path)


def steps(plan: RotationPlan, action: RotationAction) -> list[tuple[StepKind, str | None]]:
    return [(step.kind, step.fingerprint) for step in plan.steps[action]]


async def test_the_plan_says_who_may_use_the_old_key_and_until_when(keys: BenchKeys, bench: Bench) -> None:
    (old,) = await bench.pairs()
    plan = await keys.plan()
    assert steps(plan, ROTATE) == [(StepKind.MAKE, None), (StepKind.PUBLISH, None), (StepKind.KEEP, old.fingerprint)]
    kept = plan.steps[ROTATE][2]
    assert kept.senders_until == bench.clock.now + SHOWN_FOR
    assert kept.needed_until == bench.clock.now + NEEDED_FOR
    assert plan.version == (await bench.store.read()).version
    assert plan.steps[ROLLBACK] == plan.steps[RETIRE] == ()
    assert await bench.states() == [CURRENT]


async def test_a_new_key_is_published_when_the_node_has_read_it_and_no_sooner(keys: BenchKeys, bench: Bench) -> None:
    (old,) = await bench.pairs()
    changed = await keys.do(ROTATE)
    new, _ = await bench.pairs()
    assert changed == {new.fingerprint: CURRENT, old.fingerprint: PREVIOUS}
    assert new.fingerprint not in keys.shown_when_read
    assert new.fingerprint in bench.lists.shown()
    assert keys.stages == [RotationStage.READING, RotationStage.PUBLISHING]
    assert old.private_key is not None


async def test_a_key_that_the_node_does_not_find_is_not_published(keys: BenchKeys, bench: Bench) -> None:
    before = bench.lists.shown()
    keys.blind = True
    with pytest.raises(RotationFailure, match="made and not published"):
        await keys.do(ROTATE)
    assert bench.lists.shown() == before
    plan = await keys.plan()
    new, old = await bench.pairs()
    assert steps(plan, ROTATE) == [(StepKind.PUBLISH, new.fingerprint), (StepKind.KEEP, old.fingerprint)]
    keys.blind = False
    await keys.do(ROTATE)
    assert [pair.fingerprint for pair in await bench.pairs()] == [new.fingerprint, old.fingerprint]
    assert await bench.states() == [CURRENT, PREVIOUS]


async def test_a_rotation_rolls_back_and_its_keys_are_retired_when_due(keys: BenchKeys, bench: Bench) -> None:
    await keys.do(ROTATE)
    new, old = await bench.pairs()
    bench.clock.now += 10
    plan = await keys.plan()
    assert steps(plan, ROLLBACK) == [(StepKind.PUBLISH, old.fingerprint), (StepKind.KEEP, new.fingerprint)]
    assert plan.steps[RETIRE] == ()
    assert await keys.do(ROLLBACK) == {new.fingerprint: PREVIOUS, old.fingerprint: CURRENT}
    assert old.fingerprint in bench.lists.shown()
    bench.clock.now += NEEDED_FOR
    plan = await keys.plan()
    assert steps(plan, RETIRE) == [(StepKind.RETIRE, new.fingerprint)]
    assert await keys.do(RETIRE) == {new.fingerprint: KeyState.RETIRED}
    bench.clock.now += 10
    assert steps(await keys.plan(), RETIRE) == [(StepKind.DESTROY, new.fingerprint)]
    assert await keys.do(RETIRE) == {new.fingerprint: KeyState.DESTROYED}
    assert [pair.private_key is None for pair in await bench.pairs()] == [True, False]


class FailingLists(Lists):
    """A directory that goes away at a moment."""

    readable, writable = True, True

    def read(self, node: Node) -> Shown:
        if not self.readable:
            raise DirectoryUnavailable("ldaps://lab does not answer")
        return super().read(node)

    def replace(self, node: Node, shown: Shown, lists: dict[KeyPurpose, bytes]) -> bool:
        if not self.writable:
            raise DirectoryUnavailable("ldaps://lab does not answer")
        return super().replace(node, shown, lists)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
async def test_with_the_directory_away_no_key_is_lost_or_made_twice(keys: BenchKeys, bench: Bench, when: str) -> None:
    lists = FailingLists(bench.lists.lists)
    bench.lists = lists
    bench.rotation = Rotation(NODE, bench.store, lists, bench.waiting, bench.clock)
    before = await bench.store.read()
    lists.readable, lists.writable = when != "before", False
    with pytest.raises(RotationFailure, match="does not answer"):
        await keys.do(ROTATE)
    made = await bench.pairs()
    if when == "before":
        assert repr(await bench.store.read()) == repr(before)
    else:
        assert [pair.state for pair in made] == [NEXT, CURRENT]
        assert all(pair.private_key is not None for pair in made)
    lists.readable = lists.writable = True
    await keys.do(ROTATE)
    assert await bench.states() == [CURRENT, PREVIOUS]


async def test_a_rotation_of_someone_else_that_ended_first_is_not_followed_by_another(
    keys: BenchKeys, bench: Bench
) -> None:
    begun = bench.clock.now
    bench.clock.now += 1
    await bench.rotate()  # the command line, on the same host
    assert await keys.carry_out(ROTATE, begun, keys.read, keys.stages.append) == ()
    assert await bench.states() == [CURRENT, PREVIOUS]


# Real nodes and a real directory


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedDirectory]:
    """A directory that the tests may stop."""
    folder = Path(tempfile.mkdtemp(prefix="qmslapd"))
    folder.chmod(0o711)
    embedded = start_slapd(folder / "state")
    try:
        with EnterpriseDirectory(embedded.client_settings()) as directory:
            directory.prepare()
        yield embedded
    finally:
        embedded.stop()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Pair:
    """A sender, and a receiver whose keys are rotated through its management API."""

    server: EmbeddedDirectory
    sender: NodeProcess
    receiver: NodeProcess

    async def api(self, method: str, body: object = None) -> Any:
        transport = httpx.AsyncHTTPTransport(uds=str(self.receiver.folder / "management.sock"))
        async with httpx.AsyncClient(transport=transport, base_url="http://node", timeout=60) as client:
            return await client.request(method, "/v1/keys/rotation", json=body)

    async def click(self, action: str) -> dict[str, Any]:
        """Look at the plan, confirm it, and wait until it is over."""
        plan = (await self.api("GET")).json()["plan"]
        answer = await self.api("POST", {"action": action, "version": plan["version"]})
        assert answer.status_code == 202, answer.text
        async with asyncio.timeout(60):
            while (run := (await self.api("GET")).json()["run"])["state"] == "running":
                await asyncio.sleep(0.05)
        return dict(run)

    def shown(self) -> frozenset[str]:
        """The fingerprints that the directory shows for the receiver."""
        with EnterpriseDirectory(self.server.client_settings()) as directory:
            publication = Publication(directory)
            return publication.read(publication.node(self.receiver.identifier, "")).fingerprints

    async def states(self) -> dict[str, str]:
        """The states of the encryption keys, as the node that decrypts with them has them."""
        found = json.loads(await self.receiver.body("/v1/keys"))
        return {key["fingerprint"]: key["state"] for key in found["keys"] if key["purpose"] == "encryption"}


def node_of(directory: EnterpriseDirectory, folder: Path, name: str) -> NodeProcess:
    # The node reads its key store only when it is told to, and the sender keeps keys that it has read.
    node = NodeProcess(folder / name, ReplicatedDirectory(folder), key_reload_interval=3600)
    directory.queue_managers.add(QueueManager(computer_name=name, qualified_computer_name=node.address))
    found = admit(directory, name, node.folder / "directory")
    assert found.identifier is not None
    node.identifier = found.identifier
    file = node.folder / "directory" / SETTINGS_FILE
    node.settings["directory"] = {"name": "ldap", "settings": {"file": str(file), "fresh_for": 0.5}}
    return node


@pytest.fixture
async def pair(server: EmbeddedDirectory, tmp_path: Path) -> AsyncIterator[Pair]:
    with EnterpriseDirectory(server.client_settings()) as directory:
        for found in list(directory.queue_managers.list()):
            delete(directory, found)
        sender, receiver = (node_of(directory, tmp_path, name) for name in ("OWNA", "OWNB"))
    receiver.settings["management"] |= {
        "key_rotation": {"enabled": True},
        "audit_log": str(receiver.folder / "audit.log"),
    }
    try:
        await asyncio.gather(sender.start(), receiver.start())
        yield Pair(server, sender, receiver)
    finally:
        for node in (sender, receiver):
            node.stop()
            print(node.log)  # pytest shows it if the test fails


async def send(node: NodeProcess, name: str, body: bytes) -> None:
    async with qmnode.connect(node.socket) as qm, await qm.open_queue(name, Access.SEND) as queue:
        await queue.send(Message(body, recoverable=True, privacy_level=PrivacyLevel.ADVANCED))


async def received(node: NodeProcess) -> tuple[bytes, bool]:
    async with qmnode.connect(node.socket) as qm, await qm.open_queue(f"DIRECT=OS:{QUEUE}") as queue:
        message = await queue.receive(timeout=60)
        return message.body, bool(message.privacy_level)


@pytest.mark.servers
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.one_server(reason="a server of its own, which the test stops")
async def test_two_nodes_exchange_messages_while_one_rotates_its_keys_itself(pair: Pair) -> None:
    name = await pair.receiver.create_queue()
    await send(pair.sender, name, b"to the first key")
    assert await received(pair.receiver) == (b"to the first key", True)
    (first,) = await pair.states()
    secrets = {each.fingerprint: each for each in (await pair.receiver.store.read()).pairs}

    run = await pair.click("rotate")

    assert (run["state"], run["fault"]) == ("done", None)
    states = await pair.states()
    (second,) = states.keys() - {first}
    assert states == {first: "previous", second: "current"}  # the node has read it
    assert second in pair.shown()
    assert first not in pair.shown()
    await send(pair.sender, name, b"to the key that the sender has read before")
    assert await received(pair.receiver) == (b"to the key that the sender has read before", True)
    pair.sender.stop()
    await pair.sender.start()
    await send(pair.sender, name, b"to the new key")
    assert await received(pair.receiver) == (b"to the new key", True)

    await pair.click("rollback")
    assert await pair.states() == {first: "current", second: "previous"}
    assert first in pair.shown()
    early = await pair.api("POST", {"action": "retire", "version": (await pair.receiver.store.read()).version})
    assert early.status_code == 400
    assert "no old key is due" in early.json()["detail"]

    # The directory is away: a clear error, and nothing is half done.
    before = await pair.receiver.store.read()
    pair.server.stop()
    try:
        refused = await pair.api("POST", {"action": "rotate", "version": before.version})
        assert refused.status_code == 503
        assert refused.json()["detail"].endswith("No key was changed")
        assert (await pair.api("GET")).json()["plan"] is None
        assert repr(await pair.receiver.store.read()) == repr(before)
    finally:
        pair.server.start()
    assert (await pair.click("rotate"))["state"] == "done"
    assert sorted((await pair.states()).values()) == ["current", "previous", "previous"]

    entries = [json.loads(line) for line in (pair.receiver.folder / "audit.log").read_text().splitlines()]
    ended = [entry for entry in entries if entry["action"] == "key_rotation"]
    assert [(entry["who"], entry["details"]["action"], entry["outcome"]) for entry in ended] == [
        ("uid:0", "rotate", "done"), ("uid:0", "rollback", "done"), ("uid:0", "rotate", "done"),
    ]  # fmt: skip
    assert {key["fingerprint"] for key in ended[0]["details"]["keys"]} == {first, second}
    secrets |= {each.fingerprint: each for each in (await pair.receiver.store.read()).pairs}
    said = pair.receiver.log + (pair.receiver.folder / "audit.log").read_text() + json.dumps(run)
    for each in secrets.values():
        assert each.private_key is not None
        der = each.private_key.to_der()
        assert base64.b64encode(der)[40:120].decode() not in said
        assert der[-64:].hex() not in said


@pytest.mark.servers
@pytest.mark.one_server(reason="the access lists of the private directory")
async def test_an_account_that_may_not_publish_the_keys_is_named_with_what_to_do(
    server: EmbeddedDirectory, tmp_path: Path
) -> None:
    with EnterpriseDirectory(server.client_settings()) as directory:
        mine, _ = (admit(directory, name, tmp_path / name) for name in ("OWNC", "OWND"))
    assert mine.identifier is not None
    store = FileKeyStore(tmp_path / "keys")

    async def read() -> frozenset[str]:
        return frozenset(pair.fingerprint for pair in (await store.read()).pairs)

    stranger = options_of(tmp_path, mine.identifier, directory=tmp_path / "OWND" / SETTINGS_FILE)
    keys = OwnKeys(stranger, {"file": str(tmp_path / "OWNC" / SETTINGS_FILE)})
    with pytest.raises(RotationFailure, match=r"management\.key_rotation\.directory"):
        await keys.carry_out(ROTATE, 0.0, read, lambda _: None)
    keys = OwnKeys(options_of(tmp_path, mine.identifier), {"file": str(tmp_path / "OWNC" / SETTINGS_FILE)})
    assert [step.kind for step in (await keys.plan()).steps[ROTATE]] == [StepKind.PUBLISH, StepKind.PUBLISH]
    await keys.carry_out(ROTATE, 0.0, read, lambda _: None)
    assert {pair.state for pair in (await store.read()).pairs} == {CURRENT}
    with pytest.raises(RotationFailure, match="directory admit"):
        await OwnKeys(options_of(tmp_path), {"file": str(tmp_path / "OWNC" / SETTINGS_FILE)}).plan()
