"""Programs that speak AMQP 1.0 with the active node: one sends numbered messages, one receives them.

Each connection is a process of its own, ``python -m tests.failover.letters send|receive URL FIRST``, which says what it
begins and what the node has settled, and ends when it fails: the client's library may wait for minutes for a host that
is gone. The outcome of a message is seen when the node has settled it. A sender that has not seen it sends the message
again, and a receiver may get it again: both are counted.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

import proton
from proton.utils import BlockingConnection

from tests.lab.nodes import PROJECT

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUE: Final = "letters"
RATE: Final = 10.0
"""Messages a second."""
PATIENCE: Final = 3.0
"""Seconds after which a program takes a connection for dead."""


class Letters:
    """The two programs, each process of which is followed by another one."""

    def __init__(self, address: str) -> None:
        self._url = f"amqp://{address}:5672"
        self.sent = 0
        """Messages of which the sender has seen that the node has them."""
        self.received: list[int] = []
        self.unsettled_sent: set[int] = set()
        self.unsettled_received: set[int] = set()
        """Messages that the node had not settled when the connection was lost."""
        self.connections = 0
        self._ended = threading.Event()
        self._empty = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(what, heard, ended), daemon=True)
            for what, heard, ended in (("send", self._sends, self._ended), ("receive", self._receives, self._empty))
        ]

    def start(self) -> None:
        """Begin to send and to receive."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Send no more, receive what is there, and end."""
        self._ended.set()
        self._threads[0].join()
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and len(set(self.received)) < self.sent:
            time.sleep(0.1)
        time.sleep(2 * PATIENCE)  # what came twice comes in this time
        self._empty.set()
        self._threads[1].join()

    def faults(self) -> list[str]:
        """Sentences about messages that are lost, or came again without a reason."""
        lost = sorted(set(range(self.sent)) - set(self.received))
        again = sorted(number for number, times in Counter(self.received).items() if times > 1)
        doubled = sorted(set(again) - self.unsettled_sent - self.unsettled_received)
        found = [f"AMQP: {len(lost)} lost: {lost[:20]}"] if lost else []
        if doubled:
            found.append(f"AMQP: {len(doubled)} came again though their outcome was seen: {doubled[:20]}")
        return found

    def __str__(self) -> str:
        again = len(self.received) - len(set(self.received))
        return (
            f"AMQP: {self.sent} sent, {len(set(self.received))} arrived, {again} again; outcome not seen: "
            f"{len(self.unsettled_sent)} of sending, {len(self.unsettled_received)} of receiving; "
            f"{self.connections} connections"
        )

    def _run(self, what: str, heard: Callable[[subprocess.Popen[str]], None], ended: threading.Event) -> None:
        while not ended.is_set():
            command = [sys.executable, "-m", "tests.failover.letters", what, self._url, str(self.sent)]
            with subprocess.Popen(
                command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            ) as process:
                waiting = threading.Thread(target=lambda process=process: ended.wait() and process.kill(), daemon=True)
                waiting.start()
                heard(process)
                process.kill()
            self.connections += 1

    def _sends(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        begun = None
        for line in process.stdout:
            said, number = line.split()
            begun = int(number) if said == "begun" else None
            if said == "settled":
                self.sent = int(number) + 1
        if begun is not None:
            self.unsettled_sent.add(begun)

    def _receives(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        begun = None
        for line in process.stdout:
            said, number = line.split()
            begun = int(number) if said == "begun" else None
            if said == "begun":
                self.received.append(int(number))
        if begun is not None:
            self.unsettled_received.add(begun)


def send(client: BlockingConnection, number: int) -> None:
    """Send numbers from this one on."""
    sender = client.create_sender(QUEUE)
    while True:
        print("begun", number, flush=True)
        sender.send(proton.Message(body=b"%d" % number, inferred=True, durable=True))
        print("settled", number, flush=True)
        number += 1
        time.sleep(1 / RATE)


def receive(client: BlockingConnection) -> None:
    """Receive numbers."""
    receiver = client.create_receiver(QUEUE, credit=0)
    while True:
        try:
            message = receiver.receive(timeout=0.5)
        except proton.Timeout:
            continue
        number = int(bytes(message.body))  # the message owns the memory of its body
        print("begun", number, flush=True)
        delivery = receiver.fetcher.unsettled.popleft()
        delivery.update(proton.Delivery.ACCEPTED)
        client.wait(lambda delivery=delivery: delivery.settled)
        delivery.settle()
        print("settled", number, flush=True)


def main(what: str, url: str, first: str) -> None:
    """One program, over one connection."""
    client = BlockingConnection(url, timeout=PATIENCE, heartbeat=PATIENCE, allowed_mechs="ANONYMOUS")
    if what == "send":
        send(client, int(first))
    else:
        receive(client)


if __name__ == "__main__":
    import os

    try:
        main(*sys.argv[1:])
    except BaseException:
        os._exit(1)
