"""Sends and receives with the AMQP client of the Azure SDK, which nobody of this project wrote.

Arguments: PORT QUEUE USER SECRET.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from azure.servicebus._pyamqp import ReceiveClient, SendClient
from azure.servicebus._pyamqp.authentication import SASLPlainAuth
from azure.servicebus._pyamqp.message import Header, Message, Properties


def next_message(receiver: Any) -> Any:
    """The next transfer and its message."""
    until = time.monotonic() + 20
    while receiver._received_messages.empty():
        assert time.monotonic() < until
        receiver.do_work()
    return receiver._received_messages.get()


def main(port: str, queue: str, user: str, secret: str) -> None:
    bodies = [b"", b"azure", b"x" * (1 << 20)]
    options: dict[str, Any] = {"use_tls": False, "auth": SASLPlainAuth(user, secret)}
    host = f"127.0.0.1:{port}"
    with SendClient(host, queue, **options) as sender:
        for body in bodies:
            sender.send_message(Message(data=[body], header=Header(durable=True), properties=Properties(subject="s")))
    for credit in (1, 1000):
        with ReceiveClient(host, queue, link_credit=credit, **options) as receiver:
            for body in bodies:
                frame, message = next_message(receiver)
                assert b"".join(message.data) == body
                outcome = "released" if credit == 1 else "accepted"
                receiver.settle_messages(frame[1], frame[2], outcome)
                if credit == 1:
                    break
    print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
