"""A copy elsewhere: what it has, what it says is missing, and what becomes of it when its place is away or forged."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

from qmnode import Access, Message, QueueManager
from qmnode.copies import shipper
from qmnode.copies.pieces import Sealed, read_name
from qmnode.copies.restoring import MISSING, restore_copy
from qmnode.copies.target import LARGEST, Folder
from qmnode.errors import ConfigurationError
from qmnode.management.documents import NodeDocument
from qmnode.management.metrics import exposition
from qmnode.management.request_context import Context
from qmnode.security.key_stores import PassphraseSealing
from qmnode.settings.node import ManagementSettings, Settings
from qmnode.storage.errors import StoreError
from qmnode.storage.origin import copy_notice
from qmnode.storage.verification import verify
from tests.copies.ledger import PLAIN, Ledger, create_queues, hold_against, receive, traffic
from tests.lab.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

SECRET = b"a secret body "


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """The file with the passphrase of the copy."""
    path = tmp_path / "key"
    path.write_text("a passphrase\n")
    path.chmod(0o600)
    return path


def settings(tmp_path: Path, **values: Any) -> Settings:
    copy = {"to": str(tmp_path / "copy"), "key": str(tmp_path / "key"), "lag": 0.5} | values
    return Settings.model_validate({"computer_name": "ALPHA", "storage": {"remote_copy": copy}})


@asynccontextmanager
async def node(tmp_path: Path, **values: Any) -> AsyncIterator[QueueManager]:
    async with QueueManager.open(tmp_path / "store", settings(tmp_path, **values)) as qm:
        yield qm


async def send(qm: QueueManager, *bodies: bytes) -> list[bytes]:
    async with await qm.open_queue(f"DIRECT=OS:{PLAIN}", Access.SEND) as queue:
        return await queue.send_many([Message(body, recoverable=True) for body in bodies])


async def bodies(data: Path) -> list[bytes]:
    async with QueueManager.open(data) as qm, await qm.open_queue(f"DIRECT=OS:{PLAIN}", Access.RECEIVE) as queue:
        return [message.body for message in await queue.receive_many(1000, timeout=0)]


async def shipped(qm: QueueManager) -> float:
    """Wait until all that is acknowledged is in the copy, and return a moment after that, which it covers too."""
    for _ in range(2):
        now = time.time()
        await eventually(lambda: qm.copy_state()["moment"] > now, "the copy goes on")  # noqa: B023
    return now


def restore(tmp_path: Path, key: Path, at: float | None = None, name: str = "restored") -> Any:
    return restore_copy(str(tmp_path / "copy"), key, tmp_path / name, at)


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def listed(data: Path) -> list[tuple[str, str]]:
    lines = [json.loads(line) for line in (data / MISSING).read_text().splitlines()]
    return [(line["state"], line["queue"].rpartition("\\")[2]) for line in lines]


async def test_copies_of_several_moments_have_and_lack_what_the_ledger_of_the_traffic_says(
    tmp_path: Path, key: Path
) -> None:
    ledger = Ledger()
    async with node(tmp_path, base=5) as qm:
        await create_queues(qm)
        begun = await shipped(qm)
        await traffic(qm, ledger, 0, 8)
        await shipped(qm)
        await traffic(qm, ledger, 1, 8)
    async with node(tmp_path, base=5) as qm:  # the log goes on in other files
        await traffic(qm, ledger, 2, 8)
        await shipped(qm)
    names = [name for name in map(read_name, names_in(tmp_path / "copy")) if name is not None]
    assert {name.generation for name in names} == {1}
    first, last = ledger.span()
    for number, at in enumerate((begun, first + (last - first) * 0.6, None)):
        counts = await hold_against(ledger, tmp_path / "copy", key, tmp_path / f"restored{number}", at)
        if at == begun:
            assert counts["here"] == 0
        if at is None:
            assert counts["here"]
            assert not counts["missing"]


async def test_a_copy_is_private_and_sealed(tmp_path: Path, key: Path) -> None:
    async with node(tmp_path) as qm:
        await qm.create_queue(PLAIN)
        await send(qm, SECRET * 10, SECRET * 30_000)
        await shipped(qm)
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o700
    for path in (tmp_path / "copy").iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
        assert SECRET not in path.read_bytes()
    restore(tmp_path, key)
    assert (tmp_path / "restored").stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "restored").rglob("*"))
    assert await bodies(tmp_path / "restored") == [SECRET * 10, SECRET * 30_000]


async def test_status_and_metrics_show_a_copy_and_a_restored_one_says_what_it_lacks(tmp_path: Path, key: Path) -> None:
    async with node(tmp_path) as qm:
        await qm.create_queue(PLAIN)
        await send(qm, b"first", b"second")
        moment = await shipped(qm)
        found = NodeDocument.of(await qm.status(), "1").remote_copy
        assert found is not None
        assert (found.to, found.failure) == (str(tmp_path / "copy"), "")
        assert found.moment >= moment > found.base > 0
        assert "\nqmnode_copy_lag_seconds 0." in (await exposition(Context(qm, ManagementSettings()))).decode()
        await receive(qm, Ledger(), PLAIN, 1)
        used = await send(qm, b"third")
        await shipped(qm)
    restored = restore(tmp_path, key, moment)
    assert restored.moment <= moment <= restored.ends
    assert sorted(listed(tmp_path / "restored")) == [("again", "plain"), ("missing", "plain")]
    async with QueueManager.open(tmp_path / "restored") as qm:
        notice = copy_notice(qm.store)
        assert notice is not None
        assert "1 messages that were accepted later are missing" in notice
        assert not set(await send(qm, *[b"x"] * 100)) & set(used)


def test_the_folder_of_a_copy_is_not_listed_for_each_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[Path] = []
    monkeypatch.setattr("pathlib.Path.iterdir", lambda path: iter(listed.append(path) or ()))
    folder = Folder(tmp_path)
    for number in range(5):
        folder.put(f"{number}", b"a", b"piece")
    assert len(listed) == 1
    assert folder.get("4") == b"apiece"


async def test_a_node_goes_on_without_the_place_of_its_copy_and_the_copy_catches_up(tmp_path: Path, key: Path) -> None:
    place = tmp_path / "mount"
    async with node(tmp_path, to=str(place / "copy")) as qm:
        await qm.create_queue(PLAIN)
        await eventually(lambda: "mount/copy: No such file" in qm.copy_state()["failure"], "an attempt has failed")
        assert "copy" in qm.troubles
        await send(qm, b"x" * 300_000, b"y")
        await receive(qm, Ledger(), PLAIN, 1)
        lag = qm.copy_state()["lag_seconds"]
        await eventually(lambda: qm.copy_state()["lag_seconds"] > lag, "the lag grows")
        place.mkdir()
        await shipped(qm)
        await eventually(lambda: "copy" not in qm.troubles, "no warning")
    restore_copy(str(place / "copy"), key, tmp_path / "restored")
    assert await bodies(tmp_path / "restored") == [b"y"]


async def test_the_store_keeps_no_more_than_the_backlog_for_a_place_that_is_away(tmp_path: Path, key: Path) -> None:
    async with node(tmp_path, backlog=1 << 20) as qm:
        await qm.create_queue(PLAIN)
        await send(qm, b"before")
        before = await shipped(qm)
        (tmp_path / "copy").rename(tmp_path / "away")
        (tmp_path / "copy").write_text("a file in its place")
        for _ in range(8):
            await send(qm, b"x" * 400_000)
            await receive(qm, Ledger(), PLAIN, 2)
        await eventually(lambda: not (tmp_path / "store/COPYING").exists(), "the copy gives up")
        gap = time.time()
        (tmp_path / "copy").unlink()
        (tmp_path / "away").rename(tmp_path / "copy")
        await send(qm, b"after")
        await shipped(qm)
    restore(tmp_path, key)
    assert await bodies(tmp_path / "restored") == [b"after"]
    with pytest.raises(StoreError, match=r"not covered .* interrupted"):
        restore(tmp_path, key, gap, "none")
    restored = restore(tmp_path, key, before, "older")
    assert "interrupted" in restored.damaged[0]
    assert await bodies(tmp_path / "older") == [b"before"]


async def test_a_place_that_hangs_neither_fills_the_disk_nor_holds_up_the_end(
    tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, put = Event(), Folder.put

    def put_later(self: Folder, name: str, *parts: bytes) -> None:
        answers.wait(30)
        put(self, name, *parts)

    monkeypatch.setattr(Folder, "put", put_later)
    monkeypatch.setattr(shipper, "_LAST_WORD", 0.1)
    small = settings(tmp_path, backlog=1 << 20)
    storage = small.storage.model_copy(update={"log_limit": 1 << 20, "write_buffer": 256 << 10})
    answers.set()
    async with QueueManager.open(tmp_path / "store", small.model_copy(update={"storage": storage})) as qm:
        await qm.create_queue(PLAIN)
        await shipped(qm)
        answers.clear()
        for _ in range(20):
            await send(qm, b"x" * 400_000, *(b"y" * 40_000 for _ in range(5)))
            await receive(qm, Ledger(), PLAIN, 6)
        await eventually(lambda: "does not answer" in qm.troubles.get("copy", ""), "a warning")
        await eventually(lambda: size_of(tmp_path / "store/archive") == 0, "the logs are let go")
        await eventually(lambda: size_of(tmp_path / "store/large") < 8 << 20, "the files are let go")
        answers.set()
        await send(qm, b"after")
        await shipped(qm)
        answers.clear()
        await send(qm, b"at the end")
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "qmnode-copy")
    answers.set()
    restore(tmp_path, key)
    assert (await bodies(tmp_path / "restored"))[:1] == [b"after"]


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*"))


async def test_a_large_message_that_a_base_has_first_is_in_the_increment_of_its_record(
    tmp_path: Path, key: Path
) -> None:
    async with node(tmp_path) as qm:
        await qm.create_queue(PLAIN)
        await send(qm, b"x" * 300_000)
        await shipped(qm)
        copier: Any = qm.copier  # type: ignore[attr-defined]
        base = copier._shipper._stored
        copier._shipper._stored = {identity: replace(one, path="") for identity, one in base.items()}
        copier._large.placed.extend(int(one.path[6:], 16) for one in base.values() if one.path.startswith("large/"))
        await shipped(qm)
    assert not restore(tmp_path, key).damaged
    assert await bodies(tmp_path / "restored") == [b"x" * 300_000]


async def test_what_no_moment_needs_any_longer_is_removed(tmp_path: Path, key: Path) -> None:
    async with node(tmp_path, base=5, keep=60) as qm:
        await qm.create_queue(PLAIN)
        await send(qm, b"x" * 300_000)
        await shipped(qm)
        copier: Any = qm.copier  # type: ignore[attr-defined]
        before = names_in(tmp_path / "copy")
        await receive(qm, Ledger(), PLAIN, 1)
        await send(qm, b"y" * 300_000)
        await shipped(qm)
        copier._base_due = 0.0
        based = qm.copy_state()["base"]
        await eventually(lambda: qm.copy_state()["base"] > based, "another base")
        copier._shipper._settings = copier._settings.model_copy(update={"keep": 0.0})
        copier._base_due = 0.0
        based = qm.copy_state()["base"]
        await eventually(lambda: qm.copy_state()["base"] > based, "another base")
        await shipped(qm)
        left = names_in(tmp_path / "copy")
    assert {name for name in before & left if "-log-" in name or "-base-" in name} == set()
    assert before & left > {"copy.json"}, "files that a later base needs too are kept"
    assert sum("-base-" in name for name in left) == 1
    restore(tmp_path, key)
    assert await bodies(tmp_path / "restored") == [b"y" * 300_000]


async def test_a_copy_in_a_bucket_is_restored_to_a_moment(
    tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    to = "s3://copies/sites/alpha"
    with mock_aws():
        async with node(tmp_path, to=to) as qm:
            await qm.create_queue(PLAIN)
            await eventually(lambda: "NoSuchBucket" in qm.copy_state()["failure"], "a warning")
            bucket = boto3.client("s3")
            bucket.create_bucket(Bucket="copies", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
            await send(qm, b"first")
            moment = await shipped(qm)
            await send(qm, b"second")
            await shipped(qm)
        keys = [one["Key"] for one in bucket.list_objects_v2(Bucket="copies")["Contents"]]
        restored = restore_copy(to, key, tmp_path / "restored", moment)
    assert all(one.startswith("sites/alpha/") for one in keys)
    assert len(restored.lacking.missing) == 1
    assert await bodies(tmp_path / "restored") == [b"first"]


async def test_a_copy_into_the_store_itself_or_in_clear_is_refused(tmp_path: Path, key: Path) -> None:
    for to in (tmp_path / "store", tmp_path / "store" / "copy", tmp_path):
        with pytest.raises(ConfigurationError, match="one folder, or one is in the other"):
            async with node(tmp_path, to=str(to)):
                pass
    assert not (tmp_path / "store").exists()
    (tmp_path / "link").symlink_to(tmp_path / "store")
    with pytest.raises(ConfigurationError, match="one folder, or one is in the other"):
        async with node(tmp_path, to=str(tmp_path / "link" / "copy")):
            pass
    with pytest.raises(ConfigurationError, match="name an absolute folder"):
        async with node(tmp_path, to="copy"):
            pass
    with pytest.raises(ValueError, match="not written in clear"):
        settings(tmp_path, key=None)


# Forgeries. Each changes a copy of "first", a moment, "second"; what cannot be restored then is refused, and named.


def pieces(copy: Path, kind: str) -> list[Path]:
    return sorted(path for path in copy.iterdir() if f"-{kind}-" in path.name)


def torn(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def exchanged(path: Path) -> None:
    other = next(one for one in pieces(path.parent, path.name.split("-")[1]) if one != path)
    path.rename(path.parent / "x")
    other.rename(path)
    (path.parent / "x").rename(other)


def gone(path: Path) -> None:
    path.unlink()


def link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/shadow")


def huge(path: Path) -> None:
    os.truncate(path, LARGEST + 1)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


FORGERIES: list[Callable[[Path], None]] = [torn, flipped, exchanged, gone, link, huge, pipe]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """A folder with a copy and its key, and the moment."""
    folder = tmp_path_factory.mktemp("original")
    (folder / "key").write_text("a passphrase\n")
    (folder / "key").chmod(0o600)

    async def make() -> float:
        async with node(folder) as qm:
            await qm.create_queue(PLAIN)
            await send(qm, b"first")
            moment = await shipped(qm)
            await send(qm, b"second", b"large" * 60_000)
            await shipped(qm)
        return moment

    return folder, asyncio.run(make())


@pytest.fixture
def forged(original: tuple[Path, float], tmp_path: Path) -> Path:
    shutil.copytree(original[0] / "copy", tmp_path / "copy", symlinks=True)
    return tmp_path / "copy"


def forgeries(copy: Path, path: Path) -> Iterator[Path]:
    """The copy, forged in each way; each is gone when the next one is made."""
    for forge in FORGERIES:
        other = copy.parent / forge.__name__
        shutil.copytree(copy, other)
        forge(other / path.name)
        yield other
        shutil.rmtree(other)


async def test_a_damaged_base_is_refused_and_nothing_stays(forged: Path, key: Path, tmp_path: Path) -> None:
    (forged / "00001-base-9999999999-20991231T000000.000Z.0000").write_bytes(b"another")
    table = next(path for path in pieces(forged, "file") if path.stat().st_size > 10_000)
    for path in (pieces(forged, "base")[0], table):
        for copy in forgeries(forged, path):
            with pytest.raises(StoreError, match=f"(no whole base|{path.name.rpartition('.')[0]})"):
                restore_copy(str(copy), key, tmp_path / "restored")
            assert list(tmp_path.glob("restored/*")) == []


async def test_nothing_behind_a_damaged_increment_is_taken_for_whole(
    original: tuple[Path, float], forged: Path, key: Path, tmp_path: Path
) -> None:
    moment = original[1]
    times = {path: read_name(path.name).time for path in pieces(forged, "log")}  # type: ignore[union-attr]
    late = next(path for path, time in times.items() if time > moment + 0.3)
    end = max(times.values())
    for copy in forgeries(forged, late):
        with pytest.raises(StoreError, match="is not covered by"):
            restore_copy(str(copy), key, tmp_path / "refused", end - 0.01)
    late.unlink()
    for at in (moment, None):
        restored = restore_copy(str(forged), key, tmp_path / f"restored{at}", at)
        assert restored.moment < end
        assert restored.damaged
        assert not verify(tmp_path / f"restored{at}").findings
    assert await bodies(tmp_path / f"restored{moment}") == [b"first"]


async def test_two_nodes_never_share_a_copy(forged: Path, key: Path, tmp_path: Path) -> None:
    other = settings(tmp_path).model_copy(update={"computer_name": "BETA"})
    before = names_in(forged)
    async with QueueManager.open(tmp_path / "other", other) as qm:
        await eventually(lambda: "the copy of ALPHA" in qm.troubles.get("copy", ""), "a warning")
    assert names_in(forged) == before


@pytest.mark.parametrize("how", ["in clear", "with the cost of 4 GB", "too deep"])
async def test_who_writes_to_the_place_of_a_copy_chooses_neither_its_key_nor_the_memory_to_open_it(
    how: str, tmp_path: Path, key: Path
) -> None:
    document: dict[str, Any] = {"format": 1, "identifier": "0" * 32, "node": "ALPHA", "key": "00" * 32}
    if how == "with the cost of 4 GB":
        sealed = json.loads(PassphraseSealing(key).seal(json.dumps(document).encode(), "copy.json"))
        document = sealed | {"scrypt": {"n": 1 << 20, "r": 32, "p": 16}}
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/copy.json").write_text("[" * 100_000 if how == "too deep" else json.dumps(document))
    refusal = "is not that of a copy" if how == "too deep" else "somebody else wrote it"
    async with node(tmp_path) as qm:
        await qm.create_queue(PLAIN)
        await eventually(lambda: refusal in qm.copy_state()["failure"], "a refusal")
    assert names_in(tmp_path / "copy") == {"copy.json"}
    with pytest.raises(StoreError, match=refusal):
        restore(tmp_path, key)


async def test_files_of_others_in_the_folder_are_left_alone(
    original: tuple[Path, float], forged: Path, key: Path, tmp_path: Path
) -> None:
    (forged / "notes.txt").write_text("mine")
    (forged / "00001-log-0000000001-yesterday").write_text("mine")
    (forged / "99999-log-0000000001-20991231T000000.000Z").write_text("forged")
    (forged / "99999-base-0000000001-20991231T000000.000Z.0000").write_text("forged")
    restored = restore_copy(str(forged), key, tmp_path / "restored", original[1])
    assert any("99999-log" in sentence for sentence in restored.damaged)
    assert await bodies(tmp_path / "restored") == [b"first"]
    assert sorted(state for state, _ in listed(tmp_path / "restored")) == ["missing", "missing"]


async def test_a_piece_of_another_copy_with_the_same_name_and_key_is_not_taken(
    original: tuple[Path, float], forged: Path, key: Path, tmp_path: Path
) -> None:
    ours, name = Sealed.open(Folder(forged), key), pieces(forged, "base")[0].name.rpartition(".")[0]
    assert ours is not None
    theirs = Sealed.create(Folder(tmp_path / "other"), key, "ALPHA")
    theirs.put_base(name, ours.get_base(name))
    shutil.copy(tmp_path / "other" / f"{name}.0000", forged)
    with pytest.raises(StoreError, match="of another copy"):
        restore_copy(str(forged), key, tmp_path / "restored")


async def test_a_wrong_key_or_moment_restores_nothing(
    original: tuple[Path, float], forged: Path, key: Path, tmp_path: Path
) -> None:
    key.write_text("another passphrase\n")
    with pytest.raises(StoreError, match="the passphrase is wrong"):
        restore_copy(str(forged), key, tmp_path / "restored")
    key.write_text("a passphrase\n")
    key.chmod(0o644)
    with pytest.raises(StoreError, match="chmod 600"):
        restore_copy(str(forged), key, tmp_path / "restored")
    key.chmod(0o600)
    with pytest.raises(StoreError, match=r"is not covered by .* it covers 20"):
        restore_copy(str(forged), key, tmp_path / "restored", 0.0)
    with pytest.raises(StoreError, match="is no copy"):
        restore_copy(str(tmp_path / "none"), key, tmp_path / "restored")
    with pytest.raises(StoreError, match="is not empty"):
        restore_copy(str(forged), key, forged)
    assert not (tmp_path / "restored").exists()


async def test_a_node_that_is_refused_the_store_leaves_the_copy_of_the_one_that_has_it(
    tmp_path: Path, key: Path
) -> None:
    async with node(tmp_path) as qm:
        await qm.create_queue(PLAIN)
        await send(qm, b"x")
        await shipped(qm)
        state = (tmp_path / "store/COPYING").read_bytes()
        with pytest.raises(StoreError, match="in use"):
            await QueueManager.open(tmp_path / "store", Settings(computer_name="ALPHA"))
        assert (tmp_path / "store/COPYING").read_bytes() == state
    async with QueueManager.open(tmp_path / "store", Settings(computer_name="ALPHA")):
        assert not (tmp_path / "store/COPYING").exists(), "it is set up no more"
