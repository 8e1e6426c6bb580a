"""The attributes of a message (MS-MQDMPR 3.1.1.12): where a user meets each, and the tests that observe its effect."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from qmnode.commands.send import send
from qmnode.management.message_documents import MessageDocument, NewMessage
from qmnode.model.message import DEFAULTS
from tests.conformance.matrix import ROOT
from tests.conformance.matrix import exists as test_exists


@dataclass(frozen=True)
class Attribute:
    """One attribute and its doors; an empty text is a door at which it is not."""

    name: str
    effect: tuple[str, ...] = ()
    property: str = ""
    document: str = ""
    http: str = ""
    option: str = ""
    amqp: str = ""
    reason: str = ""
    """Why it is no property, or is shown at no door."""

    def problems(self) -> list[str]:
        """Return what is wrong with the row: a door or a test that does not exist, or nothing that explains a gap."""
        found = [f"{test} does not exist" for test in self.effect if not test_exists(test)]
        if not self.reason and not (self.effect and self.property and self.document):
            found.append("it lacks a property, a document or an effect, and gives no reason")
        if self.property and self.property not in DEFAULTS:
            found.append(f"Message has no {self.property}")
        if self.document and self.document not in MessageDocument.model_fields:
            found.append(f"documents have no {self.document}")
        if self.http and self.http not in NewMessage.model_fields:
            found.append(f"a new message has no {self.http}")
        if self.option and self.option not in _options():
            found.append(f"qmnode send has no {self.option}")
        if self.amqp and f"| `{self.amqp}` |" not in _amqp_page():
            found.append(f"the table of docs/reference/amqp-messages.md has no {self.amqp}")
        return found


@cache
def _options() -> frozenset[str]:
    """The options of ``qmnode send``, as its man page has them."""
    page = (ROOT / "man/qmnode-send.1").read_text("utf-8").replace("\\-", "-")
    assert send.__name__ in page
    words = page.replace(",", " ").replace("\\fB", " ").replace("\\fR", " ").split()
    return frozenset(word for word in words if word.startswith("--"))


@cache
def _amqp_page() -> str:
    return (ROOT / "docs/reference/amqp-messages.md").read_text("utf-8")


@cache
def load() -> tuple[Attribute, ...]:
    """Return the attributes in the order of the specification."""
    data = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return tuple(Attribute(**one | {"effect": tuple(one.get("effect", ()))}) for one in data["attribute"])
