"""A store of two thousand messages, and copies of it in each of which one bit of one file is another."""

import functools
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from qmnode import Access, Message, QueueManager
from qmnode.administration.history import History
from qmnode.administration.operations import HISTORY_FILE
from qmnode.settings.node import Settings, StorageSettings
from qmnode.storage.writer import SYNCED_FILE
from tests.storage.damage import killed

QUEUES: Final = tuple(rf".\private$\orders{number}" for number in range(4))
LARGE_EVERY: Final = 250
_CHANGED: Final = (SYNCED_FILE, "LOCK")
"""Files that a start writes over: a copy does not share them."""


@functools.cache
def body(number: int) -> bytes:
    """The body of a message: its number, and bytes that follow from it."""
    chance = random.Random(number)
    size = 300_000 if number % LARGE_EVERY == LARGE_EVERY - 1 else chance.randint(20, 900)
    return b"%d " % number + chance.randbytes(size)


def number_of(content: bytes) -> int:
    """The number of a message by its body; -1 if the body is another."""
    head, _, _ = content[:12].partition(b" ")
    if not head.isdigit() or content != body(int(head)):
        return -1
    return int(head)


async def make_store(path: Path, folder: Path, count: int) -> Path:
    """A store with so many acknowledged messages, as a kill leaves it: three quarters in tables, the others in the log.

    ``folder`` is where the store is made first.
    """
    settings = Settings(storage=StorageSettings(write_buffer=1 << 20))
    last = 0
    for end in (count // 4, count // 2, count * 3 // 4, count):
        async with QueueManager.open(folder, settings) as qm:
            for name in QUEUES:
                if not last:
                    await qm.create_queue(name)
            for at, name in enumerate(QUEUES):
                async with await qm.open_queue(rf"DIRECT=OS:{name}", Access.SEND) as queue:
                    numbers = [number for number in range(last, end) if number % len(QUEUES) == at]
                    await queue.send_many([Message(body(number), recoverable=True) for number in numbers])
            last = end
            if end == count:
                history = History(qm, folder / HISTORY_FILE)
                await history.sample()
                await history.save()
                killed(folder, path)
    return path


@dataclass(frozen=True)
class Flip:
    """One bit of one file."""

    file: str
    place: int
    bit: int


def kind_of(name: str) -> str:
    """What a file of a store is."""
    for end, kind in ((".log", "log"), (".sst", "table")):
        if name.endswith(end):
            return kind
    for begin in ("MANIFEST", "OPTIONS", "large/"):
        if name.startswith(begin):
            return begin.strip("/").lower()
    return name


def files_of(path: Path) -> dict[str, list[str]]:
    """The files of a store that are not empty, by their kind."""
    kinds: dict[str, list[str]] = {}
    for file in sorted(path.rglob("*")):
        if file.is_file() and file.stat().st_size and file.name not in ("LOCK", "LOG") and "LOG.old" not in file.name:
            name = str(file.relative_to(path))
            kinds.setdefault(kind_of(name), []).append(name)
    return kinds


def flips(path: Path, seed: int) -> Iterator[Flip]:
    """Bits of a store without end: one of each kind of file in turn."""
    chance, kinds = random.Random(seed), files_of(path)
    while True:
        for names in kinds.values():
            sizes = [(path / name).stat().st_size for name in names]
            (name,) = chance.choices(names, sizes)
            yield Flip(name, chance.randrange((path / name).stat().st_size), chance.randrange(8))


@contextmanager
def flipped(path: Path, copy: Path, flip: Flip) -> Iterator[Path]:
    """A copy of the store with this bit changed."""
    for file in sorted(path.rglob("*")):
        target = copy / file.relative_to(path)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if file.is_file():
            name = str(file.relative_to(path))
            (shutil.copy if name == flip.file or file.name in _CHANGED else os.link)(file, target)
    with (copy / flip.file).open("r+b") as changed:
        changed.seek(flip.place)
        byte = changed.read(1)[0]
        changed.seek(flip.place)
        changed.write(bytes([byte ^ (1 << flip.bit)]))
    try:
        yield copy
    finally:
        shutil.rmtree(copy)
