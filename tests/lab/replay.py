"""Hosts whose answers are recorded, and hosts that are not there and answer as those did."""

from __future__ import annotations

import ipaddress
import json
import os
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.lab.addresses import free_alias
from tests.lab.enterprise import DIRECTORY_PORT, RealHosts
from tests.lab.network import alone, new_folder, remove, remove_leftovers

if TYPE_CHECKING:
    from collections.abc import Mapping

PLUGINS = Path(__file__).parent / "connection_plugins"
NETWORK = ipaddress.ip_network("198.19.0.0/16")
"""Of the networks for benchmarks; nobody is there."""
Answers = dict[str, dict[str, Any]]
"""What :mod:`tests.lab.connection_plugins.recorded` noted, by question."""


class RecordedHosts(RealHosts):
    """Real hosts, whose answers are noted while :attr:`recording` is true."""

    recording = False

    def inventory(self, host: str) -> dict[str, Any]:
        return super().inventory(host) | {"ansible_connection": "recorded"}

    def environment(self) -> dict[str, str]:
        known = super().environment() | {"ANSIBLE_CONNECTION_PLUGINS": str(PLUGINS)}
        return known | {"LAB_EXCHANGES": str(self._noted)} if self.recording else known

    @property
    def _noted(self) -> Path:
        return self.folder / "exchanges"

    def answers(self) -> dict[str, Answers]:
        """What was recorded, by host; of several answers to a question, that which took the median time."""
        noted: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for each in map(json.loads, self._noted.read_text().splitlines()):
            noted.setdefault(each["host"]["<name>"], {}).setdefault(each["asked"], []).append(each)
        self._noted.unlink()

        def seconds(one: dict[str, Any]) -> float:
            return float(one["seconds"])

        def median(several: list[dict[str, Any]]) -> dict[str, Any]:
            middle = statistics.median_low(map(seconds, several))
            return next(each for each in several if each["seconds"] == middle)

        return {host: {asked: median(several) for asked, several in found.items()} for host, found in noted.items()}


class ReplayedHosts:
    """Hosts that are not there. Each answers as another one did: its answers, and how Ansible reached it."""

    kind = "recorded answers"

    def __init__(self, hosts: Mapping[str, str], as_others: Mapping[str, tuple[Answers, dict[str, Any]]]) -> None:
        with alone():
            remove_leftovers()
            self.folder = new_folder(f"re{os.getpid()}")
        self.addresses = {host: str(NETWORK[number]) for number, host in enumerate(hosts, start=257)}
        self.directory_address = free_alias([DIRECTORY_PORT])
        self._as_others = dict(as_others)

    def start(self) -> None:
        for host, (answers, _inventory) in self._as_others.items():
            self.answer(host, answers)

    def answer(self, host: str, answers: Answers) -> None:
        """Let a host give other answers from now on."""
        self._answers(host).write_text(json.dumps(answers))

    def _answers(self, host: str) -> Path:
        return self.folder / f"{host}.json"

    def close(self) -> None:
        remove(self.folder)

    def inventory(self, host: str) -> dict[str, Any]:
        _answers, inventory = self._as_others[host]
        return inventory | {
            "ansible_host": self.addresses[host],
            "ansible_connection": "replayed",
            "lab_answers": str(self._answers(host)),
        }

    def environment(self) -> dict[str, str]:
        return {"ANSIBLE_CONNECTION_PLUGINS": str(PLUGINS), "ANSIBLE_REMOTE_USER": "root", "ANSIBLE_TIMEOUT": "10"}
