"""Programs that speak AMQP 1.0 with the active node: one sends numbered messages, one receives them.

The outcome of a message is seen when the node has settled it. A sender that has not seen it sends the message again,
and a receiver may get it again: both are counted.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

import proton
from proton.utils import BlockingConnection

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUE: Final = "letters"
RATE: Final = 10.0
"""Messages a second."""
PATIENCE: Final = 3.0
"""Seconds after which a program takes a connection for dead."""
_FAILED: Final = (proton.ProtonException, OSError)


class Letters:
    """The two programs, each in a thread."""

    def __init__(self, address: str) -> None:
        self._address = f"amqp://{address}:5672"
        self.sent = 0
        """Messages of which the sender has seen that the node has them."""
        self.received: list[int] = []
        self.unsettled_sent: set[int] = set()
        self.unsettled_received: set[int] = set()
        """Messages that the node had not settled when the connection was lost."""
        self.connections = 0
        self.broken: list[str] = []
        """Why a program ended before its time."""
        self._ended = threading.Event()
        self._empty = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(work, ended), daemon=True)
            for work, ended in ((self._send, self._ended), (self._receive, self._empty))
        ]

    def start(self) -> None:
        """Begin to send and to receive."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Send no more, receive what is there, and end."""
        self._ended.set()
        self._threads[0].join()
        # A host that is back may still be fenced: the last message, not a silence, is the end.
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not self.broken and len(set(self.received)) < self.sent:
            time.sleep(0.1)
        time.sleep(2 * PATIENCE)  # what came twice comes in this time
        self._empty.set()
        self._threads[1].join()

    def faults(self) -> list[str]:
        """Sentences about messages that are lost, or came again without a reason."""
        lost = sorted(set(range(self.sent)) - set(self.received))
        again = sorted(number for number, times in Counter(self.received).items() if times > 1)
        doubled = sorted(set(again) - self.unsettled_sent - self.unsettled_received)
        found = list(self.broken)
        if lost:
            found.append(f"AMQP: {len(lost)} lost: {lost[:20]}")
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

    def _run(self, work: Callable[[BlockingConnection], None], ended: threading.Event) -> None:
        try:
            self._again(work, ended)
        except Exception as error:
            self.broken.append(f"AMQP: a program ended: {error!r}")

    def _again(self, work: Callable[[BlockingConnection], None], ended: threading.Event) -> None:
        """Work over a connection, and over another one when that is lost."""
        while not ended.is_set():
            client = None
            with contextlib.suppress(*_FAILED):
                client = BlockingConnection(
                    self._address, timeout=PATIENCE, heartbeat=PATIENCE / 2, allowed_mechs="ANONYMOUS"
                )
                self.connections += 1
                work(client)
            if client is not None:
                with contextlib.suppress(*_FAILED):
                    client.close()
            ended.wait(0.1)

    def _send(self, client: BlockingConnection) -> None:
        sender = client.create_sender(QUEUE)
        while not self._ended.wait(1 / RATE):
            message = proton.Message(body=b"%d" % self.sent, inferred=True, durable=True)
            try:
                sender.send(message)
            except BaseException:
                self.unsettled_sent.add(self.sent)
                raise
            self.sent += 1

    def _receive(self, client: BlockingConnection) -> None:
        receiver = client.create_receiver(QUEUE, credit=0)
        while not self._empty.is_set():
            try:
                message = receiver.receive(timeout=0.5)
            except proton.Timeout:
                continue
            number = int(bytes(message.body))  # the message owns the memory of its body
            self.received.append(number)
            delivery = receiver.fetcher.unsettled.popleft()
            delivery.update(proton.Delivery.ACCEPTED)
            try:
                client.wait(lambda delivery=delivery: delivery.settled)
            except BaseException:
                self.unsettled_received.add(number)
                raise
            delivery.settle()
