"""Send an order a second from Amsterdam to Córdoba, and its confirmation back. Runs in the image of the node."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import yaml

import qmnode

NODES = Path("/nodes")
QUEUES = Path("/var/lib/identities/queues.yaml")
PATIENCE = 60.0
"""Seconds to wait for a message; one that comes later is taken the next time."""


def main() -> None:
    """Run until it is stopped."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the first process of a container gets no other way to end
    names = yaml.safe_load(QUEUES.read_text("utf-8"))
    shop, warehouse = (qmnode.sync.connect(NODES / name / "run/qmnode.sock") for name in ("ams-router", "cor-router"))
    orders = shop.open_queue(names["Orders"], qmnode.Access.SEND)
    ordered = warehouse.open_queue(r"DIRECT=OS:.\orders")
    confirmations = warehouse.open_queue(names["Confirmations"], qmnode.Access.SEND)
    confirmed = shop.open_queue(r"DIRECT=OS:.\confirmations")
    number = 0
    while True:
        number += 1
        began = time.monotonic()
        with shop.transaction() as transaction:
            orders.send(qmnode.Message(b"order %d" % number, label=f"order {number}"), transaction=transaction)
        try:
            with warehouse.transaction() as transaction:
                order = ordered.receive(timeout=PATIENCE, transaction=transaction)
                answer = qmnode.Message(b"confirmed: " + order.body, label=order.label)
                confirmations.send(answer, transaction=transaction)
            print(f"{confirmed.receive(timeout=PATIENCE).body.decode()}, {time.monotonic() - began:.2f} s", flush=True)
        except qmnode.MessageQueuingError as error:
            print(f"order {number}: {error.name}", flush=True)
        time.sleep(1)


if __name__ == "__main__":
    main()
