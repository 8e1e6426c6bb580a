"""Sends and receives with the AMQP client of the Azure SDK, which nobody of this project wrote.

Arguments: PORT QUEUE USER SECRET.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Any

from azure.servicebus._pyamqp import ReceiveClient, SendClient
from azure.servicebus._pyamqp.authentication import SASLPlainAuth
from azure.servicebus._pyamqp.endpoints import Source
from azure.servicebus._pyamqp.error import AMQPException, RetryPolicy
from azure.servicebus._pyamqp.message import Header, Message, Properties

BODIES = [b"", b"azure", b"x" * (1 << 20), b"y" * 4_000_000]


def next_message(receiver: Any) -> Any:
    """The next transfer and its message."""
    until = time.monotonic() + 60
    while receiver._received_messages.empty():
        assert time.monotonic() < until
        receiver.do_work()
    return receiver._received_messages.get()


def message(body: bytes) -> Message:
    """A durable message."""
    return Message(data=[body], header=Header(durable=True), properties=Properties(subject="s"))


class Client:
    """The same server, queue and user for all connections."""

    def __init__(self, port: str, queue: str, user: str, secret: str) -> None:
        self._host, self._queue = f"127.0.0.1:{port}", queue
        self._options: dict[str, Any] = {
            "use_tls": False,
            "auth": SASLPlainAuth(user, secret),
            "max_message_size": 5 << 20,
        }

    def sender(self, queue: str, **options: Any) -> Any:
        """A client that sends."""
        return SendClient(self._host, queue, **self._options, **options)

    def receiver(self, credit: int, *, browses: bool = False) -> Any:
        """A client that receives or browses."""
        source = Source(address=self._queue, distribution_mode=b"copy") if browses else self._queue
        return ReceiveClient(self._host, source, link_credit=credit, **self._options)

    def send(self, *bodies: bytes) -> None:
        """All bodies over one connection."""
        with self.sender(self._queue) as sender:
            for body in bodies:
                sender.send_message(message(body))

    def receive(self, credit: int, outcomes: dict[bytes, str], *, browses: bool = False) -> None:
        """Receive these bodies in their order, with these outcomes."""
        with self.receiver(credit, browses=browses) as receiver:
            for body, outcome in outcomes.items():
                frame, found = next_message(receiver)
                assert b"".join(found.data) == body, len(body)
                receiver.settle_messages(frame[1], frame[2], outcome)

    def cut(self) -> None:
        """Wait until the door has cut the connection.

        The cut can come before the disposition of the message: sent again over a new connection, it would not be cut.
        """
        with self.sender("cut", retry_policy=RetryPolicy(retry_total=0)) as last, suppress(AMQPException, OSError):
            last.send_message(message(b"cut"))
            until = time.monotonic() + 60
            while time.monotonic() < until:
                last.do_work()
            sys.exit("the connection is not cut")

    def refused(self) -> str:
        """The condition of a link to a queue that is not there."""
        try:
            with self.sender("nothing") as sender:
                sender.send_message(message(b"x"))
        except AMQPException as error:
            return str(error.condition)
        return "nothing"


def main(*arguments: str) -> None:
    client = Client(*arguments)
    client.send(*BODIES)
    client.receive(1000, dict.fromkeys(BODIES, "accepted"), browses=True)
    client.receive(1, {BODIES[0]: "released"})
    client.receive(1000, dict.fromkeys(BODIES, "accepted") | {BODIES[1]: "rejected"})
    client.cut()
    client.send(b"again")
    client.receive(1, {b"again": "accepted"})
    print("refused:", client.refused())
    print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
