"""What an attack is: each test of this folder that is one says what the attacker can do and what is promised."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum, unique
from pathlib import Path
from typing import TypeVar

Test = TypeVar("Test", bound=Callable[..., object])
FOLDER = Path(__file__).parent


@unique
class Area(StrEnum):
    """What an attack aims at."""

    SEQUENCES = "sequences"
    HISTORY = "history"
    ACKNOWLEDGMENTS = "acknowledgments"
    ROUTING = "routing and forwarding"
    SESSIONS = "session establishment and TLS"
    ENCRYPTION = "encrypted messages"
    RESOURCES = "resources"
    AMQP = "the AMQP door"
    OPERATIONS = "operations on messages"
    DOORS = "management, remote read and the directory"
    DIRECTORY = "a directory that lies"
    CONSOLE = "the web console"
    BROWSER = "pages in a browser"
    PIPELINE = "the pipeline"
    REMOTE_READ = "remote read"


@dataclass(frozen=True)
class Attack:
    """One attack: ``can`` is what its author is able to do, ``promised`` what the node keeps up nevertheless."""

    area: Area
    can: str
    promised: str
    test: str
    """``file::function``, below the folder of the suite."""


def attack(area: Area, *, can: str, promised: str) -> Callable[[Test], Test]:
    """Say of a test which attack it is. Each text is one line."""

    def mark(test: Test) -> Test:
        file = test.__module__.rpartition(".")[2]
        test.attack = Attack(area, can, promised, f"{file}.py::{test.__name__}")  # type: ignore[attr-defined]
        return test

    return mark


def all_attacks() -> Iterator[Attack]:
    """Every attack of the suite, by file and place in it."""
    for file in sorted(FOLDER.glob("test_*.py")):
        module = importlib.import_module(f"tests.adversary.{file.stem}")
        for one in vars(module).values():
            found = getattr(one, "attack", None)
            if isinstance(found, Attack) and found.test.startswith(f"{file.stem}.py::"):
                yield found
