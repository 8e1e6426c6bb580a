"""Rotations whose process is killed: at every step, and at random points."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qmnode.security.key_stores import KeyPair, KeyRing, KeyState
from tests.keys.lab import NEEDED_FOR, RELOAD, START
from tests.keys.worker import Fate, opened

pytestmark = pytest.mark.slow
NOW = START + 2000
SUPERSEDED = NOW - 500 + RELOAD
RETIRING, DESTROYING = SUPERSEDED + NEEDED_FOR, SUPERSEDED + 2 * NEEDED_FOR
DECRYPTING = (KeyState.NEXT, KeyState.CURRENT, KeyState.PREVIOUS)


class Worker:
    """The process that forks the others."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.keys.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __call__(self, folder: Path, work: str, now: float = NOW, **more: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        order = {"folder": str(folder), "work": work, "now": now, "begun": now, **more}
        print(json.dumps(order), file=self.process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    assert worker.process.stdin is not None
    worker.process.stdin.close()
    assert worker.process.wait(240) == 0


@pytest.fixture(scope="module")
def prepared(worker: Worker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What each work begins with: a first key; one in its place; the old one retired."""
    root = tmp_path_factory.mktemp("prepared")
    folders = {name: root / name for name in ("rotate", "rollback", "retire", "destroy")}
    folders["rotate"].mkdir()
    worker(folders["rotate"], "rotate", START)
    for before, after, work, now in (
        ("rotate", "rollback", "rotate", NOW - 500),
        ("rollback", "retire", "", 0.0),
        ("retire", "destroy", "retire", RETIRING),
    ):
        shutil.copytree(folders[before], folders[after])
        if work:
            worker(folders[after], work, now)
    return folders


def keys(folder: Path) -> tuple[list[KeyPair], frozenset[str]]:
    """The encryption keys, newest first, and what the directory shows."""
    bench = opened(folder, NOW, Fate(None))
    pairs = sorted(bench.file.read_now().pairs, key=lambda pair: -pair.created_time)
    shown = bench.lists.shown()
    # Whatever was cut: what senders are shown decrypts.
    ring = [pair.fingerprint for pair in KeyRing(pairs)]
    assert all(fingerprint in ring for fingerprint in shown)
    return [pair for pair in pairs if pair.purpose == "encryption"], shown


def check_rotated(folder: Path) -> None:
    (new, old), shown = keys(folder)
    assert (new.state, old.state) == (KeyState.CURRENT, KeyState.PREVIOUS)
    assert new.fingerprint in shown
    assert old.private_key is not None


def check_rolled_back(folder: Path) -> None:
    pairs, shown = keys(folder)
    old = pairs[-1]
    assert old.state is KeyState.CURRENT
    assert old.fingerprint in shown
    assert {pair.state for pair in pairs[:-1]} <= {KeyState.PREVIOUS}
    assert all(pair.private_key is not None for pair in pairs)


def check_retired(folder: Path) -> None:
    assert [pair.state for pair in keys(folder)[0]] == [KeyState.CURRENT, KeyState.RETIRED]


def check_destroyed(folder: Path) -> None:
    pairs, _ = keys(folder)
    assert [pair.state for pair in pairs] == [KeyState.CURRENT, KeyState.DESTROYED]
    assert pairs[1].private_key is None


WORKS = {
    "rotate": ("rotate", NOW, check_rotated),
    "rollback": ("rollback", NOW, check_rolled_back),
    "retire": ("retire", RETIRING, check_retired),
    "destroy": ("retire", DESTROYING, check_destroyed),
}


def again(
    worker: Worker, prepared: dict[str, Path], name: str, folder: Path, later: str, **fate: Any
) -> dict[str, Any]:
    """Begin a work, have it killed, and run the same or a rollback after it."""
    work, now, check = WORKS[name]
    shutil.copytree(prepared[name], folder)
    answer = worker(folder, work, now, **fate)
    keys(folder)
    if later == "again":
        worker(folder, work, now + 5, begun=now)
        check(folder)
    else:
        worker(folder, "rollback", now + 5)
        check_rolled_back(folder)
    shutil.rmtree(folder)
    return answer


@pytest.mark.parametrize(
    ("name", "later"),
    [
        *((name, "again") for name in WORKS),
        ("rotate", "rolled back"),
        ("rollback", "rolled back"),
        ("retire", "rolled back"),
    ],
)
def test_killed_at_every_step_it_ends_in_the_same_place(
    worker: Worker, prepared: dict[str, Path], tmp_path: Path, name: str, later: str
) -> None:
    points = 0
    while again(worker, prepared, name, tmp_path / "node", later, die_at=points)["killed"]:
        points += 1
    assert points >= 4


@pytest.mark.parametrize("kills", [8, pytest.param(100, marks=pytest.mark.soak)])
def test_killed_at_random_points_it_ends_in_the_same_place(
    worker: Worker, prepared: dict[str, Path], tmp_path: Path, kills: int
) -> None:
    randomness = random.Random(6)
    killed = 0
    lasts = {name: again(worker, prepared, name, tmp_path / "node", "again")["seconds"] for name in WORKS}
    for _ in range(5 * kills):
        if killed == kills:
            break
        name = randomness.choice(list(WORKS))
        later = randomness.choice(["again", "rolled back"]) if name != "destroy" else "again"
        seconds = randomness.uniform(0.002, lasts[name] * 0.7)
        killed += again(worker, prepared, name, tmp_path / "node", later, die_after=seconds)["killed"]
    assert killed == kills
