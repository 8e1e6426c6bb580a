"""Rotation of the node's own keys through the API: who may, what is refused, and what is written down."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httpx
import pytest
from pydantic import ValidationError

from qmnode.administration import key_rotation
from qmnode.administration.key_rotation import KeyRotations, Run
from qmnode.console.own_node import WithConsole
from qmnode.directory.port import WorkgroupDirectory
from qmnode.management.app import build_app
from qmnode.management.authentication import Doorway
from qmnode.security.key_stores import (
    KeyChange,
    KeyPurpose,
    KeyState,
    PlannedStep,
    RotationAction,
    RotationFailure,
    RotationPlan,
    RotationStage,
    StepKind,
)
from qmnode.security.message_security import KeyStoreStatus
from qmnode.service import Service
from qmnode.settings.node import ConfigurationError, NodeSettings
from tests.lab.waiting import eventually, until
from tests.management.conftest import OPERATOR, READER, Managed, digest
from tests.management.test_node import ReadKeys

PATH = "/v1/keys/rotation"
BOSS = "the-boss-secret"
SCOPED = "a-boss-with-a-sid"
MADE = PlannedStep(kind=StepKind.MAKE, provider="AES", purpose=KeyPurpose.ENCRYPTION, length=2048)
KEPT = PlannedStep(
    kind=StepKind.KEEP,
    provider="AES",
    purpose=KeyPurpose.ENCRYPTION,
    length=2048,
    fingerprint="SHA256:old",
    senders_until=1000.0,
    needed_until=90_000.0,
)


@dataclass
class FakeKeys:
    """Keys that a test holds back, or lets fail."""

    version: int = 3
    away: str | None = None
    """Why the directory cannot be read."""
    fails: Exception | None = None
    """What a rotation ends with after it has made a key."""
    holds: asyncio.Event | None = None
    done: list[RotationAction] = field(default_factory=list)
    plans: int = 0

    async def plan(self) -> RotationPlan:
        self.plans += 1
        if self.away == "hangs":
            await asyncio.Event().wait()
        if self.away is not None:
            raise RotationFailure(self.away)
        return RotationPlan(
            self.version,
            {RotationAction.ROTATE: (MADE, KEPT), RotationAction.ROLLBACK: (), RotationAction.RETIRE: ()},
        )

    async def carry_out(
        self,
        action: RotationAction,
        begun: float,
        read: Callable[[], Awaitable[frozenset[str]]],
        progress: Callable[[RotationStage], None],
    ) -> tuple[KeyChange, ...]:
        self.done.append(action)
        progress(RotationStage.READING)
        assert await read() == {"SHA256:old"}
        if self.holds is not None:
            await self.holds.wait()
        self.version += 1
        if self.fails is not None:
            raise self.fails
        progress(RotationStage.PUBLISHING)
        return (KeyChange("SHA256:new", KeyPurpose.ENCRYPTION, KeyState.CURRENT),)


@dataclass
class Permitted:
    """A node that permits rotations."""

    managed: Managed
    keys: FakeKeys
    ended: list[Run]
    reader: ReadKeys

    async def until_over(self) -> None:
        await eventually(lambda: bool(self.ended), "the rotation is over")


@pytest.fixture
async def permitted(managed: Managed) -> Permitted:
    tokens = json.loads((managed.folder / "tokens.yaml").read_text())
    tokens.append({"name": "boss", "role": "administer", "sha256": digest(BOSS)})
    tokens.append({"name": "scoped", "role": "administer", "sha256": digest(SCOPED), "principal": "S-1-5-21-1-2-3-4"})
    (managed.folder / "tokens.yaml").write_text(json.dumps(tokens))
    managed.server.reload()
    ended: list[Run] = []
    keys, reader = FakeKeys(), ReadKeys(KeyStoreStatus(3, None, ("SHA256:old",)))
    managed.server.context.rotations = KeyRotations(keys, reader, ended.append, lambda: 500.0)
    return Permitted(managed, keys, ended, reader)


async def test_the_plan_names_each_key_and_until_when_old_ones_serve(permitted: Permitted) -> None:
    async with permitted.managed.tcp(BOSS) as boss:
        shown = (await boss.get(PATH)).json()
    assert (shown["permitted"], shown["fault"], shown["run"]) == (True, None, None)
    assert shown["plan"]["version"] == 3
    made, kept = shown["plan"]["rotate"]
    assert (made["kind"], made["fingerprint"], made["length"]) == ("make", None, 2048)
    assert (kept["kind"], kept["fingerprint"]) == ("keep", "SHA256:old")
    assert (kept["senders_until"], kept["needed_until"]) == ("1970-01-01T00:16:40Z", "1970-01-02T01:00:00Z")
    assert shown["plan"]["rollback"] == shown["plan"]["retire"] == []
    assert permitted.keys.done == []


async def test_a_rotation_is_started_followed_and_audited_with_its_author(permitted: Permitted) -> None:
    permitted.keys.holds = asyncio.Event()
    async with permitted.managed.tcp(BOSS) as boss:
        answer = await boss.post(PATH, json={"action": "rotate", "version": 3})
        assert (answer.status_code, answer.json()["state"], answer.json()["who"]) == (202, "running", "boss")

        async def reads() -> bool:
            return bool((await boss.get(PATH)).json()["run"]["stage"] == "reading")

        await until(reads, "the rotation reads the key", 20.0, 0.01)
        plans = permitted.keys.plans
        assert (await boss.get(PATH)).json()["plan"] is None
        assert permitted.keys.plans == plans  # nothing is read while it is under way
        permitted.keys.holds.set()
        await permitted.until_over()
        run = (await boss.get(PATH)).json()["run"]
    assert (run["state"], run["fault"], run["ended"]) == ("done", None, "1970-01-01T00:08:20Z")
    assert run["changes"] == [{"fingerprint": "SHA256:new", "purpose": "encryption", "state": "current"}]
    (entry,) = (one for one in permitted.managed.audited() if one["action"] == "start_key_rotation")
    assert (entry["who"], entry["outcome"], entry["details"]) == ("boss", "done", {"action": "rotate"})
    (ended,) = permitted.ended
    assert (ended.who, ended.channel, ended.fault) == ("boss", "tcp", None)


@pytest.mark.parametrize("token", [OPERATOR, READER, SCOPED], ids=["operate", "read", "administer with a SID"])
async def test_who_does_not_administer_neither_sees_the_plan_nor_rotates(permitted: Permitted, token: str) -> None:
    async with permitted.managed.tcp(token) as client:
        for answer in (await client.get(PATH), await client.post(PATH, json={"action": "rotate", "version": 3})):
            assert (answer.status_code, answer.json()["name"]) == (403, "MQ_ERROR_ACCESS_DENIED")
    assert (permitted.keys.plans, permitted.keys.done) == (0, [])
    entry = permitted.managed.audited()[-1]
    assert (entry["outcome"], entry["status"]) == ("denied", 403)


async def test_an_unknown_caller_learns_nothing(permitted: Permitted) -> None:
    async with permitted.managed.tcp(None) as client:
        assert (await client.post(PATH, json={"action": "rotate", "version": 3})).status_code == 401
        assert (await client.get(PATH)).status_code == 401
    assert permitted.keys.plans == 0


async def test_of_two_clicks_one_rotates(permitted: Permitted) -> None:
    permitted.keys.holds = asyncio.Event()
    async with permitted.managed.tcp(BOSS) as boss:
        wanted = {"action": "rotate", "version": 3}
        answers = await asyncio.gather(*(boss.post(PATH, json=wanted) for _ in range(4)))
        assert sorted(answer.status_code for answer in answers) == [202, 409, 409, 409]
        refused = next(answer for answer in answers if answer.status_code == 409)
        assert "under way" in refused.json()["detail"]
        permitted.keys.holds.set()
        await permitted.until_over()
        # Later the same click is for a plan that is no longer true.
        late = await boss.post(PATH, json=wanted)
    assert (late.status_code, "look at the new plan" in late.json()["detail"]) == (409, True)
    assert permitted.keys.done == [RotationAction.ROTATE]


async def test_what_has_nothing_to_do_is_refused_with_the_reason(permitted: Permitted) -> None:
    async with permitted.managed.tcp(BOSS) as boss:
        for action, said in (("rollback", "no earlier key"), ("retire", "no old key is due")):
            answer = await boss.post(PATH, json={"action": action, "version": 3})
            assert (answer.status_code, said in answer.json()["detail"]) == (400, True)
        assert (await boss.post(PATH, json={"action": "destroy", "version": 3})).status_code == 422
        assert (await boss.post(PATH, json={"action": "rotate"})).status_code == 422
    assert permitted.keys.done == []


async def test_while_the_directory_is_away_nothing_is_begun(
    permitted: Permitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_rotation, "PATIENCE", 0.2)
    async with permitted.managed.tcp(BOSS) as boss:
        for away, said in (("ldaps://d: no answer", "ldaps://d: no answer"), ("hangs", "has not answered for")):
            permitted.keys.away = away
            shown = (await boss.get(PATH)).json()
            assert (shown["plan"], said in shown["fault"]) == (None, True)
            answer = await boss.post(PATH, json={"action": "rotate", "version": 3})
            assert answer.status_code == 503
            assert said in answer.json()["detail"]
            assert answer.json()["detail"].endswith("No key was changed")
    assert permitted.keys.done == []
    assert permitted.ended == []


async def test_many_who_look_share_one_reading_of_a_directory_that_hangs(
    permitted: Permitted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_rotation, "PATIENCE", 0.2)
    permitted.keys.away = "hangs"
    async with permitted.managed.tcp(BOSS) as boss:
        await asyncio.gather(*(boss.get(PATH) for _ in range(8)))
    assert permitted.keys.plans == 1


async def test_a_node_that_cannot_read_its_keys_makes_none(permitted: Permitted) -> None:
    permitted.reader.status = KeyStoreStatus(fault="/keys cannot be read")
    async with permitted.managed.tcp(BOSS) as boss:
        answer = await boss.post(PATH, json={"action": "rotate", "version": 3})
    assert answer.status_code == 503
    assert "/keys cannot be read" in answer.json()["detail"]
    assert permitted.keys.done == []


@pytest.mark.parametrize(
    ("error", "said"),
    [(RotationFailure("the directory is away: rotate again"), "rotate again"), (OSError("?"), "the log of the node")],
)
async def test_a_rotation_that_fails_says_what_to_do(permitted: Permitted, error: Exception, said: str) -> None:
    permitted.keys.fails = error
    async with permitted.managed.tcp(BOSS) as boss:
        assert (await boss.post(PATH, json={"action": "rotate", "version": 3})).status_code == 202
        await permitted.until_over()
        shown = (await boss.get(PATH)).json()
        assert (shown["run"]["state"], said in shown["run"]["fault"]) == ("failed", True)
        assert shown["plan"]["version"] == 4  # what to do next is shown at once
        permitted.keys.fails = None
        permitted.ended.clear()
        assert (await boss.post(PATH, json={"action": "rotate", "version": 4})).status_code == 202
        await permitted.until_over()
    assert permitted.ended[0].fault is None


async def test_a_rotation_is_cut_when_the_node_stops(permitted: Permitted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_rotation, "_GRACE", 0.05)
    permitted.keys.holds = asyncio.Event()
    rotations = permitted.managed.server.context.rotations
    assert rotations is not None
    await rotations.start(RotationAction.ROTATE, 3, "boss", "tcp")
    await rotations.stop()
    assert "remaining steps" in (permitted.ended[0].fault or "")


async def test_the_console_of_a_node_alone_rotates_its_keys(permitted: Permitted) -> None:
    server = permitted.managed.server
    api = Doorway(build_app(server.context), server.tokens, 100_000)
    console = WithConsole(api, "ALPHA", permitted.managed.settings)
    transport = httpx.ASGITransport(app=console)
    headers = {"Origin": "https://localhost"}
    async with httpx.AsyncClient(transport=transport, base_url="https://localhost/api/", headers=headers) as client:
        session = (await client.post("session", json={"method": "token", "token": BOSS})).json()
        wanted = {"action": "rotate", "version": 3}
        assert (await client.post("nodes/ALPHA/v1/keys/rotation", json=wanted)).status_code == 403
        assert permitted.keys.done == []
        client.headers["X-CSRF-Token"] = session["csrf"]
        assert (await client.get("nodes/ALPHA/v1/keys/rotation")).json()["plan"]["version"] == 3
        assert (await client.post("nodes/ALPHA/v1/keys/rotation", json=wanted)).status_code == 202
        await permitted.until_over()
    assert permitted.ended[0].who == "boss"
    await console.console.close()


async def test_it_is_off_unless_the_settings_permit_it(client: httpx.AsyncClient, managed: Managed) -> None:
    shown = (await client.get(PATH)).json()
    assert (shown["permitted"], shown["plan"]) == (False, None)
    assert "management.key_rotation.enabled" in shown["fault"]
    answer = await client.post(PATH, json={"action": "rotate", "version": 0})
    assert (answer.status_code, answer.json()["name"]) == (400, "MQ_ERROR_UNSUPPORTED_OPERATION")
    assert "management.key_rotation.enabled" in answer.json()["detail"]
    assert managed.audited()[-1]["outcome"] == "failed"


def test_it_needs_a_directory_that_can_rotate() -> None:
    permitted = {"key_rotation": {"enabled": True}}
    with pytest.raises(ValidationError, match="set directory"):
        NodeSettings.model_validate({"management": permitted})
    settings = NodeSettings.model_validate({"management": permitted, "directory": {"name": "file"}})
    with pytest.raises(ConfigurationError, match="'file' cannot be rotated"):
        Service(settings)._rotations(WorkgroupDirectory())
