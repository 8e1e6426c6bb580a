"""Large messages of a store, and their files."""

import random
from pathlib import Path
from typing import Literal

from qmnode.model.stored_message import PREFIX, PREFIX_SIZE
from qmnode.storage.large_messages import FOLDER, SMALLEST
from qmnode.storage.store import Store

QUEUE = 64
SYNC: tuple[Literal["inline"], Literal["thread"]] = ("inline", "thread")
NAME = r".\private$\orders"
FORMAT = rf"DIRECT=OS:{NAME}"


def value(number: int, size: int = SMALLEST) -> bytes:
    """A stored value of so many bytes; each number's differ."""
    prefix = PREFIX.pack(1, 0, 0, 0, PREFIX_SIZE, 0xFFFFFFFF, number)
    return prefix + (random.Random(number).randbytes(1000) * (size // 1000 + 1))[: size - PREFIX_SIZE]


def files(path: Path) -> dict[str, int]:
    """The files of large messages, with their inodes."""
    return {file.name: file.stat().st_ino for file in (path / FOLDER).iterdir()} if (path / FOLDER).is_dir() else {}


def stored(store: Store, last: int = 1 << 40) -> dict[int, bytes]:
    return dict(store.read_messages(QUEUE, 0, last, 10_000, 1 << 40, False))


def open_files(path: Path) -> int:
    """The files of large messages that this process has open."""
    opened = [one.resolve() for one in Path("/proc/self/fd").iterdir()]
    return sum(one.is_relative_to(path / FOLDER) for one in opened)


def put(store: Store, *numbers: int, size: int = SMALLEST) -> None:
    for number in numbers:
        store.put_message(QUEUE, number, value(number, size))
    store.flush()


def delete(store: Store, *numbers: int, size: int = SMALLEST) -> None:
    for number in numbers:
        store.delete_message(QUEUE, number, value(number, size))
    store.flush()


def settled(store: Store) -> None:
    """Files have been removed that are to be."""
    if store._large._remover is not None:
        store._large._remover.submit(lambda: None).result()
