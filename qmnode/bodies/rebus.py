"""Headers of Rebus: in Extension, as a JSON object of texts in UTF-8 (Rebus.Msmq). The body is usually JSON."""

from typing import Final

from qmnode.bodies import json_text
from qmnode.bodies.limits import BodyError, Budget

NAME: Final = "rebus"


def recognise(extension: bytes) -> bool:
    """Whether it looks like a JSON object."""
    return extension[:1] == b"{" and extension[-64:].rstrip(b" \t\r\n\0").endswith(b"}")


def decode(extension: bytes, budget: Budget) -> dict[str, str]:
    """Decode the headers, by name."""
    found = json_text.decode(extension, budget)
    if not isinstance(found, dict) or not all(isinstance(value, (str, type(None))) for value in found.values()):
        raise BodyError("the headers are no JSON object of texts")
    return {key: value or "" for key, value in found.items()}


def encode(headers: dict[str, str]) -> bytes:
    """The object in the form that Rebus reads."""
    return json_text.encode(headers)
