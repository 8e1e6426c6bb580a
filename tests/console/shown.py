"""An enterprise with something to see: what the tests of pages find in its queues."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from qmnode import Message
from tests.console.browser import done

if TYPE_CHECKING:
    from tests.console.conftest import ConsoleLab

EVIL = "<img src=x onerror=alert(1)>\u202egnp.exe\u0007"
SECRET = "the body that only some may read"


def failed(number: int, exception: str) -> Message:
    """A message that a program put into its error queue."""
    headers = {
        "NServiceBus.EnclosedMessageTypes": "Sales.PlaceOrder",
        "NServiceBus.FailedQ": "sales@ALPHA",
        "NServiceBus.ExceptionInfo.ExceptionType": exception,
        "NServiceBus.ExceptionInfo.Message": f"{exception} while the order was priced",
    }
    made = Message.from_value({"Order": {"Id": number}}, format="nservicebus", headers=headers)
    return made.copy(label=f"failed {number}")


def filled_with_messages(lab: ConsoleLab) -> ConsoleLab:
    """The enterprise with messages of each kind."""

    def orders(*numbers: int) -> list[Message]:
        bodies = [json.dumps({"order": n, "customer": "Contoso"}).encode() for n in numbers]
        return [Message(body, label=f"order {n}", recoverable=True) for n, body in zip(numbers, bodies, strict=True)]

    def fill() -> None:
        lab.fill("orders", *orders(*range(120)))
        lab.fill("later")
        lab.fill("sales")
        lab.fill("error", *[failed(n, "System.TimeoutException" if n % 3 else "Sales.PriceMissing") for n in range(9)])
        lab.fill("hostile", Message(b"<script>alert(1)</script>", label=EVIL), Message(bytes(range(256)), label="raw"))
        lab.fill("secrets", Message(SECRET.encode(), label="sealed"))
        lab.fill("scratch", *orders(*range(6)))
        lab.fill("invoices", *orders(*range(12)), at="BETA")

    done(fill)
    return lab
